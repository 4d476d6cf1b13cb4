// SPDX-License-Identifier: Apache-2.0
// Loading the embedded kernels, once for all contexts.
#include "devices/cuda/kernels.hpp"

namespace thalweg::impl::cuda {
namespace {

constexpr std::array<const char*, static_cast<size_t>(KernelName::count_)> kNames = {"thalweg_copy_wide",
                                                                                     "thalweg_copy_narrow",
                                                                                     "thalweg_copy_blocks",
                                                                                     "thalweg_signal",
                                                                                     "thalweg_wait",
                                                                                     "thalweg_atomic",
                                                                                     "thalweg_wait_ahead",
                                                                                     "thalweg_clock",
                                                                                     "thalweg_program_small",
                                                                                     "thalweg_program_large",
                                                                                     "thalweg_program_placed",
                                                                                     "thalweg_specialised_wait",
                                                                                     "thalweg_specialised_take",
                                                                                     "thalweg_specialised_aligned",
                                                                                     "thalweg_specialised_wait_aligned",
                                                                                     "thalweg_specialised_take_aligned",
                                                                                     "thalweg_specialised_rows4",
                                                                                     "thalweg_specialised_wait_rows4",
                                                                                     "thalweg_specialised_take_rows4",
                                                                                     "thalweg_specialised_rows8",
                                                                                     "thalweg_specialised_wait_rows8",
                                                                                     "thalweg_specialised_take_rows8",
                                                                                     "thalweg_specialised_rows16",
                                                                                     "thalweg_specialised_wait_rows16",
                                                                                     "thalweg_specialised_take_rows16",
                                                                                     "thalweg_specialised_sides",
                                                                                     "thalweg_specialised_wait_sides",
                                                                                     "thalweg_specialised_take_sides",
                                                                                     "thalweg_specialised_send",
                                                                                     "thalweg_specialised_wait_send",
                                                                                     "thalweg_specialised_take_send",
                                                                                     "thalweg_specialised_list_small",
                                                                                     "thalweg_specialised_list_large",
                                                                                     "thalweg_specialised_list_placed",
                                                                                     "thalweg_specialised_wait_list_small",
                                                                                     "thalweg_specialised_wait_list_large",
                                                                                     "thalweg_specialised_wait_list_placed",
                                                                                     "thalweg_specialised_take_list_small",
                                                                                     "thalweg_specialised_take_list_large",
                                                                                     "thalweg_specialised_take_list_placed",
                                                                                     "thalweg_specialised_independent_large",
                                                                                     "thalweg_specialised_independent_placed",
                                                                                     "thalweg_reduce_large",
                                                                                     "thalweg_reduce_placed",
                                                                                     "thalweg_exchange_words_2",
                                                                                     "thalweg_exchange_words_4",
                                                                                     "thalweg_exchange_words_8",
                                                                                     "thalweg_exchange_lines_2",
                                                                                     "thalweg_exchange_lines_4",
                                                                                     "thalweg_exchange_lines_8",
                                                                                     "thalweg_exchange_lines_two_2",
                                                                                     "thalweg_exchange_lines_two_4",
                                                                                     "thalweg_exchange_lines_two_8",
                                                                                     "thalweg_exchange_lines_any",
                                                                                     "thalweg_exchange_ll",
                                                                                     "thalweg_exchange_simple",
                                                                                     "thalweg_exchange_simple_sums",
                                                                                     "thalweg_exchange_ll_any",
                                                                                     "thalweg_exchange_simple_any",
                                                                                     "thalweg_exchange_counted",
                                                                                     "thalweg_exchange_symmetric",
                                                                                     "thalweg_exchange_symmetric_stores",
                                                                                     "thalweg_exchange_symmetric_broadcasts",
                                                                                     "thalweg_exchange_symmetric_sums",
                                                                                     "thalweg_exchange_slots",
                                                                                     "thalweg_exchange_slots_sums",
                                                                                     "thalweg_persistent"};

}  // namespace

Status Kernels::open() {
  if (opened_.load(std::memory_order_acquire)) return TW_OK;
  const std::lock_guard lock(mutex_);
  if (opened_.load(std::memory_order_relaxed)) return TW_OK;
  const std::span<const unsigned char> image = kernels_image();
  if (image.empty()) {
    return fail(TW_ERR_UNSUPPORTED,
                "this build has no CUDA kernels: build where CMake finds nvcc; copies and stores by queue work without");
  }
  CuLibrary library = nullptr;
  Status status = check(driver_.LibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                        "loading the library's kernels");
  for (size_t i = 0; i < kNames.size() && !is_error(status); ++i)
    status = check(driver_.LibraryGetKernel(&kernels_[i], library, kNames[i]), kNames[i]);
  if (!is_error(status)) opened_.store(true, std::memory_order_release);
  return status;
}

Status Kernels::get(KernelName name, CuFunction* out) {
  if (Status s = open(); is_error(s)) return s;
  // A launch takes a kernel, which belongs to no context, in place of a function.
  *out = reinterpret_cast<CuFunction>(kernels_[static_cast<size_t>(name)]);
  return TW_OK;
}

Status Kernels::load_here() {
  if (Status s = open(); is_error(s)) return s;
  for (size_t i = 0; i < kNames.size(); ++i) {
    CuFunction function = nullptr;
    if (Status s = check(driver_.KernelGetFunction(&function, kernels_[i]), kNames[i]); is_error(s)) return s;
    if (driver_.FuncLoad == nullptr) continue;
    if (Status s = check(driver_.FuncLoad(function), kNames[i]); is_error(s)) return s;
  }
  return TW_OK;
}

}  // namespace thalweg::impl::cuda
