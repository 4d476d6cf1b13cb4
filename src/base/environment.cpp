// SPDX-License-Identifier: Apache-2.0
#include "base/environment.hpp"

#include <cstdlib>
#include <string_view>

namespace thalweg::impl {

Status read_switch(const char* name, bool* out) {
  const char* const given = std::getenv(name);
  const std::string_view text = given != nullptr ? given : "";
  if (text == "1" || text == "0") *out = text == "1";
  if (text.empty() || text == "1" || text == "0") return TW_OK;
  return fail(TW_ERR_INVALID, "%s is \"%s\": set 1 (on) or 0 (off), or unset it", name, given);
}

}  // namespace thalweg::impl
