// SPDX-License-Identifier: Apache-2.0
// tw_plan_update changes what is triggered or captured from then on; a graph that was captured before keeps what it had, whoever
// carries the step and wherever its program lies.
#include <atomic>

#include "../../fixtures/rooms.hpp"
#include "pair.hpp"

namespace thalweg::tests {
namespace {

class PlanUpdates : public Pair {
 protected:
  static constexpr size_t kSize = 1203;

  static tw_graph* capture(tw_plan* of, tw_queue* on) {
    tw_graph* graph = nullptr;
    EXPECT_EQ(tw_queue_begin_capture(on), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_trigger(of, on), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_end_capture(on, &graph), TW_OK) << tw_last_error();
    return graph;
  }
  static void launch(tw_graph* graph, tw_queue* on) {
    ASSERT_EQ(graph != nullptr ? tw_graph_launch(graph, on) : TW_ERR_INVALID, TW_OK) << tw_last_error();
  }
  static void finish(tw_queue* on) { ASSERT_EQ(tw_queue_synchronize(on), TW_OK) << tw_last_error(); }
};
INSTANTIATE_TEST_SUITE_P(Ways, PlanUpdates, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

TEST_P(PlanUpdates, GraphsOfChannelsKeepTheirBuffers) {
  constexpr int kVersions = 4;
  tw_queue *qa = queue(a), *qb = queue(b);
  tw_plan *sends = plan(a), *receives = plan(b);
  unsigned char *from[kVersions], *to[kVersions];
  for (unsigned char*& at : from) at = memory(a, kSize + 1) + 1;
  for (unsigned char*& at : to) at = memory(b, kSize + 3) + 3;
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from[0], kSize, 1, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to[0], kSize, 1, nullptr, nullptr), TW_OK);
  prepare_both(sends, receives);
  tw_graph *there[kVersions], *here[kVersions];
  for (int i = 0; i < kVersions; ++i) {
    if (i > 0) {
      ASSERT_EQ(tw_plan_update(sends, 0, from[i], nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_plan_update(receives, 0, to[i], nullptr), TW_OK) << tw_last_error();
    }
    there[i] = capture(sends, qa);
    here[i] = capture(receives, qb);
  }
  for (const int i : {0, 3, 1, 2, 0, 2}) {
    SCOPED_TRACE(i);
    Bytes data[kVersions];
    for (int k = 0; k < kVersions; ++k) {
      data[k] = random_bytes(kSize);
      a.store(from[k], data[k]);
      b.store(to[k], Bytes(kSize, 0xee));
    }
    const int other = (i + 1) % kVersions;  // of the sender
    launch(here[i], qb);
    launch(there[other], qa);
    finish(qb);
    finish(qa);
    for (int k = 0; k < kVersions; ++k) EXPECT_TRUE(b.load(to[k], kSize) == (k == i ? data[other] : Bytes(kSize, 0xee))) << k;
  }
  for (int i = 0; i < kVersions; ++i) {
    tw_graph_destroy(there[i]);
    tw_graph_destroy(here[i]);
  }
}

/// A list that is too long for a launch's parameters is read from memory; a layout's pieces are, in any case.
TEST_P(PlanUpdates, GraphsOfLongPlansKeepTheirAddresses) {
  constexpr int kCopies = 30, kUpdated = 17;
  const tw_piece pieces[] = {{0, 7}, {900, 250}, {301, 64}};
  size_t bytes = 0;
  for (const tw_piece& piece : pieces) bytes += piece.length;
  tw_layout* list = nullptr;
  ASSERT_EQ(tw_layout_pieces(pieces, 3, &list), TW_OK) << tw_last_error();
  tw_queue* qa = queue(a);
  tw_plan* copies = plan(a);
  unsigned char *from[3], *to[kCopies];
  for (unsigned char*& at : from) at = memory(a, kSize);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.layout = list;
  for (int i = 0; i < kCopies; ++i) {
    to[i] = memory(a, bytes);
    ASSERT_EQ(tw_plan_copy(copies, to[i], from[0], 0, &options, nullptr), TW_OK) << tw_last_error();
  }
  tw_layout_destroy(list);
  ASSERT_EQ(tw_plan_prepare(copies, kLong), TW_OK) << tw_last_error();
  tw_graph* graphs[3];
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(tw_plan_update(copies, kUpdated, from[i], nullptr), TW_OK) << tw_last_error();
    graphs[i] = capture(copies, qa);
  }
  const auto packed = [&](const Bytes& data) {
    Bytes out;
    for (const tw_piece& piece : pieces) out.insert(out.end(), &data[piece.offset], &data[piece.offset + piece.length]);
    return out;
  };
  for (const int i : {0, 2, 1, 0}) {
    SCOPED_TRACE(i);
    Bytes data[3];
    for (int k = 0; k < 3; ++k) a.store(from[k], data[k] = random_bytes(kSize));
    launch(graphs[i], qa);
    finish(qa);
    for (int k = 0; k < kCopies; ++k) EXPECT_TRUE(a.load(to[k], bytes) == packed(data[k == kUpdated ? i : 0])) << k;
  }
  for (tw_graph* graph : graphs) tw_graph_destroy(graph);
}

/// Without a graph that needs them, buffers and tables that were left are given back.
TEST_P(PlanUpdates, ManyUpdatesTakeNoRoom) {
  tw_queue *qa = queue(a), *qb = queue(b);
  tw_plan *sends = plan(a), *receives = plan(b);
  unsigned char *from = memory(a, kSize), *to[2] = {memory(b, kSize), memory(b, kSize)};
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 1, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to[0], kSize, 1, nullptr, nullptr), TW_OK);
  prepare_both(sends, receives);
  for (int i = 1; i < 300; ++i) {  // a channel has 256 receive buffers
    ASSERT_EQ(tw_plan_update(receives, 0, to[i % 2], nullptr), TW_OK) << tw_last_error();
    if (i % 50 != 0) continue;
    const Bytes data = random_bytes(kSize);
    a.store(from, data);
    ASSERT_EQ(tw_plan_trigger(receives, qb), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger(sends, qa), TW_OK) << tw_last_error();
    finish(qb);
    finish(qa);
    EXPECT_TRUE(b.load(to[i % 2], kSize) == data);
  }
}

