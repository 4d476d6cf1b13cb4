// SPDX-License-Identifier: Apache-2.0
// Worlds of threads: endpoints connected when they are first needed, barriers, windows, errors.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "core/worker.hpp"
#include "groups/group.hpp"
#include "routes/cost_file.hpp"
#include "worlds.hpp"

namespace thalweg::test {
namespace {

/// One that nobody listens at now.
uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&at), length), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length), 0);
  ::close(fd);
  return ntohs(at.sin_port);
}

class WorldSizes : public testing::TestWithParam<uint32_t> {};

TEST_P(WorldSizes, EveryRankReachesEveryOther) {
  const uint32_t size = GetParam();
  run_worlds(size, [&](Group& world) {
    ASSERT_EQ(world.size(), size);
    std::vector<uint64_t> got(size);
    std::vector<Request> requests(2 * size_t{size});
    const uint64_t mine = 1000 + world.rank();
    for (uint32_t i = 0; i < size; ++i) {
      tw_endpoint* peer = world.endpoint(i);
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.source = peer;
      ASSERT_GE(tw_recv(world.worker().get(), &got[i], sizeof got[i], 7, UINT64_MAX, &options, requests[2 * i].out()), 0);
      ASSERT_GE(tw_send(peer, &mine, sizeof mine, 7, nullptr, requests[2 * i + 1].out()), 0);
    }
    for (Request& request : requests) ASSERT_EQ(request.wait(std::chrono::seconds(20)), TW_OK);
    for (uint32_t i = 0; i < size; ++i) EXPECT_EQ(got[i], 1000 + i);
    world.barrier();
  });
}
INSTANTIATE_TEST_SUITE_P(Groups, WorldSizes, testing::Values(1, 2, 3, 5, 8));

/// Costs that were measured, in a file of this test's.
class MeasuredCosts {
 public:
  MeasuredCosts() {
    const char* const before = std::getenv("THALWEG_COSTS");
    before_ = before != nullptr ? before : "";
    setenv("THALWEG_COSTS", (folder_.path + "/costs").c_str(), 1);
    std::string path;
    EXPECT_EQ(impl::save_costs("shm.frame = 777\nshm.copy = 0.0625\ntcp.frame = 8888\ntcp.copy = 0.5", &path), TW_OK)
        << tw_last_error();
  }
  ~MeasuredCosts() { before_.empty() ? unsetenv("THALWEG_COSTS") : setenv("THALWEG_COSTS", before_.c_str(), 1); }

 private:
  const Folder folder_;
  std::string before_;
};

TEST(World, ChoosesByTheCostsThatRank0HasMeasured) {
  const MeasuredCosts measured;
  std::atomic<double> of_rank_0 = 0;
  run_worlds(3, [&](Group& world) {
    const impl::CostTable& table = *world.worker().get()->engine->options().costs;
    EXPECT_TRUE(table.measured()) << table.why;
    if (world.rank() == 0) of_rank_0 = table.shm.frame;
    world.barrier();
    EXPECT_EQ(world.get()->costs.message_ns, of_rank_0);
    EXPECT_NE(of_rank_0, impl::CostTable{}.shm.frame);
    EXPECT_EQ(world.get()->ranks_per_host(), 3u);
    EXPECT_EQ(world.duplicate().get()->costs.message_ns, of_rank_0);
    world.barrier();
  });
}

TEST(World, WithoutSharedMemoryChoosesByTheCostsOfTcp) {
  const MeasuredCosts measured;
  WorldOptions tcp;
  tcp.transports = "self,tcp";
  run_worlds(
      2,
      [](Group& world) {
        EXPECT_EQ(world.get()->costs.message_ns, world.get()->costs.host_message_ns);
        EXPECT_GT(world.get()->costs.message_ns, 0);
        world.barrier();
      },
      tcp);
}

TEST(World, OneSideAloneConnects) {
  run_worlds(3, [](Group& world) {
    uint64_t value = 42;
    if (world.rank() == 0) {
      ASSERT_EQ(tw_send_blocking(world.endpoint(2), &value, sizeof value, 1), TW_OK);
    } else if (world.rank() == 2) {
      value = 0;
      ASSERT_EQ(tw_recv_blocking(world.worker().get(), &value, sizeof value, 1, UINT64_MAX, nullptr), TW_OK);
      EXPECT_EQ(value, 42u);
    }
    world.barrier();
  });
}

