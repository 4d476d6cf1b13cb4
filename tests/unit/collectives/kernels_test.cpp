// SPDX-License-Identifier: Apache-2.0
// Collectives on queues of devices that reach each other: one kernel on each, by each protocol.
#include "own_queue.hpp"
#include "planned_jobs.hpp"

namespace thalweg::test {
namespace {

class Kernels : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Kernels, testing::Values(2, 3, 5, 8));

/// Counts around the switches: one word, a block's room of LL (4 KiB), all of it (16 KiB here), several pieces.
constexpr size_t kShort[] = {0, 1, 2, 7, 63, 511, 513, 1'023, 1'999};
/// Of LL128: around a line (120 bytes), two, a block's first; what fills a room of one phase, and one of two (30,720 bytes here).
constexpr size_t kLines[] = {0, 1, 15, 16, 31, 121, 481, 1'023, 3'839};
constexpr size_t kLonger[] = {0, 1, 17, 1'025, 4'099, 33'333};

enum class Blocks { equal, several_lengths };

void run_all(uint32_t ranks, const char* algorithm, std::span<const size_t> counts, size_t longest,
             Blocks blocks = Blocks::equal) {
  const uint64_t seed = fresh_seed();
  run_group(ranks, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    std::vector<std::unique_ptr<Jobs>> all;  // to release a device's memory waits for its kernels, those of other ranks, too
    for (size_t i = 0; i < counts.size(); ++i) {
      const uint64_t pick = seed + i;
      const JobCase c = random_case(pick, counts[i], rank.rank.size, place);
      if (c.count * size_of(c.type) > longest) continue;
      SCOPED_TRACE("count " + std::to_string(c.count) + ", type " + std::to_string(c.type) + ", operation " +
                   std::to_string(c.op));
      Jobs& jobs = *all.emplace_back(std::make_unique<Jobs>(rank, c));
      blocks == Blocks::equal ? jobs.add_equal_blocks() : jobs.add_several_lengths();
      Target target = queue.target();
      target.options.algorithm = algorithm;
      for (uint64_t round = 0; round < 3; ++round) {
        jobs.fill(pick + 100 * round);
        jobs.call(target);
        queue.synchronize();
        ASSERT_EQ(tw_queue_check(queue), TW_OK) << tw_last_error();
        jobs.check(pick + 100 * round);
      }
    }
    rank.rank.barrier();
  });
}

TEST_P(Kernels, ByLl) { run_all(GetParam(), "ll", kShort, 16 << 10); }
TEST_P(Kernels, ByLl128) { run_all(GetParam(), "ll128", kLines, 30'720); }
TEST_P(Kernels, BySimple) { run_all(GetParam(), "simple", kLonger, SIZE_MAX); }
TEST_P(Kernels, OfSeveralLengths) { run_all(GetParam(), "simple", kLonger, SIZE_MAX, Blocks::several_lengths); }
TEST_P(Kernels, ByTheOneThatIsChosen) { run_all(GetParam(), nullptr, kLonger, SIZE_MAX); }

/// Kernels of one device's ranks have to find room there together: more ranks have fewer blocks each, and so less room for LL.
TEST(KernelsOfOneDevice, ShareItsBlocks) {
  if (std::getenv("THALWEG_TEST_PLACES") != nullptr) GTEST_SKIP() << "the room is the emulated devices'";
  constexpr size_t kBytes = 40 << 10;  // a block has 16 KiB, a device 8 blocks
  for (const uint32_t ranks : {2u, 4u, 6u}) {
    run_group(ranks, [&](GroupRank& rank) {
      const std::string place = place_of(rank, true);
      OwnQueue queue(rank, place);
      Room buffer(rank.rank.context, place.c_str(), kBytes);
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.algorithm = "ll";
      const tw_status status =
          tw_allreduce_on(queue, rank.group, TW_IN_PLACE, buffer.data(), kBytes, TW_TYPE_UINT8, TW_REDUCE_MAX, &options);
      EXPECT_EQ(status, ranks == 6 ? TW_ERR_UNSUPPORTED : TW_OK) << tw_last_error();
      queue.synchronize();
      rank.rank.barrier();
    });
  }
}

/// Where two strings of one length differ, in pieces that differ throughout.
std::string differences(const std::string& found, const std::string& wanted) {
  std::string text = "differs at";
  size_t pieces = 0;
  for (size_t at = 0; at < wanted.size() && pieces < 8; ++at) {
    if (found[at] == wanted[at]) continue;
    const size_t first = at;
    while (at < wanted.size() && found[at] != wanted[at]) ++at;
    text += " " + std::to_string(first) + "-" + std::to_string(at - 1);
    ++pieces;
  }
  return text;
}

/// At any address, from every rank; nothing around is touched.
TEST_P(Kernels, Ll128OfAnyAlignment) {
  constexpr size_t kBytes[] = {1, 3, 9, 119, 121, 127, 1'927}, kAround = 32;
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    const uint32_t size = rank.rank.size, me = rank.rank.number;
    const size_t longest = size * kBytes[std::size(kBytes) - 1] + 2 * kAround;
    Room input(rank.rank.context, place.c_str(), longest), output(rank.rank.context, place.c_str(), longest);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "ll128";
    for (const size_t bytes : kBytes) {
      const size_t from = kAround - (bytes + me) % 9, to = kAround - (bytes / 3 + 5 * me) % 11;
      std::vector<std::string> of(size);
      for (uint32_t i = 0; i < size; ++i) {
        std::mt19937_64 random(seed + bytes * 64 + i);
        of[i].resize(bytes * size);
        for (char& byte : of[i]) byte = static_cast<char>(random());
      }
      std::string sent(longest, '\x11'), empty(longest, '\x5a'), wanted = empty;
      const auto check = [&](const char* what, uint32_t by) {
        const std::string found = output.load();
        EXPECT_TRUE(found == wanted) << what << " of " << bytes << " bytes by " << by << " at rank " << me << " seed " << seed
                                     << ": " << differences(found, wanted);
      };
      std::copy(of[me].begin(), of[me].end(), sent.begin() + static_cast<long>(from));
      input.store(sent);
      output.store(empty);
      for (uint32_t i = 0; i < size; ++i) wanted.replace(to + i * bytes, bytes, of[i], me * bytes, bytes);
      ASSERT_EQ(tw_alltoall_on(queue, rank.group, input.data() + from, output.data() + to, bytes, TW_TYPE_UINT8, &options),
                TW_OK)
          << tw_last_error();
      queue.synchronize();
      check("alltoall", me);
      output.store(wanted = empty);
      for (size_t i = 0; i < bytes; ++i) {
        char all = 0;
        for (const std::string& each : of) all = static_cast<char>(all ^ each[i]);
        wanted[to + i] = all;
      }
      ASSERT_EQ(tw_allreduce_on(queue, rank.group, input.data() + from, output.data() + to, bytes, TW_TYPE_UINT8, TW_REDUCE_XOR,
                                &options),
                TW_OK)
          << tw_last_error();
      queue.synchronize();
      check("allreduce", me);
      for (uint32_t root = 0; root < size; ++root) {
        const size_t at = kAround - (bytes + root) % 13;
        wanted = empty;
        wanted.replace(at, bytes, of[root], 0, bytes);
        output.store(me == root ? wanted : empty);
        ASSERT_EQ(tw_broadcast_on(queue, rank.group, output.data() + at, bytes, TW_TYPE_UINT8, root, &options), TW_OK)
            << tw_last_error();
        queue.synchronize();
        check("broadcast", root);
      }
    }
    rank.rank.barrier();
  });
}

/// What LL128 does not do is refused on all ranks, with why; by itself another protocol does it.
TEST(KernelsLl128, RefusesWhatItDoesNotDo) {
  for (const uint32_t ranks : {2u, 9u}) {
    run_group(ranks, [&](GroupRank& rank) {
      const std::string place = place_of(rank, true);
      OwnQueue queue(rank, place);
      constexpr size_t kCount = 4'000'000;  // more than 128 blocks have room for
      Room buffer(rank.rank.context, place.c_str(), kCount * 2);
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.algorithm = "ll128";
      const auto reduced = [&](size_t count, uint32_t type, uint32_t op) {
        return tw_allreduce_on(queue, rank.group, TW_IN_PLACE, buffer.data(), count, type, op, &options);
      };
      EXPECT_EQ(reduced(8, TW_TYPE_FLOAT32, TW_REDUCE_SUM), ranks == 2 ? TW_OK : TW_ERR_UNSUPPORTED) << tw_last_error();
      if (ranks == 9) {
        EXPECT_NE(std::string(tw_last_error()).find("at most eight"), std::string::npos) << tw_last_error();
      }
      EXPECT_EQ(reduced(8, TW_TYPE_FLOAT8_E4M3, TW_REDUCE_SUM), TW_ERR_UNSUPPORTED);
      EXPECT_EQ(reduced(8, TW_TYPE_FLOAT32, TW_REDUCE_AVERAGE), TW_ERR_UNSUPPORTED);
      EXPECT_EQ(tw_broadcast_on(queue, rank.group, buffer.data(), kCount, TW_TYPE_UINT8, 0, &options), TW_ERR_UNSUPPORTED);
      options.algorithm = nullptr;
      EXPECT_EQ(reduced(8, TW_TYPE_FLOAT8_E4M3, TW_REDUCE_SUM), TW_OK) << tw_last_error();
      EXPECT_EQ(tw_broadcast_on(queue, rank.group, buffer.data(), kCount, TW_TYPE_UINT8, 0, &options), TW_OK)
          << tw_last_error();
      queue.synchronize();
      rank.rank.barrier();
    });
  }
}

/// More pieces than slots, in each block of threads.
TEST(KernelsLong, OfManyPieces) {
  const uint64_t seed = fresh_seed();
  for (const uint32_t ranks : {2u, 3u}) {
    run_group(ranks, [&](GroupRank& rank) {
      const std::string place = place_of(rank, true);
      OwnQueue queue(rank, place);
      JobCase c;
      c.count = 500'003;
      c.place = place.c_str();
      c.in_place = ranks == 3;
      Jobs jobs(rank, c);
      jobs.add_equal_blocks();
      Target target = queue.target();
      target.options.algorithm = "simple";
      for (uint64_t round = 0; round < 2; ++round) {
        jobs.fill(seed + round);
        jobs.call(target);
        queue.synchronize();
        jobs.check(seed + round);
      }
      rank.rank.barrier();
    });
  }
}

/// From every root: from less than 16 bytes for each slice to more pieces than slots; aligned, and not. Nothing around is touched.
TEST_P(Kernels, BroadcastInTwoPhases) {
  constexpr size_t kBytes[] = {0, 1, 16, 100, 4'099, 70'001, 650'007}, kAround = 32;
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    Room room(rank.rank.context, place.c_str(), 650'007 + 2 * kAround);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = "two_phases";
    for (uint32_t root = 0; root < rank.rank.size; ++root) {
      for (const size_t bytes : kBytes) {
        const size_t offset = kAround - (bytes + root) % 3;
        std::mt19937_64 random(seed + bytes + root);
        std::string wanted(room.load().size(), '\x5a'), before = wanted;
        for (size_t i = 0; i < bytes; ++i) wanted[offset + i] = static_cast<char>(random());
        room.store(rank.rank.number == root ? wanted : before);
        const tw_status status = tw_broadcast_on(queue, rank.group, room.data() + offset, bytes, TW_TYPE_UINT8, root, &options);
        if (rank.rank.size == 2) {
          EXPECT_EQ(status, TW_ERR_UNSUPPORTED);
          continue;
        }
        ASSERT_EQ(status, TW_OK) << tw_last_error();
        queue.synchronize();
        EXPECT_TRUE(room.load() == wanted) << bytes << " bytes of " << root << " at " << rank.rank.number << " seed " << seed;
      }
    }
    rank.rank.barrier();
  });
}

/// Other roots, other protocols, and no rank waits for the others between two of them.
TEST_P(Kernels, BroadcastsInTwoPhasesFollowEachOther) {
  if (GetParam() == 2) return;
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    std::vector<std::unique_ptr<Jobs>> all;
    for (uint32_t root = 0; root < rank.rank.size; ++root) {
      JobCase c;
      c.root = root;
      c.count = 1 + (seed + root * 40'009) % 100'003;
      c.place = place.c_str();
      all.push_back(std::make_unique<Jobs>(rank, c));
      all.back()->add_broadcast();
    }
    const auto enqueue = [&] {
      for (uint32_t root = 0; root < rank.rank.size; ++root) {
        Target target = queue.target();
        target.options.algorithm = root % 3 != 2 ? "two_phases" : "simple";
        all[root]->call(target);
      }
    };
    const auto fill = [&](uint64_t round) {
      for (const auto& jobs : all) jobs->fill(seed + round);
    };
    const auto check = [&](uint64_t round) {
      queue.synchronize();
      for (const auto& jobs : all) jobs->check(seed + round);
    };
    fill(0);
    for (int i = 0; i < 3; ++i) enqueue();
    check(0);
    OwnGraph graph(queue, enqueue);
    for (uint64_t round = 1; round < 4; ++round) {
      fill(round);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(tw_graph_launch(graph, queue), TW_OK) << tw_last_error();
      check(round);
    }
    rank.rank.barrier();
  });
}

/// All protocols by turns, in a graph that is launched again and again; and barriers.
TEST_P(Kernels, Captured) {
  const uint64_t seed = fresh_seed();
  run_group(GetParam(), [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    JobCase c;
    c.count = 1 + seed % 307;
    c.place = place.c_str();
    Jobs jobs(rank, c);
    jobs.add_equal_blocks();
    OwnQueue queue(rank, place);
    Target ll = queue.target(), lines = queue.target(), simple = queue.target();
    ll.options.algorithm = "ll";
    lines.options.algorithm = "ll128";
    simple.options.algorithm = "simple";
    const auto enqueue = [&] {
      jobs.call(ll);
      ASSERT_EQ(tw_barrier_on(queue, rank.group, nullptr), TW_OK) << tw_last_error();
      jobs.call(lines);
      jobs.call(simple);
      jobs.call(lines);
    };
    jobs.fill(seed);
    enqueue();
    queue.synchronize();
    OwnGraph graph(queue, enqueue);
    for (uint64_t round = 1; round < 10; ++round) {
      jobs.fill(seed + round * 100);
      ASSERT_EQ(tw_graph_launch(graph, queue), TW_OK) << tw_last_error();
      queue.synchronize();
      jobs.check(seed + round * 100);
    }
    rank.rank.barrier();
  });
}

/// A group's collectives on two queues come one after the other, in the order of the calls.
TEST(KernelsAtOnce, OnTwoQueuesKeepTheirOrder) {
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    JobCase c;
    c.count = 703;
    c.place = place.c_str();
    Jobs one(rank, c), two(rank, c);
    one.add_equal_blocks();
    two.add_equal_blocks();
    OwnQueue queue(rank, place), beside(rank, place);
    for (uint64_t round = 0; round < 10; ++round) {
      one.fill(seed + round * 100);
      two.fill(seed + round * 100 + 50);
      one.call(queue.target());
      two.call(beside.target());
      queue.synchronize();
      beside.synchronize();
      one.check(seed + round * 100);
      two.check(seed + round * 100 + 50);
    }
    rank.rank.barrier();
  });
}

