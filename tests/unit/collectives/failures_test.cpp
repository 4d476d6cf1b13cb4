// SPDX-License-Identifier: Apache-2.0
// A group that fails, or is to be destroyed, at an awkward moment: in the set-up of its first blocking collective, behind the checks
// of a call, by a message that makes no sense, inside a callback.
#include <atomic>
#include <chrono>
#include <thread>

#include "collectives/call.hpp"
#include "collectives/calls.hpp"
#include "collectives/collectives.hpp"
#include "collectives/group_wire.hpp"
#include "collectives/run.hpp"
#include "group_ranks.hpp"

namespace thalweg::test {
namespace {

tw_worker& worker_of(const GroupRank& rank) { return *rank.rank.worker->get(); }

impl::Collectives& collectives_of(const GroupRank& rank) {
  impl::Collectives* all = nullptr;
  const impl::Engine::Guard guard(*worker_of(rank).engine);
  EXPECT_EQ(impl::Collectives::of(*rank.group, &all), TW_OK);
  return *all;
}

/// Progresses for some seconds at most.
template <class Done>
bool comes(const GroupRank& rank, Done done) {
  return worker_of(rank).wait_until(done, 5 * kSecond) == TW_OK;
}

tw_collective_options within(uint64_t timeout_ns) {
  tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
  options.timeout_ns = timeout_ns;
  return options;
}

/// A call that found the group well may start its run when it is not so any more.
TEST(CollectiveFailures, ARunThatStartsBehindTheFailureEndsWithIt) {
  run_ranks(2, [](Rank& one) {
    GroupRank rank(one);
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK) << tw_last_error();
    one.barrier();
    if (one.number == 1) {
      EXPECT_EQ(tw_group_destroy(std::exchange(rank.group, nullptr)), TW_OK) << tw_last_error();
      one.endpoints.clear();
      one.worker.reset();
    }
    one.barrier();
    if (one.number == 1) return;
    const tw_status failed = tw_barrier(rank.group, nullptr, nullptr);
    ASSERT_LT(failed, TW_OK);
    impl::Collectives& all = collectives_of(rank);
    impl::CollectiveRun* run = nullptr;
    {
      const impl::Engine::Guard guard(all.engine());
      const tw_collective_options options = within(kSecond);
      impl::Call call = impl::barrier_call();
      impl::CollectiveTask task;
      ASSERT_EQ(impl::prepare_task(all, call, options, &task), TW_OK) << tw_last_error();
      ASSERT_EQ(all.schedules().find(call.what, "dissemination", &task.schedule), TW_OK) << tw_last_error();
      ASSERT_EQ(all.scratch().take(nullptr, task.schedule->schedule().scratch, &task.bound.scratch), TW_OK);
      run = &all.take_run();
      run->start(std::move(task), nullptr);
    }
    ASSERT_TRUE(comes(rank, [&] { return run->over(); }));
    const impl::Engine::Guard guard(all.engine());
    EXPECT_EQ(run->take_result(), failed);
    EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
  });
}

/// The others wait for a rank that will not come, as its group has failed: they hear of it at once.
TEST(CollectiveFailures, AFailureEndsTheSetUpOfSharedMemory) {
  run_ranks(3, [](Rank& one) {
    GroupRank rank(one);
    impl::Collectives& all = collectives_of(rank);  // listens
    one.barrier();
    const auto begin = std::chrono::steady_clock::now();
    if (one.number == 2) {
      const impl::Engine::Guard guard(all.engine());
      all.fail(TW_ERR_DEVICE, 2, "a device of rank 2 is broken");
    }
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_ERR_DEVICE) << tw_last_error();
    EXPECT_NE(std::string(tw_last_error()).find("a device of rank 2 is broken"), std::string::npos) << tw_last_error();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_TRUE(comes(rank, [&] { return all.settled(); }));
    one.barrier();
  });
}

