// SPDX-License-Identifier: Apache-2.0
// An owned file descriptor. Every descriptor of the library is close-on-exec and closed in forked children (platform/fork).
#pragma once
#include <utility>

namespace thalweg::impl {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd);  // registers the descriptor for closing after fork
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();
  int release();  // unregisters; the caller closes

 private:
  int fd_ = -1;
};

}  // namespace thalweg::impl