/// Two groups, on a queue each: which one is called first differs between ranks.
TEST(KernelsAtOnce, OfTwoGroupsInAnyOrder) {
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    tw_group* other = nullptr;
    rank.make(&other);
    {
      JobCase c;
      c.count = 703;
      c.place = place.c_str();
      Jobs one(rank, c), two(rank, c, other);
      one.add_equal_blocks();
      two.add_equal_blocks();
      OwnQueue queue(rank, place), beside(rank, place);
      for (uint64_t round = 0; round < 10; ++round) {
        one.fill(seed + round * 100);
        two.fill(seed + round * 100 + 50);
        const bool turned = round != 0 && (rank.rank.number + round) % 2 == 1;  // the first calls make the areas, by the host
        if (turned) two.call(beside.target());
        one.call(queue.target());
        if (!turned) two.call(beside.target());
        queue.synchronize();
        beside.synchronize();
        one.check(seed + round * 100);
        two.check(seed + round * 100 + 50);
      }
      rank.rank.barrier();
    }
    EXPECT_EQ(tw_barrier(other, nullptr, nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_group_destroy(other), TW_OK) << tw_last_error();
  });
}

/// The same bits by all protocols, and by the host's schedule in the order of ranks.
TEST(KernelsBits, AreThoseOfTheScheduleOneShot) {
  constexpr size_t kCount = 1'001;
  const uint64_t seed = fresh_seed();
  for (const uint32_t type : {uint32_t{TW_TYPE_FLOAT32}, uint32_t{TW_TYPE_BFLOAT16}, uint32_t{TW_TYPE_FLOAT16}}) {
    run_group(5, [&](GroupRank& rank) {
      const std::string place = place_of(rank, true);
      const size_t bytes = kCount * size_of(type);
      std::mt19937_64 random(seed + rank.rank.number);
      Values values(kCount);
      for (double& value : values) value = std::ldexp(static_cast<double>(random() % 2'000) - 1'000, -7);
      Room send(rank.rank.context, place.c_str(), bytes), recv(rank.rank.context, place.c_str(), bytes);
      Room host_send(rank.rank.context, "host", bytes), host_recv(rank.rank.context, "host", bytes);
      send.store(encode(type, values));
      host_send.store(encode(type, values));
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.algorithm = "one_shot";
      ASSERT_EQ(tw_allreduce(rank.group, host_send.data(), host_recv.data(), kCount, type, TW_REDUCE_SUM, &options, nullptr),
                TW_OK)
          << tw_last_error();
      OwnQueue queue(rank, place);
      for (const char* algorithm : {"ll", "ll128", "simple"}) {
        options.algorithm = algorithm;
        recv.store(std::string(bytes, '\0'));
        ASSERT_EQ(tw_allreduce_on(queue, rank.group, send.data(), recv.data(), kCount, type, TW_REDUCE_SUM, &options), TW_OK)
            << tw_last_error();
        queue.synchronize();
        EXPECT_TRUE(recv.load() == host_recv.load()) << algorithm << " type " << type;
      }
      rank.rank.barrier();
    });
  }
}

/// One rank's queue is the host's: all go by steps, whichever is called.
TEST(KernelsWithout, AQueueOfTheHostAllTakeSteps) {
  const uint64_t seed = fresh_seed();
  run_group(3, [&](GroupRank& rank) {
    const std::string place = place_of(rank, rank.rank.number != 1);
    JobCase c;
    c.count = 97;
    c.place = place.c_str();
    Jobs jobs(rank, c);
    jobs.add_allreduce();
    OwnQueue queue(rank, place);
    for (uint64_t round = 0; round < 3; ++round) {
      jobs.fill(seed + round);
      jobs.call(queue.target());
      queue.synchronize();
      jobs.check(seed + round);
    }
    Target named = queue.target();
    named.options.algorithm = "ll";
    Room room(rank.rank.context, place.c_str(), 8);
    EXPECT_EQ(tw_broadcast_on(queue, rank.group, room.data(), 8, TW_TYPE_INT8, 0, &named.options), TW_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(tw_last_error()).find("queues, and plans that name a kernel, of devices"), std::string::npos)
        << tw_last_error();
    rank.rank.barrier();
  });
}

/// Repeatable reductions go by steps, beside all else by kernels.
TEST(KernelsWithout, AnyOrderTakeSteps) {
  const uint64_t seed = fresh_seed();
  run_group(4, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    JobCase c;
    c.count = 211;
    c.place = place.c_str();
    Jobs jobs(rank, c), repeated(rank, c);
    jobs.add_all();
    repeated.add_allreduce();
    OwnQueue queue(rank, place);
    Target repeatable = queue.target();
    repeatable.options.flags = TW_COLLECTIVE_REPEATABLE;
    for (uint64_t round = 0; round < 3; ++round) {
      jobs.fill(seed + round);
      repeated.fill(seed + round + 50);
      jobs.call(queue.target());
      repeated.call(repeatable);
      queue.synchronize();
      jobs.check(seed + round);
      repeated.check(seed + round + 50);
    }
    rank.rank.barrier();
  });
}

