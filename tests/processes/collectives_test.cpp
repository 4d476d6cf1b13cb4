// SPDX-License-Identifier: Apache-2.0
// Collectives between three processes over shm and tcp, until one of them is killed: the others end with an error that names it. And
// groups with collectives on queues that end on one rank long before they do on others.
#include <gtest/gtest.h>
#include <thalweg/thalweg.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "../fixtures/rooms.hpp"
#include "core/context.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr uint32_t kRanks = 3, kVictim = 1;
constexpr char kKey[] = "a secret of 27 bytes for tests";
constexpr uint64_t kSecond = 1'000'000'000;

/// A group of all, by a store.
struct Rank {
  Rank(uint32_t number, const std::string& address, const char* transport)
      : rank(number), side(SideOptions{.transports = transport}), store([&] {
          tw_store_options options = TW_STORE_OPTIONS_INIT;
          options.job_key = kKey;
          options.job_key_length = strlen(kKey);
          options.rank = number;
          options.count = kRanks;
          return thalweg::Store(address.c_str(), &options);
        }()) {
    std::string mine = side.address(), all(kRanks * kAddressRoom, '\0');
    const size_t length = mine.size();
    mine.resize(kAddressRoom);
    EXPECT_EQ(tw_store_exchange(store.get(), mine.data(), mine.size(), all.data()), TW_OK) << tw_last_error();
    std::vector<tw_endpoint*> endpoints;
    for (uint32_t i = 0; i < kRanks; ++i)
      endpoints.push_back(i == rank ? nullptr : side.connect(all.substr(i * kAddressRoom, length), transport));
    EXPECT_EQ(tw_group_create(side.worker, endpoints.data(), kRanks, rank, nullptr, store.get(), nullptr, &group), TW_OK)
        << tw_last_error();
  }
  ~Rank() { EXPECT_EQ(tw_group_destroy(group), TW_OK) << tw_last_error(); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  const uint32_t rank;
  Side side;
  thalweg::Store store;
  tw_group* group = nullptr;
};

/// Allreduces of many sizes, whose results are known.
bool sums_are_right(Rank& rank) {
  for (size_t count = 1; count < 300'000; count = count * 5 + 2) {
    std::vector<int64_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 1000 * rank.rank);
    if (thalweg::allreduce(rank.group, numbers) != TW_OK) return false;
    for (size_t i = 0; i < count; ++i) {
      if (numbers[i] != static_cast<int64_t>(3 * i + 3000)) return false;
    }
  }
  return true;
}

