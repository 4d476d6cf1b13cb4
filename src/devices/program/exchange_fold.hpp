// SPDX-License-Identifier: Apache-2.0
// What becomes of the words that an exchange takes: reduced in the order of ranks, or put to their places.
//
// Elements: which types and operations there are, as kernels of their own, because the registers of those that are rare would be
// missing to all others: CommonElements, and AnyElements of everything.
#pragma once
#include "devices/program/elements8.hpp"
#include "devices/program/exchange_block.hpp"

namespace thalweg::device {

/// A word's elements, accumulated. Word: u64, Word16, or one element.
template <class Element, ReduceOp Op, class Word>
struct Folded {
  using Stored = typename Element::Stored;
  static constexpr u32 lanes = sizeof(Word) / sizeof(Stored);
  union Parts {
    Word whole;
    Stored part[lanes];
  };
  typename Element::Accumulated sum[lanes];

  THALWEG_DEVICE explicit Folded(Word first) {
    Parts parts;
    parts.whole = first;
    THALWEG_UNROLL
    for (u32 i = 0; i < lanes; ++i) sum[i] = Element::widen(parts.part[i]);
  }
  THALWEG_DEVICE void take(Word word) {
    Parts parts;
    parts.whole = word;
    THALWEG_UNROLL
    for (u32 i = 0; i < lanes; ++i) sum[i] = Apply<Op>::to(sum[i], Element::widen(parts.part[i]));
  }
  template <class Last>
  THALWEG_DEVICE Word result(const Last& last) const {
    Parts parts;
    THALWEG_UNROLL
    for (u32 i = 0; i < lanes; ++i) parts.part[i] = last.template of<Element>(Element::narrow(sum[i]));
    return parts.whole;
  }
};

/// work.run<Element, Op>() for an ElementType and a ReduceOp. Bit operations do not depend on the type.
template <class Element, class Work>
THALWEG_DEVICE auto with_op(u32 op, Work& work) {
  switch (static_cast<ReduceOp>(op)) {
    case ReduceOp::product:
      return work.template run<Element, ReduceOp::product>();
    case ReduceOp::min:
      return work.template run<Element, ReduceOp::min>();
    case ReduceOp::max:
      return work.template run<Element, ReduceOp::max>();
    default:
      return work.template run<Element, ReduceOp::sum>();
  }
}
template <class Work>
THALWEG_DEVICE auto with_element(u32 type, u32 op, Work& work) {
  switch (static_cast<ReduceOp>(op)) {
    case ReduceOp::bit_and:
      return work.template run<Plain<unsigned char>, ReduceOp::bit_and>();
    case ReduceOp::bit_or:
      return work.template run<Plain<unsigned char>, ReduceOp::bit_or>();
    case ReduceOp::bit_xor:
      return work.template run<Plain<unsigned char>, ReduceOp::bit_xor>();
    default:
      break;
  }
  switch (static_cast<ElementType>(type)) {
    case ElementType::float16:
      return with_op<Half>(op, work);
    case ElementType::bfloat16:
      return with_op<Brain>(op, work);
    case ElementType::float32:
      return with_op<Plain<float>>(op, work);
    case ElementType::float64:
      return with_op<Plain<double>>(op, work);
    case ElementType::int8:
      return with_op<Plain<signed char>>(op, work);
    case ElementType::int16:
      return with_op<Plain<short>>(op, work);
    case ElementType::int32:
      return with_op<Plain<int>>(op, work);
    case ElementType::int64:
      return with_op<Plain<i64>>(op, work);
    default:
      return with_op<Plain<unsigned char>>(op, work);
  }
}

template <class Work>
THALWEG_DEVICE auto with_truth(u32 op, Work& work) {
  switch (static_cast<ReduceOp>(op)) {
    case ReduceOp::bit_and:
      return work.template run<Truth, ReduceOp::bit_and>();
    case ReduceOp::bit_or:
      return work.template run<Truth, ReduceOp::bit_or>();
    default:
      return work.template run<Truth, ReduceOp::bit_xor>();
  }
}

/// The types of ElementType, as they are summed; blocks of one length.
struct CommonElements {
  static constexpr bool parts = false;
  struct Last {
    THALWEG_DEVICE explicit Last(const Exchange&) {}
    template <class Element>
    THALWEG_DEVICE typename Element::Stored of(typename Element::Stored sum) const {
      return sum;
    }
  };
  template <class Work>
  static THALWEG_DEVICE auto with(u32 type, u32 op, Work& work) {
    return with_element(type, op, work);
  }
};
/// What is summed most often; of kernels that have nothing else.
struct SumElements {
  static constexpr bool parts = false;
  using Last = CommonElements::Last;
  static constexpr bool has(u32 type, u32 op) {
    return op == static_cast<u32>(ReduceOp::sum) &&
           (type == static_cast<u32>(ElementType::float32) || type == static_cast<u32>(ElementType::bfloat16));
  }
  /// Nothing else is needed.
  static constexpr bool suffice(const Exchange& x) { return x.reduces == 0 || has(x.type, x.op); }
  template <class Work>
  static THALWEG_DEVICE auto with(u32 type, u32, Work& work) {
    if (type == static_cast<u32>(ElementType::float32)) return work.template run<Plain<float>, ReduceOp::sum>();
    return work.template run<Brain, ReduceOp::sum>();
  }
};
/// All of TW_TYPE_*; sums that are scaled; blocks of several lengths.
struct AnyElements {
  static constexpr bool parts = true;
  static constexpr u32 kE4m3 = static_cast<u32>(ElementType::count_), kE5m2 = kE4m3 + 1, kTruth = kE4m3 + 2;
  struct Last {
    THALWEG_DEVICE explicit Last(const Exchange& x) : scale{x.factor, x.size}, scales(x.scales != 0) {}
    template <class Element>
    THALWEG_DEVICE typename Element::Stored of(typename Element::Stored sum) const {
      return scales ? scale.of<Element>(sum) : sum;
    }
    Scale scale;
    bool scales;
  };
  template <class Work>
  static THALWEG_DEVICE auto with(u32 type, u32 op, Work& work) {
    if (type == kE4m3) return with_op<E4M3>(op, work);
    if (type == kE5m2) return with_op<E5M2>(op, work);
    if (type == kTruth) return with_truth(op, work);
    return with_element(type, op, work);
  }
};

/// Words of one place of several ranks, to one.
template <class Elements>
struct FoldWords {
  const u64* words;
  u32 count;
  typename Elements::Last last;
  template <class Element, ReduceOp Op>
  THALWEG_DEVICE u64 run() const {
    Folded<Element, Op, u64> sum(words[0]);
    THALWEG_ROLLED
    for (u32 i = 1; i < count; ++i) sum.take(words[i]);
    return sum.result(last);
  }
};
/// Not in line: all types and operations.
template <class Elements>
THALWEG_DEVICE_COLD u64 fold_words(u32 type, u32 op, const u64* words, u32 count, typename Elements::Last last) {
  FoldWords<Elements> work{words, count, last};
  return Elements::with(type, op, work);
}

/// The same of the rooms of one unit, one behind the other, which hold it already.
template <class M, class Elements>
struct FoldUnits {
  M m;
  const Word16* first;  // of the first rank
  u32 rank, count;
  u64 own;
  typename Elements::Last last;
  THALWEG_DEVICE u64 word(u32 from) const { return from != rank ? m.load16(first + u64{from} * kUnitsOfBlock).low : own; }
  template <class Element, ReduceOp Op>
  THALWEG_DEVICE u64 run() const {
    Folded<Element, Op, u64> sum(word(0));
    THALWEG_ROLLED
    for (u32 i = 1; i < count; ++i) sum.take(word(i));
    return sum.result(last);
  }
};
template <class M, class Elements>
THALWEG_DEVICE_COLD u64 fold_from(M, u32 type, u32 op, FoldUnits<M, Elements> work) {
  return Elements::with(type, op, work);
}

}  // namespace thalweg::device
