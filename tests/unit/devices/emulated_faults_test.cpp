// SPDX-License-Identifier: Apache-2.0
// Injected failures of emulated devices, and their options as a text.
#include "tests/unit/devices/emulated_tools.hpp"

namespace thalweg::impl::emulated {
namespace {

TEST(EmulatedFaults, TheNthCallFailsAndOnlyThat) {
  Options options;
  options.fail(Operation::allocate, 3);
  options.fail(Operation::export_memory, 1);
  options.fail(Operation::import_memory, 2);
  options.fail(Operation::copy, 2);
  options.fail(Operation::launch, 1);
  auto device = open_device(0, options);
  const uint64_t a = allocate(*device, 100, MemoryKind::vmm), b = allocate(*device, 100);
  uint64_t c = 0;
  EXPECT_EQ(device->allocate(MemoryKind::emulated, 100, &c), TW_ERR_DEVICE);
  EXPECT_EQ(device->allocate(MemoryKind::emulated, 100, &c), TW_OK);
  std::vector<ExportedMemory> out;
  EXPECT_EQ(device->export_memory(a, 100, 1, &out), TW_ERR_DEVICE);
  for (Status expected : {TW_OK, TW_ERR_DEVICE, TW_OK}) {
    ASSERT_EQ(device->export_memory(a, 100, 1, &out), TW_OK);
    EXPECT_EQ(device->import_memory(out, &c), expected);
  }
  auto queue = make_queue(*device);
  for (Status expected : {TW_OK, TW_ERR_DEVICE, TW_OK}) EXPECT_EQ(copy(*queue, b, a, 100), expected);
  for (Status expected : {TW_ERR_DEVICE, TW_OK}) EXPECT_EQ(queue->launch(CopyKernel{plain(b, a, 100), {}}), expected);
  EXPECT_EQ(queue->synchronize(), TW_OK);
}

TEST(EmulatedFaults, ATaskThatFailsBreaksItsQueueOnly) {
  Options options;
  options.fail(Operation::run, 2);
  auto device = open_device(0, options);
  const uint64_t word = make_word(*device);
  auto queue = make_queue(*device), other = make_queue(*device);
  for (uint64_t value = 1; value <= 2; ++value) ASSERT_EQ(queue->write_value(word, value, false), TW_OK);
  EXPECT_EQ(queue->synchronize(), TW_ERR_DEVICE);
  EXPECT_EQ(read_word(word), 1u);
  ASSERT_EQ(other->write_value(word, 9, false), TW_OK);
  EXPECT_EQ(other->synchronize(), TW_OK);
  EXPECT_EQ(read_word(word), 9u);
}

/// While the device is in use, and counted anew.
TEST(EmulatedFaults, AreInjectedAtAnyTime) {
  auto device = open_device(0, {});
  const size_t before = device->holdings();
  const uint64_t word = make_word(*device);
  EXPECT_EQ(device->holdings(), before + 1);
  auto queue = make_queue(*device);
  ASSERT_EQ(queue->write_value(word, 1, false), TW_OK);
  device->faults().inject(Operation::word, 2);
  for (Status expected : {TW_OK, TW_ERR_DEVICE, TW_OK}) EXPECT_EQ(queue->write_value(word, 2, false), expected);
  EXPECT_EQ(device->faults().calls(Operation::word), 3u);
  device->faults().inject(Operation::queue, 1);
  std::unique_ptr<Queue> other;
  for (Status expected : {TW_ERR_DEVICE, TW_OK}) EXPECT_EQ(device->make_queue(&other), expected);
  std::unique_ptr<Event> event;
  ASSERT_EQ(device->make_event(&event), TW_OK);
  device->faults().inject(Operation::event, 2);
  EXPECT_EQ(queue->record(*event), TW_OK);
  EXPECT_EQ(other->wait_event(*event), TW_ERR_DEVICE);
  EXPECT_EQ(queue->synchronize(), TW_OK);
  EXPECT_EQ(device->free(word), TW_OK);
  EXPECT_EQ(device->holdings(), before);
}

TEST(EmulatedOptions, AreReadFromAText) {
  std::vector<Options> all;
  ASSERT_EQ(parse_options("devices=3,peers=101/010/111,slots=2,delay_ns=7,capacity=4096,fail_import=5", &all), TW_OK);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].peers, 0b101u);
  EXPECT_EQ(all[1].peers, 0b010u);
  EXPECT_EQ(all[2].kernel_slots, 2u);
  EXPECT_EQ(all[2].task_delay_ns, 7u);
  EXPECT_EQ(all[2].capacity, 4096u);
  EXPECT_EQ(all[1].fail_at[static_cast<size_t>(Operation::import_memory)], 5u);
  EXPECT_TRUE(all[0].kernels);
  ASSERT_EQ(parse_options("kernels=0", &all), TW_OK);
  EXPECT_FALSE(all[0].kernels);
  for (const char* bad :
       {"devices=0", "devices", "devices=2x", "slots=0", "kernels=2", "vmm_piece=100", "peers=12", "fail_sleep=1", "=1"})
    EXPECT_EQ(parse_options(bad, &all), TW_ERR_INVALID) << bad;
}

TEST(EmulatedOptions, WithoutKernelsOnlyEnginesCopy) {
  Options options;
  options.kernels = false;
  auto device = open_device(0, options);
  const uint64_t a = allocate(*device, 100), b = allocate(*device, 100);
  auto queue = make_queue(*device);
  EXPECT_FALSE(device->has_kernels());
  EXPECT_EQ(device->load_kernels(), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(queue->launch(CopyKernel{plain(b, a, 100), {}}), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(copy(*queue, b, a, 100), TW_OK);
  EXPECT_EQ(queue->synchronize(), TW_OK);
  EXPECT_TRUE(open_device(1)->has_kernels());
}

}  // namespace
}  // namespace thalweg::impl::emulated
