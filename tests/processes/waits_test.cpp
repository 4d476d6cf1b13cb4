// SPDX-License-Identifier: Apache-2.0
// Queues that wait ahead of their kernels for plans of another process: messages both ways, and a process that is killed meanwhile.
#include <gtest/gtest.h>

#include "process.hpp"

using namespace thalweg::test;

namespace {

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2", 1);
constexpr const char* kPlace = "emulated:0";
constexpr size_t kLength = 40'013, kGuard = 64;
constexpr unsigned kRounds = 100;
constexpr uint64_t kLimit = 20'000'000'000;

/// A process with a plan for each direction, and a queue.
struct Ends {
  template <class Other>
  explicit Ends(Other& pipe) {
    pipe.send(side.address());
    endpoint = side.connect(pipe.receive());
    tw_memory_options where = TW_MEMORY_OPTIONS_INIT;
    where.place = kPlace;
    EXPECT_EQ(tw_memory_allocate(side.context, 2 * kLength + kGuard, &where, &memory), TW_OK) << tw_last_error();
    from = static_cast<unsigned char*>(tw_memory_address(memory));
    to = from + kLength;
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = kPlace;
    options.timeout_ns = kLimit;
    for (tw_plan** plan : {&sends, &receives}) EXPECT_EQ(tw_plan_create(side.context, &options, plan), TW_OK);
    EXPECT_EQ(tw_plan_send(sends, endpoint, from, kLength, 1, nullptr, nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_recv(receives, endpoint, to, kLength, 1, nullptr, nullptr), TW_OK) << tw_last_error();
    tw_queue_options waits = TW_QUEUE_OPTIONS_INIT;
    waits.waits = TW_WAITS_AHEAD;
    EXPECT_EQ(tw_queue_create(side.context, kPlace, &waits, &queue), TW_OK) << tw_last_error();
  }
  ~Ends() {
    tw_queue_destroy(queue);
    for (tw_plan* plan : {sends, receives}) EXPECT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error();
    (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
    (void)tw_memory_release(memory);
  }
  void prepare(bool first) {
    for (tw_plan* plan : {first ? sends : receives, first ? receives : sends})
      EXPECT_EQ(tw_plan_prepare(plan, kLimit), TW_OK) << tw_last_error();
  }
  void trigger(tw_plan* plan) { EXPECT_EQ(tw_plan_trigger(plan, queue), TW_OK) << tw_last_error(); }
  std::string load(size_t length) {
    std::string bytes(length, '\0');
    EXPECT_EQ(tw_memory_copy(side.context, bytes.data(), to, length), TW_OK);
    return bytes;
  }
  Side side;
  tw_endpoint* endpoint = nullptr;
  tw_memory* memory = nullptr;
  unsigned char *from = nullptr, *to = nullptr;
  tw_plan *sends = nullptr, *receives = nullptr;
  tw_queue* queue = nullptr;
};

/// Sends back what it receives, all of it enqueued at once.
const Role kEcho("waits echo", [](Pipe& pipe) {
  Ends ends(pipe);
  ends.prepare(false);
  tw_plan* back = nullptr;
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = kPlace;
  if (tw_plan_create(ends.side.context, &options, &back) != TW_OK ||
      tw_plan_copy(back, ends.from, ends.to, kLength, nullptr, nullptr) != TW_OK || tw_plan_prepare(back, kLimit) != TW_OK)
    return 1;
  for (unsigned i = 0; i < kRounds; ++i) {
    for (tw_plan* plan : {ends.receives, back, ends.sends}) ends.trigger(plan);
  }
  const bool right = tw_queue_synchronize(ends.queue) == TW_OK;
  pipe.receive();
  return right && tw_plan_destroy(back) == TW_OK && !testing::Test::HasFailure() ? 0 : 2;
});

/// Prepares, and lets nothing run.
const Role kSilent("waits silent", [](Pipe& pipe) {
  Ends ends(pipe);
  ends.prepare(false);
  pipe.send("prepared");
  pipe.receive();
  return 1;
});

TEST(Waits, QueuesOfTwoProcessesAnswerEachOther) {
  Child other("waits echo");
  Ends ends(other);
  ends.prepare(true);
  const std::string guard = random_bytes(kGuard);
  ASSERT_EQ(tw_memory_copy(ends.side.context, ends.to + kLength, guard.data(), kGuard), TW_OK);
  for (unsigned i = 0; i < kRounds; ++i) {
    const std::string data = random_bytes(kLength), poison(kLength, '\x5a');
    ASSERT_EQ(tw_memory_copy(ends.side.context, ends.from, data.data(), kLength), TW_OK);
    ASSERT_EQ(tw_memory_copy(ends.side.context, ends.to, poison.data(), kLength), TW_OK);
    ends.trigger(ends.sends);
    ends.trigger(ends.receives);
    ASSERT_EQ(tw_queue_synchronize(ends.queue), TW_OK) << tw_last_error();
    EXPECT_TRUE(ends.load(kLength + kGuard) == data + guard);
  }
  other.send("done");
  EXPECT_EQ(other.join(), 0);
}

TEST(Waits, TheLossOfThePeerLetsTheQueueGo) {
  for (const bool sends : {true, false}) {
    SCOPED_TRACE(sends);
    Child other("waits silent");
    Ends ends(other);
    ends.prepare(true);
    ASSERT_EQ(other.receive(), "prepared");
    for (int run = 0; run < 20; ++run) ends.trigger(sends ? ends.sends : ends.receives);
    other.kill();
    EXPECT_EQ(tw_queue_synchronize(ends.queue), TW_ERR_PEER_LOST) << tw_last_error();
    EXPECT_EQ(tw_plan_trigger(ends.sends, ends.queue), TW_ERR_PEER_LOST) << tw_last_error();
  }
}

}  // namespace
