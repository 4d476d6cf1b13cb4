// SPDX-License-Identifier: Apache-2.0
// Memory of a rank of a ranks program: plain, library-allocated and an emulated device's, in pieces between guards.
#pragma once
#include <thalweg/thalweg.hpp>

#include <map>
#include <memory>
#include <string>

#include "model/jobs.hpp"

namespace thalweg::model {

/// A piece for one side of a collective, filled with what has to be there before.
struct RankBuffer {
  tw_context* context = nullptr;
  void* address = nullptr;  // what the function is told: also TW_IN_PLACE, or null
  std::byte* whole = nullptr;
  bool on_device = false;
  Bytes before;
  void store() const;
  /// Does it hold these bytes, and are its guards as they were? empty: what is there does not matter.
  bool holds(const Bytes& bytes) const;
};

class RankMemory {
 public:
  static constexpr uint8_t kDevice = 1, kLibrary = 3;  // kinds of a Side that are asked for by name
  RankMemory(thalweg::Context& context, uint32_t rank) : context_(context.get()), device_("emulated:" + std::to_string(rank)) {}
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;
  RankBuffer take(const Side& side, size_t element);
  const char* device() const { return device_.c_str(); }
  /// Words that the CPU and devices reach: a new one that is 0, and one that is 1.
  uint64_t* word();
  const uint64_t* one();

 private:
  struct Arena {
    tw_memory* memory = nullptr;
    size_t used = 0;
  };
  /// Null: used up.
  std::byte* room(Arena& arena, const char* place, size_t length);
  tw_context* const context_;
  const std::string device_;
  std::map<std::string, Arena> arenas_;  // by place
  std::vector<std::unique_ptr<std::byte[]>> plain_;
  size_t taken_ = 0;
  uint64_t* one_ = nullptr;
};

}  // namespace thalweg::model
