// SPDX-License-Identifier: Apache-2.0
// The persistent copy kernel on any back end. What it does not take is copied by an engine, as the library does.
#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "devices/persistent.hpp"
#include "tests/gpu/contract.hpp"

namespace thalweg::impl::contract {
namespace {

constexpr size_t kGuard = 64;
constexpr uint64_t kLong = PersistentOptions::kLongest;

class PersistentKernels : public Contract {
 protected:
  /// Null and skipped in a build without kernels.
  std::shared_ptr<PersistentCopier> open(unsigned blocks, uint64_t idle_ns, Device* on = nullptr) {
    std::shared_ptr<PersistentCopier> persistent;
    if (!kernels()) return nullptr;
    EXPECT_EQ(PersistentCopier::open(on != nullptr ? *on : *device, {blocks, idle_ns}, &persistent), TW_OK) << last_error();
    return persistent;
  }
  /// Until it has taken the copy and done it. Fails the test after half a minute.
  static void must_copy(PersistentCopier& persistent, uint64_t to, uint64_t from, uint64_t length) {
    const Deadline limit(30 * kSecond);
    for (;;) {
      PersistentCopier::Ticket ticket;
      Status status = persistent.copy(to, from, length, &ticket);
      while (status == TW_OK && (status = persistent.poll(ticket)) == TW_IN_PROGRESS) {
        status = TW_OK;
        if (limit.passed()) break;
        std::this_thread::yield();
      }
      if (status == TW_OK && !limit.passed()) return;
      ASSERT_EQ(status, TW_AGAIN) << last_error();
      ASSERT_FALSE(limit.passed()) << "no persistent kernel took the copy";
      std::this_thread::yield();
    }
  }
  /// Random bytes between guards, a random place of which is copied again and again.
  struct Field {
    uint64_t from, to, size;
    std::vector<std::byte> source, expected;
  };
  Field field(uint64_t size, Device* target) {
    Field made{allocate(size, ordinary), allocate(size, ordinary, target), size, {}, {}};
    made.source = fill(made.from, size);
    made.expected = fill(made.to, size);
    EXPECT_EQ(queue->admit(Use::kernel, made.to, size), TW_OK) << last_error();
    return made;
  }
};

TEST_F(PersistentKernels, CopyAnySizeAndAlignmentToEveryDeviceTheyReach) {
  std::mt19937_64 rng(std::random_device{}());
  for (const unsigned blocks : {1u, 3u, 8u}) {
    const std::shared_ptr<PersistentCopier> persistent = open(blocks, kLong);
    if (persistent == nullptr) GTEST_SKIP() << last_error();
    for (Device* const other : devices) {
      if (!device->peer(other->uuid()).access) continue;
      Field field = this->field(300000, other);
      for (const size_t length : {1u, 7u, 8u, 16u, 63u, 511u, 512u, 513u, 4096u, 16384u, 16385u, 70001u, 200003u}) {
        const size_t from = rng() % (field.size - length), to = kGuard + rng() % (field.size - length - kGuard);
        must_copy(*persistent, field.to + to, field.from + from, length);
        std::copy_n(&field.source[from], length, &field.expected[to]);
        must_copy(*persistent, field.from + to, field.to + to, length);  // and back: a remote source
        std::copy_n(&field.expected[to], length, &field.source[to]);
      }
      EXPECT_EQ(read(field.to, field.size), field.expected) << blocks << " blocks";
      EXPECT_EQ(read(field.from, field.size), field.source) << blocks << " blocks";
    }
  }
}

TEST_F(PersistentKernels, CopyToAndFromPinnedMemoryThatTheHostChanges) {
  const std::shared_ptr<PersistentCopier> persistent = open(2, kLong);
  if (persistent == nullptr) GTEST_SKIP() << last_error();
  constexpr size_t kLength = 40001;
  std::mt19937_64 rng(std::random_device{}());
  const uint64_t there = allocate(kLength, ordinary), host = allocate(2 * kLength, MemoryKind::pinned);
  auto* const bytes = reinterpret_cast<std::byte*>(host);
  for (int round = 0; round < 50; ++round) {
    const size_t length = 1 + rng() % kLength;
    std::generate_n(bytes, length, [&] { return static_cast<std::byte>(rng()); });
    std::memset(bytes + kLength, 0xa5, kLength);
    must_copy(*persistent, there, host, length);
    must_copy(*persistent, host + kLength, there, length);
    ASSERT_EQ(std::memcmp(bytes, bytes + kLength, length), 0) << length << " in round " << round;
    for (size_t i = kLength + length; i < 2 * kLength; ++i) ASSERT_EQ(bytes[i], std::byte{0xa5}) << "behind the end";
  }
}

/// One thread's copies, several under way: each by the kernel, or by an engine where it was not taken or given back.
class Copier {
 public:
  Copier(PersistentCopier& persistent, Device& device, uint64_t to, uint64_t from, std::vector<std::byte>* expected,
         const std::vector<std::byte>& source)
      : persistent_(persistent), to_(to), from_(from), expected_(expected), source_(source) {
    EXPECT_EQ(device.make_queue(&queue_), TW_OK) << last_error();
  }
  /// `count` copies, side by side in the target; pauses of up to `pause_us` between them.
  void run(unsigned count, unsigned pause_us) {
    uint64_t at = kGuard;
    for (unsigned i = 0; i < count; ++i) {
      if (pause_us != 0) std::this_thread::sleep_for(std::chrono::microseconds(rng_() % pause_us));
      const uint64_t length = 1 + rng_() % (rng_() % 8 == 0 ? 20000 : 600), from = rng_() % (source_.size() - length);
      if (at + length + kGuard >
          expected_->size()) {  // what is under way must not be overtaken by what comes to the same place
        settle(0);
        at = kGuard;
      }
      post(to_ + at, from_ + from, length);
      std::copy_n(&source_[from], length, &(*expected_)[at]);
      at += length + rng_() % 3;
      settle(40);
    }
    settle(0);
    EXPECT_EQ(queue_->synchronize(), TW_OK) << last_error();
  }
  unsigned taken = 0, returned = 0;

