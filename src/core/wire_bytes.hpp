// SPDX-License-Identifier: Apache-2.0
// Bounded reading and writing of small little-endian records (addresses, set-up messages). A reader past its end yields
// zeros and is no longer good(): callers check once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace thalweg::impl {

struct ByteWriter {
  std::vector<std::byte> bytes;
  void raw(const void* from, size_t length) {
    const auto* first = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), first, first + length);
  }
  void u8(uint8_t value) { raw(&value, 1); }
  void u16(uint16_t value) { raw(&value, 2); }
  void u32(uint32_t value) { raw(&value, 4); }
  void u64(uint64_t value) { raw(&value, 8); }
  /// A length of 16 bits, then the bytes. length <= 65535.
  void block(const void* from, size_t length) {
    u16(static_cast<uint16_t>(length));
    if (length != 0) raw(from, length);
  }
  void text(const std::string& value) { block(value.data(), value.size()); }
};

class ByteReader {
 public:
  ByteReader(const std::byte* bytes, size_t length) : at_(bytes), left_(length) {}
  bool good() const { return good_; }
  bool done() const { return good_ && left_ == 0; }
  void raw(void* to, size_t length) {
    if (length == 0) return;  // `to` may be nothing
    if (!good_ || left_ < length) {
      good_ = false;
      std::memset(to, 0, length);
      return;
    }
    std::memcpy(to, at_, length);
    at_ += length;
    left_ -= length;
  }
  uint8_t u8() { return number<uint8_t>(); }
  uint16_t u16() { return number<uint16_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  /// At most `limit` bytes, or no longer good.
  std::vector<std::byte> block(size_t limit) {
    const size_t length = u16();
    if (length > limit || length > left_) good_ = false;
    if (!good_) return {};
    std::vector<std::byte> result(at_, at_ + length);
    at_ += length;
    left_ -= length;
    return result;
  }
  std::string text(size_t limit) {
    const std::vector<std::byte> bytes = block(limit);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

 private:
  template <class T>
  T number() {
    T value;
    raw(&value, sizeof value);
    return value;
  }
  const std::byte* at_;
  size_t left_;
  bool good_ = true;
};

}  // namespace thalweg::impl
