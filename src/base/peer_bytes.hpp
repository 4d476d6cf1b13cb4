// SPDX-License-Identifier: Apache-2.0
// Bytes that a peer can change while they are read: the body of a frame lies in a shared ring that its sender still maps.
#pragma once
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace thalweg::impl {

/// Reads each byte at most once, from the front to the back. What is parsed is copied out by take(), what is only passed on
/// is named by payload(). There is no way back and no copy of a reader, so what was checked cannot be fetched again.
class PeerBytes {
 public:
  PeerBytes(const std::byte* at, size_t length) : at_(at), left_(length) {}
  PeerBytes(PeerBytes&&) = default;  // trivial: it travels in registers
  PeerBytes(const PeerBytes&) = delete;
  PeerBytes& operator=(const PeerBytes&) = delete;

  size_t left() const { return left_; }

  /// Copies the next n bytes out. False when there are fewer: nothing is read then.
  [[nodiscard]] bool take(void* to, size_t n) {
    if (n > left_) return false;
    if (n != 0) std::memcpy(to, at_, n);
    // The compiler must use the copy: it knows of no other writer and could load from the ring again.
    __asm__ volatile("" ::: "memory");
    skip(n);
    return true;
  }
  template <class T>
  [[nodiscard]] bool take(T* out) {
    static_assert(std::is_trivially_copyable_v<T>);
    return take(out, sizeof(T));
  }

  /// The next n <= left() bytes, raw: copy them to their destination once, and do not read them before.
  const std::byte* payload(size_t n) {
    const std::byte* at = at_;
    skip(n);
    return at;
  }
  const std::byte* payload() { return payload(left_); }

 private:
  void skip(size_t n) {
    at_ += n;
    left_ -= n;
  }

  const std::byte* at_;
  size_t left_;
};

}  // namespace thalweg::impl
