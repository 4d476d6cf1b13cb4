// SPDX-License-Identifier: Apache-2.0
// The C++ view of collectives on queues and in plans: all of them, by the host and by emulated devices.
#include <memory>
#include <numeric>

#include "own_queue.hpp"

namespace thalweg::test {
namespace {

using Numbers = std::vector<int64_t>;

Numbers from(int64_t first, size_t count) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// Numbers in memory of a place.
class Held {
 public:
  Held(GroupRank& rank, const std::string& place, const Numbers& numbers)
      : room_(rank.rank.context, place.c_str(), numbers.size() * sizeof(int64_t)), count_(numbers.size()) {
    room_.store(std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)));
  }
  std::span<int64_t> span() const { return {reinterpret_cast<int64_t*>(room_.data()), count_}; }
  Numbers numbers() const {
    const std::string bytes = room_.load();
    Numbers numbers(count_);
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }

 private:
  Room room_;
  size_t count_;
};

void ok(tw_status status) { EXPECT_EQ(status, TW_OK) << tw_last_error(); }
void ok(const Plan&) {}

/// One call of each collective with buffers of its own, and what has to be in them then.
class Forms {
 public:
  Forms(GroupRank& rank, std::string place) : rank_(rank), place_(std::move(place)) {}

  template <class Target>
  void add_equal(Target& to) {
    tw_group* const group = rank_.group;
    ok(to.barrier(group));
    ok(to.broadcast(group, in(me_ == 1 ? from(40, 5) : Numbers(5), from(40, 5)), 1));
    ok(to.allreduce(group, in(from(me_, 5), {3, 6, 9, 12, 15})));
    ok(to.allreduce(group, in(from(me_, 5)), out(from(2, 5)), TW_REDUCE_MAX));
    ok(to.reduce_to_root(group, in(from(1, 5)), out(me_ == 2 ? Numbers{3, 6, 9, 12, 15} : Numbers(5)), 2));
    ok(to.reduce_scatter(group, in(from(0, 6)), out({6 * me_, 6 * me_ + 3})));
    ok(to.allgather(group, in(from(me_ * 5, 5)), out(from(0, 15))));
    ok(to.gather(group, in(from(me_ * 5, 5)), out(me_ == 0 ? from(0, 15) : Numbers(15)), 0));
    ok(to.scatter(group, in(from(0, 15)), out(from(me_ * 5, 5)), 1));
    ok(to.alltoall(group, in(from(me_ * 3, 3)), out({me_, me_ + 3, me_ + 6})));
    ok(to.scan(group, in(Numbers{1, 2}), out({me_ + 1, 2 * (me_ + 1)})));
    ok(to.exclusive_scan(group, in(Numbers{1, 2}), out({me_, 2 * me_})));
  }
  template <class Target>
  void add_counted(Target& to) {
    tw_group* const group = rank_.group;
    const std::vector<size_t> counts{1, 2, 3}, begins{0, 1, 3};
    const auto me = static_cast<size_t>(me_);
    const Numbers mine = from(static_cast<int64_t>(begins[me]), counts[me]);
    Numbers tripled = mine;
    for (int64_t& one : tripled) one *= 3;
    ok(to.reduce_scatterv(group, in(from(0, 6)), out(tripled), counts));
    ok(to.allgatherv(group, in(mine), out(from(0, 6)), counts));
    ok(to.allgatherv(group, in(mine), out({1, 2, 3, 4, 5, 0, 0}), counts, std::vector<size_t>{6, 0, 2}));
    ok(to.gatherv(group, in(mine), out(me_ == 1 ? from(0, 6) : Numbers(6)), counts, 1));
    ok(to.scatterv(group, in(from(0, 6)), out(mine), counts, 2));
    Numbers three;
    for (int i = 0; i < 3; ++i) three.insert(three.end(), mine.begin(), mine.end());
    ok(to.alltoallv(group, in(from(0, 6)), counts, out(three), std::vector<size_t>(3, counts[me])));
  }
  void check() const {
    for (size_t i = 0; i < held_.size(); ++i) EXPECT_EQ(held_[i]->numbers(), wanted_[i]) << "buffer " << i << " of " << place_;
  }

 private:
  std::span<int64_t> in(const Numbers& numbers) { return in(numbers, numbers); }
  std::span<int64_t> in(const Numbers& numbers, Numbers wanted) {
    wanted_.push_back(std::move(wanted));
    return held_.emplace_back(std::make_unique<Held>(rank_, place_, numbers))->span();
  }
  std::span<int64_t> out(Numbers wanted) {
    const size_t count = wanted.size();
    return in(Numbers(count), std::move(wanted));
  }

  GroupRank& rank_;
  const std::string place_;
  const int64_t me_ = rank_.rank.number;
  std::vector<std::unique_ptr<Held>> held_;
  std::vector<Numbers> wanted_;
};

