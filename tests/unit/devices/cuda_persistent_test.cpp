// SPDX-License-Identifier: Apache-2.0
// The persistent kernel of the CUDA back end: which calls of the driver it needs, and which ones it must not run beside.
#include <set>
#include <thread>

#include "base/clock.hpp"
#include "devices/persistent.hpp"
#include "tests/unit/devices/cuda_tools.hpp"

namespace thalweg::impl::cuda {
namespace {

class CudaPersistent : public CudaTest {
 protected:
  void SetUp() override {
    open();
    const Status status = devices[0]->load_kernels();
    if (status == TW_ERR_UNSUPPORTED) GTEST_SKIP() << last_error();
    ASSERT_EQ(PersistentCopier::open(*devices[0], {2, PersistentOptions::kLongest}, &persistent), TW_OK) << last_error();
    from = allocate(MemoryKind::device, kLength);
    to = allocate(MemoryKind::device, kLength);
  }
  void TearDown() override {
    fake->watch = nullptr;
    persistent.reset();
    if (from == 0) return;
    EXPECT_EQ(devices[0]->free(from), TW_OK);
    EXPECT_EQ(devices[0]->free(to), TW_OK);
  }
  /// One copy by the kernel, which runs then.
  void copy_one() {
    const std::vector<std::byte> bytes = fill(from, kLength);
    const Deadline limit(30 * kSecond);
    for (Status status = TW_AGAIN; status != TW_OK; std::this_thread::yield()) {
      ASSERT_FALSE(limit.passed()) << "no kernel took the copy";
      PersistentCopier::Ticket ticket;
      status = persistent->copy(to, from, kLength, &ticket);
      if (status == TW_AGAIN) continue;
      ASSERT_EQ(status, TW_OK);
      while ((status = persistent->poll(ticket)) == TW_IN_PROGRESS) ASSERT_FALSE(limit.passed()) << "a command was lost";
    }
    EXPECT_EQ(bytes_at(to, kLength), bytes);
  }
  /// Must run while no persistent kernel can.
  void must_pause(const std::set<std::string>& calls, const std::function<void()>& run) {
    copy_one();
    std::set<std::string> seen;
    PersistentCopier::Ticket ticket;
    fake->watch = [&](const std::string& name) {
      if (calls.count(name) == 0) return;
      seen.insert(name);
      EXPECT_EQ(persistent->copy(to, from, 8, &ticket), TW_AGAIN) << name << " runs beside a persistent kernel";
    };
    run();
    fake->watch = nullptr;
    EXPECT_EQ(seen, calls);
  }

  static constexpr size_t kLength = 30001;
  std::shared_ptr<PersistentCopier> persistent;
  uint64_t from = 0, to = 0;
};

TEST_F(CudaPersistent, ACopyCallsNoDriver) {
  copy_one();
  for (int i = 0; i < 3; ++i) {
    fake->calls.clear();
    PersistentCopier::Ticket ticket;
    const Status status = persistent->copy(to, from, kLength, &ticket);
    if (status == TW_AGAIN) {  // it has ended meanwhile
      copy_one();
      continue;
    }
    while (persistent->poll(ticket) == TW_IN_PROGRESS) std::this_thread::yield();
    EXPECT_TRUE(fake->calls.empty()) << fake->calls.begin()->first;
    return;
  }
  FAIL() << "the kernel always ended at once";
}

TEST_F(CudaPersistent, ItsStreamIsOfTheHighestPriority) { EXPECT_EQ(fake->calls["StreamCreateWithPriority"], 1u); }

TEST_F(CudaPersistent, CallsThatWaitForTheDeviceFindNone) {
  uint64_t address = 0;
  std::vector<std::byte> pages(10000);
  must_pause({"MemAlloc"}, [&] { EXPECT_EQ(devices[0]->allocate(MemoryKind::device, 100, &address), TW_OK); });
  must_pause({"MemFree"}, [&] { EXPECT_EQ(devices[0]->free(address), TW_OK); });
  must_pause({"MemHostAlloc"}, [&] { EXPECT_EQ(devices[0]->allocate(MemoryKind::pinned, 100, &address), TW_OK); });
  must_pause({"MemFreeHost"}, [&] { EXPECT_EQ(devices[0]->free(address), TW_OK); });
  must_pause({"MemMap", "MemSetAccess"}, [&] { EXPECT_EQ(devices[0]->allocate(MemoryKind::vmm, 5000, &address), TW_OK); });
  must_pause({"MemUnmap"}, [&] { EXPECT_EQ(devices[0]->free(address), TW_OK); });
  must_pause({"MemHostRegister"}, [&] { EXPECT_EQ(devices[0]->register_host(pages.data(), pages.size()), TW_OK); });
  must_pause({"MemHostUnregister"}, [&] { EXPECT_EQ(devices[0]->unregister_host(pages.data()), TW_OK); });
  must_pause({"KernelGetFunction"}, [&] { EXPECT_EQ(devices[0]->load_kernels(), TW_OK); });
}

TEST_F(CudaPersistent, ImportsAndPeerAccessFindNone) {
  std::vector<ExportedMemory> pieces;
  ASSERT_EQ(devices[0]->export_memory(from, kLength, 7, &pieces), TW_OK) << last_error();
  pieces[0].handle.incarnation = 8;  // as if another process had
  uint64_t address = 0;
  must_pause({"IpcOpenMemHandle"}, [&] { EXPECT_EQ(devices[1]->import_memory(pieces, &address), TW_OK) << last_error(); });
  must_pause({"IpcCloseMemHandle"}, [&] { EXPECT_EQ(devices[1]->release_import(address), TW_OK); });
  const uint64_t there = allocate(MemoryKind::device, 100, 1), row = allocate(MemoryKind::vmm, 5000, 1);
  auto queue = make_queue();
  must_pause({"CtxEnablePeerAccess"}, [&] { EXPECT_EQ(queue->admit(Use::kernel, there, 100), TW_OK) << last_error(); });
  must_pause({"MemSetAccess"}, [&] { EXPECT_EQ(queue->admit(Use::kernel, row, 5000), TW_OK) << last_error(); });
}

TEST_F(CudaPersistent, ALaunchThatFailsLeavesItToEngines) {
  { const PersistentPause pause; }  // the next copy needs a launch
  fake->fail_next["LaunchKernel"] = result::launch_timeout;
  PersistentCopier::Ticket ticket;
  const Deadline limit(30 * kSecond);
  while (fake->fail_next.count("LaunchKernel") != 0) {
    ASSERT_FALSE(limit.passed());
    EXPECT_EQ(persistent->copy(to, from, 8, &ticket), TW_AGAIN);
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(persistent->copy(to, from, 8, &ticket), TW_AGAIN);
  EXPECT_EQ(persistent->ask(), TW_ERR_DEVICE);
}

TEST_F(CudaPersistent, ABrokenStreamIsSaid) {
  copy_one();
  EXPECT_EQ(persistent->ask(), TW_OK);
  fake->fail_next["StreamQuery"] = result::illegal_address;
  EXPECT_EQ(persistent->ask(), TW_ERR_DEVICE);
  PersistentCopier::Ticket ticket;
  EXPECT_EQ(persistent->copy(to, from, 8, &ticket), TW_AGAIN);
}

}  // namespace
}  // namespace thalweg::impl::cuda
