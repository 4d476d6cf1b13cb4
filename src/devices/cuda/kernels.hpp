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
  wait_ahead,
  clock,
  program_small,
  program_large,
  program_placed,
  specialised_wait,  // poll alone
  specialised_take,
  specialised_aligned,  // each move after or beside no poll, a wait, a take
  specialised_wait_aligned,
  specialised_take_aligned,
  specialised_rows4,
  specialised_wait_rows4,
  specialised_take_rows4,
  specialised_rows8,
  specialised_wait_rows8,
  specialised_take_rows8,
  specialised_rows16,
  specialised_wait_rows16,
  specialised_take_rows16,
  specialised_sides,
  specialised_wait_sides,
  specialised_take_sides,
  specialised_send,
  specialised_wait_send,
  specialised_take_send,
  specialised_list_small,  // each poll, three sizes of arguments
  specialised_list_large,
  specialised_list_placed,
  specialised_wait_list_small,
  specialised_wait_list_large,
  specialised_wait_list_placed,
  specialised_take_list_small,
  specialised_take_list_large,
  specialised_take_list_placed,
  specialised_independent_large,
  specialised_independent_placed,
  reduce_large,  // programs that reduce
  reduce_placed,
  exchange_words_2,  // programs that are an exchange; of so many ranks at most
  exchange_words_4,
  exchange_words_8,
  exchange_lines_2,
  exchange_lines_4,
  exchange_lines_8,
  exchange_lines_two_2,
  exchange_lines_two_4,
  exchange_lines_two_8,
  exchange_lines_any,
  exchange_ll,
  exchange_simple,
  exchange_simple_sums,  // of nothing but SumElements
  exchange_ll_any,       // of any type, scaled, of parts
  exchange_simple_any,
  exchange_counted,
  exchange_symmetric,  // as SymmetricForm has them
  exchange_symmetric_stores,
  exchange_symmetric_broadcasts,
  exchange_symmetric_sums,
  exchange_slots,
  exchange_slots_sums,
  persistent,
  count_
};

class Kernels {
 public:
  explicit Kernels(const DriverApi& driver) : driver_(driver) {}
  /// For every context. TW_ERR_UNSUPPORTED in a build without kernels.
  Status get(KernelName name, CuFunction* out);
  /// All of them onto the current context's device: the driver would do it at the first launch, after any spinning kernel.
  Status load_here();

 private:
  Status open();
  const DriverApi& driver_;
  std::mutex mutex_;
  std::atomic<bool> opened_{false};
  std::array<CuKernel, static_cast<size_t>(KernelName::count_)> kernels_{};
};

}  // namespace thalweg::impl::cuda
