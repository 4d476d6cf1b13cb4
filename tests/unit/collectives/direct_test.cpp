// SPDX-License-Identifier: Apache-2.0
// Blocking collectives over memory that all ranks map: when that is the way, beside others, and with a rank that does not keep to it.
#include <sys/mman.h>
#include <thalweg/views.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <thread>

#include "collectives/collectives.hpp"
#include "collectives/element_loops.hpp"
#include "collectives/elements.hpp"
#include "group_ranks.hpp"

namespace thalweg::test {
namespace {

tw_collective_options named(const char* algorithm) {
  tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
  options.algorithm = algorithm;
  options.timeout_ns = 20 * kSecond;
  return options;
}

tw_status sum(tw_group* group, std::vector<int64_t>& values, const tw_collective_options* options,
              tw_request* request = nullptr) {
  return tw_allreduce(group, TW_IN_PLACE, values.data(), values.size(), TW_TYPE_INT64, TW_REDUCE_SUM, options, request);
}

TEST(DirectCollectives, AreOfBlockingCallsAlone) {
  run_group(3, [](GroupRank& rank) {
    std::vector<int64_t> values(100, rank.rank.number);
    tw_collective_options direct = named("direct");
    EXPECT_EQ(sum(rank.group, values, &direct), TW_OK) << tw_last_error();
    EXPECT_EQ(values, std::vector<int64_t>(100, 3));
    EXPECT_NE(rank.group->collectives->direct(), nullptr);
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(sum(rank.group, values, &direct, &request), TW_ERR_UNSUPPORTED);
    direct.flags = TW_COLLECTIVE_REPEATABLE;
    EXPECT_EQ(sum(rank.group, values, &direct), TW_ERR_UNSUPPORTED) << "non-blocking calls have another order";
    const tw_collective_options ring = named("ring");
    EXPECT_EQ(sum(rank.group, values, &ring), TW_OK) << tw_last_error();
    EXPECT_EQ(values, std::vector<int64_t>(100, 9));
  });
}

TEST(DirectCollectives, NeedSharedMemory) {
  RankOptions over_tcp;
  over_tcp.transport = "tcp";
  run_group(
      2,
      [](GroupRank& rank) {
        std::vector<int64_t> values(10, 1);
        const tw_collective_options direct = named("direct");
        EXPECT_EQ(sum(rank.group, values, &direct), TW_ERR_UNSUPPORTED) << "on all ranks";
        EXPECT_NE(std::string(tw_last_error()).find("does not share memory"), std::string::npos) << tw_last_error();
        EXPECT_EQ(sum(rank.group, values, nullptr), TW_OK) << tw_last_error();
        EXPECT_EQ(values, std::vector<int64_t>(10, 2));
      },
      over_tcp);
}

/// Only the root knows all counts: what the others know must not decide which way it goes.
TEST(DirectCollectives, AreChosenByAllRanksOrNoneWhereOnlyTheRootHasTheCounts) {
  run_group(3, [](GroupRank& rank) {
    const uint32_t me = rank.rank.number;
    rank.group->costs.message_ns = 400;  // long blocks are faster by messages, short ones directly
    rank.group->costs.byte_ns = 0.001;
    for (const size_t longest : {size_t{2000}, size_t{20'000}, size_t{400'000}}) {
      const std::vector<size_t> counts{longest, 1, longest / 2};
      const std::vector<int64_t> whole(longest + 1 + longest / 2, 7);
      std::vector<int64_t> own(counts[me], 0), all(whole.size(), 0);
      tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
      options.timeout_ns = 5 * kSecond;
      ASSERT_EQ(tw_scatterv(rank.group, whole.data(), counts.data(), nullptr, own.data(), own.size(), TW_TYPE_INT64, 0,
                            &options, nullptr),
                TW_OK)
          << tw_last_error();
      EXPECT_EQ(own, std::vector<int64_t>(counts[me], 7));
      ASSERT_EQ(tw_gatherv(rank.group, own.data(), own.size(), all.data(), counts.data(), nullptr, TW_TYPE_INT64, 0, &options,
                           nullptr),
                TW_OK)
          << tw_last_error();
      if (me == 0) EXPECT_EQ(all, whole);
    }
  });
}

/// One step of a random order that all ranks have: a blocking sum, by any way, one under way while others run, a message, a barrier.
struct Traffic {
  GroupRank& rank;
  std::vector<int64_t> late;
  tw_request under_way = TW_REQUEST_NONE;
  int64_t late_expected = 0;