/// Of graphs that are gone nothing is kept: a channel has 256 receive buffers.
TEST_P(PlanUpdates, GraphsThatAreGoneKeepNothing) {
  tw_queue *qa = queue(a), *qb = queue(b);
  tw_plan *sends = plan(a), *receives = plan(b);
  unsigned char *from = memory(a, kSize), *to[2] = {memory(b, kSize), memory(b, kSize)};
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, from, kSize, 1, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to[0], kSize, 1, nullptr, nullptr), TW_OK);
  prepare_both(sends, receives);
  for (int i = 1; i < 300; ++i) {
    ASSERT_EQ(tw_plan_update(receives, 0, to[i % 2], nullptr), TW_OK) << tw_last_error();
    tw_graph* graph = capture(receives, qb);
    if (i % 50 == 0) {
      const Bytes data = random_bytes(kSize);
      a.store(from, data);
      launch(graph, qb);
      ASSERT_EQ(tw_plan_trigger(sends, qa), TW_OK) << tw_last_error();
      finish(qb);
      finish(qa);
      EXPECT_TRUE(b.load(to[i % 2], kSize) == data);
    }
    tw_graph_destroy(graph);
  }
}

TEST_P(PlanUpdates, OperandsFitTheirWord) {
  tw_memory* held = nullptr;
  auto* const words = memory(b, 64, &held);
  unsigned char key[kKeyRoom];
  size_t length = sizeof key;
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_export(held, key, &length), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_memory_import(a.endpoint, key, length, &remote), TW_OK) << tw_last_error();
  a.last.emplace_back([remote] { tw_remote_memory_release(remote); });
  tw_queue* qa = queue(a);
  tw_plan* adds = plan(a);
  const uint64_t wide = uint64_t{1} << 40, less = static_cast<uint64_t>(int64_t{-2});
  EXPECT_EQ(tw_plan_atomic(adds, a.endpoint, TW_ATOMIC_ADD, remote, 8, 4, wide, 0, nullptr, nullptr, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_plan_atomic(adds, a.endpoint, TW_ATOMIC_CSWAP, remote, 8, 4, 0, wide, nullptr, nullptr, nullptr),
            TW_ERR_INVALID);
  ASSERT_EQ(tw_plan_atomic(adds, a.endpoint, TW_ATOMIC_ADD, remote, 8, 4, 5, 0, nullptr, nullptr, nullptr), TW_OK);
  std::atomic<bool> stop{false};
  std::thread progress([&] {  // b's worker answers the greeting
    while (!stop) tw_worker_progress(b.worker);
  });
  EXPECT_EQ(tw_plan_prepare(adds, kLong), TW_OK) << tw_last_error();
  stop = true;
  progress.join();
  b.store(words, Bytes(64, 0));
  EXPECT_EQ(tw_plan_update(adds, 0, nullptr, &wide), TW_ERR_INVALID);
  EXPECT_EQ(tw_plan_update(adds, 99, nullptr, &less), TW_ERR_INVALID);
  EXPECT_NE(std::strstr(tw_last_error(), "no step 99"), nullptr) << tw_last_error();
  for (const uint64_t* const operand : {static_cast<const uint64_t*>(nullptr), &less}) {
    ASSERT_EQ(tw_plan_update(adds, 0, nullptr, operand), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger(adds, qa), TW_OK) << tw_last_error();
    finish(qa);
    const Bytes found = b.load(words, 64);
    uint64_t value = 0;
    std::memcpy(&value, &found[8], sizeof value);
    EXPECT_EQ(value, operand == nullptr ? 5u : 3u);
  }
}

