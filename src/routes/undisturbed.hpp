// SPDX-License-Identifier: Apache-2.0
// Discards measurements during which the kernel took the processor away.
#pragma once
#include <sys/resource.h>

#include <utility>

namespace thalweg::impl {

/// Has this thread had its processor all the time since the last call?
class Undisturbed {
 public:
  Undisturbed() { count_ = taken(); }
  bool ask() {
    const long before = std::exchange(count_, taken());
    return before == count_;
  }

 private:
  static long taken() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
  }
  long count_;
};

}  // namespace thalweg::impl
