// SPDX-License-Identifier: Apache-2.0
// Programs whose steps wait for nothing of each other: every kind of them at once, in every layout; and what is named where one fails.
#include <optional>

#include "tests/gpu/programs.hpp"

namespace thalweg::impl::contract {
namespace {

class IndependentSteps : public Programs {
 protected:
  void SetUp() override {
    Programs::SetUp();
    if (IsSkipped()) return;
    a.emplace(GetParam(), device, ordinary);
    b.emplace(GetParam(), other, ordinary);
  }
  void TearDown() override {
    b.reset();
    a.reset();
  }
  /// In memory of the second site, which the first one's programs reach.
  uint64_t allocate_there(size_t length) {
    const uint64_t address = b->allocate(length);
    a->admit(address, length);
    return address;
  }
  static void expect_independent(const Written& program) {
    EXPECT_EQ(program.run.shape.specialised.move, device::Move::independent);
  }
  /// Both programs, until they are over.
  static void run(Written& first, Written& second) {
    first.trigger();
    second.trigger();
    while (first.advance() == TW_IN_PROGRESS) second.advance();
    second.finish();
    first.finish();
  }
  std::optional<Site> a, b;
};

/// What goes from one site to the other.
struct Moved {
  uint64_t from_area, to_area, word;
  size_t bytes;
  std::vector<uint64_t> from, to;  // addresses of its bytes
};

void expect_moved(Site& a, Site& b, const Moved& one, const Bytes& old) {
  const Bytes source = a.read(one.from_area, kArea);
  Bytes wanted = old;
  for (size_t i = 0; i < one.bytes; ++i) wanted[one.to[i] - one.to_area] = source[one.from[i] - one.from_area];
  ASSERT_TRUE(b.read(one.to_area, kArea) == wanted) << one.bytes << " bytes";
}

TEST_P(IndependentSteps, OfEveryKindAndLayoutAtOnce) {
  constexpr size_t kMoves = 8;
  const uint64_t words = allocate_there((kMoves + 1) * 8), back = a->allocate(8);
  b->admit(back, 8);
  for (const uint32_t blocks : {1u, 2u, 16u, 0u}) {
    std::deque<Channel> channels;
    std::deque<Moved> moved;
    Written one(*a, blocks), two(*b);
    one.kept_runs = two.kept_runs = 4;
    b->write(words, Bytes((kMoves + 1) * 8));
    a->put_word(back, 0);
    for (size_t i = 0; i < kMoves; ++i) {
      Moved& next = moved.emplace_back();
      next.from_area = a->allocate(kArea);
      next.to_area = allocate_there(kArea);
      next.word = words + i * 8;
      next.bytes = i == 3 ? 0 : 1 + rng()() % 30000;
      const auto side = [&](Site& site, uint64_t area) {
        return next.bytes == 0 ? at(area) : random_side(site, area, next.bytes);
      };
      const Side from = side(*a, next.from_area), to = side(*b, next.to_area);
      next.from = addresses(*a, from, next.bytes);
      next.to = addresses(*b, to, next.bytes);
      if (to.pieces != nullptr) a->admit(reinterpret_cast<uintptr_t>(to.pieces), to.piece_count * sizeof(device::Piece));
      if (i % 2 == 0) {  // a put: the words of half of them are stored, of half added to
        one.copy(to, from, next.bytes, {pointer<device::u64>(next.word), 1, i % 4 == 0 ? 1u : 0u, i % 4 == 0 ? 0u : 1u});
        two.wait(next.word, 1, 1, TW_COMPARE_EQ);
      } else {
        channels.emplace_back(*a, *b, std::initializer_list<device::RecvBuffer>{{to, next.bytes}});
        one.send(channels.back().send, from, next.bytes);
        two.post(channels.back().recv, 0);
        two.take(channels.back().recv, {static_cast<uint32_t>(two.steps.size() - 1)});
      }
    }
    one.signal({pointer<device::u64>(words + kMoves * 8), 7, 1, 0});
    one.wait(back, 5, 1);
    two.wait(words + kMoves * 8, 7, 1);
    two.signal({pointer<device::u64>(back), 5, 1, 0});
    one.prepare();
    two.prepare();
    expect_independent(one);
    expect_independent(two);
    for (unsigned turn = 0; turn < 6; ++turn) {
      std::vector<Bytes> old;
      for (const Moved& next : moved) {
        a->fill(next.from_area, kArea);
        old.push_back(b->fill(next.to_area, kArea));
      }
      run(one, two);
      one.expect_good();
      two.expect_good();
      for (size_t i = 0; i < kMoves; ++i) expect_moved(*a, *b, moved[i], old[i]);
      EXPECT_EQ(b->word(words + kMoves * 8), 7 + turn);
      for (const Written* const program : {&one, &two}) {
        const auto* const times = pointer<device::StepTime>(program->run.times) + turn % 4 * (program->steps.size() + 1);
        const device::StepTime& whole = times[program->steps.size()];
        for (size_t step = 0; step < program->steps.size(); ++step) {
          EXPECT_EQ(times[step].run, turn + 1) << step;
          EXPECT_LE(whole.begun, times[step].begun) << step;
          EXPECT_LE(times[step].begun, times[step].ended) << step;
          EXPECT_LE(times[step].ended, whole.ended) << step;
        }
      }
    }
  }
}

/// Whatever else still waits: what stands behind it, and other blocks' shares. All that comes has come before the program begins.
TEST_P(IndependentSteps, TheFirstThatWaitsInVainIsNamed) {
  constexpr size_t kLength = 30000;
  constexpr uint64_t kSoon = 30'000'000;
  const uint64_t words = a->allocate(16), from = a->allocate(kLength), to = allocate_there(kLength), in = a->allocate(kLength);
  b->admit(in, kLength);
  for (const uint32_t blocks : {1u, 8u}) {
    for (uint32_t named = 0; named < 4; ++named) {
      Channel out(*a, *b, {{at(to), kLength}}), back(*b, *a, {{at(in), kLength}});
      a->write(words, Bytes(16));
      Written program(*a, blocks);
      program.wait(words, 3, 0);
      program.send(out.send, at(from), kLength);
      program.take(back.recv);
      program.wait(words + 8, 4, 0, TW_COMPARE_EQ);
      program.prepare(kSoon);
      expect_independent(program);
      if (named > 0) a->put_word(words, 3);
      Written credit(*b), ahead(*a), answer(*b);
      credit.post(out.recv, 0);
      ahead.post(back.recv, 0);
      answer.send(back.send, at(to), 100);
      for (Written* const one : {&credit, &ahead, &answer}) {
        one->prepare();
        if (named > (one == &credit ? 1u : 2u)) {
          one->trigger();
          one->finish();
        }
      }
      program.trigger();
      program.finish();
      EXPECT_EQ(program.failed().code, TW_ERR_TIMED_OUT) << named;
      EXPECT_EQ(program.failed().what, named);
      EXPECT_EQ(program.failed().expected, named == 0 ? 3u : named == 3 ? 4u : 1u);
      EXPECT_EQ(program.failed().found, 0u);
      EXPECT_EQ(a->word(program.state), 1u) << "closed";
    }
  }
}

/// exact: a message that is shorter than the receive fails, too.
TEST_P(IndependentSteps, OneReceiveOfAnotherLengthFailsBothSides) {
  constexpr size_t kLength = 20000;
  for (const auto& [blocks, exact] : {std::pair{1u, false}, {8u, false}, {1u, true}, {8u, true}}) {
    const uint64_t from = a->allocate(kLength), to = allocate_there(2 * kLength);
    a->fill(from, kLength);
    const Bytes old = b->fill(to, 2 * kLength);
    Channel good(*a, *b, {{at(to), kLength}}), bad(*a, *b, {{at(to + kLength), exact ? kLength + 1 : kLength - 1}});
    Written sends(*a, blocks), receives(*b);
    for (const Channel* const channel : {&good, &bad}) {
      sends.send(channel->send, at(from), kLength);
      sends.steps.back().compare = exact && channel == &bad ? 1 : 0;
      receives.post(channel->recv, 0);
      receives.take(channel->recv, {static_cast<uint32_t>(receives.steps.size() - 1)});
    }
    sends.prepare();
    receives.prepare();
    expect_independent(sends);
    expect_independent(receives);
    run(receives, sends);
    EXPECT_EQ(sends.failed().code, TW_ERR_TRUNCATED);
    EXPECT_EQ(sends.failed().what, 1u);
    EXPECT_EQ(receives.failed().code, TW_ERR_TRUNCATED);
    EXPECT_EQ(receives.failed().what, 3u);
    const Bytes found = b->read(to + kLength, kLength);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), old.begin() + kLength));
  }
}

INSTANTIATE_TEST_SUITE_P(Triggers, IndependentSteps, kTriggers, trigger_name);

}  // namespace
}  // namespace thalweg::impl::contract
