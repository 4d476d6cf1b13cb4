// SPDX-License-Identifier: Apache-2.0
// Names and text of the refusal counters.
#include "security/refusals.hpp"

namespace thalweg::impl {

const char* refusal_name(Refusal cause) {
  constexpr const char* names[] = {"none",     "authentication", "version", "malformed", "timeout", "replay",
                                   "overload", "closed",         "target",  "integrity", "identity"};
  static_assert(std::size(names) == size_t(Refusal::count_));
  return size_t(cause) < std::size(names) ? names[size_t(cause)] : "unknown";
}

std::string RefusalCounters::json() const {
  std::string text = "{";
  for (size_t i = 1; i < counts_.size(); ++i) {
    if (i > 1) text += ", ";
    text += std::string("\"") + refusal_name(Refusal(i)) + "\": " + std::to_string(value(Refusal(i)));
  }
  return text + "}";
}

}  // namespace thalweg::impl
