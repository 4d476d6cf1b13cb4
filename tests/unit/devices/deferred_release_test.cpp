// SPDX-License-Identifier: Apache-2.0
// Releases that wait for kernels: when they happen, and that nobody's kernel starts into one.
#include "devices/deferred_release.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "base/clock.hpp"

namespace thalweg::impl::test {
namespace {

using namespace std::chrono_literals;
constexpr uint64_t kLong = 60'000'000'000;

/// What is released, and how long that takes.
struct Pin {
  std::atomic<bool>* released;
  std::shared_future<void> may;
  std::promise<void>* begun = nullptr;
  ~Pin() {
    if (begun != nullptr) begun->set_value();
    if (may.valid()) may.wait();
    *released = true;
  }
};
std::shared_ptr<void> pin(std::atomic<bool>& released, std::shared_future<void> may = {}, std::promise<void>* begun = nullptr) {
  return std::shared_ptr<void>(new Pin{&released, std::move(may), begun}, [](void* one) { delete static_cast<Pin*>(one); });
}

TEST(DeferredRelease, IsSoonWhereNoKernelMayWait) {
  std::atomic<bool> released{false};
  release_later(pin(released), 1);
  await_releases(kLong);
  EXPECT_TRUE(released);
}

TEST(DeferredRelease, WaitsForTheLastThatMayWait) {
  std::atomic<bool> first{false}, second{false};
  std::optional<KernelsWait> one(std::in_place), other(std::in_place);
  release_later(pin(first), 1);
  release_later(pin(second), 1);
  one.reset();
  std::this_thread::sleep_for(20ms);
  await_releases(kLong);  // returns: what is kept back is not waited for
  EXPECT_FALSE(first || second);
  other.reset();
  await_releases(kLong);
  EXPECT_TRUE(first && second);
}

TEST(DeferredRelease, KeepsSoMuchAndNoMore) {
  std::atomic<bool> small{false}, large{false};
  std::optional<KernelsWait> kernels(std::in_place);
  release_later(pin(small), 1);
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(small);
  release_later(pin(large), kMostDeferred);
  await_releases(kLong);
  EXPECT_TRUE(small);  // the oldest go first, until it is no more than that
  EXPECT_FALSE(large);
  kernels.reset();
  await_releases(kLong);
  EXPECT_TRUE(large);
}

TEST(DeferredRelease, NoKernelStartsIntoOne) {
  await_releases(kLong);
  std::atomic<bool> released{false};
  std::promise<void> driver, under_way, begun;
  release_later(pin(released, driver.get_future().share(), &under_way), 1);
  under_way.get_future().wait();
  std::thread starts([&] {
    const KernelsWait kernels;
    EXPECT_TRUE(released);
    begun.set_value();
  });
  EXPECT_EQ(begun.get_future().wait_for(20ms), std::future_status::timeout);
  driver.set_value();
  starts.join();
}

/// Of several that are queued it waits for one, and the others are kept back.
TEST(DeferredRelease, KernelsWaitForTheOneUnderWay) {
  await_releases(kLong);
  std::atomic<bool> first{false}, second{false};
  std::promise<void> driver, under_way;
  release_later(pin(first, driver.get_future().share(), &under_way), 1);
  release_later(pin(second), 1);
  under_way.get_future().wait();
  std::atomic<unsigned> begun{0};
  std::promise<void> over;
  const std::shared_future<void> ends = over.get_future().share();
  const auto kernel = [&] {
    const KernelsWait kernels;
    EXPECT_TRUE(first);
    ++begun;
    ends.wait();
  };
  std::thread one(kernel), other(kernel);
  const Deadline limit(kLong / 2);
  while (!kernels_wait() && !limit.passed()) std::this_thread::yield();
  EXPECT_TRUE(kernels_wait()) << "it is to be counted before the next release begins";
  driver.set_value();
  while (begun != 2) std::this_thread::yield();
  await_releases(kLong);
  EXPECT_FALSE(second);
  over.set_value();
  one.join();
  other.join();
  await_releases(kLong);
  EXPECT_TRUE(second);
}

}  // namespace
}  // namespace thalweg::impl::test