/// What a queue's call needs of memory that its device reads: numbers, and counts of rows to all ranks and from all.
struct OnDevice {
  explicit OnDevice(uint64_t* memory) : numbers(memory), counts(memory + 1'000) {}
  tw_status fill(tw_context* context) const {
    const std::vector<uint64_t> rows(kRanks, 150);
    return tw_memory_copy(context, counts, rows.data(), kRanks * sizeof(uint64_t));
  }
  tw_status call(tw_queue* queue, tw_group* group, const char* algorithm, uint32_t root) const {
    if (strcmp(algorithm, "counted") == 0)
      return tw_alltoallv_counted_on(queue, group, numbers, counts, nullptr, 500, numbers + 500, counts + kRanks, nullptr, 500,
                                     sizeof(uint64_t), nullptr);
    tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
    options.algorithm = algorithm;
    if (strcmp(algorithm, "two_phases") == 0)
      return tw_broadcast_on(queue, group, numbers, 1'000, TW_TYPE_INT64, root, &options);
    return tw_allreduce_on(queue, group, TW_IN_PLACE, numbers, 1'000, TW_TYPE_INT64, TW_REDUCE_MAX, &options);
  }
  uint64_t *const numbers, *const counts;
};

/// The same on a queue, by kernels.
tw_status until_it_fails_on_a_queue(Rank& rank, const char* algorithm) {
  const std::string place = "emulated:" + std::to_string(tw_group_rank(rank.group) % 2);
  tw_memory_options where = TW_MEMORY_OPTIONS_INIT;
  where.place = place.c_str();
  tw_memory* memory = nullptr;
  tw_queue* queue = nullptr;
  tw_context* const context = tw_group_context(rank.group);
  tw_status status = tw_memory_allocate(context, 8'000 + 2 * kRanks * sizeof(uint64_t), &where, &memory);
  if (status != TW_OK) return status;
  const OnDevice what(static_cast<uint64_t*>(tw_memory_address(memory)));
  status = what.fill(context);
  if (status == TW_OK) status = tw_queue_create(context, place.c_str(), nullptr, &queue);
  if (status == TW_OK) status = tw_barrier_on(queue, rank.group, nullptr);
  for (int i = 0; i < 1'000'000 && status == TW_OK; ++i) {
    status = what.call(queue, rank.group, algorithm, static_cast<uint32_t>(i) % kRanks);
    if (status == TW_OK) status = tw_queue_synchronize(queue);
    if (status == TW_OK) status = tw_queue_check(queue);
  }
  // What another plan of the queue waits for would not come either.
  return status == TW_ERR_PEER_LOST ? tw_barrier_on(queue, rank.group, nullptr) : status;
}

/// The same between other steps of a plan.
tw_status until_it_fails_in_a_plan(Rank& rank) {
  const std::string place = "emulated:" + std::to_string(tw_group_rank(rank.group) % 2);
  tw_context* const context = tw_group_context(rank.group);
  tw_memory_options where = TW_MEMORY_OPTIONS_INIT;
  where.place = place.c_str();
  tw_plan_options at = TW_PLAN_OPTIONS_INIT;
  at.place = place.c_str();
  tw_memory* memory = nullptr;
  tw_plan* plan = nullptr;
  uint32_t before = 0, reduced = 0;
  tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
  options.algorithm = "kernel";
  options.after_steps = &before;
  options.after_count = 1;
  tw_op_options behind = TW_OP_OPTIONS_INIT;
  behind.after_steps = &reduced;
  behind.after_count = 1;
  tw_status status = tw_memory_allocate(context, 24'000, &where, &memory);
  if (status == TW_OK) status = tw_plan_create(context, &at, &plan);
  char* const room = memory != nullptr ? static_cast<char*>(tw_memory_address(memory)) : nullptr;
  if (status == TW_OK) status = tw_plan_copy(plan, room + 8'000, room, 8'000, nullptr, &before);
  if (status == TW_OK)
    status =
        tw_plan_allreduce(plan, rank.group, TW_IN_PLACE, room + 8'000, 1'000, TW_TYPE_INT64, TW_REDUCE_MAX, &options, &reduced);
  if (status == TW_OK) status = tw_plan_copy(plan, room + 16'000, room + 8'000, 8'000, &behind, nullptr);
  if (status == TW_OK) status = tw_plan_prepare(plan, kSecond);
  for (int i = 0; i < 1'000'000 && status == TW_OK; ++i) status = tw_plan_run(plan, 60 * kSecond);
  return status;
}

/// One collective after the other, of this kind, until one fails. Its status; TW_OK: none has, for long.
tw_status until_it_fails(Rank& rank, uint32_t kind) {
  constexpr const char* kKernels[] = {"ll", "simple", "two_phases", "counted"};
  if (kind == 9) return until_it_fails_in_a_plan(rank);
  if (kind >= 5) return until_it_fails_on_a_queue(rank, kKernels[kind - 5]);
  std::vector<int64_t> in(60'000 * kRanks, 1), out(in.size());
  const size_t whole = in.size(), part = whole / kRanks;
  tw_status status = TW_OK;
  for (int i = 0; i < 1'000'000 && status == TW_OK; ++i) {
    switch (kind) {
      case 0:
        status = tw_barrier(rank.group, nullptr, nullptr);
        break;
      case 1:
        status = tw_broadcast(rank.group, in.data(), whole, TW_TYPE_INT64, 0, nullptr, nullptr);
        // A root may be far ahead of the others; not for ever.
        if (status == TW_OK && i % 8 == 0) status = tw_barrier(rank.group, nullptr, nullptr);
        break;
      case 2:
        status = tw_allreduce(rank.group, in.data(), out.data(), whole, TW_TYPE_INT64, TW_REDUCE_MAX, nullptr, nullptr);
        break;
      case 3:
        status = tw_alltoall(rank.group, in.data(), out.data(), part, TW_TYPE_INT64, nullptr, nullptr);
        break;
      default:
        status = tw_allgather(rank.group, in.data(), out.data(), part, TW_TYPE_INT64, nullptr, nullptr);
    }
  }
  return status;
}

const Role kMember("collectives member", [](Pipe& pipe) {
  Rank rank(static_cast<uint32_t>(std::atoi(std::getenv("GROUP_RANK"))), std::getenv("GROUP_STORE"),
            std::getenv("GROUP_TRANSPORT"));
  if (!sums_are_right(rank)) return 1;
  pipe.send("right");
  const tw_status status = until_it_fails(rank, static_cast<uint32_t>(std::atoi(std::getenv("GROUP_KIND"))));
  const std::string text = tw_last_error();
  pipe.send(status == TW_ERR_PEER_LOST && text.find("rank 1") != std::string::npos ? "named" : text);
  pipe.receive();
  return 0;
});

/// Ends a group whose ranks have called a collective on queues when it is told so: how long that took, in ms, and how many memories
/// were left behind. Told again, it makes and ends groups until none is.
const Role kLeaver("collectives leaver", [](Pipe& pipe) {
  Rank rank(static_cast<uint32_t>(std::atoi(std::getenv("GROUP_RANK"))), std::getenv("GROUP_STORE"), "shm");
  tw_context* const context = rank.side.context;
  const std::string place = "emulated:" + std::to_string(rank.rank % 2);
  tw_group* group = nullptr;
  tw_queue* queue = nullptr;
  if (tw_group_duplicate(rank.group, &group) != TW_OK || tw_queue_create(context, place.c_str(), nullptr, &queue) != TW_OK)
    return 1;
  if (tw_barrier_on(queue, group, nullptr) != TW_OK || tw_queue_synchronize(queue) != TW_OK) return 2;
  if (tw_queue_check(queue) != TW_OK) return 3;
  tw_queue_destroy(queue);
  pipe.send("called");
  pipe.receive();
  const uint64_t begin = now_ns();
  if (tw_group_destroy(group) != TW_OK) return 4;
  pipe.send(std::to_string((now_ns() - begin) / 1'000'000) + " " + std::to_string(context->registry->left()));
  pipe.receive();
  for (const uint64_t limit = now_ns() + 10 * kSecond; context->registry->left() != 0 && now_ns() < limit;) {
    if (tw_group_duplicate(rank.group, &group) != TW_OK || tw_group_destroy(group) != TW_OK) return 5;
  }
  pipe.send(std::to_string(context->registry->left()));
  pipe.receive();
  return 0;
});

TEST(GroupsThatEnd, DoNotWaitForOtherRanksAndLeaveNothing) {
  char directory[] = "/tmp/thalweg-collectives-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  std::vector<std::unique_ptr<Child>> children;
  for (uint32_t i = 0; i < kRanks; ++i) {
    const std::vector<std::string> environment = {"GROUP_RANK=" + std::to_string(i),
                                                  std::string("GROUP_STORE=file:") + directory + "/store",
                                                  "THALWEG_EMULATED=devices=2"};
    children.push_back(std::make_unique<Child>("collectives leaver", environment));
  }
  for (auto& child : children) ASSERT_EQ(child->receive(), "called");
  for (uint32_t i = 0; i < kRanks; ++i) {
    children[i]->send("end");
    unsigned ms = 0, left = 0;
    ASSERT_EQ(sscanf(children[i]->receive().c_str(), "%u %u", &ms, &left), 2) << "rank " << i;
    EXPECT_LT(ms, 1000u) << "rank " << i;
    if (i + 1 < kRanks) EXPECT_EQ(left, 1u) << "others may still store there; rank " << i;
  }
  for (auto& child : children) {
    child->send("again");
    EXPECT_EQ(child->receive(), "0");
  }
  for (auto& child : children) child->send("end");
  for (auto& child : children) EXPECT_EQ(child->join(), 0);
  std::filesystem::remove_all(directory);
}

using Place = std::tuple<const char*, uint32_t>;
class CollectivesBetween : public testing::TestWithParam<Place> {};
INSTANTIATE_TEST_SUITE_P(Kinds, CollectivesBetween, testing::Combine(testing::Values("shm", "tcp"), testing::Range(0u, 5u)));
INSTANTIATE_TEST_SUITE_P(OnQueues, CollectivesBetween, testing::Combine(testing::Values("shm"), testing::Range(5u, 10u)));

TEST_P(CollectivesBetween, AKilledRankIsNamedToAll) {
  const auto [transport, kind] = GetParam();
  char directory[] = "/tmp/thalweg-collectives-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const auto environment = [&](uint32_t rank) {
    return std::vector<std::string>{
        "GROUP_RANK=" + std::to_string(rank), std::string("GROUP_STORE=file:") + directory + "/store",
        std::string("GROUP_TRANSPORT=") + transport, "GROUP_KIND=" + std::to_string(kind), "THALWEG_EMULATED=devices=2"};
  };
  std::vector<std::unique_ptr<Child>> children;
  for (uint32_t i = 0; i < kRanks; ++i) children.push_back(std::make_unique<Child>("collectives member", environment(i)));
  for (auto& child : children) ASSERT_EQ(child->receive(), "right");
  const uint64_t killed = now_ns() + kSecond / 5;
  while (now_ns() < killed) continue;  // in the middle of them
  children[kVictim]->kill();
  for (uint32_t i = 0; i < kRanks; ++i) {
    EXPECT_EQ(i == kVictim ? "named" : children[i]->receive(), "named") << "rank " << i;
  }
  EXPECT_LT(now_ns() - killed, 2 * kSecond);
  for (uint32_t i = 0; i < kRanks; ++i) {
    if (i == kVictim) continue;
    children[i]->send("end");
    EXPECT_EQ(children[i]->join(), 0);
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
