// SPDX-License-Identifier: Apache-2.0
// Fields of protocol buffers, appended to a string: the little that packets of a trace need.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace thalweg::impl::trace {

class Proto {
 public:
  void number(uint32_t field, uint64_t value) {
    key(field, kVarint);
    varint(value);
  }
  void text(uint32_t field, std::string_view bytes) {
    key(field, kLength);
    varint(bytes.size());
    bytes_.append(bytes);
  }
  void message(uint32_t field, const Proto& inner) { text(field, inner.bytes_); }
  void fixed64(uint32_t field, uint64_t value) {
    key(field, kFixed64);
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }
  /// Its memory stays, for the next message.
  Proto& clear() {
    bytes_.clear();
    return *this;
  }
  /// A message's field on its own, at the end of `out`.
  static void append(uint32_t field, const Proto& inner, std::string* out) {
    put_varint(uint64_t{field} << 3 | kLength, out);
    put_varint(inner.bytes_.size(), out);
    out->append(inner.bytes_);
  }

 private:
  static constexpr uint32_t kVarint = 0, kFixed64 = 1, kLength = 2;
  void key(uint32_t field, uint32_t type) { varint(uint64_t{field} << 3 | type); }
  void varint(uint64_t value) { put_varint(value, &bytes_); }
  static void put_varint(uint64_t value, std::string* out) {
    for (; value >= 0x80; value >>= 7) *out += static_cast<char>(value | 0x80);
    *out += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace thalweg::impl::trace
