// SPDX-License-Identifier: Apache-2.0
// The pool of signal words.
#include "memory/signal.hpp"

#include <memory>

#include "memory/place.hpp"

namespace thalweg::impl {
namespace {
constexpr size_t kSlot = 64, kBlock = 64 * 1024;  // a word has a cache line of its own
}

void AwaitedSignals::add(const tw_signal& signal) {
  const std::lock_guard lock(mutex_);
  if (!signal.listed.exchange(true)) signals_.push_back(&signal);
}

void AwaitedSignals::remove(const tw_signal& signal) {
  const std::lock_guard lock(mutex_);
  std::erase(signals_, &signal);
}

bool AwaitedSignals::changed() {
  const std::lock_guard lock(mutex_);
  return std::erase_if(signals_, [](const tw_signal* signal) {
           if (__atomic_load_n(signal->word, __ATOMIC_ACQUIRE) == signal->seen.load(std::memory_order_relaxed)) return false;
           signal->listed.store(false, std::memory_order_relaxed);
           return true;
         }) != 0;
}

SignalPool::~SignalPool() {
  for (tw_memory* block : blocks_) registry_.release(block);
}

Status SignalPool::grow() {
  tw_memory* block = nullptr;
  if (Status s = registry_.allocate(kBlock, kAccessSignal, false, &block); is_error(s)) return s;
  blocks_.push_back(block);
  for (size_t offset = 0; offset < kBlock; offset += kSlot) free_.push_back({block, offset});
  return TW_OK;
}

namespace {

Status check_kind(uint32_t kind) {
  if (kind == TW_SIGNAL_SET || kind == TW_SIGNAL_ADD) return TW_OK;
  return fail(TW_ERR_INVALID, "a signal is TW_SIGNAL_SET or TW_SIGNAL_ADD, not %u", kind);
}

}  // namespace

Status SignalPool::create_in(tw_memory& memory, uint64_t offset, LocalCopier& copier, uint32_t kind, uint64_t initial,
                             tw_signal** out) {
  if (Status s = check_kind(kind); is_error(s)) return s;
  if (offset % sizeof(uint64_t) != 0 || reinterpret_cast<uintptr_t>(memory.address) % sizeof(uint64_t) != 0)
    return fail(TW_ERR_MISALIGNED, "a signal's word must be aligned to 8 bytes");
  if (offset > memory.length || memory.length - offset < sizeof(uint64_t)) {
    return fail(TW_ERR_OUT_OF_BOUNDS, "a word at offset %llu: the memory has %zu bytes",
                static_cast<unsigned long long>(offset), memory.length);
  }
  const MemoryKind where = memory.origin.kind;
  if (where == MemoryKind::managed) {
    return fail(TW_ERR_UNSUPPORTED,
                "a signal's word in managed memory would move under its waiter; use device or pinned memory");
  }
  auto signal = std::make_unique<tw_signal>();
  signal->pool = this;
  signal->kind = kind;
  signal->memory = &memory;
  signal->offset = offset;
  signal->users = true;
  signal->word = reinterpret_cast<uint64_t*>(memory.address + offset);
  if (!by_cpu(where)) signal->copier = &copier;
  if (Status s = signal_reset(*signal, initial); is_error(s)) return s;
  *out = signal.release();
  return TW_OK;
}

Status signal_fetch(const tw_signal& signal, uint64_t* value) {
  return signal.copier->copy(reinterpret_cast<uint64_t>(value), reinterpret_cast<uint64_t>(signal.word), sizeof *value);
}

Status signal_store(const tw_signal& signal, uint64_t value) {
  return signal.copier->copy(reinterpret_cast<uint64_t>(signal.word), reinterpret_cast<uint64_t>(&value), sizeof value);
}

Status SignalPool::create(uint32_t kind, uint64_t initial, tw_signal** out) {
  if (Status s = check_kind(kind); is_error(s)) return s;
  auto signal = std::make_unique<tw_signal>();
  const std::lock_guard lock(mutex_);
  if (front_ == free_.size()) {
    if (Status s = grow(); is_error(s)) return s;
  }
  const Slot slot = free_[front_++];
  if (front_ > 1024 && front_ * 2 > free_.size()) {
    free_.erase(free_.begin(), free_.begin() + static_cast<ptrdiff_t>(front_));
    front_ = 0;
  }
  signal->pool = this;
  signal->kind = kind;
  signal->memory = slot.memory;
  signal->offset = slot.offset;
  signal->word = reinterpret_cast<uint64_t*>(slot.memory->address + slot.offset);
  (void)signal_reset(*signal, initial);  // host memory
  *out = signal.release();
  return TW_OK;
}

Status SignalPool::destroy(tw_signal* signal) {
  const std::unique_ptr<tw_signal> owned(signal);
  for (uint64_t rkey : signal->rkeys) registry_.revoke(rkey);
  if (signal->awaited != nullptr) signal->awaited->remove(*signal);
  const std::lock_guard lock(mutex_);
  if (!signal->users) free_.push_back({signal->memory, signal->offset});
  return TW_OK;
}

Status SignalPool::export_signal(tw_signal* signal, KeyBody* out) {
  if (Status s = registry_.export_range(signal->memory, signal->offset, sizeof(uint64_t), kAccessSignal, out); is_error(s)) {
    return s;
  }
  out->device = signal->kind;
  const std::lock_guard lock(mutex_);
  signal->rkeys.push_back(out->rkey);
  return TW_OK;
}

}  // namespace thalweg::impl
