// SPDX-License-Identifier: Apache-2.0
// Device memory between processes: export, import, refusals, peers. The exporter is a forked child, made before any thread.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/unit/devices/emulated_tools.hpp"

namespace thalweg::impl::emulated {
namespace {

constexpr uint64_t kIncarnation = 0x1234;
constexpr size_t kLength = 7777;

/// A process that exports ordinary memory and, once told that its peer has written there, says whether `expected` arrived.
class Exporter {
 public:
  Exporter() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    child_ = fork();
    if (child_ == 0) {
      close(pair[0]);
      _exit(serve(pair[1]));
    }
    close(pair[1]);
    socket_ = pair[0];
    EXPECT_EQ(read(socket_, &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  }
  /// True when the child finds `expected` from its second byte on.
  bool confirms(const std::vector<std::byte>& expected) {
    EXPECT_EQ(write(socket_, expected.data(), expected.size()), static_cast<ssize_t>(expected.size()));
    return end() == 0;
  }
  int end() {
    if (child_ < 0) return -1;
    close(socket_);
    int status = -1;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    child_ = -1;
    return status;
  }
  ~Exporter() { end(); }
  ExportHandle handle{};

 private:
  static int serve(int socket) {
    auto device = open_device(2);
    const uint64_t address = allocate(*device, kLength);
    std::vector<ExportedMemory> exported;
    if (device->export_memory(address + 5, 10, kIncarnation, &exported) != TW_OK || exported.size() != 1) return 10;
    if (write(socket, &exported[0].handle, sizeof(ExportHandle)) != static_cast<ssize_t>(sizeof(ExportHandle))) return 11;
    std::vector<std::byte> expected(kLength - 1);
    if (read(socket, expected.data(), expected.size()) != static_cast<ssize_t>(expected.size())) return 12;
    return holds(*device, address + 1, expected) ? 0 : 13;
  }
  pid_t child_ = -1;
  int socket_ = -1;
};

TEST(EmulatedSharing, AnotherProcessesMemoryIsWritten) {
  Exporter exporter;
  auto device = open_device(0);  // another device than the memory's, chosen here
  EXPECT_EQ(exporter.handle.incarnation, kIncarnation);
  EXPECT_EQ(exporter.handle.length, kLength);
  EXPECT_EQ(exporter.handle.form, ExportForm::ipc_handle);
  ExportedMemory exported{exporter.handle, {}};
  uint64_t address = 0;
  ASSERT_EQ(device->import_memory({&exported, 1}, &address), TW_OK);
  BufferInfo info;
  ASSERT_EQ(find_device(address, &info), TW_OK);
  EXPECT_EQ(info.exportable, ExportForm::none);
  std::vector<ExportedMemory> again;
  EXPECT_EQ(device->export_memory(address, 1, 1, &again), TW_ERR_UNSUPPORTED);
  const std::vector<std::byte> payload = fill(*device, address + 1, kLength - 1);
  EXPECT_TRUE(exporter.confirms(payload));
  EXPECT_TRUE(holds(*device, address + 1, payload));  // a survivor's mapping stays good
  EXPECT_EQ(device->free(address), TW_ERR_HANDLE);
  EXPECT_EQ(device->release_import(address), TW_OK);
  EXPECT_EQ(device->release_import(address), TW_ERR_HANDLE);
}

TEST(EmulatedSharing, AHandleOfTheDeadIsStale) {
  Exporter exporter;
  exporter.end();
  auto device = open_device(2);
  ExportedMemory exported{exporter.handle, {}};
  uint64_t address = 0;
  EXPECT_EQ(device->import_memory({&exported, 1}, &address), TW_ERR_STALE);
}

TEST(EmulatedSharing, AnImportBlocksWhileAKernelSpins) {
  Exporter exporter;
  Options options;
  options.wait_limit_ns = 20'000'000;  // of the import; a GPU's would wait for ever
  auto device = open_device(2, options);
  const uint64_t word = make_word(*device), a = allocate(*device, 100);
  auto spinner = make_queue(*device), writer = make_queue(*device);
  std::atomic<bool> spinning{false};
  ASSERT_EQ(spinner->launch_twin([&] {
    spinning = true;
    while (read_word(word) == 0) std::this_thread::yield();
  }),
            TW_OK);
  while (!spinning) std::this_thread::yield();
  ExportedMemory exported{exporter.handle, {}};
  uint64_t address = 0;
  EXPECT_EQ(device->import_memory({&exported, 1}, &address), TW_ERR_TIMED_OUT);
  EXPECT_TRUE(holds(*device, a, fill(*device, a, 100)));  // copies go on meanwhile
  ASSERT_EQ(writer->write_value(word, 1, false), TW_OK);
  ASSERT_EQ(spinner->synchronize(), TW_OK);
  exported = {exporter.handle, {}};
  EXPECT_EQ(device->import_memory({&exported, 1}, &address), TW_OK);
}

TEST(EmulatedSharing, VmmPiecesAreImportedInOneRange) {
  Options options;
  options.vmm_piece = 4096;
  auto owner = open_device(1, options), importer = open_device(0);
  const uint64_t a = allocate(*owner, 20000, MemoryKind::vmm);
  std::vector<ExportedMemory> pieces;
  ASSERT_EQ(owner->export_memory(a + 4096, 10000, kIncarnation, &pieces), TW_OK);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].handle.base, a + 4096);
  EXPECT_EQ(pieces[0].handle.form, ExportForm::descriptor);
  uint64_t there = 0;
  ASSERT_EQ(importer->import_memory(pieces, &there), TW_OK);
  EXPECT_TRUE(holds(*owner, a + 4096, fill(*importer, there, 12288)));
  ASSERT_EQ(owner->free(a), TW_OK);  // the import's reference keeps the pieces
  EXPECT_TRUE(holds(*importer, there, fill(*importer, there, 12288)));
  EXPECT_EQ(importer->release_import(there), TW_OK);
}

TEST(EmulatedSharing, WhatCannotBeSharedIsRefusedByName) {
  auto device = open_device(0);
  std::vector<ExportedMemory> out;
  for (MemoryKind kind : {MemoryKind::pool, MemoryKind::managed, MemoryKind::pinned}) {
    EXPECT_EQ(device->export_memory(allocate(*device, 100, kind), 100, 1, &out), TW_ERR_UNSUPPORTED);
    EXPECT_NE(std::string(last_error()).find(kind == MemoryKind::pinned ? "segments" : "staging"), std::string::npos);
  }
  EXPECT_EQ(device->export_memory(reinterpret_cast<uintptr_t>(&out), 1, 1, &out), TW_ERR_OUT_OF_BOUNDS);
  const uint64_t own = allocate(*device, 100);
  ASSERT_EQ(device->export_memory(own, 100, 1, &out), TW_OK);
  uint64_t address = 0;
  EXPECT_EQ(device->import_memory(out, &address), TW_ERR_INVALID);  // as with a GPU: not in the exporting process
  out[0].handle.form = static_cast<ExportForm>(9);                  // from a peer that lies
  EXPECT_EQ(device->import_memory(out, &address), TW_ERR_PROTOCOL);
  EXPECT_EQ(device->import_memory({}, &address), TW_ERR_INVALID);
  ASSERT_EQ(device->export_memory(allocate(*device, 100, MemoryKind::vmm), 100, 1, &out), TW_OK);
  out[0].handle.length = 1 << 20;  // more than there is
  EXPECT_EQ(device->import_memory(out, &address), TW_ERR_PROTOCOL);
}

TEST(EmulatedSharing, PeersAreAMatrixByUuid) {
  Options options;
  options.peers = 0b011;
  options.peer_atomics = 0b001;
  auto device = open_device(0, options), near = open_device(1), same = open_device(0);
  auto far = open_device(2, options);
  EXPECT_EQ(device->uuid(), same->uuid());
  EXPECT_NE(device->uuid(), near->uuid());
  EXPECT_EQ(device->peer(same->uuid()).link, DeviceLink::same);
  EXPECT_TRUE(device->peer(near->uuid()).access);
  EXPECT_FALSE(device->peer(near->uuid()).atomics);
  EXPECT_TRUE(near->peer(device->uuid()).atomics);
  EXPECT_FALSE(device->peer(far->uuid()).access);
  EXPECT_EQ(device->peer(Uuid{}).link, DeviceLink::none);
  std::vector<ExportedMemory> out;
  ASSERT_EQ(far->export_memory(allocate(*far, 100, MemoryKind::vmm), 100, 1, &out), TW_OK);
  uint64_t address = 0;
  EXPECT_EQ(device->import_memory(out, &address), TW_ERR_UNREACHABLE);
}

}  // namespace
}  // namespace thalweg::impl::emulated