TEST(World, ABarrierHoldsUntilTheLastOneComes) {
  std::atomic<uint32_t> here{0};
  run_worlds(5, [&](Group& world) {
    for (uint32_t round = 1; round <= 20; ++round) {
      if (world.rank() == round % 5) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the last one
      here.fetch_add(1);
      world.barrier();
      ASSERT_GE(here.load(), 5 * round);
    }
  });
}

TEST(World, AProgressThreadDoesNotHinder) {
  WorldOptions how;
  how.progress = TW_PROGRESS_THREAD;
  run_worlds(
      4,
      [](Group& world) {
        for (int i = 0; i < 10; ++i) world.barrier();
      },
      how);
}

TEST(World, OverTcp) {
  WorldOptions how;
  how.transports = "self,tcp";
  run_worlds(
      4,
      [](Group& world) {
        for (int i = 0; i < 10; ++i) world.barrier();
        EXPECT_STREQ(tw_endpoint_transport(world.endpoint((world.rank() + 1) % 4)), "tcp");
        world.barrier();
      },
      how);
}

TEST(World, AWindowOverTheGroup) {
  run_worlds(3, [](Group& world) {
    const Memory memory = world.context().allocate(3 * sizeof(uint64_t));
    Window window = world.window(memory);
    for (uint32_t i = 0; i < 3; ++i) {
      auto* part = static_cast<uint64_t*>(window.address(i));
      __atomic_store_n(part + world.rank(), 100 * i + world.rank(), __ATOMIC_RELEASE);
    }
    world.barrier();
    const auto* own = static_cast<const uint64_t*>(memory.data());
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(own[i], 100 * world.rank() + i);
    EXPECT_EQ(window.destroy(), TW_OK);
  });
}

TEST(World, WindowsOfDifferentLengthsAreRefusedByAll) {
  run_worlds(3, [](Group& world) {
    const Memory memory = world.context().allocate(world.rank() == 1 ? 128 : 64);
    std::string text;
    EXPECT_EQ(status_of([&] { (void)world.window(memory); }, &text), TW_ERR_INVALID);
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    world.barrier();
  });
}

TEST(World, ALostRankIsNamedToAll) {
  for (uint32_t lost = 0; lost < 5; ++lost) {
    run_worlds(5, [&](Group& world) {
      world.barrier();
      if (world.rank() == lost) return;
      std::string text;
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(status_of([&] { world.barrier(); }, &text), TW_ERR_PEER_LOST);
      EXPECT_NE(text.find("rank " + std::to_string(lost) + ":"), std::string::npos) << text;
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    });
  }
}

TEST(World, AMissingRankIsATimeOut) {
  const Folder folder;
  WorldOptions how;
  how.timeout_ns = kSecond / 2;
  std::string text;
  EXPECT_EQ(status_of([&] { (void)open_world("file:" + folder.path + "/store", 0, 2, how); }, &text), TW_ERR_TIMED_OUT);
  EXPECT_NE(text.find("of 2 ranks, 1 did not come"), std::string::npos) << text;
}

