// SPDX-License-Identifier: Apache-2.0
// One atomic operation by one thread, system-wide: the word's other users are this device's kernels and its peers.
#pragma once
#include "arguments.hpp"

namespace thalweg::impl::cuda {

/// `op` counts as AtomicOp does.
template <typename Word>
__device__ inline Word change_word(Word* word, unsigned op, Word operand, Word compare) {
  switch (op) {
    case 0:
      return atomicAdd_system(word, operand);
    case 1:
      return atomicAnd_system(word, operand);
    case 2:
      return atomicOr_system(word, operand);
    case 3:
      return atomicXor_system(word, operand);
    case 4:
      return atomicExch_system(word, operand);
    default:
      return atomicCAS_system(word, compare, operand);
  }
}

__device__ inline uint64_t change_word(const AtomicArguments& atomic) {
  if (atomic.bytes == 4) {
    return change_word(reinterpret_cast<unsigned*>(atomic.word), atomic.op, static_cast<unsigned>(atomic.operand),
                       static_cast<unsigned>(atomic.compare));
  }
  return change_word(reinterpret_cast<unsigned long long*>(atomic.word), atomic.op,
                     static_cast<unsigned long long>(atomic.operand), static_cast<unsigned long long>(atomic.compare));
}

}  // namespace thalweg::impl::cuda
