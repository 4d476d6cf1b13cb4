// SPDX-License-Identifier: Apache-2.0
// Names of the refusal counters.
#include "security/refusals.hpp"

namespace thalweg::impl {

const char* refusal_name(Refusal cause) {
  constexpr const char* names[] = {"none",     "authentication", "version", "malformed", "timeout", "replay",
                                   "overload", "closed",         "target",  "integrity", "identity"};
  static_assert(std::size(names) == size_t(Refusal::count_));
  return size_t(cause) < std::size(names) ? names[size_t(cause)] : "unknown";
}

}  // namespace thalweg::impl
