// SPDX-License-Identifier: Apache-2.0
#include "routes/ways.hpp"

namespace thalweg::impl {
namespace {
constexpr const char* kNames[] = {"any", "eager", "frames", "mapped", "kernel", "push", "pull", "staging"};
static_assert(sizeof kNames / sizeof *kNames == static_cast<size_t>(Way::count_));
}  // namespace

const char* name_of(Way way) { return kNames[static_cast<size_t>(way)]; }

bool way_named(std::string_view name, Way* way) {
  *way = Way::any;
  if (name.empty()) return true;
  for (uint8_t i = 0; i < static_cast<uint8_t>(Way::count_); ++i) {
    if (name != kNames[i]) continue;
    *way = static_cast<Way>(i);
    return true;
  }
  return false;
}

}  // namespace thalweg::impl
