// SPDX-License-Identifier: Apache-2.0
// The parts of a channel's end that need no peer: who uses it, what is kept for their runs, and rounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "plans/channel_retired.hpp"
#include "plans/channel_rounds.hpp"
#include "plans/channel_users.hpp"

namespace thalweg::impl {
namespace {

struct Plan final : ChannelUser {
  void on_channel_failed(const Channel&, Status, const std::string&) override {}
  Status runs_over() const override { return over; }
  Status over = TW_OK;
};

TEST(ChannelUsers, AKernelIsAlone) {
  ChannelUsers users;
  Plan plan, kernel;
  ASSERT_EQ(users.add(&plan, false, 7), TW_OK);
  EXPECT_EQ(users.add(&kernel, true, 7), TW_ERR_BUSY);
  EXPECT_NE(std::string(last_error()).find("channel 7"), std::string::npos) << last_error();
  EXPECT_FALSE(users.remove(&plan));
  ASSERT_EQ(users.add(&kernel, true, 7), TW_OK);
  EXPECT_TRUE(users.alone());
  EXPECT_EQ(users.add(&plan, false, 7), TW_ERR_BUSY);
  EXPECT_TRUE(users.remove(&kernel));
  EXPECT_TRUE(users.empty());
  EXPECT_EQ(users.add(&plan, false, 7), TW_OK);
}

TEST(ChannelUsers, WaitFromTheirStartUntilTheyRely) {
  ChannelUsers users;
  Plan first, second;
  ASSERT_EQ(users.add(&first, false, 0), TW_OK);
  ASSERT_EQ(users.add(&second, false, 0), TW_OK);
  EXPECT_FALSE(users.wait());
  users.start(&first);
  EXPECT_TRUE(users.wait());
  users.rely(&first, 3);
  EXPECT_FALSE(users.wait());
  EXPECT_TRUE(users.rely_on(3));
  EXPECT_FALSE(users.rely_on(2));
  users.start(&second);
  EXPECT_TRUE(users.wait());
  users.rely(&second, 4);
  EXPECT_EQ(users.of(3), std::vector<ChannelUser*>{&first});
  first.over = TW_IN_PROGRESS;
  EXPECT_EQ(users.runs_over(3), TW_IN_PROGRESS);
  EXPECT_EQ(users.runs_over(4), TW_OK);
}

TEST(ChannelUsers, RunsArePastWhenTheirEpochIsOver) {
  ChannelUsers users;
  Plan plan;
  ASSERT_EQ(users.add(&plan, false, 0), TW_OK);
  plan.over = TW_IN_PROGRESS;
  EXPECT_FALSE(users.have_runs());  // it relies on none
  users.rely(&plan, 5);
  EXPECT_TRUE(users.have_runs());
  EXPECT_FALSE(users.have_past_runs(5, false));
  EXPECT_TRUE(users.have_past_runs(6, false));
  EXPECT_TRUE(users.have_past_runs(0, true));
  plan.over = TW_ERR_STALE;  // nobody knows
  EXPECT_TRUE(users.have_past_runs(6, false));
  plan.over = TW_OK;
  EXPECT_FALSE(users.have_past_runs(0, true));
  EXPECT_FALSE(users.have_runs());
}

TEST(ChannelUsers, AKernelsRunsAreSeenByItsEpochAlone) {
  ChannelUsers users;
  Plan kernel;
  ASSERT_EQ(users.add(&kernel, true, 0), TW_OK);
  EXPECT_TRUE(users.have_runs());
  EXPECT_FALSE(users.have_past_runs(0, false));
  EXPECT_TRUE(users.have_past_runs(0, true));
  users.remove(&kernel);
  EXPECT_FALSE(users.have_runs());
  EXPECT_FALSE(users.have_past_runs(0, true));
}

/// What was given back is handed out again first.
class ChannelKeeps : public testing::Test {
 protected:
  void SetUp() override {
    const tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
    ASSERT_EQ(tw_context_create(&options, &context_), TW_OK) << tw_last_error();
    executor_ = std::make_unique<Executor>(*context_, nullptr);
  }
  void TearDown() override {
    executor_.reset();
    tw_context_destroy(context_);
  }
  Arena& own() { return executor_->own(); }
  uint64_t piece() {
    uint64_t address = 0;
    EXPECT_EQ(own().allocate(length_, &address), TW_OK) << last_error();
    return address;
  }
  const size_t length_ = 64 * (1 + std::random_device{}() % 50);
  tw_context* context_ = nullptr;
  std::unique_ptr<Executor> executor_;
  ChannelRetired kept_;
};

TEST_F(ChannelKeeps, TablesUntilNoRunIsUnderWay) {
  const uint64_t unused = piece();
  kept_.keep_table(own(), unused, length_, false);
  kept_.keep_table(own(), 0, 0, true);  // a layout of none
  EXPECT_FALSE(kept_.keeps_tables());
  EXPECT_EQ(piece(), unused);

  const uint64_t first = piece(), second = piece();
  kept_.keep_table(own(), first, length_, true);
  kept_.keep_table(own(), second, length_, true);
  EXPECT_TRUE(kept_.keeps_tables());
  const uint64_t other = piece();
  EXPECT_NE(other, first);
  EXPECT_NE(other, second);
  kept_.free_memory();  // of the peer's, which may go before
  EXPECT_TRUE(kept_.keeps_tables());
  kept_.free_tables();
  EXPECT_FALSE(kept_.keeps_tables());
  EXPECT_EQ((std::set<uint64_t>{piece(), piece()}), (std::set<uint64_t>{first, second}));
}

/// Of tables, however many bytes they have.
TEST_F(ChannelKeeps, NoMoreThanAPeerMayLeaveHere) {
  size_t kept = 0;
  for (; !kept_.full() && kept < 10'000; ++kept) kept_.keep_table(own(), piece(), length_, true);
  EXPECT_LE(kept, 4096u);
  EXPECT_LE(kept * length_, (16u << 20) + length_);
  kept_.free_tables();
  EXPECT_FALSE(kept_.full());
}

TEST_F(ChannelKeeps, WordsUntilItHasNoUser) {
  const uint64_t words = piece();
  kept_.keep_words(own(), words, length_);
  kept_.keep_words(own(), 0, length_);  // a receiver has no table
  kept_.free_memory();
  EXPECT_NE(piece(), words);
  kept_.free_words();
  EXPECT_EQ(piece(), words);
  kept_.free_words();  // once
  EXPECT_NE(piece(), words);
}

TEST_F(ChannelKeeps, NumbersOfBuffersOnce) {
  EXPECT_FALSE(kept_.holds());
  for (const uint16_t index : {uint16_t{3}, uint16_t{0}, uint16_t{3}}) kept_.hold(index);
  EXPECT_TRUE(kept_.holds());
  EXPECT_EQ(kept_.take_held(), (std::vector<uint16_t>{3, 0}));
  EXPECT_FALSE(kept_.holds());
}

/// Plans of both sides in any order: the n-th here goes with the n-th there, failed ones apart.
TEST(ChannelRounds, GoOneWithOne) {
  std::mt19937 random(std::random_device{}());
  ToldRounds told;
  TakenRounds taken;
  uint64_t here = 0, there = 0;  // plans that have a round and have not failed
  for (int i = 0; i < 2000; ++i) {
    switch (random() % 4) {
      case 0:
        ++there;
        if (told.add()) taken.set(told.told());
        break;
      case 1:
        if (there > here) {
          --there;
          told.add_in_vain();
        }
        break;
      case 2:
        if (taken.ready()) {
          taken.take();
          ++here;
        }
        break;
      default:
        if (here > 0) {
          --here;
          taken.give_back();
        }
        break;
    }
    ASSERT_GE(told.told(), here);
    ASSERT_EQ(taken.ready(), told.told() > here);
    ASSERT_GE(told.told(), there);
  }
}

TEST(ChannelRounds, AKernelIsReadyForEveryPlan) {
  TakenRounds taken;
  EXPECT_FALSE(taken.ready());
  taken.set(ToldRounds::kEvery);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(taken.ready());
    taken.take();
  }
  taken.set(2);  // it was released: both count on from here
  EXPECT_FALSE(taken.ready());
  taken.set(3);
  EXPECT_TRUE(taken.ready());
  taken.take_all();  // for a kernel at this end
  EXPECT_FALSE(taken.ready());
  taken.give_back();
  EXPECT_TRUE(taken.ready());
}

}  // namespace
}  // namespace thalweg::impl
