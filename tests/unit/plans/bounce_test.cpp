// SPDX-License-Identifier: Apache-2.0
// What the host carries for kernels goes through bounce buffers, which the kernels fill and empty, where that takes less than a copy by
// an engine: between a device here (a) and the host there (b).
#include <algorithm>

#include "../../fixtures/rooms.hpp"
#include "pair.hpp"

namespace thalweg::tests {
namespace {

const Way kFar[] = {{"shm", "emulated:0", "shm", false}, {"tcp", "emulated:0", "tcp", false}};
constexpr size_t kGuard = 16;

class Bounced : public Pair {
 protected:
  static bool is_bounced(tw_plan* of) { return explain(of).find("in a bounce buffer") != std::string::npos; }
  static tw_plan* host_plan(Side& side) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = "host";
    tw_plan* made = nullptr;
    EXPECT_EQ(tw_plan_create(side.context, &options, &made), TW_OK) << tw_last_error();
    side.last.emplace_back([made] { EXPECT_EQ(tw_plan_destroy(made), TW_OK) << tw_last_error(); });
    return made;
  }
  void run_on(tw_queue* queue, tw_plan* on_device, tw_plan* by_host) {
    ASSERT_EQ(tw_plan_trigger(on_device, queue), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_run(by_host, kLong), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(queue), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
  }
  /// A device's buffer with guards around it, of fresh data.
  unsigned char* guarded(size_t length, Bytes* data) {
    unsigned char* const made = a.memory("emulated:0", length + 2 * kGuard);
    *data = random_bytes(length + 2 * kGuard);
    a.store(made, *data);
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(Links, Bounced, testing::ValuesIn(kFar), [](const auto& info) { return info.param.name; });

/// Around words, around what several blocks share, and around the longest that is bounced.
TEST_P(Bounced, MessagesOfAllLengths) {
  tw_queue* const on = queue(a);
  size_t longest = 0, shortest_direct = SIZE_MAX;
  for (const size_t size : {1u, 7u, 8u, 15u, 4097u, 49152u, 57003u, 61007u, 70001u, 130001u, 250007u, 1000003u}) {
    SCOPED_TRACE(size);
    Bytes out, in;
    unsigned char* const from = guarded(size, &out) + kGuard;
    unsigned char* const to = guarded(size, &in) + kGuard;
    Bytes there(size + 1);  // at an odd address
    tw_plan *sends = plan(a), *receives = plan(a), *takes = host_plan(b), *answers = host_plan(b);
    ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, size, 1, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_recv(takes, b.endpoint, &there[1], size, 1, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_recv(receives, a.endpoint, to, size, 2, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_send(answers, b.endpoint, &there[1], size, 2, nullptr, nullptr), TW_OK);
    prepare_both(sends, takes);
    prepare_both(receives, answers);
    if (size <= 4097 || size > 1000000) {
      EXPECT_EQ(is_bounced(sends), size <= 4097) << explain(sends);
      EXPECT_EQ(is_bounced(receives), size <= 4097) << explain(receives);
    }
    if (is_bounced(sends)) longest = std::max(longest, size);
    if (!is_bounced(sends)) shortest_direct = std::min(shortest_direct, size);
    for (int round = 0; round < 3; ++round) {
      const Bytes data = random_bytes(size);
      a.store(from, data);
      run_on(on, sends, takes);
      ASSERT_TRUE(std::equal(data.begin(), data.end(), &there[1]));
      run_on(on, receives, answers);
      std::copy(data.begin(), data.end(), in.begin() + kGuard);
      ASSERT_TRUE(a.load(to - kGuard, in.size()) == in);
    }
    std::copy_n(a.load(from, size).begin(), size, out.begin() + kGuard);
    EXPECT_TRUE(a.load(from - kGuard, out.size()) == out);
  }
  EXPECT_GE(longest, 4097u);
  EXPECT_LT(longest, shortest_direct);
}

/// Also what is stored there while the receive waits.
TEST_P(Bounced, ShorterMessagesLeaveTheRestAsItIs) {
  constexpr size_t kRoom = 50007;
  tw_queue* const on = queue(a);
  Bytes in;
  unsigned char* const to = guarded(kRoom, &in) + kGuard;
  Bytes data(kRoom);
  for (const size_t sent : {size_t{1301}, size_t{8}, kRoom, size_t{0}, size_t{40003}}) {
    SCOPED_TRACE(sent);
    tw_plan *const receives = plan(a), *const sends_it = host_plan(b);
    ASSERT_EQ(tw_plan_recv(receives, a.endpoint, to, kRoom, sent, nullptr, nullptr), TW_OK);  // channels of their own
    ASSERT_EQ(tw_plan_send(sends_it, b.endpoint, data.data(), sent, sent, nullptr, nullptr), TW_OK);
    prepare_both(receives, sends_it);
    ASSERT_TRUE(is_bounced(receives)) << explain(receives);
    for (int round = 0; round < 3; ++round) {
      const Bytes fresh = random_bytes(kRoom), rest = random_bytes(kRoom);
      std::copy(fresh.begin(), fresh.end(), data.begin());
      ASSERT_EQ(tw_plan_trigger(receives, on), TW_OK) << tw_last_error();
      a.store(to, rest);
      ASSERT_EQ(tw_plan_run(sends_it, kLong), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
      std::copy(rest.begin(), rest.end(), in.begin() + kGuard);
      std::copy_n(data.begin(), sent, in.begin() + kGuard);
      ASSERT_TRUE(a.load(to - kGuard, in.size()) == in);
    }
  }
}

/// Rows, and a list of pieces, whose table an update gives back.
TEST_P(Bounced, LayoutsArePackedByTheKernel) {
  constexpr size_t kRows = 33, kRow = 13, kStride = 40, kRoom = 2000;
  const tw_piece pieces[] = {{0, 7}, {900, 250}, {301, 64}};
  tw_layout *rows = nullptr, *list = nullptr;
  const uint64_t count = kRows;
  const int64_t stride = kStride;
  ASSERT_EQ(tw_layout_strided(1, kRow, &count, &stride, &rows), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_layout_pieces(pieces, 3, &list), TW_OK) << tw_last_error();
  tw_queue* const on = queue(a);
  for (const bool of_rows : {true, false}) {
    SCOPED_TRACE(of_rows ? "rows" : "pieces");
    std::vector<size_t> offsets;  // of the packed bytes
    for (size_t row = 0; of_rows && row < kRows; ++row)
      for (size_t i = 0; i < kRow; ++i) offsets.push_back(row * kStride + i);
    for (const tw_piece& piece : pieces)
      for (size_t i = 0; !of_rows && i < piece.length; ++i) offsets.push_back(static_cast<size_t>(piece.offset) + i);
    const size_t bytes = offsets.size();
    Bytes out[2], in[2], there(bytes), back(bytes);
    unsigned char *from[2], *to[2];
    for (int k = 0; k < 2; ++k) from[k] = guarded(kRoom, &out[k]) + kGuard;
    for (int k = 0; k < 2; ++k) to[k] = guarded(kRoom, &in[k]) + kGuard;
    tw_plan *moves = plan(a), *far = host_plan(b);
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.layout = of_rows ? rows : list;
    ASSERT_EQ(tw_plan_send(moves, a.endpoint, from[0], 0, 1, &options, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_recv(moves, a.endpoint, to[0], 0, 2, &options, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_recv(far, b.endpoint, there.data(), bytes, 1, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_send(far, b.endpoint, back.data(), bytes, 2, nullptr, nullptr), TW_OK);
    prepare_both(moves, far);
    ASSERT_TRUE(is_bounced(moves)) << explain(moves);
    for (int round = 0; round < 4; ++round) {
      const int k = round % 2;
      if (round != 0) {
        ASSERT_EQ(tw_plan_update(moves, 0, from[k], nullptr), TW_OK) << tw_last_error();
        ASSERT_EQ(tw_plan_update(moves, 1, to[k], nullptr), TW_OK) << tw_last_error();
      }
      std::generate(back.begin(), back.end(), [&] { return static_cast<unsigned char>(random_bytes(1)[0]); });
      run_on(on, moves, far);
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(there[i], out[k][kGuard + offsets[i]]) << i;
        in[k][kGuard + offsets[i]] = back[i];
      }
      for (int j = 0; j < 2; ++j) ASSERT_TRUE(a.load(to[j] - kGuard, in[j].size()) == in[j]) << j;
    }
  }
  tw_layout_destroy(rows);
  tw_layout_destroy(list);
}

/// The buffer of a later version may lie where no kernel copies; graphs of earlier ones go on with theirs, by their own table of pieces.
TEST_P(Bounced, UpdatesMoveBetweenTheDeviceAndTheHost) {
  constexpr size_t kRoom = 2000;
  const tw_piece pieces[] = {{0, 7}, {900, 250}, {301, 64}};
  tw_layout* list = nullptr;
  ASSERT_EQ(tw_layout_pieces(pieces, 3, &list), TW_OK) << tw_last_error();
  const auto packed = [&](const Bytes& of, size_t at) {
    Bytes all;
    for (const tw_piece& piece : pieces) {
      const auto begin = of.begin() + static_cast<std::ptrdiff_t>(at) + piece.offset;
      all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(piece.length));
    }
    return all;
  };
  tw_queue* const on = queue(a);
  Bytes data[2], plain = random_bytes(kRoom), there(7 + 250 + 64);
  unsigned char* from[2];
  for (int k = 0; k < 2; ++k) from[k] = guarded(kRoom, &data[k]) + kGuard;
  tw_plan *sends = plan(a), *takes = host_plan(b);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.layout = list;
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from[0], 0, 1, &options, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(takes, b.endpoint, there.data(), there.size(), 1, nullptr, nullptr), TW_OK);
  prepare_both(sends, takes);
  tw_graph* graph = nullptr;
  ASSERT_EQ(tw_queue_begin_capture(on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger(sends, on), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_end_capture(on, &graph), TW_OK) << tw_last_error();
  const auto expect_twice = [&](const Bytes& wanted) {
    for (int i = 0; i < 2; ++i) {
      run_on(on, sends, takes);
      ASSERT_TRUE(there == wanted);
    }
    ASSERT_EQ(tw_graph_launch(graph, on), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_run(takes, kLong), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
    ASSERT_TRUE(there == packed(data[0], kGuard));
  };
  ASSERT_TRUE(is_bounced(sends)) << explain(sends);
  expect_twice(packed(data[0], kGuard));
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    ASSERT_EQ(tw_plan_update(sends, 0, plain.data(), nullptr), TW_OK) << tw_last_error();
    EXPECT_FALSE(is_bounced(sends)) << explain(sends);
    expect_twice(packed(plain, 0));
    ASSERT_EQ(tw_plan_update(sends, 0, from[1], nullptr), TW_OK) << tw_last_error();
    EXPECT_TRUE(is_bounced(sends)) << explain(sends);
    expect_twice(packed(data[1], kGuard));
    ASSERT_EQ(tw_plan_update(sends, 0, from[1], nullptr), TW_OK) << tw_last_error();  // its table is given back
    expect_twice(packed(data[1], kGuard));
  }
  tw_graph_destroy(graph);
  tw_layout_destroy(list);
}

/// Then the host moves its bytes, wherever they lie later.
TEST_P(Bounced, WhatWasPreparedOnTheHostIsNot) {
  constexpr size_t kSize = 3001;
  tw_queue* const on = queue(a);
  Bytes data, plain = random_bytes(kSize), there(kSize);
  unsigned char* const from = guarded(kSize, &data) + kGuard;
  tw_plan *sends = plan(a), *takes = host_plan(b);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, plain.data(), kSize, 1, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(takes, b.endpoint, there.data(), kSize, 1, nullptr, nullptr), TW_OK);
  prepare_both(sends, takes);
  for (int round = 0; round < 3; ++round) {
    run_on(on, sends, takes);
    ASSERT_TRUE(there == plain);
    ASSERT_EQ(tw_plan_update(sends, 0, from, nullptr), TW_OK) << tw_last_error();
    EXPECT_FALSE(is_bounced(sends)) << explain(sends);
    for (int i = 0; i < 2; ++i) run_on(on, sends, takes);
    ASSERT_TRUE(std::equal(there.begin(), there.end(), data.begin() + kGuard));
    ASSERT_EQ(tw_plan_update(sends, 0, plain.data(), nullptr), TW_OK) << tw_last_error();
  }
}

/// A put with its signal, which comes behind the bytes, and a get.
TEST_P(Bounced, PutsAndGets) {
  constexpr size_t kSize = 7001;
  tw_queue* const on = queue(a);
  Target target;
  make_target(b, a, "host", kSize, TW_SIGNAL_SET, &target);
  Bytes out, in;
  unsigned char* const from = guarded(kSize, &out) + kGuard;
  unsigned char* const to = guarded(kSize, &in) + kGuard;
  tw_plan *puts = plan(a), *gets = plan(a), *partner = plan(b), *both_know = plan(a);
  unsigned char *const x = a.memory("emulated:0", 8), *const y = b.memory("emulated:0", 8);
  ASSERT_EQ(tw_plan_send(both_know, a.endpoint, x, 8, 9, nullptr, nullptr), TW_OK);  // their proxies meet
  ASSERT_EQ(tw_plan_recv(partner, b.endpoint, y, 8, 9, nullptr, nullptr), TW_OK);
  prepare_both(both_know, partner);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.signal = target.remote_signal;
  options.signal_value = options.increment = 1;
  ASSERT_EQ(tw_plan_put(puts, a.endpoint, from, kSize, target.remote, 0, &options, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_get(gets, a.endpoint, to, kSize, target.remote, 0, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(puts, kLong), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(gets, kLong), TW_OK) << tw_last_error();
  if (GetParam().name == std::string("tcp")) {
    ASSERT_TRUE(is_bounced(puts)) << explain(puts);
    ASSERT_TRUE(is_bounced(gets)) << explain(gets);
  }
  for (uint64_t round = 1; round <= 4; ++round) {
    const Bytes data = random_bytes(kSize);
    a.store(from, data);
    ASSERT_EQ(tw_plan_trigger(puts, on), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_signal_wait(target.signal, round, TW_COMPARE_GE, kLong), TW_OK) << tw_last_error();
    ASSERT_TRUE(std::equal(data.begin(), data.end(), target.address));
    ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
    const Bytes there = random_bytes(kSize);
    std::copy(there.begin(), there.end(), target.address);
    ASSERT_EQ(tw_plan_trigger(gets, on), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_queue_check(on), TW_OK) << tw_last_error();
    std::copy(there.begin(), there.end(), in.begin() + kGuard);
    ASSERT_TRUE(a.load(to - kGuard, in.size()) == in);
  }
}

/// Messages to one channel, many at a time: each has a buffer of its own.
TEST_P(Bounced, ManyStepsOfOneChannel) {
  constexpr size_t kSteps = 12, kEach = 2003;
  tw_queue* const on = queue(a);
  Bytes all;
  unsigned char* const from = guarded(kSteps * kEach, &all) + kGuard;
  Bytes there(kSteps * kEach);
  tw_plan *sends = plan(a), *takes = host_plan(b);
  for (size_t i = 0; i < kSteps; ++i) {
    ASSERT_EQ(tw_plan_send(sends, a.endpoint, from + i * kEach, kEach, i % 2, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_plan_recv(takes, b.endpoint, &there[i * kEach], kEach, i % 2, nullptr, nullptr), TW_OK);
  }
  prepare_both(sends, takes);
  for (int round = 0; round < 5; ++round) {
    const Bytes data = random_bytes(kSteps * kEach);
    a.store(from, data);
    run_on(on, sends, takes);
    ASSERT_TRUE(there == data);
  }
}

}  // namespace
}  // namespace thalweg::tests