TEST_P(PlanUpdates, GraphsKeepValuesAndWhatAtomicsDo) {
  tw_memory* held = nullptr;
  auto* const words = memory(b, 64, &held);
  unsigned char key[kKeyRoom];
  size_t length = sizeof key;
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_export(held, key, &length), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_memory_import(a.endpoint, key, length, &remote), TW_OK) << tw_last_error();
  a.last.emplace_back([remote] { tw_remote_memory_release(remote); });
  tw_queue* qa = queue(a);
  tw_plan* adds = plan(a);
  ASSERT_EQ(tw_plan_atomic(adds, a.endpoint, TW_ATOMIC_ADD, remote, 8, 8, 3, 0, nullptr, nullptr, nullptr), TW_OK);
  std::atomic<bool> stop{false};
  std::thread progress([&] {  // b's worker answers the greeting
    while (!stop) tw_worker_progress(b.worker);
  });
  EXPECT_EQ(tw_plan_prepare(adds, kLong), TW_OK) << tw_last_error();
  stop = true;
  progress.join();
  const uint64_t operands[] = {3, 500, 70000};
  tw_graph* graphs[3];
  for (int i = 0; i < 3; ++i) {
    const uint64_t* const operand = i > 0 ? &operands[i] : nullptr;
    ASSERT_EQ(tw_plan_update(adds, 0, nullptr, operand), TW_OK) << tw_last_error();
    graphs[i] = capture(adds, qa);
  }
  uint64_t wanted = 0;
  b.store(words, Bytes(64, 0));
  for (const int i : {2, 0, 1, 0}) {
    launch(graphs[i], qa);
    finish(qa);
    wanted += operands[i];
    const Bytes found = b.load(words, 64);
    uint64_t value = 0;
    std::memcpy(&value, &found[8], sizeof value);
    EXPECT_EQ(value, wanted);
  }
  for (tw_graph* graph : graphs) tw_graph_destroy(graph);
}

