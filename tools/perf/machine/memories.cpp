// SPDX-License-Identifier: Apache-2.0
#include "machine/memories.hpp"

#include <algorithm>
#include <cstring>

#include "driver.hpp"

namespace perf {
namespace {

constexpr unsigned char kPoison = 0xA5;

/// Room for the pattern and for what is read, kept: new pages would take longer than the copies.
unsigned char* scratch(unsigned which, size_t bytes) {
  static std::vector<unsigned char> kept[2];
  if (kept[which].size() < bytes) kept[which].resize(bytes);
  return kept[which].data();
}

const unsigned char* pattern(uint64_t seed, size_t bytes) {
  unsigned char* const all = scratch(0, bytes + sizeof(uint64_t));
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    uint64_t word = (i + seed) * 0x9E3779B97F4A7C15u;
    word ^= word >> 32;
    std::memcpy(all + i, &word, sizeof word);
  }
  return all;
}

}  // namespace

PlacedMemory::PlacedMemory(tw_context* context, const std::string& place, size_t bytes) : context_(context), bytes_(bytes) {
  if (place == kOrdinary) {
    ordinary_ = std::make_unique<Mapping>(Mapping::anonymous(bytes + kGuard, false));
    if (!ordinary_->why().empty()) end_with(ordinary_->why());
    base_ = ordinary_->at();
    return;
  }
  tw_memory_options o = TW_MEMORY_OPTIONS_INIT;
  o.place = place.c_str();
  must(tw_memory_allocate(context, bytes + kGuard, &o, &memory_), ("memory at " + place).c_str());
  base_ = static_cast<unsigned char*>(tw_memory_address(memory_));
}

PlacedMemory::~PlacedMemory() {
  if (memory_ != nullptr) (void)tw_memory_release(memory_);
}

void PlacedMemory::fill(uint64_t seed, size_t bytes) {
  must(tw_memory_copy(context_, base_, pattern(seed, bytes), bytes), "tw_memory_copy");
}

void PlacedMemory::poison(size_t bytes) {
  unsigned char* const all = scratch(1, bytes + kGuard);
  std::memset(all, kPoison, bytes + kGuard);
  must(tw_memory_copy(context_, base_, all, bytes + kGuard), "tw_memory_copy");
}

bool PlacedMemory::holds(uint64_t seed, size_t bytes) const {
  unsigned char* const seen = scratch(1, bytes + kGuard);
  std::memset(seen, 0, bytes + kGuard);
  must(tw_memory_copy(context_, seen, base_, bytes + kGuard), "tw_memory_copy");
  return std::memcmp(seen, pattern(seed, bytes), bytes) == 0 &&
         std::all_of(seen + bytes, seen + bytes + kGuard, [](unsigned char c) { return c == kPoison; });
}

std::vector<std::string> emulated_places(tw_context* context) {
  constexpr unsigned kMost = 64;
  std::vector<std::string> all;
  for (unsigned i = 0; i < kMost; ++i) {
    const std::string place = "emulated:" + std::to_string(i);
    tw_memory_options o = TW_MEMORY_OPTIONS_INIT;
    o.place = place.c_str();
    tw_memory* trial = nullptr;
    if (tw_memory_allocate(context, 64, &o, &trial) != TW_OK) break;
    must(tw_memory_release(trial), "tw_memory_release");
    all.push_back(place);
  }
  return all;
}

std::vector<std::unique_ptr<Gpu>> all_gpus(const Options& o) {
  std::vector<std::unique_ptr<Gpu>> all;
  const std::string& memory = o.memory[0];
  if (!memory.empty() && memory.rfind("cuda", 0) != 0) end_with(o.test + ": --memory cuda[:N], or none for all devices");
  if (!why_no_gpu().empty()) {
    if (!memory.empty()) end_with(why_no_gpu());
    return all;
  }
  if (memory.find(':') != std::string::npos) {
    all.push_back(std::make_unique<Gpu>(ordinal_of(memory)));
    return all;
  }
  for (unsigned d = 0; d < cuda::device_count(); ++d) all.push_back(std::make_unique<Gpu>(d));
  return all;
}

}  // namespace perf
