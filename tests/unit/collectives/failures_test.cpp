// SPDX-License-Identifier: Apache-2.0
// A group that fails, or is to be destroyed, at an awkward moment: in the set-up of its first blocking collective, behind the checks
// of a call, by a message that makes no sense, inside a callback.
#include <thalweg/views.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "collectives/call.hpp"
#include "collectives/calls.hpp"
#include "collectives/collectives.hpp"
#include "collectives/group_listener.hpp"
#include "collectives/group_wire.hpp"
#include "collectives/run.hpp"
#include "devices/emulated/emulated.hpp"
#include "devices/registry.hpp"
#include "group_ranks.hpp"
#include "own_queue.hpp"

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

/// As a rank that gives up, or as one that says so.
void tell(const GroupRank& rank, uint32_t to, uint64_t group, const impl::GiveUp& message) {
  impl::Engine& engine = *worker_of(rank).engine;
  const auto under_way = std::make_shared<std::atomic<uint32_t>>(0);
  {
    const impl::Engine::Guard guard(engine);
    impl::send_give_up(engine, *rank.rank.handles[to]->peer, impl::give_up_tag(group), message, under_way);
  }
  EXPECT_TRUE(comes(rank, [&] { return *under_way == 0; }));
}

/// Behind all that `from` has sent to this rank.
void fence(const GroupRank& rank, uint32_t from, uint32_t to) {
  char byte = 0;
  if (rank.rank.number == from) EXPECT_EQ(tw_send_blocking(rank.rank.handles[to], "x", 1, 77), TW_OK) << tw_last_error();
  if (rank.rank.number != to) return;
  tw_request receive = TW_REQUEST_NONE;
  const tw_status posted = tw_recv(&worker_of(rank), &byte, 1, 77, ~uint64_t{0}, nullptr, &receive);
  EXPECT_TRUE(posted == TW_OK || tw_request_finish(receive) == TW_OK) << tw_last_error();
}

/// Whoever is connected may send it.
TEST(CollectiveFailures, AGiveUpOfAStrangerEndsNoGroup) {
  std::atomic<uint64_t> id{0};
  run_group(3, [&](GroupRank& rank) {
    tw_group* part = nullptr;
    const bool outside = rank.rank.number == 2;
    ASSERT_EQ(tw_group_split(rank.group, outside ? TW_UNDEFINED : 0, 0, &part), TW_OK) << tw_last_error();
    if (!outside) EXPECT_EQ(tw_barrier(part, nullptr, nullptr), TW_OK) << tw_last_error();
    if (rank.rank.number == 0) id = part->id;
    rank.rank.barrier();
    if (outside) {
      for (uint32_t to = 0; to < 2; ++to) {
        for (int i = 0; i < 3; ++i) tell(rank, to, id, {1 - to, TW_ERR_PEER_LOST, 1 - to, 3, "lie"});
      }
    }
    for (uint32_t to = 0; to < 2; ++to) fence(rank, 2, to);
    if (!outside) {
      EXPECT_FALSE(part->collectives->failed());
      EXPECT_EQ(tw_barrier(part, nullptr, nullptr), TW_OK) << tw_last_error();
    }
    rank.rank.barrier();
    EXPECT_EQ(tw_group_destroy(part), TW_OK) << tw_last_error();
  });
}

/// Nor does one name another rank as its sender, nor tell what is no error.
TEST(CollectiveFailures, AGiveUpIsItsSenders) {
  for (const impl::GiveUp& lie : {impl::GiveUp{2, TW_ERR_DEVICE, 2, 3, "lie"}, impl::GiveUp{1, -12345, 0, 3, "lie"}}) {
    run_ranks(3, [&](Rank& one) {
      GroupRank rank(one);
      impl::Collectives& all = collectives_of(rank);
      one.barrier();
      if (one.number == 1) tell(rank, 0, rank.group->id, lie);
      EXPECT_TRUE(comes(rank, [&] { return all.failed() && all.settled(); }));
      EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_ERR_PROTOCOL) << tw_last_error();
      one.barrier();
    });
  }
}

/// Twice the same answer is one.
TEST(CollectiveFailures, ARepeatedGiveUpIsOneAnswer) {
  run_ranks(2, [](Rank& one) {
    GroupRank rank(one);
    impl::Collectives& all = collectives_of(rank);
    one.barrier();
    if (one.number == 1) {
      for (int i = 0; i < 2; ++i) tell(rank, 0, rank.group->id, {1, TW_ERR_TIMED_OUT, impl::kNoRank, 5, "twice"});
    }
    EXPECT_TRUE(comes(rank, [&] { return all.failed(); }));
    one.barrier();
    fence(rank, 1, 0);
    EXPECT_TRUE(comes(rank, [&] { return all.settled(); }));
    one.barrier();
  });
}

