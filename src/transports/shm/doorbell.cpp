// SPDX-License-Identifier: Apache-2.0
// Doorbells: set-up and the system calls.
#include "transports/shm/doorbell.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/passed_descriptors.hpp"
#include "base/platform/process.hpp"
#include "transports/shm/single_copy.hpp"

namespace thalweg::impl::shm {
namespace {

/// Neither blocks nor raises a signal, whatever the other holders of the socket do to it. Full: it is readable already.
void send_wake_up(int fd) {
  const char one = 1;
  [[maybe_unused]] const ssize_t n = send(fd, &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/// By the socket's own options: they need no /proc, and fail for what is no socket.
bool unix_stream(int fd) {
  int domain = 0, type = 0;
  socklen_t length = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX) return false;
  length = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

}  // namespace

Status OwnDoorbell::open() {
  if (Status s = Segment::create("thalweg-doorbell", kDoorbellBytes, true, false, &segment_); is_error(s)) return s;
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) return fail_errno(errno, "socketpair");
  sleeper_ = UniqueFd(fds[0]);
  ringer_ = UniqueFd(fds[1]);
  refuse_descriptors(fds[0]);
  return TW_OK;
}

OwnDoorbell::~OwnDoorbell() {
  if (sleeper_ && !born_.forked()) drop_passed(sleeper_.get());
}

void OwnDoorbell::wake() const { send_wake_up(ringer_.get()); }

void OwnDoorbell::drain_event() const {
  char bytes[512];
  // A peer that sends without end only keeps us awake.
  const iovec place{bytes, sizeof bytes};
  for (int i = 0; i < 8 && receive_passed(sleeper_.get(), &place, 1, nullptr) == ssize_t(sizeof bytes); ++i) {
  }
}

Status PeerDoorbell::open(UniqueFd memory, UniqueFd ringer) {
  if (Status s = Segment::open(std::move(memory), kDoorbellBytes, &segment_); is_error(s)) return s;
  segment_.close_fd();
  if (!unix_stream(ringer.get())) return fail(TW_ERR_PROTOCOL, "the peer's wake-up descriptor is no unix stream socket");
  ringer_ = std::move(ringer);
  return TW_OK;
}

void PeerDoorbell::ring(uint32_t bit) const {
  const uint32_t word = bit / 64 % kDoorbellWords;
  // The word before the summary: the owner clears them in the other order, so that no bit is lost.
  __atomic_fetch_or(&memory().words[word], uint64_t(1) << (bit % 64), __ATOMIC_SEQ_CST);
  __atomic_fetch_or(&memory().summary, uint64_t(1) << word, __ATOMIC_SEQ_CST);
  wake();
}

void PeerDoorbell::wake() const {
  if (__atomic_load_n(&memory().sleeping, __ATOMIC_SEQ_CST) == 0) return;
  if (__atomic_exchange_n(&memory().sleeping, 0, __ATOMIC_SEQ_CST) == 0) return;
  send_wake_up(ringer_.get());
}

bool PeerDoorbell::probe(pid_t pid, uint64_t address, uint32_t bit) const {
  constexpr int kTries = 64;  // another link may use the same word at this moment
  const uint32_t index = bit % kProbeWords;
  uint64_t* const word = &memory().probes[index];
  const uint64_t theirs = address + offsetof(DoorbellMemory, probes) + index * sizeof *word;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t nonce = random_id();
    uint64_t found = 0;
    __atomic_store_n(word, nonce, __ATOMIC_SEQ_CST);
    if (!read_word(pid, theirs, &found)) return false;
    if (found == nonce) return true;
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == nonce) return false;
  }
  return false;
}

}  // namespace thalweg::impl::shm
