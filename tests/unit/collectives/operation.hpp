// SPDX-License-Identifier: Apache-2.0
// Reductions on real bytes, for the simulator and for what it is compared to.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>

namespace thalweg::impl::test {

/// bytes: nothing is reduced. affine: x -> a x + b modulo 2^32, one after the other; does not commute.
enum class Operation : uint8_t { bytes, add, affine, add_floats };

inline uint32_t element_of(Operation operation) {
  return operation == Operation::bytes ? 3 : operation == Operation::add_floats ? 4 : 8;
}

template <class T>
void add_to(uint8_t* to, const uint8_t* other) {
  T a, b;
  std::memcpy(&a, to, sizeof a);
  std::memcpy(&b, other, sizeof b);
  a = static_cast<T>(a + b);
  std::memcpy(to, &a, sizeof a);
}

inline void compose_to(uint8_t* to, const uint8_t* other) {
  uint32_t first[2], second[2];
  std::memcpy(first, to, sizeof first);
  std::memcpy(second, other, sizeof second);
  const uint32_t both[2] = {first[0] * second[0], first[1] * second[0] + second[1]};
  std::memcpy(to, both, sizeof both);
}

/// to = to, other; element by element.
inline void combine(Operation operation, std::span<uint8_t> to, std::span<const uint8_t> other) {
  const uint32_t element = element_of(operation);
  for (size_t i = 0; i + element <= to.size(); i += element) {
    if (operation == Operation::add) add_to<uint64_t>(&to[i], &other[i]);
    if (operation == Operation::add_floats) add_to<float>(&to[i], &other[i]);
    if (operation == Operation::affine) compose_to(&to[i], &other[i]);
  }
}

}  // namespace thalweg::impl::test