TEST(World, ARankThatCannotTakePartEndsAll) {
  const Folder folder;
  std::vector<std::thread> threads;
  std::vector<tw_status> status(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      WorldOptions how;
      if (rank == 1) how.transports = "unheard-of";
      status[rank] = status_of([&] { (void)open_world("file:" + folder.path + "/store", rank, 3, how); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const tw_status one : status) EXPECT_EQ(one, TW_ERR_INVALID);
}

TEST(World, EndsBehindItsGroups) {
  run_worlds(2, [](Group& world) {
    tw_init_options options = TW_INIT_OPTIONS_INIT;
    options.rank = 0;
    options.count = 1;
    tw_group *alone = nullptr, *copy = nullptr;
    ASSERT_EQ(tw_init(&options, &alone), TW_OK);
    EXPECT_EQ(tw_group_size(alone), 1u);
    ASSERT_EQ(tw_group_duplicate(alone, &copy), TW_OK);
    EXPECT_EQ(tw_group_destroy(alone), TW_ERR_BUSY);
    EXPECT_EQ(tw_group_destroy(copy), TW_OK);
    EXPECT_EQ(tw_group_destroy(alone), TW_OK);
    world.barrier();
  });
}

TEST(World, WrongArguments) {
  run_worlds(2, [](Group& world) {
    tw_endpoint* endpoint = nullptr;
    tw_group* part = nullptr;
    EXPECT_EQ(tw_group_endpoint(world.get(), 2, &endpoint), TW_ERR_INVALID);
    EXPECT_EQ(tw_group_split_by(world.get(), 17, 0, &part), TW_ERR_INVALID);
    EXPECT_EQ(tw_group_split(world.get(), 0, 0, nullptr), TW_ERR_INVALID);
    EXPECT_EQ(tw_barrier(nullptr, nullptr, nullptr), TW_ERR_INVALID);
    world.barrier();
  });
  EXPECT_EQ(tw_init(nullptr, nullptr), TW_ERR_INVALID);
}

/// A rank that is stopped behind its part of the exchange finds all of it when it goes on: rank 0, which serves it, waits.
TEST(World, RankZeroServesARankThatIsSlow) {
  const uint16_t port = free_port();
  const std::string at = "127.0.0.1:" + std::to_string(port);
  std::atomic<bool> read{false};
  std::thread slow([&] {
    static constexpr char kKey[] = "a secret of more than sixteen bytes";
    tw_store_options options = TW_STORE_OPTIONS_INIT;
    options.job_key = kKey;
    options.job_key_length = sizeof kKey;
    options.rank = 1;
    options.count = 2;
    options.timeout_ns = 20 * kSecond;
    tw_store* store = nullptr;
    ASSERT_EQ(tw_store_open(("tcp:" + at).c_str(), &options, &store), TW_OK) << tw_last_error();
    std::string bytes(65536, '\0');
    size_t length = bytes.size();
    ASSERT_EQ(tw_store_wait(store, "thalweg/exchange/1/1/0", bytes.data(), &length), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_store_put(store, "thalweg/exchange/1/1/1", bytes.data(), length), TW_OK)
        << tw_last_error();                                        // what rank 0 gives
    std::this_thread::sleep_for(std::chrono::milliseconds(2600));  // longer than a store's server lingers, which is the point
    size_t all = bytes.size();
    EXPECT_EQ(tw_store_wait(store, "thalweg/exchange/1/1/all", bytes.data(), &all), TW_OK) << tw_last_error();
    EXPECT_GT(all, 2 * length);
    read = true;
    tw_store_close(store);
  });
  const Group world = open_world("serve:" + at, 0, 2, {});
  EXPECT_TRUE(read);
  slow.join();
}

/// The progress of another thread connects for a collective while this one asks.
TEST(World, ThreadsThatAskAtOnceMakeOneEndpoint) {
  WorldOptions how;
  how.progress = TW_PROGRESS_THREAD;
  for (int round = 0; round < 20; ++round) {
    run_worlds(
        4,
        [](Group& world) {
          float in = 1, out = 0;
          tw_request request = TW_REQUEST_NONE;
          ASSERT_GE(tw_allreduce(world.get(), &in, &out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SUM, nullptr, &request), 0)
              << tw_last_error();
          std::vector<tw_endpoint*> all(4);
          for (uint32_t i = 0; i < 4; ++i) ASSERT_GE(tw_group_endpoint(world.get(), i, &all[i]), 0) << tw_last_error();
          if (request != TW_REQUEST_NONE) ASSERT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
          EXPECT_EQ(out, 4);
          world.barrier();
          const impl::Engine::Guard guard(*world.worker().get()->engine);
          for (uint32_t i = 0; i < 4; ++i) {
            EXPECT_EQ(world.get()->peers->made(i), all[i]);
            EXPECT_EQ(all[i]->references, 1u) << i;
          }
        },
        how);
  }
}

TEST(World, ExchangesLeaveNothingBehind) {
  run_worlds(2, [](Group& world) {
    for (uint32_t i = 0; i < 10'000; ++i) {
      const uint32_t mine = 2 * i + world.rank();
      uint32_t all[2] = {};
      ASSERT_EQ(tw_group_exchange(world.get(), &mine, sizeof mine, all), TW_OK) << tw_last_error();
      ASSERT_TRUE(all[0] == 2 * i && all[1] == 2 * i + 1) << i;
    }
    EXPECT_LT(world.endpoint(1 - world.rank())->watches.size(), 8u);
  });
}

/// It is this rank that has no request left: the other one is well.
TEST(World, WhatThisRankLacksIsNotALostPeer) {
  WorldOptions how;
  how.timeout_ns = 3 * kSecond;
  run_worlds(
      2,
      [](Group& world) {
        const impl::OpDesc nothing;
        impl::Engine& engine = *world.worker().get()->engine;
        std::vector<impl::OpRun*> held;
        if (world.rank() == 0) {
          while (impl::OpRun* const run = engine.acquire(nothing)) held.push_back(run);
        }
        char all[2] = {};
        std::string text;
        const tw_status status = tw_group_exchange(world.get(), "x", 1, all);
        if (status < 0) text = tw_last_error();
        for (impl::OpRun* const run : held) engine.runs().free(*run);
        if (world.rank() == 0) {
          EXPECT_EQ(status, TW_ERR_LIMIT) << text;
          EXPECT_NE(text.find("rank 0: "), std::string::npos) << text;
        }
      },
      how);
}

/// By a callback that runs while the call connects: rank 1's message lies before rank 0 when its call begins, and the call's first
/// progress delivers it. A ring: rank 0 connects to rank 2, too.
TEST(World, IsNotDestroyedWhileAPlansCollectiveConnects) {
  std::atomic<bool> connected{false}, sent{false}, called{false};
  const auto await = [](const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::yield();
  };
  run_worlds(3, [&](Group& world) {
    struct Ending {
      tw_group* group;
      std::atomic<bool>& called;
      tw_status status = TW_OK;
    } ending{world.get(), called};
    char byte = 0;
    tw_request request = TW_REQUEST_NONE;
    if (world.rank() == 0) {
      ASSERT_GE(tw_recv(world.worker().get(), &byte, 1, 98, ~uint64_t{0}, nullptr, &request), 0) << tw_last_error();
      EXPECT_EQ(tw_request_finish(request), TW_OK);
      connected = true;
      await(sent);
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.callback = [](void* arg, tw_request, tw_status, const tw_recv_info*) {
        auto& self = *static_cast<Ending*>(arg);
        self.status = tw_group_destroy(self.group);
        self.called = true;
      };
      options.arg = &ending;
      EXPECT_EQ(tw_recv(world.worker().get(), &byte, 1, 99, ~uint64_t{0}, &options, nullptr), TW_IN_PROGRESS);
    } else if (world.rank() == 1) {
      ASSERT_GE(tw_send(world.endpoint(0), "x", 1, 98, nullptr, &request), 0) << tw_last_error();
      EXPECT_EQ(tw_request_finish(request), TW_OK);
      await(connected);
      ASSERT_GE(tw_send(world.endpoint(0), "x", 1, 99, nullptr, &request), 0) << tw_last_error();
      EXPECT_EQ(tw_request_finish(request), TW_OK);
      sent = true;
    } else {
      await(called);
    }
    tw_plan* plan = nullptr;
    ASSERT_EQ(tw_plan_create(&world.worker().get()->context, nullptr, &plan), TW_OK) << tw_last_error();
    float in = 1, out = 0;
    tw_collective_options ring = TW_COLLECTIVE_OPTIONS_INIT;
    ring.algorithm = "ring";
    EXPECT_EQ(tw_plan_allreduce(plan, world.get(), &in, &out, 1, TW_TYPE_FLOAT32, TW_REDUCE_SUM, &ring, nullptr), TW_OK)
        << tw_last_error();
    if (world.rank() == 0) {
      EXPECT_EQ(ending.status, TW_ERR_BUSY);
      called = true;  // where it was not: the others go on
    }
    EXPECT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error();
    world.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
