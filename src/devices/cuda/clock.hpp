// SPDX-License-Identifier: Apache-2.0
// A GPU's clock (%globaltimer), which only its kernels can read: one of one thread stores it to the host. For the timeline.
#pragma once
#include <mutex>

#include "devices/cuda/driver.hpp"

namespace thalweg::impl::cuda {

class CudaDevice;

class CudaClock {
 public:
  explicit CudaClock(CudaDevice& device) : device_(device) {}
  /// Its time a few microseconds ago. False: not now, because it was asked often enough this fifth of a second, or because kernels that
  /// fill the GPU keep it waiting. Never waits for more than a millisecond.
  bool read(uint64_t* now);
  /// Before it is read, by a thread that may allocate. False: it cannot be.
  bool open();

 private:
  bool make();
  bool stored();
  CudaDevice& device_;
  std::mutex mutex_;
  bool tried_ = false;
  CuStream stream_ = nullptr;
  uint64_t* word_ = nullptr;  // pinned; 0 until the kernel that is under way has stored
  bool under_way_ = false;
  uint64_t since_ = 0;  // of the readings that are counted
  unsigned readings_ = 0;
};

}  // namespace thalweg::impl::cuda