  void sums(size_t count, const tw_collective_options* options) {
    const uint32_t size = rank.rank.size;
    std::vector<int64_t> values(count, rank.rank.number + 1);
    ASSERT_EQ(sum(rank.group, values, options), TW_OK) << tw_last_error();
    ASSERT_EQ(values, std::vector<int64_t>(count, size * (size + 1) / 2));
  }
  void finish() {
    if (under_way == TW_REQUEST_NONE) return;
    ASSERT_EQ(tw_request_finish(std::exchange(under_way, TW_REQUEST_NONE)), TW_OK) << tw_last_error();
    ASSERT_EQ(late, std::vector<int64_t>(late.size(), late_expected));
  }
  void begin(size_t count) {
    finish();
    late.assign(count, 2);
    late_expected = 2 * rank.rank.size;
    ASSERT_EQ(sum(rank.group, late, nullptr, &under_way), TW_IN_PROGRESS) << tw_last_error();
  }
  void message(size_t length) {
    const uint32_t size = rank.rank.size, me = rank.rank.number;
    const std::string text(length, 'm');
    std::string got(length, '-');
    tw_request receive = TW_REQUEST_NONE;
    tw_worker* const worker = rank.rank.worker->get();
    const tw_status posted = tw_recv(worker, got.data(), got.size(), 7, ~uint64_t{0}, nullptr, &receive);
    ASSERT_GE(posted, TW_OK);
    ASSERT_EQ(tw_send_blocking(rank.rank.handles[(me + 1) % size], text.data(), length, 7), TW_OK) << tw_last_error();
    if (posted == TW_IN_PROGRESS) ASSERT_EQ(tw_request_finish(receive), TW_OK) << tw_last_error();
    ASSERT_EQ(got, text);
  }
};

TEST(DirectCollectives, MixWithAllElse) {
  const uint64_t seed = std::random_device{}();
  for (const uint32_t size : {2u, 5u}) {
    run_group(size, [&](GroupRank& rank) {
      std::mt19937_64 random(seed);
      Traffic traffic{rank, {}};
      const tw_collective_options by_messages = named("recursive_doubling");
      for (int i = 0; i < 150; ++i) {
        const size_t count = random() % 3 == 0 ? random() % 60'000 + 1 : random() % 20 + 1;
        switch (random() % 6) {
          case 0:
            traffic.begin(count);
            break;
          case 1:
            traffic.message(count);
            break;
          case 2:
            traffic.sums(count, &by_messages);
            break;
          case 3:
            ASSERT_EQ(tw_barrier(rank.group, nullptr, nullptr), TW_OK) << tw_last_error();
            break;
          default:
            traffic.sums(count, nullptr);
        }
      }
      traffic.finish();
    });
  }
}

std::vector<unsigned char> random_elements(uint64_t bytes, std::mt19937_64& random) {
  std::vector<unsigned char> made(bytes);
  for (unsigned char& one : made) one = static_cast<unsigned char>(random());
  return made;
}

/// As on a machine with a core for each rank, where short reductions and barriers go by groups of ranks.
TEST(DirectCollectives, GoByGroupsOfRanks) {
  const uint64_t seed = std::random_device{}();
  for (const uint32_t size : {4u, 7u, 9u, 16u, 24u}) {  // short ones by groups of 16 and 24, barriers of 24
    run_group(size, [&](GroupRank& rank) {
      const tw_collective_options options = named("direct");
      ASSERT_EQ(tw_barrier(rank.group, &options, nullptr), TW_OK) << tw_last_error();
      impl::DirectArea& area = *rank.group->collectives->direct();
      area.go_by(false, area.all_readable());
      std::mt19937_64 random(seed);
      const uint32_t me = rank.rank.number;
      for (int i = 0; i < 60; ++i) {
        const size_t count = random() % 3 == 0 ? random() % 512 + 1 : random() % 16 + 1;
        std::vector<double> values(count), result(count, -1);
        for (size_t k = 0; k < count; ++k) values[k] = me + static_cast<double>(k);
        const uint32_t op = random() % 2 == 0 ? TW_REDUCE_AVERAGE : TW_REDUCE_MAX;
        ASSERT_EQ(tw_allreduce(rank.group, values.data(), result.data(), count, TW_TYPE_FLOAT64, op, &options, nullptr), TW_OK)
            << tw_last_error();
        for (size_t k = 0; k < count; ++k)
          ASSERT_EQ(result[k], (op == TW_REDUCE_MAX ? size - 1 : (size - 1) / 2.0) + static_cast<double>(k)) << count;
        if (random() % 3 == 0) {
          ASSERT_EQ(tw_barrier(rank.group, &options, nullptr), TW_OK) << tw_last_error();
        }
      }
    });
  }
}

/// Short and long ones by turns, without anything that holds the root back but that buffers are used again.
TEST(DirectCollectives, TheRootOfBroadcastsRunsAhead) {
  const uint64_t seed = std::random_device{}();
  for (const uint32_t size : {2u, 5u}) {
    run_group(size, [&](GroupRank& rank) {
      const tw_collective_options options = named("direct");
      std::mt19937_64 random(seed);
      for (int i = 0; i < 400; ++i) {
        const size_t longest[] = {112, 4096, 300'000};
        std::vector<unsigned char> bytes(random() % longest[i / 50 % 3] + 1);
        const auto root = static_cast<uint32_t>(i / 100 % size);
        const std::vector<unsigned char> expected = random_elements(bytes.size(), random);
        if (rank.rank.number == root) bytes = expected;
        ASSERT_EQ(tw_broadcast(rank.group, bytes.data(), bytes.size(), TW_TYPE_UINT8, root, &options, nullptr), TW_OK)
            << tw_last_error();
        ASSERT_TRUE(bytes == expected) << i << " of " << expected.size();
      }
    });
  }
}

/// By shares, behind which other ranks go on at once and use the buffers again that one still reads.
TEST(DirectCollectives, AReductionIsReadBeforeItsBuffersAreUsedAgain) {
  run_group(4, [&](GroupRank& rank) {
    const tw_collective_options options = named("direct");
    constexpr size_t kCount = 65'536;
    const uint32_t me = rank.rank.number;
    std::vector<int64_t> in(kCount), out(kCount), sent(40'000);
    for (uint32_t i = 0; i < 100; ++i) {
      const uint32_t root = i % 4, other = (i + 3) % 4;
      for (size_t k = 0; k < kCount; ++k) in[k] = me + i + static_cast<int64_t>(k);
      std::fill(sent.begin(), sent.end(), me == other ? -int64_t{i} : 0);
      ASSERT_EQ(tw_reduce(rank.group, in.data(), out.data(), kCount, TW_TYPE_INT64, TW_REDUCE_SUM, root, &options, nullptr),
                TW_OK)
          << tw_last_error();
      ASSERT_EQ(tw_broadcast(rank.group, sent.data(), sent.size(), TW_TYPE_INT64, other, &options, nullptr), TW_OK)
          << tw_last_error();
      for (size_t k = 0; k < kCount && me == root; ++k)
        ASSERT_EQ(out[k], 6 + 4 * (i + static_cast<int64_t>(k))) << i << " at " << k;
      ASSERT_EQ(sent, std::vector<int64_t>(sent.size(), -int64_t{i}));
    }
  });
}

/// Long blocks are read where they are, if that can be on all ranks: not in place on one of them.
TEST(DirectCollectives, BlocksOfAnAlltoallAreReadWhereTheyAre) {
  for (const uint32_t size : {2u, 5u}) {
    run_group(size, [&](GroupRank& rank) {
      const tw_collective_options options = named("direct");
      const uint32_t me = rank.rank.number;
      for (const size_t count : {size_t{1}, size_t{9'999}, size_t{20'001}, size_t{200'003}}) {
        for (const bool placed : {false, true}) {
          std::vector<uint64_t> from(count * size), to(count * size + 1, 77);
          for (size_t i = 0; i < from.size(); ++i) from[i] = me << 24 | i;
          const bool here = placed && me == 0;
          if (here) std::copy(from.begin(), from.end(), to.begin());
          ASSERT_EQ(
              tw_alltoall(rank.group, here ? TW_IN_PLACE : from.data(), to.data(), count, TW_TYPE_INT64, &options, nullptr),
              TW_OK)
              << tw_last_error();
          std::fill(from.begin(), from.end(), 0);  // all have read
          for (size_t i = 0; i < count * size; ++i)
            ASSERT_EQ(to[i], uint64_t{i / count} << 24 | (me * count + i % count)) << count << (placed ? " in place" : "");
          ASSERT_EQ(to.back(), 77u);
        }
      }
    });
  }
}

/// Pages of their own, of which one may be taken away.
class Pages {
 public:
  explicit Pages(size_t length) : length_(length) {
    memory_ = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~Pages() { munmap(memory_, length_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  uint64_t* words() const { return static_cast<uint64_t*>(memory_); }
  void forbid(size_t offset, size_t length) const {
    EXPECT_EQ(mprotect(static_cast<char*>(memory_) + offset, length, PROT_NONE), 0);
  }

 private:
  const size_t length_;
  void* memory_;
};

/// Where a rank says that its block is, nothing can be read: the reader gets an error, also where both are one process.
TEST(DirectCollectives, AnAddressThatCannotBeReadIsAnError) {
  run_ranks(3, [](Rank& one) {
    GroupRank rank(one);
    const tw_collective_options options = named("direct");
    constexpr size_t kWords = 1u << 18;
    rank.group->costs.read_ns = 1;  // blocks are read where they are
    rank.group->costs.read_byte_ns = 1e-6;
    rank.group->costs.serial_byte_ns = 1;
    const Pages from(3 * kWords * sizeof(uint64_t));
    std::vector<uint64_t> to(3 * kWords);
    std::fill_n(from.words(), 3 * kWords, one.number);
    ASSERT_EQ(tw_alltoall(rank.group, from.words(), to.data(), kWords, TW_TYPE_INT64, &options, nullptr), TW_OK)
        << tw_last_error();
    for (size_t i = 0; i < to.size(); ++i) ASSERT_EQ(to[i], i / kWords);
    if (one.number == 1) from.forbid(kWords * sizeof(uint64_t) / 2, 1u << 16);  // in the block for rank 0
    EXPECT_EQ(tw_alltoall(rank.group, from.words(), to.data(), kWords, TW_TYPE_INT64, &options, nullptr), TW_ERR_INVALID)
        << tw_last_error();
    EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
    one.barrier();
  });
}

/// A rank that publishes a step to which it cannot have come: the others end, and read nothing by its numbers.
TEST(DirectCollectives, ALyingRankIsNamed) {
  run_ranks(3, [](Rank& one) {
    GroupRank rank(one);
    const tw_collective_options options = named(nullptr);
    EXPECT_EQ(tw_barrier(rank.group, &options, nullptr), TW_OK) << tw_last_error();
    one.barrier();
    if (one.number == 1) {
      impl::DirectArea& area = *rank.group->collectives->direct();
      for (uint64_t step = 0; step < impl::DirectArea::kLines; ++step) {
        const uint64_t lie = 1'000'000;
        std::memcpy(area.part(1, step, impl::Room::line) - 16, &lie, sizeof lie);  // the number before what is published
      }
    }
    one.barrier();
    if (one.number != 1) {
      EXPECT_EQ(tw_barrier(rank.group, &options, nullptr), TW_ERR_PROTOCOL) << tw_last_error();
      EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
    }
    one.barrier();
    if (one.number == 1) {
      const tw_status first = tw_barrier(rank.group, &options, nullptr);  // the others had come in
      EXPECT_TRUE(first == TW_OK || first == TW_ERR_PROTOCOL) << tw_last_error();
      EXPECT_EQ(tw_barrier(rank.group, &options, nullptr), TW_ERR_PROTOCOL) << tw_last_error();
    }
    one.barrier();
  });
}

/// As the root of a scatter that publishes a length which no buffer has, and then step after step, for eight seconds at most.
void lie_of_length(impl::DirectArea& area, std::atomic<bool>& lying) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(8);
  const uint64_t first = area.next(), length = uint64_t{1} << 57;
  auto* const words = reinterpret_cast<uint64_t*>(area.part(0, first, impl::Room::line)) - 2;  // its number, and what it called
  while (std::atomic_ref(words[0]).load(std::memory_order_acquire) != first) std::this_thread::yield();
  ASSERT_EQ(area.begin(std::atomic_ref(words[1]).load() ^ area.agreed(), "a lie", 20 * kSecond), TW_OK) << tw_last_error();
  ASSERT_EQ(area.reserve(impl::Room::line), TW_OK) << tw_last_error();
  std::memcpy(area.part(1, first, impl::Room::line), &length, sizeof length);
  area.publish();
  area.go_on_by(length);
  for (int step = 0; area.reserve(impl::Room::large) == TW_OK && std::chrono::steady_clock::now() < limit; ++step) {
    area.publish();
    if (step == 1000) lying = true;
  }
  area.end();
}

/// Steps that always come at once, and never end: the call keeps to its time, and ends with an interrupt.
TEST(DirectCollectives, ALengthThatNoBufferHasKeepsNobodyBeyondItsTime) {
  for (const bool interrupts : {false, true}) {
    std::atomic<bool> lying{false};
    run_ranks(2, [&](Rank& one) {
      GroupRank rank(one);
      tw_collective_options options = named("direct");
      EXPECT_EQ(tw_barrier(rank.group, &options, nullptr), TW_OK) << tw_last_error();
      one.barrier();
      if (one.number == 1) {
        lie_of_length(*rank.group->collectives->direct(), lying);
      } else {
        if (!interrupts) options.timeout_ns = kSecond / 2;
        if (interrupts) tw_set_interrupt([](void* on) { return static_cast<std::atomic<bool>*>(on)->load() ? 1 : 0; }, &lying);
        const auto begin = std::chrono::steady_clock::now();
        std::string got(1001, '-');
        const tw_status status =
            tw_scatterv(rank.group, nullptr, nullptr, nullptr, got.data(), got.size(), TW_TYPE_UINT8, 1, &options, nullptr);
        tw_set_interrupt(nullptr, nullptr);
        EXPECT_EQ(status, interrupts ? TW_ERR_CANCELED : TW_ERR_TIMED_OUT) << tw_last_error();
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
      }
      one.barrier();
    });
  }
}

/// ... also where no rank has to wait for long.
TEST(DirectCollectives, LongOnesKeepToTheirTimeAndEndWithAnInterrupt) {
  const std::string sent = random_bytes((17u << 20) + 5);  // more than 256 pieces
  for (const bool interrupts : {false, true}) {
    run_ranks(2, [&](Rank& one) {
      GroupRank rank(one);
      tw_collective_options options = named("direct");
      std::string bytes(sent.size(), '-');
      if (one.number == 1) bytes = sent;
      const auto broadcast = [&] {
        one.barrier();
        return tw_broadcast(rank.group, bytes.data(), bytes.size(), TW_TYPE_UINT8, 1, &options, nullptr);
      };
      EXPECT_EQ(broadcast(), TW_OK) << tw_last_error();
      EXPECT_TRUE(bytes == sent);
      if (!interrupts) options.timeout_ns = 1;
      if (interrupts && one.number == 0) tw_set_interrupt([](void*) { return 1; }, nullptr);
      const tw_status status = broadcast();
      tw_set_interrupt(nullptr, nullptr);
      EXPECT_EQ(status, interrupts ? TW_ERR_CANCELED : TW_ERR_TIMED_OUT) << tw_last_error();
      one.barrier();
    });
  }
}

/// Of what decides by which ways collectives go, a rank has told this one and others different things when the area was made.
TEST(DirectCollectives, RanksThatWereToldOtherThingsAtTheSetUpFindOut) {
  enum class Lie { costs, cores, readable };
  for (const Lie lie : {Lie::costs, Lie::cores, Lie::readable}) {
    run_ranks(3, [&](Rank& one) {
      GroupRank rank(one);
      const tw_collective_options options = named("direct");
      const bool other = one.number == 2;
      if (other && lie == Lie::costs) rank.group->costs.read_byte_ns *= 2;
      if (lie != Lie::costs) {
        EXPECT_EQ(tw_barrier(rank.group, &options, nullptr), TW_OK) << tw_last_error();
        one.barrier();
        impl::DirectArea& area = *rank.group->collectives->direct();
        if (other) area.go_by(area.crowded() != (lie == Lie::cores), area.all_readable() != (lie == Lie::readable));
      }
      std::vector<int64_t> values(1'000, 1);
      tw_status status = sum(rank.group, values, &options);
      if (status == TW_OK) status = tw_barrier(rank.group, &options, nullptr);
      EXPECT_EQ(status, TW_ERR_PROTOCOL) << tw_last_error();
      EXPECT_NE(std::string(tw_last_error()).find("when the group's shared memory was set up"), std::string::npos)
          << tw_last_error();
      one.barrier();
    });
  }
}

#ifndef __SANITIZE_THREAD__  // its point is a race
/// A rank that changes, while others read it, whether its memory can be read: ranks that go different ways by it end with an error,
/// and give nobody wrong blocks.
TEST(DirectCollectives, ARankThatTellsOthersDifferentThingsIsFoundOut) {
  std::atomic<bool> over{false};
  run_ranks(3, [&](Rank& one) {
    GroupRank rank(one);
    tw_collective_options options = named("direct");
    options.timeout_ns = 5 * kSecond;
    constexpr size_t kWords = 1u << 13;
    rank.group->costs.read_ns = 1;  // blocks are read where they are
    rank.group->costs.read_byte_ns = 1e-6;
    rank.group->costs.serial_byte_ns = 1;
    std::vector<uint64_t> from(3 * kWords), to(3 * kWords);
    ASSERT_EQ(tw_alltoall(rank.group, from.data(), to.data(), kWords, TW_TYPE_INT64, &options, nullptr), TW_OK)
        << tw_last_error();
    one.barrier();
    std::thread liar;
    if (one.number == 1) {
      liar = std::thread([&] {
        impl::DirectArea& area = *rank.group->collectives->direct();
        for (uint64_t turn = 0; !over; ++turn) {
          for (uint64_t step = 0; step < impl::DirectArea::kLines; ++step) {
            auto* const can = reinterpret_cast<uint64_t*>(area.part(1, step, impl::Room::small));
            std::atomic_ref(*can).store(turn & 1, std::memory_order_relaxed);
          }
        }
      });
    }
    tw_status status = TW_OK;
    bool right = true;
    for (uint32_t round = 0; round < 5000 && right && status == TW_OK; ++round) {
      for (size_t i = 0; i < from.size(); ++i) from[i] = uint64_t{round} << 32 | one.number << 24 | i;
      std::fill(to.begin(), to.end(), 0);
      status = tw_alltoall(rank.group, from.data(), to.data(), kWords, TW_TYPE_INT64, &options, nullptr);
      for (size_t i = 0; i < to.size() && status == TW_OK && one.number != 1; ++i)
        right = right && to[i] == (uint64_t{round} << 32 | uint64_t{i / kWords} << 24 | (one.number * kWords + i % kWords));
    }
    EXPECT_TRUE(right);
    EXPECT_EQ(status, TW_ERR_PROTOCOL) << tw_last_error();
    over = true;
    if (liar.joinable()) liar.join();
    one.barrier();
  });
}
#endif

/// A function of the user's that waits in the group would use what the call around it uses.
TEST(DirectCollectives, AFunctionMayNotCallTheGroup) {
  run_group(2, [](GroupRank& rank) {
    struct Reducer {
      tw_group* group;
      std::atomic<int> busy{0}, others{0};
    } reducer{rank.group};
    tw_collective_options options = named("direct");
    options.reduce = [](const void* in, void* inout, size_t count, void* arg) {
      auto& self = *static_cast<Reducer*>(arg);
      ++(tw_barrier(self.group, nullptr, nullptr) == TW_ERR_BUSY ? self.busy : self.others);
      for (size_t i = 0; i < count; ++i) static_cast<int64_t*>(inout)[i] += static_cast<const int64_t*>(in)[i];
      return tw_status{TW_OK};
    };
    options.reduce_arg = &reducer;
    std::vector<int64_t> in(1u << 17), out(in.size(), -1);
    for (size_t i = 0; i < in.size(); ++i) in[i] = rank.rank.number + 2 * static_cast<int64_t>(i);
    ASSERT_EQ(tw_allreduce(rank.group, in.data(), out.data(), in.size(), TW_TYPE_INT64, TW_REDUCE_USER, &options, nullptr),
              TW_OK)
        << tw_last_error();
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 1 + 4 * static_cast<int64_t>(i));
    EXPECT_GT(reducer.busy, 0);
    EXPECT_EQ(reducer.others, 0);
  });
}

/// No NaN of 32 or 64 bits: which payload comes out of two of them is the compiler's choice.
std::vector<unsigned char> random_operand(uint32_t type, uint64_t bytes, std::mt19937_64& random) {
  std::vector<unsigned char> made = random_elements(bytes, random);
  const uint64_t element = impl::element_size(type);
  for (uint64_t i = element; (type == TW_TYPE_FLOAT32 || type == TW_TYPE_FLOAT64) && i <= bytes; i += element)
    made[i - 1] &= 0xbf;
  return made;
}

/// Many elements and single ones.
TEST(ElementLoops, GiveTheBitsOfOneElementAfterTheOther) {
  std::mt19937_64 random(std::random_device{}());
  impl::ReduceRoom room;
  for (uint32_t type : {TW_TYPE_FLOAT16, TW_TYPE_FLOAT32, TW_TYPE_FLOAT64, TW_TYPE_INT32, TW_TYPE_INT64}) {
    for (uint32_t op : {TW_REDUCE_SUM, TW_REDUCE_PRODUCT, TW_REDUCE_MIN, TW_REDUCE_MAX}) {
      for (size_t operands = 2; operands <= 6; ++operands) {
        const uint64_t count = 203, element = impl::element_size(type);
        std::vector<std::vector<unsigned char>> from;
        std::vector<uint64_t> sources;
        for (size_t i = 0; i < operands; ++i) {
          from.push_back(random_operand(type, count * element, random));
          sources.push_back(reinterpret_cast<uint64_t>(from.back().data()));
        }
        std::vector<unsigned char> whole(count * element), single(count * element);
        const impl::Operation what{type, op};
        impl::reduce_host(what, reinterpret_cast<std::byte*>(whole.data()), sources, count, room);
        for (uint64_t i = 0; i < count; ++i) {  // too few for vectors
          std::vector<uint64_t> at = sources;
          for (uint64_t& address : at) address += i * element;
          impl::reduce_host(what, reinterpret_cast<std::byte*>(single.data() + i * element), at, 1, room);
        }
        EXPECT_TRUE(whole == single) << "type " << type << " operation " << op << " of " << operands;
        impl::reduce_host(what, reinterpret_cast<std::byte*>(from[1].data()), sources, count, room);
        EXPECT_TRUE(from[1] == whole) << "in the place of an operand: type " << type << " operation " << op << " of "
                                      << operands;
      }
    }
  }
}

}  // namespace
}  // namespace thalweg::test