/// A worker that is never idle: an active message whose handler sends itself the next one.
struct Flood {
  tw_endpoint* own;
  std::chrono::steady_clock::time_point end;
  bool over = false;
  static tw_status next(void* arg, const tw_am_message*) {
    auto& self = *static_cast<Flood*>(arg);
    const auto now = std::chrono::steady_clock::now();
    self.over = now >= self.end || tw_am_send(self.own, 5, nullptr, 0, nullptr, 0, nullptr, nullptr) < TW_OK;
    while (std::chrono::steady_clock::now() < now + std::chrono::microseconds(1)) {
    }
    return TW_OK;
  }
};

/// Over shared memory, where the wait looks for losses by itself, and by messages.
TEST(CollectiveFailures, TrafficKeepsNoWaitFromItsTimeOut) {
  for (const char* algorithm : {static_cast<const char*>(nullptr), "dissemination"}) {
    run_ranks(2, [&](Rank& one) {
      GroupRank rank(one);
      EXPECT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK) << tw_last_error();
      one.barrier();
      if (one.number == 0) {
        const auto begin = std::chrono::steady_clock::now();
        const Endpoint own = one.worker->connect(one.worker->address());
        Flood flood{own.get(), begin + std::chrono::seconds(8)};
        ASSERT_EQ(tw_am_register(one.worker->get(), 5, Flood::next, &flood), TW_OK) << tw_last_error();
        ASSERT_GE(tw_am_send(own.get(), 5, nullptr, 0, nullptr, 0, nullptr, nullptr), TW_OK) << tw_last_error();
        tw_collective_options options = within(kSecond / 2);
        options.algorithm = algorithm;
        EXPECT_EQ(tw_barrier(rank.group, &options, nullptr), TW_ERR_TIMED_OUT) << tw_last_error();
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
        flood.end = begin;
        EXPECT_TRUE(comes(rank, [&] { return flood.over; }));
      }
      one.barrier();
    });
  }
}

/// One rank has no scratch memory in the first call, which has its number already: no other waits for it.
TEST(CollectiveFailures, AFirstCallThatIsRefusedOnOneRankEndsOnAll) {
  RankOptions over_tcp;
  over_tcp.transport = "tcp";  // by messages
  run_ranks(
      2,
      [](Rank& one) {
        GroupRank rank(one);
        const std::string place = "emulated:" + std::to_string(one.number);
        Room in(one.context, place.c_str(), 4096), out(one.context, place.c_str(), 4096);
        auto& device = *static_cast<impl::emulated::EmulatedDevice*>(impl::list_devices(nullptr).at(one.number));
        one.barrier();
        if (one.number == 0) device.faults().inject(impl::emulated::Operation::allocate, 1);
        tw_collective_options options = within(10 * kSecond);
        const auto begin = std::chrono::steady_clock::now();
        const auto sum = [&] {
          return tw_allreduce(rank.group, in.data(), out.data(), 1024, TW_TYPE_INT32, TW_REDUCE_SUM, &options, nullptr);
        };
        EXPECT_EQ(sum(), TW_ERR_DEVICE) << tw_last_error();
        EXPECT_NE(std::string(tw_last_error()).find("was told to fail"), std::string::npos) << tw_last_error();
        device.faults().inject(impl::emulated::Operation::allocate, 0);
        EXPECT_EQ(sum(), TW_ERR_DEVICE) << "the group has failed";
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
        one.barrier();
      },
      over_tcp);
}