/// What a stream's owner captured, nobody tells us to be gone.
TEST_P(PlanUpdates, GraphsOfStreamsKeepTheirAddresses) {
  if (std::strcmp(GetParam().place, "host") == 0) return;  // it has no streams
  constexpr int kCopies = 20;
  tw_queue* owner = queue(a);
  tw_plan* copies = plan(a);
  unsigned char *from[2] = {memory(a, kSize), memory(a, kSize)}, *to = memory(a, kSize * kCopies);
  for (int i = 0; i < kCopies; ++i)
    ASSERT_EQ(tw_plan_copy(copies, to + kSize * i, from[0], kSize, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(copies, kLong), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_queue_begin_capture(owner), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_trigger_stream(copies, tw_queue_native(owner)), TW_OK) << tw_last_error();
  tw_graph* graph = nullptr;
  ASSERT_EQ(tw_queue_end_capture(owner, &graph), TW_OK) << tw_last_error();
  for (int i = 0; i < kCopies; ++i) ASSERT_EQ(tw_plan_update(copies, i, from[1], nullptr), TW_OK) << tw_last_error();
  for (const bool updated : {false, true, false}) {
    const Bytes data[2] = {random_bytes(kSize), random_bytes(kSize)};
    for (int k = 0; k < 2; ++k) a.store(from[k], data[k]);
    if (updated) {
      ASSERT_EQ(tw_plan_trigger(copies, owner), TW_OK) << tw_last_error();
    } else {
      launch(graph, owner);
    }
    finish(owner);
    for (int i = 0; i < kCopies; ++i) EXPECT_TRUE(a.load(to + kSize * i, kSize) == data[updated]) << i;
  }
  tw_graph_destroy(graph);
}

/// The wrapper of a stream that only plans know goes with the last of them, and what it knew of failures is known until then.
TEST_P(PlanUpdates, StreamsAreKnownAsLongAsTheirPlans) {
  if (std::strcmp(GetParam().place, "host") == 0) return;  // it has no streams
  unsigned char *from = memory(a, kSize), *to = memory(a, kSize);
  tw_plan* stays = plan(a);
  ASSERT_EQ(tw_plan_copy(stays, to, from, kSize, nullptr, nullptr), TW_OK);
  ASSERT_EQ(tw_plan_prepare(stays, 0), TW_OK) << tw_last_error();
  for (int turn = 0; turn < 30; ++turn) {
    tw_queue* owner = nullptr;
    ASSERT_EQ(tw_queue_create(a.context, GetParam().place, nullptr, &owner), TW_OK) << tw_last_error();
    void* const stream = tw_queue_native(owner);
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = GetParam().place;
    tw_plan* plans[2];
    for (tw_plan*& one : plans) {
      ASSERT_EQ(tw_plan_create(a.context, &options, &one), TW_OK);
      ASSERT_EQ(tw_plan_copy(one, to, from, kSize, nullptr, nullptr), TW_OK);
      ASSERT_EQ(tw_plan_prepare(one, 0), TW_OK) << tw_last_error();
    }
    for (tw_plan* one : plans) {
      const Bytes data = random_bytes(kSize);
      a.store(from, data);
      a.store(to, Bytes(kSize, 0xee));
      ASSERT_EQ(tw_plan_trigger_stream(one, stream), TW_OK) << tw_last_error();
      finish(owner);
      EXPECT_EQ(tw_stream_check(stream), TW_OK) << tw_last_error();
      EXPECT_TRUE(a.load(to, kSize) == data);
    }
    tw_queue_destroy(owner);
    EXPECT_EQ(tw_plan_destroy(plans[0]), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_plan_trigger_stream(plans[1], stream), TW_OK) << tw_last_error();  // the wrapper holds an emulated one
    while (tw_plan_destroy(plans[1]) == TW_ERR_BUSY) std::this_thread::yield();
    EXPECT_EQ(tw_plan_trigger_stream(stays, stream), TW_ERR_INVALID);
  }
}

}  // namespace
}  // namespace thalweg::tests
