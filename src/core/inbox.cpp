// SPDX-License-Identifier: Apache-2.0
// The worker's inbox.
#include "core/inbox.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "core/listener.hpp"

namespace thalweg::impl {

ConnectionEvent::ConnectionEvent() = default;
ConnectionEvent::ConnectionEvent(ConnectionEvent&&) noexcept = default;
ConnectionEvent& ConnectionEvent::operator=(ConnectionEvent&&) noexcept = default;
ConnectionEvent::~ConnectionEvent() = default;

Inbox::Inbox() = default;

Status Inbox::open() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return fail_errno(errno, "eventfd");
  event_ = UniqueFd(fd);
  return TW_OK;
}

void Inbox::post(ConnectionEvent&& event) {
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    // release: a reader that sees the flag, and then takes the lock, sees the event
    flag_.store(true, std::memory_order_release);
  }
  ring();
}

std::vector<ConnectionEvent> Inbox::take() {
  std::lock_guard lock(mutex_);
  flag_.store(false, std::memory_order_relaxed);
  return std::exchange(events_, {});
}

void Inbox::wake() {
  woken_.store(true, std::memory_order_seq_cst);
  ring();
}

void Inbox::ring() {
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof one);
  errno = saved;
}

bool Inbox::disarm_and_poll() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_.get(), &count, sizeof count);
  // seq_cst pairs with the read above: a post after it makes the descriptor readable, one before it shows its flag
  return flag_.load(std::memory_order_seq_cst);
}

}  // namespace thalweg::impl
