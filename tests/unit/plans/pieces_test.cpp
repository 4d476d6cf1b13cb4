// SPDX-License-Identifier: Apache-2.0
// Steps that follow others by pieces: chains of copies, puts, gets and reductions, cut at random places, do what whole ones do; what would
// be a race is not cut; what comes after a chain comes after all of it.
#include <algorithm>

#include "pair.hpp"

namespace thalweg::tests {
namespace {

constexpr uint64_t kWhole = ~uint64_t{0};
constexpr size_t kGuard = 64;

std::mt19937& random() {
  static std::mt19937 made(std::random_device{}());
  return made;
}
size_t below(size_t limit) { return random()() % limit; }

Bytes exclusive_or(const Bytes& x, const Bytes& y) {
  Bytes out(x.size());
  std::transform(x.begin(), x.end(), y.begin(), out.begin(), [](unsigned char a, unsigned char b) { return a ^ b; });
  return out;
}

tw_op_options after(const std::vector<uint32_t>& steps) {
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.after_steps = steps.data();
  options.after_count = steps.size();
  return options;
}

class Pieces : public Pair {
 protected:
  /// The sides' proxies know each other: over tcp they carry.
  void SetUp() override {
    Pair::SetUp();
    tw_plan *sends = plan(a), *receives = plan(b);
    ASSERT_EQ(tw_plan_send(sends, a.endpoint, memory(a, 64), 64, 1, nullptr, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_recv(receives, b.endpoint, memory(b, 64), 64, 1, nullptr, nullptr), TW_OK) << tw_last_error();
    prepare_both(sends, receives);
  }
  /// Memory of a side at an odd address, with guard bytes around, and what it should hold by now.
  struct Buffer {
    Side* owner;
    unsigned char* address;
    tw_memory* handle;
    size_t offset;
    Bytes image;
    void fill() {
      image = random_bytes(image.size());
      owner->store(address - kGuard, image);
    }
    Bytes bytes(size_t offset_in, size_t length) const {
      const auto begin = image.begin() + static_cast<ptrdiff_t>(kGuard + offset_in);
      return Bytes(begin, begin + static_cast<ptrdiff_t>(length));
    }
    void expect(size_t offset_in, const Bytes& bytes) {
      std::copy(bytes.begin(), bytes.end(), image.begin() + static_cast<ptrdiff_t>(kGuard + offset_in));
    }
    void verify() const { EXPECT_TRUE(owner->load(address - kGuard, image.size()) == image); }
  };
  Buffer buffer(Side& side, size_t length) {
    Buffer made{&side, nullptr, nullptr, kGuard + below(64), Bytes(length + 2 * kGuard)};
    made.address = memory(side, length + 2 * kGuard + 64, &made.handle) + made.offset;
    made.fill();
    return made;
  }
  /// What `user` names it by.
  static tw_remote_memory* import(const Buffer& of, Side& user) {
    unsigned char key[kKeyRoom];
    size_t size = sizeof key;
    EXPECT_EQ(tw_memory_export_range(of.handle, of.offset, of.image.size() - 2 * kGuard, 0, key, &size), TW_OK)
        << tw_last_error();
    tw_remote_memory* made = nullptr;
    EXPECT_EQ(tw_memory_import(user.endpoint, key, size, &made), TW_OK) << tw_last_error();
    user.last.emplace_back([made] { tw_remote_memory_release(made); });
    return made;
  }
  tw_plan* cut(Side& side, uint64_t chunk) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = GetParam().place;
    options.chunk_bytes = chunk;
    options.blocks = 1u << below(4);
    tw_plan* made = nullptr;
    EXPECT_EQ(tw_plan_create(side.context, &options, &made), TW_OK) << tw_last_error();
    side.last.emplace_back([made] { EXPECT_EQ(tw_plan_destroy(made), TW_OK) << tw_last_error(); });
    return made;
  }
  static uint32_t copy(tw_plan* plan, unsigned char* to, const unsigned char* from, size_t length,
                       const std::vector<uint32_t>& earlier = {}) {
    const tw_op_options options = after(earlier);
    uint32_t step = 0;
    EXPECT_EQ(tw_plan_copy(plan, to, from, length, &options, &step), TW_OK) << tw_last_error();
    return step;
  }
  void run(tw_plan* plan, tw_queue* on) {
    ASSERT_EQ(tw_plan_trigger(plan, on), TW_OK) << tw_last_error();
    if (on == nullptr) {
      ASSERT_EQ(tw_plan_finish(plan, kLong), TW_OK) << tw_last_error();
    } else {
      ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
    }
  }
  static bool follows(tw_plan* plan, uint32_t earlier) {
    const std::string wanted = "its piece of step " + std::to_string(earlier) + "\n";
    return explain(plan).find(wanted) != std::string::npos;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Pieces, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

/// A length about a multiple of the chunk.
size_t length_about(size_t chunk) {
  const size_t near = (1 + below(9)) * chunk;
  return near + below(130) - std::min<size_t>(65, near - 1);
}

TEST_P(Pieces, ACopyAPutAndAReductionMoveEachByte) {
  tw_queue* const on = queue(a);
  for (int turn = 0; turn < 12; ++turn) {
    const size_t chunk = 64 * (1 + below(turn % 2 == 0 ? 8 : 200)), length = length_about(chunk);
    Buffer from = buffer(a, length), between = buffer(a, length), other = buffer(a, length), sum = buffer(a, length);
    Buffer target = buffer(b, length);
    tw_remote_memory* const remote = import(target, a);
    tw_plan* const chain = cut(a, chunk);
    const uint32_t first = copy(chain, between.address, from.address, length);
    const std::vector<uint32_t> earlier{first};
    const tw_op_options behind = after(earlier);
    ASSERT_EQ(tw_plan_put(chain, a.endpoint, between.address, length, remote, 0, &behind, nullptr), TW_OK);
    const tw_source sources[] = {{between.address, nullptr, 0}, {other.address, nullptr, 0}};
    ASSERT_EQ(tw_plan_reduce(chain, sum.address, sources, 2, length, TW_TYPE_UINT8, TW_REDUCE_XOR, &behind, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_prepare(chain, kLong), TW_OK) << tw_last_error();
    EXPECT_EQ(follows(chain, first), length > chunk) << length << " by " << chunk << "\n" << explain(chain);
    for (tw_queue* const each : {static_cast<tw_queue*>(nullptr), on}) {
      for (Buffer* const one : {&from, &between, &other, &sum, &target}) one->fill();
      run(chain, each);
      const Bytes moved = from.bytes(0, length);
      between.expect(0, moved);
      target.expect(0, moved);
      sum.expect(0, exclusive_or(moved, other.bytes(0, length)));
      for (const Buffer* const one : {&from, &between, &other, &sum, &target}) one->verify();
    }
  }
}

/// Of a get; two steps follow each other, the second one in place, the third one reads a part.
TEST_P(Pieces, AGetIsReducedWhileItComes) {
  tw_queue* const on = queue(a);
  for (int turn = 0; turn < 8; ++turn) {
    const size_t chunk = 64 * (1 + below(60)), length = length_about(chunk) + chunk, part = below(length), rest = length - part;
    Buffer source = buffer(b, length), got = buffer(a, length), mine = buffer(a, length), out = buffer(a, length);
    tw_remote_memory* const remote = import(source, a);
    tw_plan* const chain = cut(a, chunk);
    uint32_t get = 0, reduce = 0;
    ASSERT_EQ(tw_plan_get(chain, a.endpoint, got.address, length, remote, 0, nullptr, &get), TW_OK);
    const std::vector<uint32_t> earlier{get};
    const tw_op_options behind = after(earlier);
    const tw_source sources[] = {{mine.address, nullptr, 0}, {got.address, nullptr, 0}};
    ASSERT_EQ(tw_plan_reduce(chain, got.address, sources, 2, length, TW_TYPE_INT8, TW_REDUCE_XOR, &behind, &reduce), TW_OK)
        << tw_last_error();
    copy(chain, out.address, got.address + part, rest, {reduce});
    ASSERT_EQ(tw_plan_prepare(chain, kLong), TW_OK) << tw_last_error();
    EXPECT_TRUE(follows(chain, get) && follows(chain, reduce)) << explain(chain);
    for (tw_queue* const each : {static_cast<tw_queue*>(nullptr), on}) {
      for (Buffer* const one : {&source, &got, &mine, &out}) one->fill();
      run(chain, each);
      got.expect(0, exclusive_or(source.bytes(0, length), mine.bytes(0, length)));
      out.expect(0, got.bytes(part, rest));
      for (const Buffer* const one : {&source, &got, &mine, &out}) one->verify();
    }
  }
}

/// What comes after the step that reads a part comes after all of the step that writes it, too: it writes to the same memory.
TEST_P(Pieces, TheEndOfAChainIsTheEndOfAllOfIt) {
  constexpr size_t kLength = 200011, kPart = 1003, kAt = 503;
  tw_queue* const on = queue(a);
  Buffer from = buffer(b, kLength), between = buffer(a, kLength), out = buffer(a, kPart), late = buffer(a, kLength);
  tw_plan* const chain = cut(a, 4096);
  uint32_t first = 0;
  ASSERT_EQ(tw_plan_get(chain, a.endpoint, between.address, kLength, import(from, a), 0, nullptr, &first), TW_OK);
  const uint32_t second = copy(chain, out.address, between.address + kAt, kPart, {first});
  copy(chain, between.address, late.address, kLength, {second});
  ASSERT_EQ(tw_plan_prepare(chain, kLong), TW_OK) << tw_last_error();
  EXPECT_TRUE(follows(chain, first)) << explain(chain);
  for (int turn = 0; turn < 20; ++turn) {
    for (Buffer* const one : {&from, &between, &out, &late}) one->fill();
    run(chain, turn % 2 == 0 ? nullptr : on);
    between.expect(0, late.bytes(0, kLength));
    out.expect(0, from.bytes(kAt, kPart));
    for (const Buffer* const one : {&from, &between, &out, &late}) one->verify();
  }
}

/// A put's signal says that all of its pieces are there.
TEST_P(Pieces, ASignalComesBehindAllPieces) {
  constexpr size_t kLength = 30011;
  Buffer from = buffer(a, kLength), between = buffer(a, kLength), target = buffer(b, kLength);
  tw_signal* signal = nullptr;
  ASSERT_EQ(tw_signal_create(b.worker, nullptr, &signal), TW_OK) << tw_last_error();
  unsigned char key[kKeyRoom];
  size_t size = sizeof key;
  ASSERT_EQ(tw_signal_export(signal, key, &size), TW_OK);
  tw_remote_signal* remote_signal = nullptr;
  ASSERT_EQ(tw_signal_import(a.endpoint, key, size, &remote_signal), TW_OK) << tw_last_error();
  b.last.emplace_back([=] { (void)tw_signal_destroy(signal); });
  a.last.emplace_back([=] { tw_remote_signal_release(remote_signal); });
  tw_plan* const chain = cut(a, 1024);
  const std::vector<uint32_t> earlier{copy(chain, between.address, from.address, kLength)};
  tw_op_options options = after(earlier);
  options.signal = remote_signal;
  options.signal_value = 1;
  options.increment = 1;
  ASSERT_EQ(tw_plan_put(chain, a.endpoint, between.address, kLength, import(target, a), 0, &options, nullptr), TW_OK)
      << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(chain, kLong), TW_OK) << tw_last_error();
  EXPECT_TRUE(follows(chain, earlier[0])) << explain(chain);
  tw_queue* const on = queue(a);
  for (uint64_t turn = 1; turn <= 20; ++turn) {
    for (Buffer* const one : {&from, &between, &target}) one->fill();
    both([&] { run(chain, turn % 2 == 0 ? nullptr : on); },
         [&] { ASSERT_EQ(tw_signal_wait(signal, turn, TW_COMPARE_GE, kLong), TW_OK) << tw_last_error(); });
    between.expect(0, from.bytes(0, kLength));
    target.expect(0, from.bytes(0, kLength));
    for (const Buffer* const one : {&from, &between, &target}) one->verify();
  }
}

/// The later step writes what the earlier one, or one before that, has yet to read.
TEST_P(Pieces, WhatWouldBeARaceIsWhole) {
  constexpr size_t kLength = 9001, kShift = 3000;
  Buffer from = buffer(b, kLength + kShift), between = buffer(a, kLength), last = buffer(a, kLength);
  const auto moves = [&](tw_plan* plan) {
    ASSERT_EQ(tw_plan_prepare(plan, kLong), TW_OK) << tw_last_error();
    for (Buffer* const one : {&from, &between, &last}) one->fill();
    run(plan, nullptr);
  };
  tw_plan* const back = cut(a, 512);  // by one step, which names memory of this process by its key
  const uint32_t first = copy(back, between.address, from.address, kLength);
  const std::vector<uint32_t> earlier{first};
  const tw_op_options behind = after(earlier);
  ASSERT_EQ(tw_plan_put(back, a.endpoint, between.address, kLength, import(from, a), kShift, &behind, nullptr), TW_OK);
  moves(back);
  EXPECT_FALSE(follows(back, first)) << explain(back);
  between.expect(0, from.bytes(0, kLength));
  from.expect(kShift, between.bytes(0, kLength));
  for (const Buffer* const one : {&from, &between, &last}) one->verify();

  tw_plan* const two = cut(a, 512);  // by two steps: the second one follows, the third one does not
  const uint32_t one_of_two = copy(two, between.address, from.address, kLength);
  const uint32_t two_of_two = copy(two, last.address, between.address, kLength, {one_of_two});
  copy(two, from.address + kShift, last.address, kLength, {two_of_two});
  moves(two);
  EXPECT_TRUE(follows(two, one_of_two) && !follows(two, two_of_two)) << explain(two);
  between.expect(0, from.bytes(0, kLength));
  last.expect(0, from.bytes(0, kLength));
  from.expect(kShift, last.bytes(0, kLength));
  for (const Buffer* const one : {&from, &between, &last}) one->verify();
}

TEST_P(Pieces, WholeWhereNoneIsWantedOrNothingIsRead) {
  constexpr size_t kLength = 9001;
  Buffer from = buffer(a, kLength), between = buffer(a, kLength), out = buffer(a, kLength);
  tw_plan* const whole = cut(a, kWhole);
  const uint32_t first = copy(whole, between.address, from.address, kLength);
  copy(whole, out.address, between.address, kLength, {first});
  ASSERT_EQ(tw_plan_prepare(whole, kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(explain(whole).find("piece"), std::string::npos) << explain(whole);
  tw_plan* const apart = cut(a, 64);
  const uint32_t other = copy(apart, between.address, from.address, kLength - 1);
  copy(apart, out.address, between.address, kLength, {other});  // a byte more than was written
  ASSERT_EQ(tw_plan_prepare(apart, kLong), TW_OK) << tw_last_error();
  EXPECT_EQ(explain(apart).find("piece"), std::string::npos) << explain(apart);
}

/// An update may take the later step's bytes elsewhere: then it comes after all of the earlier one again.
TEST_P(Pieces, AnUpdateKeepsTheOrder) {
  constexpr size_t kLength = 12003;
  tw_queue* const on = queue(a);
  Buffer from = buffer(a, kLength), moved = buffer(a, kLength), between = buffer(a, kLength + 999), out = buffer(a, kLength);
  tw_plan* const chain = cut(a, 320);
  const uint32_t first = copy(chain, between.address, from.address, kLength);
  const uint32_t second = copy(chain, out.address, between.address, kLength, {first});
  ASSERT_EQ(tw_plan_prepare(chain, kLong), TW_OK) << tw_last_error();
  size_t at = 0;
  for (int turn = 0; turn < 12; ++turn) {
    const Buffer& source = turn % 2 == 0 ? from : moved;
    ASSERT_EQ(tw_plan_update(chain, first, source.address, nullptr), TW_OK) << tw_last_error();
    if (turn == 4) {
      at = 999;
      ASSERT_EQ(tw_plan_update(chain, second, between.address + at, nullptr), TW_OK) << tw_last_error();
    }
    EXPECT_EQ(follows(chain, first), turn < 4) << explain(chain);
    for (Buffer* const one : {&from, &moved, &between, &out}) one->fill();
    run(chain, turn % 3 == 0 ? on : nullptr);
    between.expect(0, source.bytes(0, kLength));
    out.expect(0, between.bytes(at, kLength));
    for (const Buffer* const one : {&from, &moved, &between, &out}) one->verify();
  }
}

/// The chosen chunk: long steps are cut by themselves.
TEST_P(Pieces, LongStepsAreCutByThemselves) {
  constexpr size_t kLength = (9u << 20) + 13;
  Buffer from = buffer(a, kLength), between = buffer(a, kLength), target = buffer(b, kLength);
  tw_plan* const chain = cut(a, 0);
  const std::vector<uint32_t> earlier{copy(chain, between.address, from.address, kLength)};
  const tw_op_options behind = after(earlier);
  ASSERT_EQ(tw_plan_put(chain, a.endpoint, between.address, kLength, import(target, a), 0, &behind, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_prepare(chain, kLong), TW_OK) << tw_last_error();
  EXPECT_TRUE(follows(chain, earlier[0])) << explain(chain);
  run(chain, nullptr);
  between.expect(0, from.bytes(0, kLength));
  target.expect(0, from.bytes(0, kLength));
  for (const Buffer* const one : {&from, &between, &target}) one->verify();
}

}  // namespace
}  // namespace thalweg::tests
