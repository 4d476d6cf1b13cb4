// SPDX-License-Identifier: Apache-2.0
// The service loop: order, timers, removal from within callbacks, and many threads at once.
#include "base/event_loop.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {
namespace {

struct Pipe {
  UniqueFd out, in;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
  }
  void ring() const { EXPECT_EQ(write(in.get(), "x", 1), 1); }
  void drain() const {
    char bytes[64];
    while (read(out.get(), bytes, sizeof bytes) > 0) {
    }
  }
};

class EventLoopTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(loop_.start(), TW_OK); }
  EventLoop loop_;
};

TEST_F(EventLoopTest, PostedWorkRunsInOrderOnTheLoop) {
  std::vector<int> seen;
  for (int i = 0; i < 1000; ++i) {
    loop_.post([&, i] {
      EXPECT_TRUE(loop_.in_loop());
      seen.push_back(i);
    });
  }
  loop_.call([&] { EXPECT_EQ(seen.size(), 1000u); });
  EXPECT_FALSE(loop_.in_loop());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[size_t(i)], i);
}

TEST_F(EventLoopTest, CallFromTheLoopRunsAtOnce) {
  int depth = 0;
  loop_.call([&] { loop_.call([&] { depth = 2; }); });
  EXPECT_EQ(depth, 2);
}

TEST_F(EventLoopTest, TimersFireInOrderAndCancelledOnesDoNot) {
  std::vector<int> seen;
  std::promise<void> done;
  const uint64_t start = monotonic_ns();
  loop_.call([&] {
    loop_.after(30 * kMillisecond, [&] {
      seen.push_back(3);
      done.set_value();
    });
    loop_.after(10 * kMillisecond, [&] { seen.push_back(1); });
    const uint64_t never = loop_.after(15 * kMillisecond, [&] { seen.push_back(99); });
    loop_.after(20 * kMillisecond, [&] { seen.push_back(2); });
    loop_.after(12 * kMillisecond, [&, never] { loop_.cancel(never); });
    loop_.after(kForever, [&] { seen.push_back(98); });
  });
  ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_GE(monotonic_ns() - start, 30 * kMillisecond);
  loop_.call([] {});
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
}

TEST_F(EventLoopTest, TimerThatRearmsWithoutDelayStarvesNobody) {
  std::atomic<bool> stop{false};
  std::function<void()> again = [&] {
    if (!stop) loop_.after(0, again);
  };
  loop_.post(again);
  Pipe pipe;
  std::promise<void> rang;
  loop_.call([&] {
    EXPECT_EQ(loop_.add(pipe.out.get(), EPOLLIN,
                        [&](uint32_t) {
                          pipe.drain();
                          rang.set_value();
                        }),
              TW_OK);
  });
  pipe.ring();
  EXPECT_EQ(rang.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  stop = true;
  loop_.call([&] { loop_.remove(pipe.out.get()); });
}

TEST_F(EventLoopTest, RemovedDescriptorGetsNoCollectedEvent) {
  // Both are ready in one batch; whichever comes first removes the other, closes it and opens a new one under its number.
  for (int round = 0; round < 200; ++round) {
    Pipe a, b;
    Pipe fresh;
    int calls = 0;
    int wrong = 0;
    loop_.call([&] {
      const auto first = [&](Pipe& me, Pipe& other) {
        ++calls;
        me.drain();
        const int number = other.out.get();
        loop_.remove(number);
        loop_.remove(me.out.get());
        EXPECT_EQ(dup2(fresh.out.get(), number), number);  // same number, another file, registered anew
        EXPECT_EQ(loop_.add(number, EPOLLIN, [&](uint32_t) { ++wrong; }), TW_OK);
      };
      a.ring();
      b.ring();
      EXPECT_EQ(loop_.add(a.out.get(), EPOLLIN, [&, first](uint32_t) { first(a, b); }), TW_OK);
      EXPECT_EQ(loop_.add(b.out.get(), EPOLLIN, [&, first](uint32_t) { first(b, a); }), TW_OK);
    });
    while (true) {
      int seen = 0;
      loop_.call([&] { seen = calls; });
      if (seen) break;
    }
    loop_.call([] {});
    loop_.call([&] {
      EXPECT_EQ(calls, 1);
      EXPECT_EQ(wrong, 0);
      loop_.remove(a.out.get());
      loop_.remove(b.out.get());
    });
  }
}

TEST_F(EventLoopTest, CallbackMayRemoveItself) {
  Pipe pipe;
  std::atomic<int> calls{0};
  auto token = std::make_shared<int>(7);  // held by the callback: must outlive its run
  loop_.call([&] {
    EXPECT_EQ(loop_.add(pipe.out.get(), EPOLLIN,
                        [&, token](uint32_t) {
                          loop_.remove(pipe.out.get());
                          EXPECT_EQ(*token, 7);
                          ++calls;
                        }),
              TW_OK);
  });
  pipe.ring();
  while (calls == 0) std::this_thread::yield();
  loop_.call([] {});
  loop_.call([] {});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(EventLoopTest, MistakesAreNamed) {
  loop_.call([&] {
    Pipe pipe;
    EXPECT_EQ(loop_.modify(pipe.out.get(), EPOLLIN), TW_ERR_INVALID);
    EXPECT_EQ(loop_.add(pipe.out.get(), EPOLLIN, [](uint32_t) {}), TW_OK);
    EXPECT_EQ(loop_.add(pipe.out.get(), EPOLLIN, [](uint32_t) {}), TW_ERR_INVALID);
    loop_.remove(pipe.out.get());
    loop_.remove(pipe.out.get());
    EXPECT_TRUE(is_error(loop_.add(-1, EPOLLIN, [](uint32_t) {})));
    loop_.cancel(123456);
  });
  EXPECT_EQ(loop_.start(), TW_ERR_INVALID);
}

TEST(EventLoop, WorkBeforeStopRunsAndAfterStopCallIsDirect) {
  EventLoop loop;
  ASSERT_EQ(loop.start(), TW_OK);
  std::atomic<int> count{0};
  for (int i = 0; i < 100; ++i) loop.post([&] { ++count; });
  loop.post([&] { loop.post([&] { ++count; }); });
  loop.stop();
  EXPECT_EQ(count, 101);
  loop.post([&] { ++count; });
  loop.call([&] { count += 1000; });
  EXPECT_EQ(count, 1101);
}

TEST(EventLoop, StressOfThreadsDescriptorsAndTimers) {
  EventLoop loop;
  ASSERT_EQ(loop.start(), TW_OK);
  constexpr int kThreads = 8;
  constexpr int kRounds = 300;
  std::atomic<int> rings{0};
  std::atomic<int> timers{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(unsigned(t) + std::random_device{}());
      for (int i = 0; i < kRounds; ++i) {
        Pipe pipe;
        std::promise<void> rang;
        loop.call([&] {
          EXPECT_EQ(loop.add(pipe.out.get(), EPOLLIN,
                             [&](uint32_t) {
                               pipe.drain();
                               ++rings;
                               rang.set_value();
                             }),
                    TW_OK);
          const uint64_t timer = loop.after(random() % (200 * kMicrosecond), [&] { ++timers; });
          if (random() % 2) loop.cancel(timer);
        });
        pipe.ring();
        ASSERT_EQ(rang.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
        loop.call([&] { loop.remove(pipe.out.get()); });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(rings, kThreads * kRounds);
  loop.stop();
}

}  // namespace
}  // namespace thalweg::impl
