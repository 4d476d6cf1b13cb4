// SPDX-License-Identifier: Apache-2.0
// Groups made of groups: splits, duplicates, what ranks have in common, and what is left after a loss; over addresses.
#include <functional>

#include "compare_parts.hpp"
#include "worlds.hpp"

namespace thalweg::test {
namespace {

TEST(Parts, SplitsOfAWorld) {
  run_worlds(5, [](Group& world) { split_and_compare(world); });
}

TEST(Parts, ARankInNoPart) {
  run_worlds(3, [](Group& world) {
    const Group part = world.split(world.rank() == 1 ? TW_UNDEFINED : 0);
    ASSERT_EQ(static_cast<bool>(part), world.rank() != 1);
    if (part) {
      EXPECT_EQ(part.size(), 2u);
      part.barrier();
    }
    const Group copy = world.duplicate();  // the numbers of calls still agree
    copy.barrier();
  });
}

TEST(Parts, ADuplicateIsApart) {
  run_worlds(3, [](Group& world) {
    const Group copy = world.duplicate(), second = world.duplicate();
    EXPECT_EQ(copy.rank(), world.rank());
    for (int i = 0; i < 5; ++i) second.barrier();  // their numbers of steps differ now
    copy.barrier();
    world.barrier();
    second.barrier();
    const Group part = copy.split(0);
    EXPECT_EQ(part.size(), 3u);
    part.barrier();
  });
}

TEST(Parts, ByWhatTheyHaveInCommon) {
  run_worlds(4, [](Group& world) {
    const Group host = world.split_by(TW_SPLIT_HOST, 10 - world.rank());
    ASSERT_EQ(host.size(), 4u);
    EXPECT_EQ(host.rank(), 3 - world.rank());
    const Group node = world.split_by(TW_SPLIT_NUMA);
    EXPECT_GE(node.size(), 1u);
    node.barrier();
    const Group island = world.split_by(TW_SPLIT_DEVICES);
    EXPECT_EQ(island.size(), 4u);  // one process: the same devices
    island.barrier();
  });
}

/// What a handler or a callback asks of its group, which cannot wait there.
struct InsideProgress {
  std::function<std::vector<tw_status>()> ask;
  std::vector<tw_status> got = {};
  static tw_status handle(void* arg, const tw_am_message*) {
    called(arg, TW_REQUEST_NONE, TW_OK, nullptr);
    return TW_OK;
  }
  static void called(void* arg, tw_request, tw_status, const tw_recv_info*) {
    auto& self = *static_cast<InsideProgress*>(arg);
    self.got = self.ask();
  }
};

/// By a message of this rank to itself.
void ask_in_a_handler(const Group& world, InsideProgress& asked) {
  tw_worker* const worker = world.worker().get();
  check(tw_am_register(worker, 3, InsideProgress::handle, &asked));
  check(tw_am_send(world.endpoint(world.rank()), 3, nullptr, 0, nullptr, 0, nullptr, nullptr));
  while (asked.got.empty()) (void)tw_worker_progress(worker);
  check(tw_am_register(worker, 3, nullptr, nullptr));
}
void ask_in_a_callback(const Group& world, InsideProgress& asked) {
  tw_worker* const worker = world.worker().get();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.callback = InsideProgress::called;
  options.arg = &asked;
  char byte = 0;
  check(tw_recv(worker, &byte, 1, 9, ~uint64_t{0}, &options, nullptr));
  check(tw_send_blocking(world.endpoint(world.rank()), "x", 1, 9));
  while (asked.got.empty()) (void)tw_worker_progress(worker);
}

void expect_refused(const Group& world, const std::function<std::vector<tw_status>()>& ask) {
  for (const auto way : {ask_in_a_handler, ask_in_a_callback}) {
    InsideProgress asked{ask};
    way(world, asked);
    EXPECT_EQ(asked.got, std::vector<tw_status>(asked.got.size(), TW_ERR_BUSY));
  }
}

/// A rank whose calls are refused makes them again: as the other's first ones, not as later ones.
TEST(Parts, WhatIsRefusedTakesNoNumber) {
  WorldOptions how;
  how.timeout_ns = 3 * kSecond;
  run_worlds(
      2,
      [](Group& world) {
        tw_memory* memory = nullptr;
        ASSERT_EQ(tw_memory_allocate(tw_group_context(world.get()), 64, nullptr, &memory), TW_OK) << tw_last_error();
        world.barrier();
        if (world.rank() == 0) {
          expect_refused(world, [&]() -> std::vector<tw_status> {
            char all[2] = {};
            tw_group* part = nullptr;
            tw_window* window = nullptr;
            return {tw_group_exchange(world.get(), "x", 1, all), tw_group_split(world.get(), 0, 0, &part),
                    tw_group_split_by(world.get(), TW_SPLIT_HOST, 0, &part), tw_group_shrink(world.get(), &part),
                    tw_group_window(world.get(), memory, nullptr, &window)};
          });
          std::vector<char> mine(16u << 20), all(1);
          EXPECT_EQ(tw_group_exchange(world.get(), mine.data(), mine.size(), all.data()), TW_ERR_LIMIT);
        }
        for (uint32_t i = 0; i < 8; ++i) {
          const uint32_t mine = 2 * i + world.rank();
          uint32_t all[2] = {};
          ASSERT_EQ(tw_group_exchange(world.get(), &mine, sizeof mine, all), TW_OK) << tw_last_error();
          ASSERT_TRUE(all[0] == 2 * i && all[1] == 2 * i + 1) << i << ": " << all[0] << ", " << all[1];
        }
        split_and_compare(world);
        world.duplicate().barrier();
        tw_window* window = nullptr;
        ASSERT_EQ(tw_group_window(world.get(), memory, nullptr, &window), TW_OK) << tw_last_error();
        EXPECT_EQ(tw_window_destroy(window), TW_OK) << tw_last_error();
        EXPECT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error();
      },
      how);
}

/// The others stand still until rank 0 has asked for its endpoints to them: of one in a handler, of the other in a callback.
TEST(Parts, AHandlerDoesNotWaitForAConnection) {
  std::atomic<bool> asked_all{false};
  WorldOptions how;
  how.timeout_ns = 10 * kSecond;
  run_worlds(
      3,
      [&](Group& world) {
        if (world.rank() == 0) {
          uint32_t to = 0;
          std::string why;
          for (const auto way : {ask_in_a_handler, ask_in_a_callback}) {
            ++to;
            InsideProgress asked{[&]() -> std::vector<tw_status> {
              tw_endpoint *endpoint = nullptr, *own = nullptr;
              const tw_status status = tw_group_endpoint(world.get(), to, &endpoint);
              why = tw_last_error();
              EXPECT_EQ(endpoint, nullptr);
              return {status, tw_group_endpoint(world.get(), 0, &own)};
            }};
            way(world, asked);
            EXPECT_EQ(asked.got, (std::vector<tw_status>{TW_ERR_BUSY, TW_OK})) << "its own was made outside";
            EXPECT_NE(why.find("rank " + std::to_string(to) + " is not connected"), std::string::npos) << why;
          }
          asked_all = true;
        }
        while (!asked_all) std::this_thread::yield();
        world.barrier();
        if (world.rank() == 0) {
          for (uint32_t to = 1; to < 3; ++to) EXPECT_NE(world.endpoint(to), nullptr) << "outside it connects";
          InsideProgress asked{[&]() -> std::vector<tw_status> {
            tw_endpoint* endpoint = nullptr;
            return {tw_group_endpoint(world.get(), 1, &endpoint), tw_group_endpoint(world.get(), 2, &endpoint)};
          }};
          ask_in_a_handler(world, asked);
          EXPECT_EQ(asked.got, std::vector<tw_status>(2, TW_OK)) << "it is connected";
        }
        world.barrier();
      },
      how);
}

/// Its channels are those of the others' first one when it is added behind the handler.
TEST(Parts, ACollectiveThatAHandlerCannotAddTakesNoNumber) {
  std::atomic<bool> asked_all{false};
  WorldOptions how;
  how.timeout_ns = 10 * kSecond;
  run_worlds(
      2,
      [&](Group& world) {
        tw_plan* plan = nullptr;
        ASSERT_EQ(tw_plan_create(tw_group_context(world.get()), nullptr, &plan), TW_OK) << tw_last_error();
        const float in = static_cast<float>(world.rank() + 1);
        float out = 0;
        const auto add = [&] {
          return tw_plan_allreduce(plan, world.get(), &in, &out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SUM, nullptr, nullptr);
        };
        if (world.rank() == 0) {
          InsideProgress asked{[&]() -> std::vector<tw_status> { return {add()}; }};
          ask_in_a_handler(world, asked);
          EXPECT_EQ(asked.got, std::vector<tw_status>{TW_ERR_BUSY}) << tw_last_error();
          asked_all = true;
        }
        while (!asked_all) std::this_thread::yield();
        ASSERT_EQ(add(), TW_OK) << tw_last_error();
        ASSERT_EQ(tw_plan_prepare(plan, 10 * kSecond), TW_OK) << tw_last_error();
        ASSERT_EQ(tw_plan_trigger(plan, nullptr), TW_OK) << tw_last_error();
        EXPECT_EQ(tw_plan_finish(plan, 10 * kSecond), TW_OK) << tw_last_error();
        EXPECT_EQ(out, 3.0F);
        world.barrier();
        EXPECT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error();
        world.barrier();
      },
      how);
}

/// It still reaches the other's part, and ends with the other's.
TEST(Parts, AWindowWhoseEndIsRefusedStaysAsItIs) {
  WorldOptions how;
  how.timeout_ns = 3 * kSecond;
  run_worlds(
      2,
      [](Group& world) {
        Memory memory = world.context().allocate(64);
        static_cast<char*>(memory.data())[5] = static_cast<char>(world.rank() + 1);
        Window window = world.window(memory);
        world.barrier();
        if (world.rank() == 0) {
          expect_refused(world, [&]() -> std::vector<tw_status> { return {window.destroy()}; });
          ASSERT_NE(window.get(), nullptr);
          EXPECT_EQ(static_cast<const char*>(window.address(1))[5], 2);
        }
        EXPECT_EQ(window.destroy(), TW_OK) << tw_last_error();
        EXPECT_EQ(window.get(), nullptr);
        world.barrier();
      },
      how);
}

/// An object that goes out of scope cannot stay: it lets go on its rank alone, and waits for no other. What would be lost is found
/// by the address sanitizer.
TEST(Parts, AWindowsObjectThatGoesInsideProgressLetsGoAlone) {
  WorldOptions how;
  how.timeout_ns = 5 * kSecond;
  run_worlds(
      2,
      [](Group& world) {
        Memory memory = world.context().allocate(64);
        {
          Window window = world.window(memory);
          world.barrier();
          expect_refused(world, [&]() -> std::vector<tw_status> {
            const Window gone = std::move(window);
            return {TW_ERR_BUSY};
          });
          EXPECT_EQ(window.get(), nullptr);
        }
        const Window next = world.window(memory);
        EXPECT_NE(next.address(1 - world.rank()), nullptr);
        world.barrier();
      },
      how);
}

class Shrinks : public testing::TestWithParam<std::vector<uint32_t>> {};

TEST_P(Shrinks, WhoIsLeftGoesOn) {
  const std::vector<uint32_t> lost = GetParam();
  run_worlds(6, [&](Group& world) {
    world.barrier();
    if (std::find(lost.begin(), lost.end(), world.rank()) != lost.end()) return;
    const tw_status status = status_of([&] { world.barrier(); });
    EXPECT_EQ(status, lost.empty() ? TW_OK : TW_ERR_PEER_LOST);
    const Group left = world.shrink();
    std::vector<uint32_t> expected;
    for (uint32_t i = 0; i < 6; ++i) {
      if (std::find(lost.begin(), lost.end(), i) == lost.end()) expected.push_back(i);
    }
    ASSERT_EQ(left.size(), expected.size());
    left.barrier();
    EXPECT_EQ(names_in(left, world.rank()), expected);
    EXPECT_EQ(world.lost(), lost);
    left.barrier();
  });
}
INSTANTIATE_TEST_SUITE_P(Groups, Shrinks,
                         testing::Values(std::vector<uint32_t>{}, std::vector<uint32_t>{0}, std::vector<uint32_t>{5},
                                         std::vector<uint32_t>{1, 2}, std::vector<uint32_t>{0, 1, 2, 4, 5}));

TEST(Parts, ALossBeforeAnyConnection) {
  run_worlds(3, [](Group& world) {
    if (world.rank() == 1) return;
    uint32_t count = 0;
    EXPECT_EQ(tw_group_lost(world.get(), nullptr, &count), TW_OK);
    const Group left = world.shrink();
    EXPECT_EQ(left.size(), 2u);
    left.barrier();
    count = 0;
    uint32_t ranks[1];
    EXPECT_EQ(tw_group_lost(world.get(), ranks, &count), TW_ERR_TRUNCATED);
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(tw_group_lost(world.get(), ranks, &count), TW_OK);
    EXPECT_EQ(ranks[0], 1u);
    left.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