/// Nobody waits for a rank that is refused alone: it calls again.
TEST(CollectiveFailures, AFirstCallOnAQueueInsideProgressIsRefusedAlone) {
  struct Asked {
    tw_queue* queue;
    tw_group* group;
    tw_status got = TW_IN_PROGRESS;
    static tw_status handle(void* arg, const tw_am_message*) {
      ask(arg, TW_REQUEST_NONE, TW_OK, nullptr);
      return TW_OK;
    }
    static void ask(void* arg, tw_request, tw_status, const tw_recv_info*) {
      auto& self = *static_cast<Asked*>(arg);
      self.got = tw_barrier_on(self.queue, self.group, nullptr);
    }
  };
  const uint64_t seed = fresh_seed();
  run_ranks(2, [seed](Rank& one) {
    GroupRank rank(one, 5 * kSecond);
    const std::string place = place_of(rank, true);
    const OwnQueue queue(rank, place);
    if (one.number == 0) {
      Asked asked{queue, rank.group};
      const Endpoint own = one.worker->connect(one.worker->address());
      ASSERT_EQ(tw_am_register(one.worker->get(), 5, Asked::handle, &asked), TW_OK) << tw_last_error();
      ASSERT_GE(tw_am_send(own.get(), 5, nullptr, 0, nullptr, 0, nullptr, nullptr), TW_OK) << tw_last_error();
      EXPECT_TRUE(comes(rank, [&] { return asked.got != TW_IN_PROGRESS; }));
      EXPECT_EQ(std::exchange(asked.got, TW_IN_PROGRESS), TW_ERR_BUSY);
      ASSERT_EQ(tw_am_register(one.worker->get(), 5, nullptr, nullptr), TW_OK) << tw_last_error();
      tw_op_options called = TW_OP_OPTIONS_INIT;
      called.callback = Asked::ask;
      called.arg = &asked;
      char byte = 0;
      ASSERT_EQ(tw_recv(one.worker->get(), &byte, 1, 99, ~uint64_t{0}, &called, nullptr), TW_IN_PROGRESS);
      ASSERT_EQ(tw_send_blocking(own.get(), "x", 1, 99), TW_OK) << tw_last_error();
      EXPECT_TRUE(comes(rank, [&] { return asked.got != TW_IN_PROGRESS; }));
      EXPECT_EQ(asked.got, TW_ERR_BUSY);
    }
    JobCase c;
    c.count = 301;
    c.place = place.c_str();
    Jobs jobs(rank, c);
    jobs.add_allreduce();
    jobs.fill(seed);
    jobs.call(queue.target());
    EXPECT_EQ(tw_queue_synchronize(queue), TW_OK) << tw_last_error();
    jobs.check(seed);
    one.barrier();
  });
}

/// What the first call asks while it waits may call anything, as an interpreter's handlers do.
TEST(CollectiveFailures, ACallOnAQueueInsideTheFirstOneIsRefusedAlone) {
  std::atomic<bool> over{false};
  run_ranks(2, [&](Rank& one) {
    GroupRank rank(one, 5 * kSecond);
    const OwnQueue queue(rank, place_of(rank, true));
    const auto barrier = [&] { return tw_barrier_on(queue, rank.group, nullptr); };
    struct Asked {
      const std::function<tw_status()> call;
      std::atomic<bool>& over;
      int calls = 0;
      tw_status got = TW_IN_PROGRESS;
      std::string why = "";
      static int ask(void* arg) {
        auto& self = *static_cast<Asked*>(arg);
        if (self.calls++ != 0) return 0;
        self.got = self.call();
        self.why = tw_last_error();
        self.over = true;
        return 0;
      }
    } asked{barrier, over};
    if (one.number == 0) {
      tw_set_interrupt(Asked::ask, &asked);
    } else {
      EXPECT_TRUE(comes(rank, [&] { return over.load(); }));
    }
    EXPECT_EQ(barrier(), TW_OK) << tw_last_error();
    tw_set_interrupt(nullptr, nullptr);
    if (one.number == 0) {
      EXPECT_EQ(asked.got, TW_ERR_BUSY);
      EXPECT_NE(asked.why.find("under way"), std::string::npos) << asked.why;
    }
    EXPECT_EQ(barrier(), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_queue_synchronize(queue), TW_OK) << tw_last_error();
    one.barrier();
  });
}

/// The rank that was too early can never be in step with the others again: they hear so, and nobody's next call waits.
TEST(CollectiveFailures, AFirstCallOnAQueueThatEndsOnOneRankEndsOnAll) {
  run_ranks(2, [](Rank& one) {
    GroupRank rank(one, kSecond / 5);
    impl::Collectives& all = collectives_of(rank);  // listens
    const OwnQueue queue(rank, "host");
    float in = 1, out = 0;
    const auto sum = [&] { return tw_allreduce_on(queue, rank.group, &in, &out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SUM, nullptr); };
    const auto reason = [] { return std::string(tw_last_error()); };
    one.barrier();
    if (one.number == 0) EXPECT_EQ(sum(), TW_ERR_TIMED_OUT) << reason();
    if (one.number == 1) EXPECT_TRUE(comes(rank, [&] { return all.failed(); })) << "rank 0 has told nobody";
    one.barrier();
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(sum(), TW_ERR_TIMED_OUT);
      EXPECT_NE(reason().find("the group has failed"), std::string::npos) << reason();
      EXPECT_NE(reason().find("rank 1"), std::string::npos) << reason();
    }
    one.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