 private:
  struct UnderWay {
    PersistentCopier::Ticket ticket;
    Copy copy;
  };
  void post(uint64_t to, uint64_t from, uint64_t length) {
    UnderWay& one = under_way_.emplace_back();
    one.copy = {to, from, length};
    const Status status = persistent_.copy(to, from, length, &one.ticket);
    if (status == TW_OK) {
      ++taken;
      return;
    }
    EXPECT_EQ(status, TW_AGAIN) << last_error();
    under_way_.pop_back();
    engine({to, from, length});
  }
  void engine(const Copy& copy) {
    EXPECT_EQ(queue_->copy(&copy, 1), TW_OK) << last_error();
    EXPECT_EQ(queue_->synchronize(), TW_OK) << last_error();
  }
  /// Until at most `left` are under way.
  void settle(size_t left) {
    const Deadline limit(30 * kSecond);
    while (under_way_.size() > left) {
      UnderWay& one = under_way_.front();
      const Status status = persistent_.poll(one.ticket);
      if (status == TW_IN_PROGRESS) {
        ASSERT_FALSE(limit.passed()) << "a command was lost";
        std::this_thread::yield();
        continue;
      }
      if (status == TW_AGAIN) {
        ++returned;
        engine(one.copy);
      } else {
        ASSERT_EQ(status, TW_OK) << last_error();
      }
      under_way_.pop_front();
    }
  }

