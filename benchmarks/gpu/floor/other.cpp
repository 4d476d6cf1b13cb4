// SPDX-License-Identifier: Apache-2.0
// Orders and pieces over a socket; both sides.
#include "other.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace thalweg::floors {

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
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof piece.handle);
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

uint64_t free_memory(Bench& bench, Device& device) {
  auto* const info = bench.symbol<int(size_t*, size_t*)>("cuMemGetInfo_v2");
  cuda::CuContext popped = nullptr;
  size_t left = 0, all = 0;
  must_raw(bench.driver.CtxPushCurrent(bench.context(device)), "pushing");
  info(&left, &all);
  must_raw(bench.driver.CtxPopCurrent(&popped), "popping");
  return left;
}

Other::Other() {
  int pair[2];
  // It must not have our end, or it would never see that we closed it.
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 || fcntl(pair[1], F_SETFD, 0) != 0)
    give_up("no socket pair");
  const std::string word = "--serve=" + std::to_string(pair[1]);
  const char* const program = "/proc/self/exe";
  char* const words[] = {const_cast<char*>(program), const_cast<char*>(word.c_str()), nullptr};
  if (posix_spawn(&child_, program, nullptr, nullptr, words, environ) != 0) give_up("no other process");
  close(pair[1]);
  socket_ = pair[0];
  const timeval patience{5, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

Other::~Other() {
  if (child_ > 0) {
    close(socket_);
    waitpid(child_, nullptr, 0);  // it has an alarm of its own
  }
}

void Other::kill() {
  ::kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  close(socket_);
  child_ = -1;
}

void Other::tell(const Order& order) {
  if (send(socket_, &order, sizeof order, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof order))
    give_up("the other process is gone");
}
Reply Other::hear() {
  Reply reply;
  if (recv(socket_, &reply, sizeof reply, 0) != static_cast<ssize_t>(sizeof reply))
    give_up("the other process does not answer");
  if (reply.error[0] != 0) give_up(std::string("the other process: ") + reply.error);
  return reply;
}
Reply Other::ask(const Order& order) {
  tell(order);
  return hear();
}
Reply Other::ask(const Order& order, std::vector<ExportedMemory>* pieces) {
  const Reply reply = ask(order);
  pieces->clear();
  pieces->resize(reply.pieces);
  for (ExportedMemory& piece : *pieces) {
    if (!take_piece(socket_, &piece)) give_up("a piece did not come");
  }
  return reply;
}
void Other::give(std::span<const ExportedMemory> pieces) {
  for (const ExportedMemory& piece : pieces) {
    if (!send_piece(socket_, piece)) give_up("the other process is gone");
  }
}

namespace {

struct Server {
  explicit Server(int of) : socket(of), device(bench.far()) {}

  Reply export_it(const Order& order, std::vector<ExportedMemory>* pieces) {
    memory.push_back(std::make_unique<Memory>(device, order.kind, order.length));
    fill(device, memory.back()->at(), order.length);
    Reply reply;
    const double start = now_us();
    must(device.export_memory(memory.back()->at(), order.length, 0x5e4e, pieces), "exporting");
    reply.export_us = now_us() - start;
    reply.pieces = pieces->size();
    reply.address = memory.back()->at() - (*pieces)[0].handle.base;
    return reply;
  }

  /// Imports the other's memory and copies it here for some seconds.
  Reply copy_for(const Order& order) {
    std::vector<ExportedMemory> pieces(1);
    if (!take_piece(socket, &pieces[0])) give_up("a piece did not come");
    uint64_t there = 0;
    must(device.import_memory(pieces, &there), "importing");
    const Memory here(device, MemoryKind::device, order.length);
    const auto queue = make_queue(device);
    const auto event = make_event(device);
    const Copy copy{here.at(), there, order.length};
    uint64_t done = 0;
    const double start = now_us();
    while (now_us() - start < order.seconds * 1e6) {
      for (int i = 0; i < 4; ++i) must(queue->copy(&copy, 1), "copying");
      must(queue->record(*event), "recording");
      wait_for(*event);
      done += 4 * order.length;
    }
    Reply reply;
    reply.gigabytes_per_s = static_cast<double>(done) / (now_us() - start) / 1e3;
    must(device.release_import(there), "releasing");
    return reply;
  }

  bool turn() {
    Order order;
    if (recv(socket, &order, sizeof order, 0) != static_cast<ssize_t>(sizeof order) || order.what == Order::end) return false;
    Reply reply;
    std::vector<ExportedMemory> pieces;
    try {
      if (order.what == Order::export_memory) reply = export_it(order, &pieces);
      if (order.what == Order::copy_for) reply = copy_for(order);
      if (order.what == Order::figures) reply.free_bytes = free_memory(bench, device);
    } catch (const std::exception& error) {
      std::snprintf(reply.error, sizeof reply.error, "%s", error.what());
    }
    if (send(socket, &reply, sizeof reply, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof reply)) return false;
    for (const ExportedMemory& piece : pieces) {
      if (!send_piece(socket, piece)) return false;
    }
    return true;
  }

  int socket;
  Bench bench;
  Device& device;
  std::vector<std::unique_ptr<Memory>> memory;
};

}  // namespace

int serve(int socket) {
  alarm(kSectionSeconds);
  Server server(socket);
  while (server.turn()) {
  }
  return 0;
}

}  // namespace thalweg::floors
