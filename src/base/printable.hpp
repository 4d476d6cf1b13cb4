// SPDX-License-Identifier: Apache-2.0
// Text from outside on its way to terminals and logs.
#pragma once
#include <string>
#include <string_view>

namespace thalweg::impl {

/// A peer's text in ASCII and on one line: control bytes and bytes beyond ASCII as \xNN; a backslash is doubled, so the
/// result is unambiguous.
inline std::string printable(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\\') {
      out += "\\\\";
    } else if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

}  // namespace thalweg::impl
