// SPDX-License-Identifier: Apache-2.0
// Releases that wait for kernels. Drivers unpin and free only while no kernel runs, and let no other call pass meanwhile (CUDA 13: a copy
// that another thread enqueued after cuMemHostUnregister began when the kernel had ended). A kernel that waits for a step
// that this process carries would wait until it times out. So what the library releases on its own initiative waits until no
// such kernel can run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace thalweg::impl {

/// While one lives, kernels may run that wait for this process: a plan of a device, its queues, a window, an end of a channel that its
/// kernels use, a stream that waits for a request. Making one waits for a release that is under way. Thread-safe.
class KernelsWait {
 public:
  KernelsWait();
  ~KernelsWait();
  KernelsWait(const KernelsWait&) = delete;
  KernelsWait& operator=(const KernelsWait&) = delete;
};

/// Does one live?
bool kernels_wait();

/// More bytes than this are not kept back; then a release may hold up a kernel until it times out.
inline constexpr size_t kMostDeferred = size_t{1} << 30;

/// Ends `held`, which unpins `bytes`, on a thread of its own, once no KernelsWait lives.
void release_later(std::shared_ptr<void> held, size_t bytes);
/// Waits until all of that has ended, this long at most, in nanoseconds; not for what is kept back.
void await_releases(uint64_t limit_ns);

}  // namespace thalweg::impl
