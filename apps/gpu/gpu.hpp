// SPDX-License-Identifier: Apache-2.0
// The little of CUDA that the applications need for kernels of their own: a stream, a module, a launch. The driver is loaded at run
// time, so that the same program runs where there is no GPU. Memory, copies and captures are Thalweg's.
#pragma once
#include <span>
#include <string>

namespace apps {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

class Gpu {
 public:
  /// The GPU of a place such as "cuda:1", and the kernels of `image` (a fatbin). Throws when there is no driver, GPU or
  /// kernel for it. Used by one thread, in which it becomes the current GPU.
  Gpu(const std::string& place, std::span<const unsigned char> image);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  void* stream() const { return stream_; }  // a CUstream of this GPU, not a default stream
  void* kernel(const char* name) const;
  /// Enqueues on the stream; arguments are copied before it returns.
  void launch(void* kernel, Grid grid, Grid block, void** arguments) const;
  void synchronize() const;

 private:
  int device_ = 0;
  void *module_ = nullptr, *stream_ = nullptr;
};

/// Is it memory of a GPU that only kernels touch?
inline bool on_gpu(const std::string& place) {
  return place.rfind("cuda", 0) == 0 || place.rfind("vmm", 0) == 0 || place.rfind("pool", 0) == 0;
}

}  // namespace apps