/// What a callback begins while the first blocking call sets up comes behind that call, on all ranks.
TEST(CollectiveFailures, ACallbackInTheSetUpBeginsTheNextOne) {
  for (const char* transport : {static_cast<const char*>(nullptr), "tcp"}) {
    RankOptions ranks;
    ranks.transport = transport;
    run_group(
        3,
        [](GroupRank& rank) {
          for (const size_t count : {30'000u, 1u, 200'000u, 1'000u, 100'000u, 7u}) {
            tw_group* fresh = nullptr;
            rank.make(&fresh);
            struct Chain {
              tw_group* group;
              int64_t value, sum = 0;
              tw_request next = TW_REQUEST_NONE;
              tw_status status = TW_OK;
            } chain{fresh, rank.rank.number + int64_t{5}};
            tw_collective_options options = within(5 * kSecond);
            options.callback = [](void* arg, tw_request, tw_status status, const tw_recv_info*) {
              auto& self = *static_cast<Chain*>(arg);
              self.status = status != TW_OK ? status
                                            : tw_allreduce(self.group, &self.value, &self.sum, 1, TW_TYPE_INT64, TW_REDUCE_SUM,
                                                           nullptr, &self.next);
            };
            options.arg = &chain;
            const std::vector<int64_t> in(count, rank.rank.number + 1);
            std::vector<int64_t> out(count);
            ASSERT_EQ(tw_allreduce(fresh, in.data(), out.data(), count, TW_TYPE_INT64, TW_REDUCE_SUM, &options, nullptr),
                      TW_IN_PROGRESS)
                << tw_last_error();
            const tw_collective_options limit = within(5 * kSecond);
            ASSERT_EQ(tw_barrier(fresh, &limit, nullptr), TW_OK) << count << ": " << tw_last_error();
            ASSERT_TRUE(comes(rank, [&] { return chain.status != TW_OK; }));
            ASSERT_EQ(chain.status, TW_IN_PROGRESS) << tw_last_error();
            ASSERT_EQ(tw_request_finish(chain.next), TW_OK) << tw_last_error();
            EXPECT_EQ(chain.sum, 18);
            EXPECT_EQ(out, std::vector<int64_t>(count, 6));
            ASSERT_EQ(tw_barrier(fresh, nullptr, nullptr), TW_OK) << tw_last_error();
            EXPECT_EQ(tw_group_destroy(fresh), TW_OK) << tw_last_error();
          }
        },
        ranks);
  }
}

/// From a callback that the call's own wait runs: of the set-up, of what goes over shared memory, of an exchange, of a shrink, of the
/// creation of a window.
TEST(CollectiveFailures, AGroupIsNotDestroyedUnderABlockingCall) {
  std::atomic<int> called{0};
  run_group(2, [&](GroupRank& rank) {
    const auto block = [&](int turn) {
      if (turn < 2) return tw_barrier(rank.group, nullptr, nullptr);
      char all[2];
      if (turn == 2) return tw_group_exchange(rank.group, "x", 1, all);
      if (turn == 3) {
        tw_group* left = nullptr;
        const tw_status status = tw_group_shrink(rank.group, &left);
        return status < 0 ? status : tw_group_destroy(left);
      }
      const Room room(rank.rank.context, "host", 100);
      tw_window* window = nullptr;
      const tw_status status = tw_group_window(rank.group, room.memory(), nullptr, &window);
      return status < 0 ? status : tw_window_destroy(window);
    };
    for (int turn = 0; turn < 5; ++turn) {
      struct Ending {
        tw_group* group;
        std::atomic<int>& called;
        tw_status status = TW_OK;
      } ending{rank.group, called};
      char byte = 0;
      if (rank.rank.number == 0) {
        tw_op_options options = TW_OP_OPTIONS_INIT;
        options.callback = [](void* arg, tw_request, tw_status, const tw_recv_info*) {
          auto& self = *static_cast<Ending*>(arg);
          self.status = tw_group_destroy(self.group);
          ++self.called;
        };
        options.arg = &ending;
        ASSERT_EQ(tw_recv(&worker_of(rank), &byte, 1, 99, ~uint64_t{0}, &options, nullptr), TW_IN_PROGRESS);
      }
      rank.rank.barrier();
      if (rank.rank.number == 1) {
        ASSERT_EQ(tw_send_blocking(rank.rank.handles[0], "x", 1, 99), TW_OK) << tw_last_error();
        ASSERT_TRUE(comes(rank, [&] { return called == turn + 1; }));
      }
      ASSERT_EQ(block(turn), TW_OK) << tw_last_error();
      if (rank.rank.number == 0) EXPECT_EQ(ending.status, TW_ERR_BUSY) << turn;
    }
  });
}

