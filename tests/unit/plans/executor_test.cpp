// SPDX-License-Identifier: Apache-2.0
// An executor whose device fails in the middle of what it does for it.
#include "plans/executor.hpp"

#include "pair.hpp"
#include "unit/devices/emulated_tools.hpp"

namespace thalweg::tests {
namespace {

using namespace impl;

TEST(Executors, AQueueThatBrokeIsMadeAnew) {
  constexpr size_t kLength = 100;
  emulated::Options options;
  options.fail(emulated::Operation::run, 2);
  const auto device = emulated::open_device(0, options);
  uint64_t from = 0, to = 0;
  ASSERT_EQ(device->allocate(MemoryKind::pinned, kLength, &from), TW_OK) << last_error();
  ASSERT_EQ(device->allocate(MemoryKind::pinned, kLength, &to), TW_OK) << last_error();
  Side side;
  side.open("shm");
  {
    Executor executor(*side.context, device.get());
    ASSERT_EQ(executor.open(), TW_OK) << last_error();
    const Copy copy{to, from, kLength};
    const auto moves = [&] {
      const Bytes bytes = random_bytes(kLength);
      std::memcpy(reinterpret_cast<void*>(from), bytes.data(), kLength);
      EXPECT_EQ(executor.enqueue({&copy, 1}), TW_OK) << last_error();
      executor.settle();
      return std::memcmp(reinterpret_cast<void*>(to), bytes.data(), kLength) == 0;
    };
    EXPECT_TRUE(moves());
    EXPECT_EQ(executor.queues(), 1u);
    EXPECT_FALSE(moves());  // this one breaks the queue
    EXPECT_TRUE(moves());
    EXPECT_EQ(executor.idle(), TW_OK) << last_error();
    EXPECT_EQ(executor.queues(), 2u) << "which is how its users know that what they had enqueued is lost";
  }
  side.close();
  EXPECT_EQ(device->free(from), TW_OK);
  EXPECT_EQ(device->free(to), TW_OK);
}

}  // namespace
}  // namespace thalweg::tests
