// SPDX-License-Identifier: Apache-2.0
// Twins: payload, fence, signal, with stores that become visible in the worst order.
#include "devices/emulated/kernels.hpp"

#include <chrono>

#include "devices/emulated/place.hpp"
#include "devices/emulated/store_buffer.hpp"

namespace thalweg::impl::emulated {
namespace {

/// The words that a kernel may have; a null pointer: not this one.
struct Words {
  Place signal, status;
  SignalAfter after;
  bool skip_fences;

  bool stopped() const {
    return status.pointer != nullptr && __atomic_load_n(reinterpret_cast<uint64_t*>(status.pointer), __ATOMIC_ACQUIRE) != 0;
  }
  void finish(StoreBuffer& stores) const {
    if (signal.pointer == nullptr) return;
    stores.fence();
    stores.store_word(reinterpret_cast<uint64_t*>(signal.pointer), after.value, after.add);
  }
};

Status find_word(const EmulatedDevice* device, uint64_t address, Place* out) {
  if (address == 0) return TW_OK;
  if (address % sizeof(uint64_t) != 0) return fail(TW_ERR_MISALIGNED, "a kernel's word must be aligned to 8 bytes");
  return locate(device, Use::kernel, address, 0, sizeof(uint64_t), out);
}

Status find_words(const EmulatedDevice* device, const Options& options, const SignalAfter& after, uint64_t status, Words* out) {
  out->after = after;
  out->skip_fences = options.skip_fences;
  if (Status s = find_word(device, after.address, &out->signal); is_error(s)) return s;
  return find_word(device, status, &out->status);
}

Status make(const EmulatedDevice* device, const Options& options, const CopyKernel& kernel, Twin* out) {
  PreparedCopy prepared;
  Words words;
  if (Status s = prepare(device, Use::kernel, kernel.copy, &prepared); is_error(s)) return s;
  if (Status s = find_words(device, options, kernel.signal, kernel.status, &words); is_error(s)) return s;
  *out = [prepared, words](EmulatedStream&) {
    if (words.stopped()) return TW_OK;
    StoreBuffer stores(words.skip_fences);
    const Copy& copy = prepared.copy;
    for (uint64_t z = 0; z < copy.slices && copy.width > 0; ++z) {
      for (uint64_t y = 0; y < copy.rows; ++y) {
        const auto row = static_cast<int64_t>(y), slice = static_cast<int64_t>(z);
        stores.store(prepared.to.pointer + slice * copy.to_slice + row * copy.to_row,
                     prepared.from.pointer + slice * copy.from_slice + row * copy.from_row, copy.width);
      }
    }
    words.finish(stores);
    return TW_OK;
  };
  return TW_OK;
}

Status make(const EmulatedDevice* device, const Options& options, const BlocksKernel& kernel, Twin* out) {
  Place list;
  Words words;
  const auto bytes = static_cast<int64_t>(kernel.count * sizeof(BlockPair));
  if (kernel.count > 0) {
    if (Status s = locate(device, Use::kernel, kernel.pairs, 0, bytes, &list); is_error(s)) return s;
  }
  if (Status s = find_words(device, options, kernel.signal, kernel.status, &words); is_error(s)) return s;
  *out = [device, kernel, list, words](EmulatedStream&) -> Status {
    if (words.stopped()) return TW_OK;
    const auto* pairs = reinterpret_cast<const BlockPair*>(list.pointer);
    std::vector<PreparedCopy> held(kernel.count);  // until the stores are visible
    StoreBuffer stores(words.skip_fences);
    for (uint64_t i = 0; i < kernel.count; ++i) {
      const Copy copy{pairs[i].to, pairs[i].from, kernel.length};
      if (Status s = prepare(device, Use::kernel, copy, &held[i]); is_error(s)) return s;  // an illegal address
      stores.store(held[i].to.pointer, held[i].from.pointer, held[i].copy.width);
    }
    words.finish(stores);
    return TW_OK;
  };
  return TW_OK;
}

Status make(const EmulatedDevice* device, const Options& options, const WaitKernel& kernel, Twin* out) {
  Words words;
  if (kernel.status == 0 || kernel.word == 0) {
    return fail(TW_ERR_INVALID, "a waiting kernel needs a word, and a status word to say that it gave up");
  }
  if (Status s = find_words(device, options, {kernel.word, 0, false}, kernel.status, &words); is_error(s)) return s;
  *out = [words, kernel](EmulatedStream& stream) -> Status {
    if (words.stopped()) return TW_OK;
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kernel.limit_ns);
    const Status status = stream.await([&] {
      if (reached(words.signal.pointer, kernel.value)) return Status{TW_OK};
      return std::chrono::steady_clock::now() < end ? Status{TW_IN_PROGRESS} : Status{TW_ERR_TIMED_OUT};
    });
    if (status != TW_ERR_TIMED_OUT) return status;
    __atomic_store_n(reinterpret_cast<uint64_t*>(words.status.pointer), static_cast<uint64_t>(int64_t{TW_ERR_TIMED_OUT}),
                     __ATOMIC_RELEASE);
    return TW_OK;  // the queue goes on; what follows reads the status word
  };
  return TW_OK;
}

template <typename Word>
uint64_t change(std::byte* at, const AtomicKernel& kernel) {
  auto* const word = reinterpret_cast<Word*>(at);
  const auto operand = static_cast<Word>(kernel.operand);
  switch (kernel.op) {
    case AtomicOp::add:
      return __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
    case AtomicOp::bit_and:
      return __atomic_fetch_and(word, operand, __ATOMIC_SEQ_CST);
    case AtomicOp::bit_or:
      return __atomic_fetch_or(word, operand, __ATOMIC_SEQ_CST);
    case AtomicOp::bit_xor:
      return __atomic_fetch_xor(word, operand, __ATOMIC_SEQ_CST);
    case AtomicOp::swap:
      return __atomic_exchange_n(word, operand, __ATOMIC_SEQ_CST);
    case AtomicOp::compare_swap:
      break;
  }
  auto expected = static_cast<Word>(kernel.compare);
  __atomic_compare_exchange_n(word, &expected, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

Status make(const EmulatedDevice* device, const Options& options, const AtomicKernel& kernel, Twin* out) {
  if ((kernel.bytes != 4 && kernel.bytes != 8) || kernel.word == 0)
    return fail(TW_ERR_INVALID, "an atomic operation needs a word of 4 or 8 bytes");
  if (kernel.word % kernel.bytes != 0)
    return fail(TW_ERR_MISALIGNED, "the word of an atomic operation must be aligned to its %u bytes", kernel.bytes);
  Place word, old;
  Words words;
  if (Status s = locate(device, Use::kernel, kernel.word, 0, kernel.bytes, &word); is_error(s)) return s;
  if (Status s = find_word(device, kernel.old, &old); is_error(s)) return s;
  if (Status s = find_words(device, options, kernel.signal, kernel.status, &words); is_error(s)) return s;
  *out = [word, old, words, kernel](EmulatedStream&) {
    if (words.stopped()) return TW_OK;
    StoreBuffer stores(words.skip_fences);
    const uint64_t held = kernel.bytes == 4 ? change<uint32_t>(word.pointer, kernel) : change<uint64_t>(word.pointer, kernel);
    if (old.pointer != nullptr) stores.store_word(reinterpret_cast<uint64_t*>(old.pointer), held, false);
    words.finish(stores);
    return TW_OK;
  };
  return TW_OK;
}

Status make(const EmulatedDevice* device, const Options& options, const PersistentKernel& kernel, Twin* out) {
  return make_persistent(device, options, kernel, out);
}

Status make(const EmulatedDevice* device, const Options& options, const WaitAheadKernel& kernel, Twin* out) {
  *out = make_wait_ahead(device, options, *kernel.waits);
  return TW_OK;
}

}  // namespace

Status make_twin(const EmulatedDevice* device, const Options& options, const Kernel& kernel, Twin* out) {
  return std::visit([&](const auto& one) { return make(device, options, one, out); }, kernel);
}

}  // namespace thalweg::impl::emulated
