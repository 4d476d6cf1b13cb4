// SPDX-License-Identifier: Apache-2.0
// Reductions element by element: sources in their order into one destination, in one pass. Types of 16 bits are accumulated in 32 bits
// and rounded once, to nearest, ties to even. The same operands in the same order give the same bits on every machine: there is no
// contraction, and a NaN that leaves a 16-bit type is 0x7fff. Minimum and maximum pass a NaN on. Integers wrap.
//
// The destination may be one of the sources; otherwise they do not overlap. No barrier, no fence, no flag, as in copy.hpp.
#pragma once
#include <thalweg/device/copy.hpp>

namespace thalweg::device {

/// TW_TYPE_* and TW_REDUCE_* (plans.h).
enum class ElementType : u32 { float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, count_ };
enum class ReduceOp : u32 { sum, product, min, max, bit_and, bit_or, bit_xor, count_ };

THALWEG_DEVICE u32 element_bytes(ElementType type) {
  constexpr u32 bytes[] = {2, 2, 4, 8, 1, 2, 4, 8, 1};
  return bytes[static_cast<u32>(type)];
}

/// An element as it lies in memory, what it is accumulated in, and the way between them.
template <class T>
struct Plain {
  using Stored = T;
  using Accumulated = T;
  static THALWEG_DEVICE T widen(T value) { return value; }
  static THALWEG_DEVICE T narrow(T value) { return value; }
};
struct Half {
  using Stored = unsigned short;
  using Accumulated = float;
  static THALWEG_DEVICE float widen(unsigned short stored) { return machine::widen_half(stored); }
  static THALWEG_DEVICE unsigned short narrow(float value) { return machine::narrow_half(value); }
};
struct Brain {
  using Stored = unsigned short;
  using Accumulated = float;
  static THALWEG_DEVICE float widen(unsigned short stored) {
    const u32 bits = u32{stored} << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }
  static THALWEG_DEVICE unsigned short narrow(float value) {
    u32 bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    const u32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return static_cast<unsigned short>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
  }
};

/// Signed integers wrap as unsigned ones do.
template <class T>
struct Unsigned {
  using Type = T;
};
template <>
struct Unsigned<signed char> {
  using Type = unsigned char;
};
template <>
struct Unsigned<short> {
  using Type = unsigned short;
};
template <>
struct Unsigned<int> {
  using Type = u32;
};
template <>
struct Unsigned<i64> {
  using Type = u64;
};

THALWEG_DEVICE float add(float a, float b) { return machine::add(a, b); }
THALWEG_DEVICE double add(double a, double b) { return machine::add(a, b); }
THALWEG_DEVICE float multiply(float a, float b) { return machine::multiply(a, b); }
THALWEG_DEVICE double multiply(double a, double b) { return machine::multiply(a, b); }
template <class T>
THALWEG_DEVICE T add(T a, T b) {
  using U = typename Unsigned<T>::Type;
  return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
}
template <class T>
THALWEG_DEVICE T multiply(T a, T b) {  // short operands would become signed ones, and might overflow
  using U = typename Unsigned<T>::Type;
  return static_cast<T>(static_cast<U>(u64{static_cast<U>(a)} * u64{static_cast<U>(b)}));
}

template <ReduceOp Op>
struct Apply {
  template <class T>
  static THALWEG_DEVICE T to(T a, T b) {
    if constexpr (Op == ReduceOp::sum) {
      return add(a, b);
    } else if constexpr (Op == ReduceOp::product) {
      return multiply(a, b);
    } else if constexpr (Op == ReduceOp::min) {
      return b < a || b != b ? b : a;
    } else if constexpr (Op == ReduceOp::max) {
      return b > a || b != b ? b : a;
    } else if constexpr (Op == ReduceOp::bit_and) {
      return static_cast<T>(a & b);
    } else if constexpr (Op == ReduceOp::bit_or) {
      return static_cast<T>(a | b);
    } else {
      return static_cast<T>(a ^ b);
    }
  }
};

/// `count` elements, at most kBatch, by a thread that moves whole runs: a loop for each source, which the compiler makes wide.
constexpr u32 kBatch = 256;
template <class Element, ReduceOp Op, class M>
THALWEG_DEVICE void reduce_batch(M m, u64 to, const u64* sources, u32 source_count, u64 offset, u32 count) {
  using Stored = typename Element::Stored;
  Stored held[kBatch];
  typename Element::Accumulated sum[kBatch];
  const auto source = [&](u32 s) { return m.view(reinterpret_cast<const Stored*>(m.read(sources + s) + offset), count, held); };
  const Stored* next = source(0);
  for (u32 i = 0; i < count; ++i) sum[i] = Element::widen(next[i]);
  for (u32 s = 1; s < source_count; ++s) {
    next = source(s);
    for (u32 i = 0; i < count; ++i) sum[i] = Apply<Op>::to(sum[i], Element::widen(next[i]));
  }
  Stored* const target = reinterpret_cast<Stored*>(to + offset);
  Stored* const room = m.room(target, held);
  for (u32 i = 0; i < count; ++i) room[i] = Element::narrow(sum[i]);
  m.put(target, room, count);
}

/// `count` elements, `offset` bytes into the destination and all sources, whose addresses are in the machine's memory.
template <class Element, ReduceOp Op, class M>
THALWEG_DEVICE void reduce_elements(M m, u32 rank, u32 size, u64 to, const u64* sources, u32 source_count, u64 offset,
                                    u64 count) {
  using Stored = typename Element::Stored;
  if constexpr (M::whole_runs) {
    for (u64 at = 0; rank == 0 && at < count; at += kBatch) {
      const u32 here = count - at < kBatch ? static_cast<u32>(count - at) : kBatch;
      reduce_batch<Element, Op>(m, to, sources, source_count, offset + at * sizeof(Stored), here);
    }
  } else {
    for (u64 at = rank; at < count; at += size) {
      const u64 byte = offset + at * sizeof(Stored);
      auto sum = Element::widen(m.read(reinterpret_cast<const Stored*>(m.read(sources) + byte)));
      for (u32 s = 1; s < source_count; ++s)
        sum = Apply<Op>::to(sum, Element::widen(m.read(reinterpret_cast<const Stored*>(m.read(sources + s) + byte))));
      m.write(reinterpret_cast<Stored*>(to + byte), Element::narrow(sum));
    }
  }
}

/// The same for words of 16 bytes, to which the destination and all sources are aligned.
template <class Element, ReduceOp Op, class M>
THALWEG_DEVICE void reduce_words(M m, u32 rank, u32 size, u64 to, const u64* sources, u32 source_count, u64 offset, u64 count) {
  using Stored = typename Element::Stored;
  using Accumulated = typename Element::Accumulated;
  constexpr u32 lanes = sizeof(Word16) / sizeof(Stored);
  union Word {
    Word16 whole;
    Stored part[lanes];
  };
  THALWEG_ROLLED
  for (u64 at = rank; at < count; at += size) {
    const u64 byte = offset + at * sizeof(Word16);
    Accumulated sum[lanes];
    Word word;
    word.whole = m.read(reinterpret_cast<const Word16*>(m.read(sources) + byte));
    THALWEG_UNROLL
    for (u32 i = 0; i < lanes; ++i) sum[i] = Element::widen(word.part[i]);
    THALWEG_ROLLED
    for (u32 s = 1; s < source_count; ++s) {
      word.whole = m.read(reinterpret_cast<const Word16*>(m.read(sources + s) + byte));
      THALWEG_UNROLL
      for (u32 i = 0; i < lanes; ++i) sum[i] = Apply<Op>::to(sum[i], Element::widen(word.part[i]));
    }
    THALWEG_UNROLL
    for (u32 i = 0; i < lanes; ++i) word.part[i] = Element::narrow(sum[i]);
    m.write(reinterpret_cast<Word16*>(to + byte), word.whole);
  }
}

/// What a reduction is of.
struct Reduction {
  ElementType type;
  ReduceOp op;
  u32 source_count;
  bool aligned;  // the destination and all sources, to 16 bytes
  u64 to;
  const u64* sources;
};

template <class Element, ReduceOp Op, class M>
THALWEG_DEVICE_COLD void reduce_with(M m, u32 rank, u32 size, Reduction what, Part part) {
  using Stored = typename Element::Stored;
  u64 done = 0;
  if constexpr (!M::whole_runs) {
    const u64 words = what.aligned ? (part.end - part.begin) / sizeof(Word16) : 0;
    reduce_words<Element, Op>(m, rank, size, what.to, what.sources, what.source_count, part.begin, words);
    done = words * sizeof(Word16);
  }
  reduce_elements<Element, Op>(m, rank, size, what.to, what.sources, what.source_count, part.begin + done,
                               (part.end - part.begin - done) / sizeof(Stored));
}

template <class Element, class M>
THALWEG_DEVICE void reduce_type(M m, u32 rank, u32 size, const Reduction& what, Part part) {
  switch (what.op) {
    case ReduceOp::sum:
      return reduce_with<Element, ReduceOp::sum>(m, rank, size, what, part);
    case ReduceOp::product:
      return reduce_with<Element, ReduceOp::product>(m, rank, size, what, part);
    case ReduceOp::min:
      return reduce_with<Element, ReduceOp::min>(m, rank, size, what, part);
    case ReduceOp::max:
      return reduce_with<Element, ReduceOp::max>(m, rank, size, what, part);
    default:
      return;  // of integers only
  }
}
/// Bit operations do not depend on the type: bytes would do, words are fewer.
template <class Element, class M>
THALWEG_DEVICE void reduce_bits(M m, u32 rank, u32 size, const Reduction& what, Part part) {
  switch (what.op) {
    case ReduceOp::bit_and:
      return reduce_with<Element, ReduceOp::bit_and>(m, rank, size, what, part);
    case ReduceOp::bit_or:
      return reduce_with<Element, ReduceOp::bit_or>(m, rank, size, what, part);
    case ReduceOp::bit_xor:
      return reduce_with<Element, ReduceOp::bit_xor>(m, rank, size, what, part);
    default:
      return reduce_type<Element>(m, rank, size, what, part);
  }
}

/// The bytes of `part`, which begins and ends at multiples of 16, or at the end: the share of thread `rank` of `size`.
template <class M>
THALWEG_DEVICE void reduce_part(M m, u32 rank, u32 size, const Reduction& what, Part part) {
  if (part.begin >= part.end) return;
  switch (what.type) {
    case ElementType::float16:
      return reduce_type<Half>(m, rank, size, what, part);
    case ElementType::bfloat16:
      return reduce_type<Brain>(m, rank, size, what, part);
    case ElementType::float32:
      return reduce_type<Plain<float>>(m, rank, size, what, part);
    case ElementType::float64:
      return reduce_type<Plain<double>>(m, rank, size, what, part);
    case ElementType::int8:
      return reduce_bits<Plain<signed char>>(m, rank, size, what, part);
    case ElementType::int16:
      return reduce_bits<Plain<short>>(m, rank, size, what, part);
    case ElementType::int32:
      return reduce_bits<Plain<int>>(m, rank, size, what, part);
    case ElementType::int64:
      return reduce_bits<Plain<i64>>(m, rank, size, what, part);
    case ElementType::uint8:
      return reduce_bits<Plain<unsigned char>>(m, rank, size, what, part);
    default:
      return;
  }
}

/// What a step of a program reduces (types.hpp).
THALWEG_DEVICE Reduction reduction_of(const Step& step) {
  return {static_cast<ElementType>(step.atomic_bytes),
          static_cast<ReduceOp>(step.atomic_op),
          step.compare,
          step.operand != 0,
          step.to.base,
          step.word};
}

}  // namespace thalweg::device