/// The first one sets up what all go by, so another thread's is refused until it is over; nothing of it has begun.
TEST(CollectiveFailures, AnotherThreadsFirstBlockingCallIsRefused) {
  RankOptions threads;
  threads.progress = TW_PROGRESS_THREAD;
  run_group(
      2,
      [](GroupRank& rank) {
        const auto barrier = [&] { return tw_barrier(rank.group, nullptr, nullptr); };
        const auto waits = [&] {
          const impl::Engine::Guard guard(*worker_of(rank).engine);
          return rank.group->running != 0;
        };
        if (rank.rank.number == 0) {
          std::thread first([&] { EXPECT_EQ(barrier(), TW_OK) << tw_last_error(); });
          while (!waits()) std::this_thread::yield();
          EXPECT_EQ(barrier(), TW_ERR_BUSY);
          EXPECT_NE(std::string(tw_last_error()).find("first blocking collective"), std::string::npos) << tw_last_error();
          rank.rank.barrier();
          first.join();
        } else {
          rank.rank.barrier();
          EXPECT_EQ(barrier(), TW_OK) << tw_last_error();
        }
        EXPECT_EQ(barrier(), TW_OK) << tw_last_error();
      },
      threads);
}

/// Barriers are all alike, so any order of them will do. Each call is made, or refused.
TEST(CollectiveFailures, TwoThreadsFirstBlockingCallsAreOneAfterTheOther) {
  RankOptions threads;
  threads.progress = TW_PROGRESS_THREAD;
  for (int round = 0; round < 10; ++round) {
    run_group(
        3,
        [](GroupRank& rank) {
          const auto calls = [&] {
            for (int made = 0; made < 5;) {
              const tw_status status = tw_barrier(rank.group, nullptr, nullptr);
              if (status == TW_ERR_BUSY) {
                std::this_thread::yield();
                continue;
              }
              ASSERT_EQ(status, TW_OK) << tw_last_error();
              ++made;
            }
          };
          std::thread other(calls);
          calls();
          other.join();
        },
        threads);
  }
}

TEST(CollectiveFailures, AGiveUpThatIsTooLongIsAFailure) {
  run_ranks(2, [](Rank& one) {
    GroupRank rank(one);
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK) << tw_last_error();
    impl::Collectives& all = collectives_of(rank);
    one.barrier();
    std::string bytes = random_bytes(sizeof(impl::GiveUp) + 8);
    bool sent = one.number == 0;
    if (!sent) {
      const impl::Engine::Guard guard(all.engine());
      impl::OpDesc op;
      op.verb = impl::Verb::send;
      op.flags = impl::kOpGroup;
      op.peer = &*one.handles[0]->peer;
      op.tag = impl::give_up_tag(rank.group->id);
      op.address = reinterpret_cast<std::byte*>(bytes.data());
      op.length = bytes.size();
      const auto over = [](void* arg, tw_request, tw_status, const tw_recv_info*) { *static_cast<bool*>(arg) = true; };
      sent = all.engine().start(op, impl::calls(over, &sent)) == TW_OK;
    }
    EXPECT_TRUE(comes(rank, [&] { return sent && all.failed(); }));
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_ERR_PROTOCOL) << tw_last_error();
    EXPECT_TRUE(comes(rank, [&] { return all.settled(); }));
    one.barrier();
  });
}

/// Rank 2 is slow, which ends the group at rank 0: that it answers says nothing about rank 1.
TEST(CollectiveFailures, AnAnswerOfOneRankIsNotThatOfAnother) {
  run_ranks(3, [](Rank& one) {
    GroupRank rank(one);
    EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK) << tw_last_error();
    impl::Collectives& all = collectives_of(rank);
    one.barrier();
    char byte = 0;
    tw_request fence = TW_REQUEST_NONE;
    if (one.number == 0) {
      ASSERT_EQ(tw_recv(&worker_of(rank), &byte, 1, 5, ~uint64_t{0}, nullptr, &fence), TW_IN_PROGRESS);
      const impl::Engine::Guard guard(all.engine());
      all.fail(TW_ERR_TIMED_OUT, 2, "nothing came from rank 2");
    }
    one.barrier();
    if (one.number == 2) {
      EXPECT_TRUE(comes(rank, [&] { return all.failed(); }));
      ASSERT_EQ(tw_send_blocking(one.handles[0], "x", 1, 5), TW_OK) << tw_last_error();  // behind its answer
    }
    if (one.number == 0) {
      EXPECT_EQ(tw_request_finish(fence), TW_OK) << tw_last_error();
      EXPECT_FALSE(all.settled()) << "rank 1 has not given up";
    }
    one.barrier();
    EXPECT_TRUE(comes(rank, [&] { return all.failed() && all.settled(); }));
    one.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