  PersistentCopier& persistent_;
  const uint64_t to_, from_;
  std::vector<std::byte>* const expected_;
  const std::vector<std::byte>& source_;
  std::unique_ptr<Queue> queue_;
  std::deque<UnderWay> under_way_;
  std::mt19937_64 rng_{std::random_device{}()};
};

TEST_F(PersistentKernels, TakeThousandsOfCommandsOfSeveralThreads) {
  const std::shared_ptr<PersistentCopier> persistent = open(4, kLong);
  if (persistent == nullptr) GTEST_SKIP() << last_error();
  constexpr unsigned kThreads = 4, kCount = 1500;
  std::deque<Field> fields;
  for (unsigned i = 0; i < kThreads; ++i)
    fields.push_back(
        field(2000000, devices[i % devices.size()]->peer(device->uuid()).access ? devices[i % devices.size()] : device));
  must_copy(*persistent, fields[0].to, fields[0].from, 1);
  fields[0].expected[0] = fields[0].source[0];
  std::vector<std::thread> threads;
  std::atomic<unsigned> taken{0};
  for (Field& one : fields) {
    threads.emplace_back([&] {
      Copier copier(*persistent, *device, one.to, one.from, &one.expected, one.source);
      copier.run(kCount, 0);
      taken += copier.taken;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Field& one : fields) EXPECT_EQ(read(one.to, one.size), one.expected);
  EXPECT_GT(taken.load(), 0u);
}

TEST_F(PersistentKernels, EndWhenIdleAndComeBackAndLoseNothingInBetween) {
  // Pauses around the idle time: commands arrive just before, while and just after the kernel leaves.
  for (const unsigned blocks : {1u, 4u}) {
    const std::shared_ptr<PersistentCopier> persistent = open(blocks, 100 * kMicrosecond);
    if (persistent == nullptr) GTEST_SKIP() << last_error();
    constexpr unsigned kThreads = 2, kCount = 1000;
    std::deque<Field> fields;
    for (unsigned i = 0; i < kThreads; ++i) fields.push_back(field(1000000, device));
    std::vector<std::thread> threads;
    for (Field& one : fields) {
      threads.emplace_back([&] {
        Copier copier(*persistent, *device, one.to, one.from, &one.expected, one.source);
        copier.run(kCount, 250);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Field& one : fields) EXPECT_EQ(read(one.to, one.size), one.expected);
    const uint64_t a = fields[0].from, b = fields[0].to;
    must_copy(*persistent, b, a, 100);
    std::copy_n(fields[0].source.begin(), 100, fields[0].expected.begin());
    EXPECT_EQ(read(b, fields[0].size), fields[0].expected);
  }
}

TEST_F(PersistentKernels, APauseEndsTheKernelAndLetsNoneStart) {
  const std::shared_ptr<PersistentCopier> persistent = open(2, kLong);
  if (persistent == nullptr) GTEST_SKIP() << last_error();
  Field field = this->field(100000, device);
  for (int round = 0; round < 20; ++round) {
    must_copy(*persistent, field.to, field.from, field.size);
    std::deque<PersistentCopier::Ticket> queued(20);
    unsigned taken = 0;
    while (taken < queued.size() && persistent->copy(field.to, field.from, field.size, &queued[taken]) == TW_OK) ++taken;
    {
      const PersistentPause pause;
      PersistentCopier::Ticket ticket;
      EXPECT_EQ(persistent->copy(field.to, field.from, 8, &ticket), TW_AGAIN);
      const Deadline limit(30 * kSecond);
      for (unsigned i = 0; i < taken; ++i) {  // what it had been given before, it does
        Status status = TW_IN_PROGRESS;
        while ((status = persistent->poll(queued[i])) == TW_IN_PROGRESS && !limit.passed()) std::this_thread::yield();
        EXPECT_TRUE(status == TW_OK || status == TW_AGAIN) << status;
      }
      EXPECT_EQ(persistent->copy(field.to, field.from, 8, &ticket), TW_AGAIN);
    }
  }
  must_copy(*persistent, field.to, field.from, field.size);
  EXPECT_EQ(read(field.to, field.size), field.source);
}

TEST_F(PersistentKernels, AllocatingAndPinningDoNotWaitForTheirEnd) {
  const std::shared_ptr<PersistentCopier> persistent = open(1, kLong);
  if (persistent == nullptr) GTEST_SKIP() << last_error();
  Field field = this->field(5000, device);
  std::vector<std::byte> pages(100000);
  for (int round = 0; round < 10; ++round) {
    must_copy(*persistent, field.to, field.from, field.size);
    for (const MemoryKind kind : {ordinary, MemoryKind::pinned, MemoryKind::vmm}) {
      uint64_t address = 0;
      ASSERT_EQ(device->allocate(kind, 70000, &address), TW_OK) << last_error();
      must_copy(*persistent, address, field.from, field.size);
      ASSERT_EQ(device->free(address), TW_OK) << last_error();
    }
    ASSERT_EQ(device->register_host(pages.data(), pages.size()), TW_OK) << last_error();
    must_copy(*persistent, reinterpret_cast<uintptr_t>(pages.data()) + 3, field.from, field.size);
    ASSERT_EQ(device->unregister_host(pages.data()), TW_OK) << last_error();
    EXPECT_EQ(std::memcmp(pages.data() + 3, field.source.data(), field.size), 0);
  }
  EXPECT_EQ(read(field.to, field.size), field.source);
}

TEST_F(PersistentKernels, EndWithTheirLastUserWhateverIsQueued) {
  Field field = this->field(200000, device);
  for (int round = 0; round < 20; ++round) {
    std::shared_ptr<PersistentCopier> persistent = open(3, kLong);
    if (persistent == nullptr) GTEST_SKIP() << last_error();
    std::shared_ptr<PersistentCopier> other = open(1, kLong);
    EXPECT_EQ(other, persistent) << "one for each device";
    must_copy(*persistent, field.to, field.from, 8);
    std::deque<PersistentCopier::Ticket> queued(50);
    for (PersistentCopier::Ticket& ticket : queued) (void)persistent->copy(field.to, field.from, field.size, &ticket);
    other.reset();
    persistent.reset();
  }
  finish();  // nothing is left that holds the device up, and nothing is broken
  fill(field.to, field.size);
}

TEST_F(PersistentKernels, TwoDevicesHaveOneEach) {
  if (devices.size() < 2 || !device->peer(devices[1]->uuid()).access || !devices[1]->peer(device->uuid()).access)
    GTEST_SKIP() << "one device, or no access";
  const std::shared_ptr<PersistentCopier> here = open(2, kLong), there = open(2, kLong, devices[1]);
  if (here == nullptr || there == nullptr) GTEST_SKIP() << last_error();
  EXPECT_NE(here, there);
  Field out = field(90001, devices[1]);
  const uint64_t back = allocate(out.size, ordinary);
  const std::vector<std::byte> old = fill(back, out.size);
  std::unique_ptr<Queue> remote;
  ASSERT_EQ(devices[1]->make_queue(&remote), TW_OK);
  ASSERT_EQ(remote->admit(Use::kernel, back, out.size), TW_OK) << last_error();
  for (int round = 0; round < 50; ++round) {  // there and back by the one and the other, each behind the other's answer
    must_copy(*here, out.to, out.from, out.size);
    must_copy(*there, back, out.to, out.size - kGuard);
  }
  std::vector<std::byte> expected = out.source;
  std::copy(old.end() - kGuard, old.end(), expected.end() - kGuard);
  EXPECT_EQ(read(back, out.size), expected);
}

TEST_F(PersistentKernels, OptionsThatMakeNoSenseAreRefused) {
  if (!kernels()) GTEST_SKIP() << last_error();
  std::shared_ptr<PersistentCopier> persistent;
  EXPECT_EQ(PersistentCopier::open(*device, {0, kLong}, &persistent), TW_ERR_INVALID);
  EXPECT_EQ(PersistentCopier::open(*device, {9, kLong}, &persistent), TW_ERR_INVALID);
  EXPECT_EQ(PersistentCopier::open(*device, {1, kLong + 1}, &persistent), TW_ERR_INVALID);
  EXPECT_EQ(PersistentCopier::open(*device, {1, 0}, &persistent), TW_ERR_INVALID);
  EXPECT_EQ(persistent, nullptr);
}

}  // namespace
}  // namespace thalweg::impl::contract
