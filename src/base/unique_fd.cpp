// SPDX-License-Identifier: Apache-2.0
// Owned descriptors and their place in the fork registry.
#include "base/unique_fd.hpp"

#include "base/platform/fork.hpp"

namespace thalweg::impl {

UniqueFd::UniqueFd(int fd) : fd_(fd), generation_(fork_generation()) {
  if (fd >= 0) register_descriptor(fd);
}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    generation_ = other.generation_;
  }
  return *this;
}

void UniqueFd::reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && generation_ == fork_generation()) close_descriptor(fd);
}

int UniqueFd::release() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || generation_ != fork_generation()) return -1;
  unregister_descriptor(fd);
  return fd;
}

}  // namespace thalweg::impl
