// SPDX-License-Identifier: Apache-2.0
// The driver: absent, too old, failing, shutting down; contexts; the interface as we declare it.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/devices/cuda_tools.hpp"

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

namespace thalweg::impl::cuda {
namespace {

TEST(CudaDriver, AnAbsentDriverIsNamedWithTheRemedy) {
  DriverApi api;
  EXPECT_EQ(load_driver("libthalweg-no-such-driver.so.1", &api), TW_ERR_DEVICE);
  EXPECT_NE(std::string(last_error()).find("install it"), std::string::npos);
  EXPECT_EQ(load_driver("libm.so.6", &api), TW_ERR_DEVICE);  // a library, but no driver
  EXPECT_NE(std::string(last_error()).find("update it"), std::string::npos);
}

TEST(CudaDriver, ErrorsHaveAStatusAndAText) {
  const std::pair<CuResult, Status> expected[] = {
      {result::out_of_memory, TW_ERR_NO_MEMORY},      {result::deinitialized, TW_ERR_CLOSED},
      {result::peer_unsupported, TW_ERR_UNREACHABLE}, {result::host_registered, TW_ERR_BUSY},
      {result::not_supported, TW_ERR_UNSUPPORTED},    {result::illegal_address, TW_ERR_DEVICE},
      {result::capture_unsupported, TW_ERR_INVALID},  {12345, TW_ERR_DEVICE},
  };
  for (const auto& [code, status] : expected) {
    EXPECT_EQ(fail_cuda(code, "counting sheep"), status) << code;
    EXPECT_NE(std::string(last_error()).find("counting sheep: CUDA error " + std::to_string(code)), std::string::npos);
  }
}

#if __has_include(<cuda.h>)
TEST(CudaDriver, OurDeclarationsAreCudas) {
  static_assert(sizeof(Copy2d) == sizeof(CUDA_MEMCPY2D) && sizeof(Copy3d) == sizeof(CUDA_MEMCPY3D));
  static_assert(offsetof(Copy3d, to_pitch) == offsetof(CUDA_MEMCPY3D, dstPitch));
  static_assert(offsetof(Copy3d, from) == offsetof(CUDA_MEMCPY3D, srcDevice));
  static_assert(offsetof(Copy2d, to) == offsetof(CUDA_MEMCPY2D, dstDevice));
  static_assert(offsetof(Copy2d, height) == offsetof(CUDA_MEMCPY2D, Height));
  static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
  static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
  static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc) && sizeof(IpcHandle) == sizeof(CUipcMemHandle));
  EXPECT_EQ(int{kPool}, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
  EXPECT_EQ(int{kMappingBase}, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
  EXPECT_EQ(int{kMappingSize}, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
  EXPECT_EQ(int{kLegacyIpc}, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
  EXPECT_EQ(int{kHandleTypes}, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
  EXPECT_EQ(int{kFlushRemoteWrites}, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES);
  EXPECT_EQ(int{kHostPointerForRegistered}, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  EXPECT_EQ(int{kDescriptorHandles}, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  EXPECT_EQ(int{kNativeAtomics}, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
  EXPECT_EQ(int{kMultiprocessors}, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(kWaitFlush, static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH));
  EXPECT_EQ(kEventBlockingSync | kEventDisableTiming, unsigned{CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING});
  EXPECT_EQ(kReadWrite, static_cast<unsigned>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_EQ(kCaptureModeRelaxed, static_cast<unsigned>(CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(int{result::host_registered}, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(int{result::peer_enabled}, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
#if CUDA_VERSION >= 13000
  static_assert(sizeof(BatchAttributes) == sizeof(CUmemcpyAttributes));
#endif
}
#endif

TEST_F(CudaTest, AFunctionThatIsMissingIsNamed) {
  fake->hidden["MemRetainAllocationHandle"] = true;
  DriverApi api;
  EXPECT_EQ(load_driver(FAKE_CUDA, &api), TW_ERR_DEVICE);
  EXPECT_NE(std::string(last_error()).find("cuMemRetainAllocationHandle"), std::string::npos);
  fake->hidden.clear();
  fake->hidden["MemcpyBatchAsync"] = true;  // of newer drivers only
  EXPECT_EQ(load_driver(FAKE_CUDA, &api), TW_OK);
  EXPECT_EQ(api.MemcpyBatchAsync, nullptr);
}

TEST_F(CudaTest, NoGpuIsAnErrorThatCanPass) {
  fake->fail_next["Init"] = result::no_device;
  EXPECT_EQ(backend->devices(&devices), TW_ERR_DEVICE);
  EXPECT_NE(std::string(last_error()).find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  open();
  EXPECT_NE(devices[0]->uuid(), devices[1]->uuid());
  EXPECT_EQ(fake->calls["DevicePrimaryCtxRetain"], 0u);  // to list is not to open
}

TEST_F(CudaTest, ContextsArePushedAndPoppedFromAnyThread) {
  open();
  const auto user = symbol<CuContext(int)>("fake_cuda_user_context")(1);
  ASSERT_EQ(driver.CtxPushCurrent(user), result::success);
  const uint64_t address = allocate(MemoryKind::device, 100);
  auto queue = make_queue();
  EXPECT_EQ(queue->write_value(address, 1, false), TW_OK);
  EXPECT_EQ(queue->write_value(address + 1, 1, false), TW_ERR_MISALIGNED);
  fake->fail_next["StreamWriteValue64"] = result::not_supported;
  EXPECT_EQ(queue->write_value(address, 1, false), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(depth(), 1u);
  CuContext left = nullptr;
  EXPECT_EQ(driver.CtxPopCurrent(&left), result::success);
  EXPECT_EQ(left, user);
  std::thread([&] {
    EXPECT_EQ(queue->synchronize(), TW_OK);
    EXPECT_EQ(depth(), 0u);
  }).join();
  EXPECT_EQ(word_at(address), 1u);
}

TEST_F(CudaTest, AfterTheDriversShutdownEverythingIsClosed) {
  open();
  const uint64_t address = allocate(MemoryKind::device, 100);
  auto queue = make_queue();
  std::unique_ptr<Event> event;
  ASSERT_EQ(devices[0]->make_event(&event), TW_OK);
  fake->shut_down = true;
  uint64_t other = 0;
  EXPECT_EQ(devices[0]->allocate(MemoryKind::device, 1, &other), TW_ERR_CLOSED);
  EXPECT_EQ(devices[0]->free(address), TW_ERR_CLOSED);
  EXPECT_EQ(queue->synchronize(), TW_ERR_CLOSED);
  EXPECT_EQ(event->query(), TW_ERR_CLOSED);
  BufferInfo info;
  EXPECT_EQ(backend->identify(address, &info), TW_ERR_NO_MATCH);
  queue.reset();
  event.reset();
  fake->shut_down = false;
}

TEST_F(CudaTest, AForkedChildIsRefused) {
  open();
  const uint64_t address = allocate(MemoryKind::device, 100);
  auto queue = make_queue();
  const pid_t child = fork();
  if (child == 0) {
    uint64_t other = 0;
    BufferInfo info;
    const bool refused = devices[0]->allocate(MemoryKind::device, 1, &other) == TW_ERR_FORKED &&
                         queue->write_value(address, 1, false) == TW_ERR_FORKED && queue->query() == TW_ERR_FORKED &&
                         backend->identify(address, &info) == TW_ERR_NO_MATCH;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace thalweg::impl::cuda
