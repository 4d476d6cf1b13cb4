// SPDX-License-Identifier: Apache-2.0
// The explorer itself: what the textbooks' programs may and may not do.
#include "models/check.hpp"

namespace thalweg::models {
namespace {

bool can(const std::function<void(Program&)>& fill) {
  Program program;
  fill(program);
  return explore(program).violations > 0;
}

/// Each of two threads stores and looks at what the other stores to.
bool both_may_miss(Order store, Order load, Order fence) {
  return can([=](Program& p) {
    const Word x = p.word(), y = p.word();
    Thread &a = p.thread(), &b = p.thread();
    a.store(x, 1, store, "x = 1");
    a.fence(fence, "fence");
    const Reg saw_y = a.load(y, load, "y?");
    b.store(y, 1, store, "y = 1");
    b.fence(fence, "fence");
    const Reg saw_x = b.load(x, load, "x?");
    p.holds = [=](const Final& end) { return end.of(saw_x) == 1 || end.of(saw_y) == 1; };
  });
}
TEST(WeakMemory, StoresThatAreBufferedAreMissedUnlessAFullFenceSeparates) {
  EXPECT_TRUE(both_may_miss(Order::relaxed, Order::relaxed, Order::none));
  EXPECT_TRUE(both_may_miss(Order::release, Order::acquire, Order::none));
  EXPECT_TRUE(both_may_miss(Order::release, Order::acquire, Order::acq_rel));
  EXPECT_FALSE(both_may_miss(Order::relaxed, Order::relaxed, Order::seq_cst));
  EXPECT_FALSE(both_may_miss(Order::seq_cst, Order::seq_cst, Order::none));
}

/// A flag behind its data.
bool old_data(Order store, Order load, Order before_flag, Order behind_flag) {
  return can([=](Program& p) {
    const Word data = p.word(), flag = p.word();
    Thread &a = p.thread(), &b = p.thread();
    a.store(data, 7, Order::relaxed, "data");
    a.fence(before_flag, "fence");
    a.store(flag, 1, store, "flag");
    const Reg seen = b.load(flag, load, "flag?");
    b.fence(behind_flag, "fence");
    const Reg found = b.load(data, Order::relaxed, "data?");
    p.holds = [=](const Final& end) { return end.of(seen) == 0 || end.of(found) == 7; };
  });
}
TEST(WeakMemory, AFlagIsReleasedAndAcquired) {
  EXPECT_FALSE(old_data(Order::release, Order::acquire, Order::none, Order::none));
  EXPECT_TRUE(old_data(Order::relaxed, Order::acquire, Order::none, Order::none));
  EXPECT_TRUE(old_data(Order::release, Order::relaxed, Order::none, Order::none));
  EXPECT_FALSE(old_data(Order::relaxed, Order::relaxed, Order::release, Order::acquire));
  EXPECT_TRUE(old_data(Order::relaxed, Order::relaxed, Order::acquire, Order::acquire));
  EXPECT_TRUE(old_data(Order::relaxed, Order::relaxed, Order::release, Order::release));
}

/// A store passes an earlier load, as on ARM; but not one that it is computed from, nor a branch on it.
bool from_the_future(Order load, bool computed, bool branches) {
  return can([=](Program& p) {
    const Word x = p.word(), y = p.word();
    Thread &a = p.thread(), &b = p.thread();
    const auto copy = [=](Thread& t, Word from, Word to) {
      const Reg seen = t.load(from, load, "load");
      const auto store = [&] { t.store(to, computed ? Expression(seen) : Expression(1), Order::relaxed, "store"); };
      if (branches) {
        t.when(seen, [](Value v) { return v == 1; }, store);
      } else {
        store();
      }
      return seen;
    };
    const Reg first = copy(a, x, y), second = copy(b, y, x);
    p.holds = [=](const Final& end) { return end.of(first) == 0 || end.of(second) == 0; };
  });
}
TEST(WeakMemory, NothingComesOutOfThinAir) {
  EXPECT_TRUE(from_the_future(Order::relaxed, false, false));
  EXPECT_FALSE(from_the_future(Order::acquire, false, false));
  EXPECT_FALSE(from_the_future(Order::relaxed, true, false));
  EXPECT_FALSE(from_the_future(Order::relaxed, false, true));
}

TEST(WeakMemory, LoadsAreSpeculatedBehindBranchesAndLoops) {
  for (const bool loop : {false, true}) {
    EXPECT_TRUE(can([=](Program& p) {
      const Word data = p.word(), flag = p.word();
      Thread &a = p.thread(), &b = p.thread();
      a.store(data, 7, Order::relaxed, "data");
      a.store(flag, 1, Order::release, "flag");
      Reg found{0};
      if (loop) {
        b.await(flag, [](Value v) { return v == 1; }, Order::relaxed, "flag");
        found = b.load(data, Order::relaxed, "data?");
        p.holds = [=](const Final& end) { return end.of(found) == 7; };
        return;
      }
      const Reg seen = b.load(flag, Order::relaxed, "flag?");
      b.when(seen, [](Value v) { return v == 1; }, [&] { found = b.load(data, Order::relaxed, "data?"); });
      p.holds = [=](const Final& end) { return end.of(seen) == 0 || end.of(found) == 7; };
    }));
  }
}

TEST(WeakMemory, AWordHasOneOrderAndAThreadSeesItsOwnStores) {
  EXPECT_FALSE(can([](Program& p) {
    const Word x = p.word();
    Thread &a = p.thread(), &b = p.thread();
    a.store(x, 1, Order::relaxed, "x = 1");
    const Reg own = a.load(x, Order::relaxed, "x?");
    a.store(x, 2, Order::relaxed, "x = 2");
    const Reg first = b.load(x, Order::relaxed, "x?"), second = b.load(x, Order::relaxed, "x?");
    p.holds = [=](const Final& end) { return end.of(own) == 1 && end.of(second) >= end.of(first) && end.at(x) == 2; };
  }));
  EXPECT_FALSE(can([](Program& p) {  // changes lose nothing
    const Word x = p.word();
    for (int i = 0; i < 3; ++i) p.thread().add(x, 1, Order::relaxed, "x += 1");
    p.holds = [=](const Final& end) { return end.at(x) == 3; };
  }));
}

TEST(WeakMemory, ABarrierOfAllThreadsIsAFullFenceInEach) {
  for (const bool barrier : {true, false}) {
    EXPECT_EQ(can([=](Program& p) {
                const Word x = p.word(), y = p.word();
                Thread &a = p.thread(), &b = p.thread();
                a.store(x, 1, Order::relaxed, "x = 1");
                if (barrier) a.barrier("membarrier");
                const Reg saw_y = a.load(y, Order::relaxed, "y?");
                b.store(y, 1, Order::relaxed, "y = 1");
                const Reg saw_x = b.load(x, Order::relaxed, "x?");
                p.holds = [=](const Final& end) { return end.of(saw_x) == 1 || end.of(saw_y) == 1; };
              }),
              !barrier);
  }
}

}  // namespace
}  // namespace thalweg::models
