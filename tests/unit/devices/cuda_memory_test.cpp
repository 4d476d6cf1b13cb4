// SPDX-License-Identifier: Apache-2.0
// GPU memory: whose pointer, which kind, pinning; and between processes.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/devices/cuda_tools.hpp"

namespace thalweg::impl::cuda {
namespace {

using CudaMemory = CudaTest;
constexpr uint64_t kIncarnation = 77;

TEST_F(CudaMemory, ADormantDriverOwnsNothingAndStaysDormant) {
  BufferInfo info;
  EXPECT_EQ(backend->identify(reinterpret_cast<uintptr_t>(&info), &info), TW_ERR_NO_MATCH);
  EXPECT_EQ(fake->calls["Init"], 0u);
  EXPECT_EQ(fake->calls["DeviceGetCount"], 0u);
}

TEST_F(CudaMemory, MemoryOfAnApplicationIsFoundWithoutAskingForDevices) {
  CuPointer address = 0;
  ASSERT_EQ(driver.Init(0), result::success);  // the application does all this
  CuContext theirs = nullptr, popped = nullptr;
  ASSERT_EQ(driver.DevicePrimaryCtxRetain(&theirs, 2), result::success);
  ASSERT_EQ(driver.CtxPushCurrent(theirs), result::success);
  ASSERT_EQ(driver.MemAlloc(&address, 5000), result::success);
  ASSERT_EQ(driver.CtxPopCurrent(&popped), result::success);
  BufferInfo info;
  ASSERT_EQ(backend->identify(address + 4999, &info), TW_OK);
  EXPECT_EQ(info.kind, MemoryKind::device);
  EXPECT_EQ(info.device->ordinal(), 2u);
  EXPECT_EQ(info.base, address);
  EXPECT_EQ(info.length, 5000u);
  const unsigned before = fake->calls["PointerGetAttributes"];
  EXPECT_EQ(backend->identify(reinterpret_cast<uintptr_t>(&info), &info), TW_ERR_NO_MATCH);
  ASSERT_EQ(backend->identify(address, &info), TW_OK);
  EXPECT_EQ(fake->calls["PointerGetAttributes"], before + 3);  // one of what is the host's, two of what is the driver's
}

TEST_F(CudaMemory, EachKindIsRecognised) {
  open();
  const struct {
    MemoryKind kind;
    bool host_access;
    ExportForm form;
  } kinds[] = {{MemoryKind::device, false, ExportForm::ipc_handle},
               {MemoryKind::pinned, true, ExportForm::none},
               {MemoryKind::managed, true, ExportForm::none},
               {MemoryKind::pool, false, ExportForm::none},
               {MemoryKind::vmm, false, ExportForm::descriptor}};
  for (const auto& one : kinds) {
    const uint64_t address = allocate(one.kind, 1003, 1);
    BufferInfo info;
    ASSERT_EQ(backend->identify(address + 1002, &info), TW_OK);
    EXPECT_EQ(info.kind, one.kind);
    EXPECT_EQ(info.device, devices[1]);
    EXPECT_EQ(info.host_access, one.host_access);
    EXPECT_EQ(info.exportable, one.form);
    EXPECT_EQ(devices[0]->free(address), TW_ERR_HANDLE);  // not its own
    EXPECT_EQ(devices[1]->free(address), TW_OK) << last_error();
    EXPECT_EQ(devices[1]->free(address), TW_ERR_HANDLE);
    EXPECT_EQ(backend->identify(address, &info), TW_ERR_NO_MATCH);
  }
  uint64_t address = 0;
  EXPECT_EQ(devices[0]->allocate(MemoryKind::host, 1, &address), TW_ERR_INVALID);
  EXPECT_EQ(devices[0]->allocate(MemoryKind::device, 0, &address), TW_ERR_INVALID);
  fake->fail_next["MemAlloc"] = result::out_of_memory;
  EXPECT_EQ(devices[0]->allocate(MemoryKind::device, 1, &address), TW_ERR_NO_MEMORY);
}

/// To measure with: nothing of the other GPU is opened, whose context would take hundreds of MiB there.
TEST_F(CudaMemory, MemoryOfAPeerIsMadeWithoutItsContext) {
  open();
  uint64_t address = 0;
  ASSERT_EQ(devices[0]->allocate_at(devices[1]->uuid(), 5000, &address), TW_OK) << last_error();
  EXPECT_EQ(fake->calls["DevicePrimaryCtxRetain"], 1u);
  BufferInfo info;
  ASSERT_EQ(backend->identify(address, &info), TW_OK);
  EXPECT_EQ(info.kind, MemoryKind::vmm);
  EXPECT_EQ(info.device, devices[1]);
  EXPECT_EQ(devices[1]->free(address), TW_ERR_HANDLE);
  EXPECT_EQ(devices[0]->free(address), TW_OK) << last_error();
  EXPECT_EQ(backend->identify(address, &info), TW_ERR_NO_MATCH);
  EXPECT_EQ(devices[0]->allocate_at(devices[2]->uuid(), 5000, &address), TW_ERR_UNREACHABLE);
  EXPECT_EQ(devices[0]->allocate_at(Uuid{}, 5000, &address), TW_ERR_UNREACHABLE);
  EXPECT_EQ(devices[0]->allocate_at(devices[1]->uuid(), 0, &address), TW_ERR_INVALID);
}

TEST_F(CudaMemory, AGpuSaysWhatItIsAndByWhichDriver) {
  open();
  EXPECT_EQ(devices[0]->model(), "Fake GPU, driver 13.0");
  fake->fail_next["DeviceGetName"] = result::invalid_value;
  EXPECT_EQ(devices[1]->model(), "GPU, driver 13.0");
}

TEST_F(CudaMemory, ARowThatCannotBeMappedLeavesNothing) {
  open();
  uint64_t address = 0;
  fake->fail_next["MemSetAccess"] = result::out_of_memory;
  EXPECT_EQ(devices[0]->allocate(MemoryKind::vmm, (size_t{70} << 20) + 1, &address), TW_ERR_NO_MEMORY);
  EXPECT_EQ(fake->calls["MemMap"], 3u);
  EXPECT_EQ(fake->calls["MemUnmap"], 3u);
  EXPECT_EQ(fake->calls["MemRelease"], fake->calls["MemCreate"]);
  EXPECT_EQ(fake->calls["MemAddressFree"], fake->calls["MemAddressReserve"]);
}

TEST_F(CudaMemory, HostPagesArePinnedOnce) {
  open();
  std::vector<std::byte> pages(3001);
  ASSERT_EQ(devices[0]->register_host(pages.data(), pages.size()), TW_OK);
  BufferInfo info;
  ASSERT_EQ(backend->identify(reinterpret_cast<uintptr_t>(&pages[3000]), &info), TW_OK);
  EXPECT_EQ(info.kind, MemoryKind::pinned);
  EXPECT_EQ(devices[1]->register_host(&pages[3000], 500), TW_ERR_BUSY);
  EXPECT_EQ(devices[0]->unregister_host(pages.data()), TW_OK);
  EXPECT_EQ(devices[0]->unregister_host(pages.data()), TW_ERR_HANDLE);
}

TEST_F(CudaMemory, AHandleTravelsToAnotherProcess) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const pid_t child = fork();  // before the driver is used
  if (child == 0) {
    ExportHandle handle;
    std::vector<Device*> all;
    ExportedMemory got;
    uint64_t address = 0, again = 0;
    BufferInfo info;
    std::vector<ExportedMemory> out;
    if (read(pair[1], &handle, sizeof handle) != static_cast<ssize_t>(sizeof handle) || backend->devices(&all) != TW_OK)
      _exit(1);
    got.handle = handle;
    got.handle.length += 1u << 20;  // more than there is
    if (all[1]->import_memory({&got, 1}, &address) != TW_ERR_PROTOCOL || backend->import_count.load() != 0) _exit(9);
    got.handle = handle;
    if (all[1]->import_memory({&got, 1}, &address) != TW_OK) _exit(2);
    if (backend->identify(address, &info) != TW_OK || info.exportable != ExportForm::none) _exit(3);
    if (all[1]->export_memory(address, 1, 1, &out) != TW_ERR_UNSUPPORTED) _exit(4);
    if (all[2]->import_memory({&got, 1}, &again) != TW_ERR_UNREACHABLE) _exit(5);
    fill(address, 5000);
    const std::vector<std::byte> payload = bytes_at(address, 5000);
    if (write(pair[1], payload.data(), 5000) != 5000) _exit(6);
    if (all[1]->release_import(address) != TW_OK || all[1]->release_import(address) != TW_ERR_HANDLE) _exit(7);
    _exit(backend->import_count.load() == 0 ? 0 : 8);
  }
  open();
  const uint64_t address = allocate(MemoryKind::device, 5000);
  std::vector<ExportedMemory> exported;
  ASSERT_EQ(devices[0]->export_memory(address + 7, 4000, kIncarnation, &exported), TW_OK);
  ASSERT_EQ(exported.size(), 1u);
  EXPECT_EQ(exported[0].handle.base, address);
  EXPECT_EQ(exported[0].handle.length, 5000u);
  ASSERT_EQ(write(pair[0], &exported[0].handle, sizeof(ExportHandle)), static_cast<ssize_t>(sizeof(ExportHandle)));
  close(pair[1]);
  std::vector<std::byte> payload(5000);
  const ssize_t n = read(pair[0], payload.data(), payload.size());
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(n, 5000);
  EXPECT_EQ(bytes_at(address, 5000), payload);
  uint64_t here = 0;
  EXPECT_EQ(devices[0]->import_memory(exported, &here), TW_ERR_INVALID);  // its own
  exported[0].handle.incarnation = kIncarnation + 1;
  fake->fail_next["IpcOpenMemHandle"] = result::invalid_value;
  EXPECT_EQ(devices[0]->import_memory(exported, &here), TW_ERR_STALE);
  close(pair[0]);
}

TEST_F(CudaMemory, PiecesAreImportedInOneRange) {
  open();
  const size_t length = (size_t{64} << 20) + 5000;
  const uint64_t address = allocate(MemoryKind::vmm, length, 1);
  std::vector<ExportedMemory> pieces;
  ASSERT_EQ(devices[1]->export_memory(address + 100, length - 200, kIncarnation, &pieces), TW_OK) << last_error();
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].handle.form, ExportForm::descriptor);
  EXPECT_NE(pieces[0].handle.buffer_id, pieces[1].handle.buffer_id);
  uint64_t there = 0;
  ASSERT_EQ(devices[0]->import_memory(pieces, &there), TW_OK) << last_error();
  const uint64_t border = (uint64_t{32} << 20) - 500;
  const std::vector<std::byte> payload = fill(there + border, 1000);
  EXPECT_EQ(bytes_at(address + border, 1000), payload);
  BufferInfo info;
  ASSERT_EQ(backend->identify(there, &info), TW_OK);
  EXPECT_EQ(info.exportable, ExportForm::none);
  ASSERT_EQ(devices[1]->free(address), TW_OK);  // the import keeps the pieces
  EXPECT_EQ(bytes_at(there + border, 1000), payload);
  EXPECT_EQ(devices[0]->release_import(there), TW_OK);
  EXPECT_EQ(devices[0]->import_memory(pieces, &there), TW_ERR_INVALID);  // the descriptors are spent
}

