// SPDX-License-Identifier: Apache-2.0
// The library's compiled kernels: embedded in the library when nvcc was there at build time, loaded when first needed.
#pragma once
#include <array>
#include <atomic>
#include <mutex>
#include <span>

#include "devices/cuda/driver.hpp"

namespace thalweg::impl::cuda {

/// All architectures in one; empty in a build without nvcc. Written by cmake/Cuda.cmake.
std::span<const unsigned char> kernels_image();

enum class KernelName : uint8_t {
  copy_wide,
  copy_narrow,
  copy_blocks,
  signal,
  wait,
  atomic,
  program_small,
  program_large,
  program_placed,
  form_wait,  // look alone
  form_take,
  form_aligned,  // each move behind or beside no look, a wait, a take
  form_wait_aligned,
  form_take_aligned,
  form_rows4,
  form_wait_rows4,
  form_take_rows4,
  form_rows8,
  form_wait_rows8,
  form_take_rows8,
  form_rows16,
  form_wait_rows16,
  form_take_rows16,
  form_sides,
  form_wait_sides,
  form_take_sides,
  form_send,
  form_wait_send,
  form_take_send,
  form_list_small,  // each look, three sizes of arguments
  form_list_large,
  form_list_placed,
  form_wait_list_small,
  form_wait_list_large,
  form_wait_list_placed,
  form_take_list_small,
  form_take_list_large,
  form_take_list_placed,
  reduce_large,  // programs that reduce
  reduce_placed,
  resident,
  count_
};

class Kernels {
 public:
  explicit Kernels(const DriverApi& driver) : driver_(driver) {}
  /// For every context. TW_ERR_UNSUPPORTED in a build without kernels.
  Status get(KernelName name, CuFunction* out);
  /// All of them onto the current context's device: the driver would do it at the first launch, behind whatever spins there.
  Status load_here();

 private:
  Status open();
  const DriverApi& driver_;
  std::mutex mutex_;
  std::atomic<bool> opened_{false};
  std::array<CuKernel, static_cast<size_t>(KernelName::count_)> kernels_{};
};

}  // namespace thalweg::impl::cuda
