// SPDX-License-Identifier: Apache-2.0
// Bells: set-up and the system calls.
#include "transports/shm/bell.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace thalweg::impl::shm {

Status OwnBell::open() {
  if (Status s = Segment::create("thalweg-bell", kBellBytes, true, false, &segment_); is_error(s)) return s;
  event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_) return fail_errno(errno, "eventfd");
  return TW_OK;
}

void OwnBell::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(event_.get(), &one, sizeof one);  // full: readable already
}

void OwnBell::drain_event() const {
  uint64_t count;
  [[maybe_unused]] ssize_t n = read(event_.get(), &count, sizeof count);
}

Status PeerBell::open(UniqueFd memory, UniqueFd event) {
  if (Status s = Segment::open(std::move(memory), kBellBytes, &segment_); is_error(s)) return s;
  segment_.close_fd();
  // Anything but an eventfd could block us, or kill us by SIGPIPE.
  char path[64], target[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", event.get());
  const ssize_t n = readlink(path, target, sizeof target - 1);
  if (n >= 0) {
    target[n] = 0;
    if (strstr(target, "[eventfd]") == nullptr) return fail(TW_ERR_PROTOCOL, "the peer's wake-up descriptor is no eventfd");
  }
  event_ = std::move(event);
  return TW_OK;
}

void PeerBell::ring(uint32_t bit) const {
  auto& memory = *reinterpret_cast<BellMemory*>(segment_.data());
  const uint32_t word = bit / 64 % kBellWords;
  // The word before the summary: the owner clears them in the other order, so that no bit is lost.
  __atomic_fetch_or(&memory.words[word], uint64_t(1) << (bit % 64), __ATOMIC_SEQ_CST);
  __atomic_fetch_or(&memory.summary, uint64_t(1) << word, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&memory.sleeping, __ATOMIC_SEQ_CST) == 0) return;
  if (__atomic_exchange_n(&memory.sleeping, 0, __ATOMIC_SEQ_CST) == 0) return;
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(event_.get(), &one, sizeof one);
}

}  // namespace thalweg::impl::shm
