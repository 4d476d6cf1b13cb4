// SPDX-License-Identifier: Apache-2.0
// Memory at a place of the library's, or ordinary memory, filled and checked by tw_memory_copy; and what places there are.
#pragma once
#include <thalweg/thalweg.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu.hpp"
#include "machine/mapping.hpp"
#include "pair.hpp"

namespace perf {

class PlacedMemory {
 public:
  static constexpr const char* kOrdinary = "ordinary";  // of no library
  PlacedMemory(tw_context* context, const std::string& place, size_t bytes);
  ~PlacedMemory();
  PlacedMemory(const PlacedMemory&) = delete;
  PlacedMemory& operator=(const PlacedMemory&) = delete;
  unsigned char* at(size_t offset = 0) const { return base_ + offset; }
  size_t bytes() const { return bytes_; }
  /// Random, by the seed; and what no fill leaves.
  void fill(uint64_t seed, size_t bytes);
  void poison(size_t bytes);
  /// fill(seed) of `bytes`, and behind them what poison() left.
  bool holds(uint64_t seed, size_t bytes) const;

 private:
  static constexpr size_t kGuard = 256;
  tw_context* context_;
  size_t bytes_;
  std::unique_ptr<Mapping> ordinary_;
  tw_memory* memory_ = nullptr;
  unsigned char* base_ = nullptr;
};

/// A context for the time of a test.
class OwnContext {
 public:
  OwnContext() { must(tw_context_create(nullptr, &context_), "tw_context_create"); }
  ~OwnContext() { tw_context_destroy(context_); }
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;
  operator tw_context*() const { return context_; }  // NOLINT: what functions of the library take

 private:
  tw_context* context_ = nullptr;
};

/// "emulated:0", ...: those that there are.
std::vector<std::string> emulated_places(tw_context* context);
/// All GPUs that this process sees, or of --memory cuda:N that one. Empty: why_no_gpu() has the reason.
std::vector<std::unique_ptr<Gpu>> all_gpus(const Options& o);

}  // namespace perf