class CollectiveForms : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(HostOrDevice, CollectiveForms, testing::Bool());

TEST_P(CollectiveForms, OnAQueue) {
  run_group(3, [](GroupRank& rank) {
    const std::string place = place_of(rank, GetParam());
    Forms forms(rank, place);
    Queue queue(rank.rank.context, place.c_str());
    forms.add_equal(queue);
    forms.add_counted(queue);
    ASSERT_EQ(queue.synchronize(), TW_OK) << tw_last_error();
    queue.check();
    forms.check();
    const Numbers four = from(0, 4);
    Numbers five(5);
    EXPECT_EQ(queue.allreduce(rank.group, four, five), TW_ERR_INVALID);
    EXPECT_EQ(queue.allgatherv(rank.group, four, five, std::vector<size_t>{1, 2}), TW_ERR_INVALID);
    rank.rank.barrier();
  });
}

/// What is said is what is done: the kernels once the group has them, steps where those cannot.
TEST(CollectivesExplained, OnQueuesAndInPlans) {
  run_group(3, [](GroupRank& rank) {
    const std::string place = place_of(rank, true);
    Held numbers(rank, place, from(rank.rank.number, 100));
    Queue queue(rank.rank.context, place.c_str()), host(rank.rank.context);
    const auto said = [&](const char* collective, size_t count, const char* algorithm = nullptr, uint32_t flags = 0) {
      CollectiveOptions options;
      options.algorithm = algorithm;
      options.flags = flags;
      return explain_on(queue, rank.group, collective, count, TW_TYPE_INT64, &options);
    };
    const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
    EXPECT_TRUE(has(said("allreduce", 100), "no kernels: the group's first collective on a queue finds out"))
        << said("allreduce", 1);
    ok(queue.allreduce(rank.group, numbers.span()));
    EXPECT_TRUE(has(said("allreduce", 100), ", on a queue of " + place + "\n")) << said("allreduce", 100);
    EXPECT_TRUE(has(said("allreduce", 100), "\n* ll ")) << said("allreduce", 100);
    EXPECT_TRUE(has(said("allreduce", 100), "us  one kernel does it in fewer hops\n")) << said("allreduce", 100);
    EXPECT_TRUE(has(said("allreduce", 100), "chosen: ll, one kernel on each device\n"));
    EXPECT_TRUE(has(said("allreduce", 1 << 20), "chosen: simple, one kernel on each device\n"));
    EXPECT_TRUE(has(said("allreduce", 100, "ring"), "chosen: ring; rank ")) << said("allreduce", 100, "ring");
    EXPECT_FALSE(has(said("allreduce", 100, nullptr, TW_COLLECTIVE_REPEATABLE), "one kernel on each device\n"));
    EXPECT_EQ(explain_on(host, rank.group, "barrier", 0).find("barrier: 0 elements"), 0u);
    EXPECT_TRUE(has(explain_planned(rank.group, "allreduce", 100), "3 ranks, in a plan\n"));
    EXPECT_TRUE(has(explain_planned(rank.group, "allreduce", 100), "does:\n"));
    EXPECT_FALSE(has(explain(rank.group, "allreduce", 100), "on a queue"));
    EXPECT_TRUE(has(explain(rank.group, "allreduce", 100), "for queues, and plans that name a kernel, of devices"));
    const auto planned = [&](const char* algorithm) {
      CollectiveOptions options;
      options.algorithm = algorithm;
      return explain_planned(rank.group, "allreduce", 100, TW_TYPE_INT64, &options);
    };
    EXPECT_TRUE(has(planned("kernel"), "chosen: ll, one kernel on each device\n")) << planned("kernel");
    EXPECT_TRUE(has(planned("simple"), "chosen: simple, one kernel on each device\n")) << planned("simple");
    ASSERT_EQ(queue.synchronize(), TW_OK);
    rank.rank.barrier();
  });
}

TEST_P(CollectiveForms, InAPlan) {
  run_group(3, [](GroupRank& rank) {
    const std::string place = place_of(rank, GetParam());
    Forms forms(rank, place);
    PlanOptions options;
    options.place = place.c_str();
    Plan plan(options);  // its context is the group's
    forms.add_equal(plan);
    const uint32_t before = plan.last();
    forms.add_counted(plan);
    EXPECT_GT(plan.last(), before);
    const Numbers four = from(0, 4);
    Numbers five(5);
    EXPECT_THROW(plan.allreduce(rank.group, four, five), Error);
    EXPECT_THROW(plan.broadcast(rank.group, five, 3), Error) << "no such root";
    plan.prepare();
    ASSERT_EQ(plan.run(), TW_OK) << tw_last_error();
    forms.check();
    ASSERT_EQ(plan.destroy(), TW_OK) << tw_last_error();
  });
}

}  // namespace
}  // namespace thalweg::test