/// What the device does not reach is refused, with the remedy.
TEST(KernelsRefuse, OrdinaryMemory) {
  run_group(2, [&](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    OwnQueue queue(rank, place);
    ASSERT_EQ(tw_barrier_on(queue, rank.group, nullptr), TW_OK) << tw_last_error();
    std::vector<int> ordinary(100);
    EXPECT_EQ(tw_broadcast_on(queue, rank.group, ordinary.data(), 100, TW_TYPE_INT32, 0, nullptr), TW_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(tw_last_error()).find("name an algorithm of several steps"), std::string::npos) << tw_last_error();
    OwnQueue host(rank, "host");
    EXPECT_EQ(tw_barrier_on(host, rank.group, nullptr), TW_ERR_INVALID);
    EXPECT_NE(std::string(tw_last_error()).find("another device"), std::string::npos) << tw_last_error();
    tw_collective_options steps = TW_COLLECTIVE_OPTIONS_INIT;
    steps.algorithm = "linear";
    std::fill(ordinary.begin(), ordinary.end(), static_cast<int>(rank.rank.number));
    ASSERT_EQ(tw_broadcast_on(queue, rank.group, ordinary.data(), 100, TW_TYPE_INT32, 1, &steps), TW_OK) << tw_last_error();
    queue.synchronize();
    EXPECT_EQ(ordinary, std::vector<int>(100, 1));
  });
}

}  // namespace
}  // namespace thalweg::test
