// SPDX-License-Identifier: Apache-2.0
// Memory between processes: the other one is this program again, with its own driver, which writes what it imported.
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/gpu/contract.hpp"

namespace thalweg::impl::contract {
namespace {

bool send_piece(int socket, const ExportedMemory& piece) {
  iovec data{const_cast<ExportHandle*>(&piece.handle), sizeof piece.handle};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (piece.fd) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    *header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    const int fd = piece.fd.get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return sendmsg(socket, &message, 0) == static_cast<ssize_t>(sizeof piece.handle);
}

bool take_piece(int socket, ExportedMemory* piece) {
  iovec data{&piece->handle, sizeof piece->handle};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof piece->handle)) return false;
  if (const cmsghdr* const header = CMSG_FIRSTHDR(&message); header != nullptr) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    piece->fd = UniqueFd(fd);
  }
  return true;
}

struct Request {
  uint64_t pieces, offset, length;
};

class Other {
 public:
  Other() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    const std::string backend_word = std::string("--backend=") + name, socket_word = "--import=" + std::to_string(pair[1]);
    const char* const program = "/proc/self/exe";
    char* const words[] = {const_cast<char*>(program), const_cast<char*>(backend_word.c_str()),
                           const_cast<char*>(socket_word.c_str()), nullptr};
    EXPECT_EQ(posix_spawn(&child_, program, nullptr, nullptr, words, environ), 0);
    close(pair[1]);
    socket = pair[0];
  }
  int end() {
    close(socket);
    int status = -1;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    return status;
  }
  int socket = -1;

 private:
  pid_t child_ = -1;
};

using Sharing = Contract;

void round_trip(Device* owner, uint64_t address, size_t offset, size_t length, std::vector<std::byte>* payload) {
  std::vector<ExportedMemory> pieces;
  ASSERT_EQ(owner->export_memory(address + offset, length, 0x1234, &pieces), TW_OK) << last_error();
  Other other;
  const Request request{pieces.size(), address + offset - pieces[0].handle.base, length};
  ASSERT_EQ(write(other.socket, &request, sizeof request), static_cast<ssize_t>(sizeof request));
  for (const ExportedMemory& piece : pieces) ASSERT_TRUE(send_piece(other.socket, piece));
  payload->resize(length);
  const ssize_t n = read(other.socket, payload->data(), length);
  ASSERT_EQ(other.end(), 0) << "the other process failed; what it said stands above";
  ASSERT_EQ(n, static_cast<ssize_t>(length));
}

TEST_F(Sharing, AnotherProcessWritesOrdinaryMemory) {
  const size_t length = 30011, offset = 1001, guarded = 40009;
  const uint64_t address = allocate(guarded, ordinary);
  std::vector<std::byte> expected = fill(address, guarded), payload;
  round_trip(device, address, offset, length, &payload);
  std::copy(payload.begin(), payload.end(), expected.begin() + offset);
  EXPECT_EQ(this->read(address, guarded), expected);
}

TEST_F(Sharing, AnotherProcessWritesAcrossMappedPieces) {
  const size_t length = 30011, border = (size_t{32} << 20) - 10000, all = (size_t{32} << 20) + 50000;
  const uint64_t address = allocate(all, MemoryKind::vmm);
  BufferInfo info;
  ASSERT_EQ(backend->identify(address, &info), TW_OK);
  if (info.exportable == ExportForm::none) GTEST_SKIP() << "this machine exports no mapped memory";
  std::vector<std::byte> expected = fill(address + border - 100, length + 200), payload;
  round_trip(device, address, border, length, &payload);
  std::copy(payload.begin(), payload.end(), expected.begin() + 100);
  EXPECT_EQ(this->read(address + border - 100, length + 200), expected);
}

TEST_F(Sharing, WhatCannotBeSharedIsRefused) {
  std::vector<ExportedMemory> out;
  uint64_t address = 0;
  for (const MemoryKind kind : {MemoryKind::pool, MemoryKind::managed, MemoryKind::pinned})
    EXPECT_EQ(device->export_memory(allocate(100, kind), 100, 1, &out), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(device->export_memory(reinterpret_cast<uintptr_t>(&out), 1, 1, &out), TW_ERR_OUT_OF_BOUNDS);
  ASSERT_EQ(device->export_memory(allocate(100, ordinary), 100, 0x99, &out), TW_OK) << last_error();
  EXPECT_EQ(device->import_memory(out, &address), TW_ERR_INVALID);
  out[0].handle.form = static_cast<ExportForm>(9);
  EXPECT_EQ(device->import_memory(out, &address), TW_ERR_PROTOCOL);
}

bool said(Status status, const char* what) {
  if (status == TW_OK) return true;
  std::fprintf(stderr, "importer: %s: %s\n", what, last_error());
  return false;
}

}  // namespace

int import_in_another_process(int socket) {
  Request request;
  std::vector<Device*> devices;
  if (read(socket, &request, sizeof request) != static_cast<ssize_t>(sizeof request) || request.pieces > 1000) return 1;
  if (!said(backend->devices(&devices), "devices")) return 2;
  std::vector<ExportedMemory> pieces(request.pieces);
  for (ExportedMemory& piece : pieces) {
    if (!take_piece(socket, &piece)) return 3;
  }
  Device* importer = devices.back();  // another device than the owner's, where there is one within reach
  Uuid home;
  std::memcpy(home.data(), pieces[0].handle.device_uuid, home.size());
  if (!importer->peer(home).access) importer = devices[0];
  uint64_t address = 0, source = 0;
  if (!said(importer->import_memory(pieces, &address), "import")) return 4;
  BufferInfo info;
  if (backend->identify(address, &info) != TW_OK || info.exportable != ExportForm::none) return 5;
  if (!said(importer->allocate(MemoryKind::pinned, request.length, &source), "allocate")) return 6;
  std::mt19937_64 rng(std::random_device{}());
  for (uint64_t i = 0; i < request.length; ++i) reinterpret_cast<std::byte*>(source)[i] = static_cast<std::byte>(rng());
  std::unique_ptr<Queue> queue;
  const Copy copy{address + request.offset, source, request.length};
  if (!said(importer->make_queue(&queue), "queue") || !said(queue->copy(&copy, 1), "copy") ||
      !said(queue->synchronize(), "synchronize")) {
    return 7;
  }
  if (!said(importer->release_import(address), "release")) return 8;
  return write(socket, reinterpret_cast<void*>(source), request.length) == static_cast<ssize_t>(request.length) ? 0 : 9;
}

}  // namespace thalweg::impl::contract
