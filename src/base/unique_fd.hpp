// SPDX-License-Identifier: Apache-2.0
// An owned file descriptor. Every descriptor of the library is close-on-exec and closed in forked children (platform/fork).
// In a child, a UniqueFd of the parent closes nothing: its number may be another file's by now.
#pragma once
#include <cstdint>
#include <utility>

namespace thalweg::impl {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd);  // registers the descriptor for closing after fork
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();
  int release();  // unregisters; the caller closes. -1 in a child that inherited it

 private:
  int fd_ = -1;
  uint32_t generation_ = 0;  // fork generation the descriptor belongs to
};

}  // namespace thalweg::impl
