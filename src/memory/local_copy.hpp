// SPDX-License-Identifier: Apache-2.0
// Blocking copies between any two memories of this process.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "memory/device_allocation.hpp"

namespace thalweg::impl {

/// Thread-safe. Keeps a queue and a bounce buffer for each copy that ever went on at the same time.
class LocalCopier {
 public:
  LocalCopier();
  ~LocalCopier();
  /// Returns when the bytes are there. Both ranges must lie in one allocation each; overlap is allowed in host memory only.
  Status copy(uint64_t to, uint64_t from, size_t length);

 private:
  struct CopyQueue;
  Status take(Device& device, std::unique_ptr<CopyQueue>* out);
  std::mutex mutex_;
  std::vector<std::unique_ptr<CopyQueue>> idle_;
};

}  // namespace thalweg::impl