TEST_F(CudaMemory, WhatCannotBeSharedIsRefusedByName) {
  open();
  std::vector<ExportedMemory> out;
  for (const MemoryKind kind : {MemoryKind::pool, MemoryKind::managed, MemoryKind::pinned}) {
    EXPECT_EQ(devices[0]->export_memory(allocate(kind, 100), 100, 1, &out), TW_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(last_error()).find(kind == MemoryKind::pinned ? "segments" : "staging"), std::string::npos);
  }
  const uint64_t own = allocate(MemoryKind::device, 100);
  EXPECT_EQ(devices[0]->export_memory(own, 101, 1, &out), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(devices[0]->export_memory(reinterpret_cast<uintptr_t>(&out), 1, 1, &out), TW_ERR_OUT_OF_BOUNDS);
  ASSERT_EQ(devices[0]->export_memory(own, 100, 1, &out), TW_OK);
  uint64_t address = 0;
  EXPECT_EQ(devices[0]->import_memory({}, &address), TW_ERR_INVALID);
  out[0].handle.form = static_cast<ExportForm>(9);
  EXPECT_EQ(devices[0]->import_memory(out, &address), TW_ERR_PROTOCOL);
  out[0].handle.form = ExportForm::ipc_handle;
  out[0].handle.length = ~uint64_t{0};
  EXPECT_EQ(devices[0]->import_memory(out, &address), TW_ERR_PROTOCOL);
}

TEST_F(CudaMemory, PeersAreAskedByUuid) {
  open();
  EXPECT_EQ(devices[0]->peer(devices[0]->uuid()).link, DeviceLink::same);
  EXPECT_TRUE(devices[0]->peer(devices[1]->uuid()).access);
  EXPECT_EQ(devices[0]->peer(devices[1]->uuid()).link, DeviceLink::nvlink);
  EXPECT_TRUE(devices[0]->peer(devices[1]->uuid()).whole_lines);
  EXPECT_FALSE(devices[0]->peer(devices[2]->uuid()).access);
  EXPECT_EQ(devices[0]->peer(Uuid{}).link, DeviceLink::unknown);
  setenv("THALWEG_CUDA_PEERS", "off", 1);
  EXPECT_FALSE(devices[0]->peer(devices[1]->uuid()).access);
  EXPECT_EQ(devices[0]->peer(Uuid{}).link, DeviceLink::none);
  EXPECT_TRUE(devices[0]->peer(devices[0]->uuid()).access);
  unsetenv("THALWEG_CUDA_PEERS");
  EXPECT_EQ(fake->calls["CtxEnablePeerAccess"], 0u);
}

}  // namespace
}  // namespace thalweg::impl::cuda
