// SPDX-License-Identifier: Apache-2.0
#include "collectives/buffers.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "core/c_checks.hpp"
#include "memory/placement.hpp"

namespace thalweg::impl {
namespace {

constexpr std::align_val_t kAlign{64};
constexpr uint64_t kSmallest = 4096;

Status allocate_device(Device& device, uint64_t length, DeviceAllocation* out, BufferInfo* info) {
  MemoryPlace place;
  if (Status s = parse_place((std::string(device.name()) + ":" + std::to_string(device.ordinal())).c_str(), &place);
      is_error(s))
    return s;
  if (Status s = DeviceAllocation::allocate(device, place.kind, length, out); is_error(s)) return s;
  return find_device(out->address(), length, info);
}

}  // namespace

Status describe_buffer(const void* address, uint64_t length, Buffer* out) {
  *out = Buffer{static_cast<std::byte*>(const_cast<void*>(address)), length, false, {}};
  if (length == 0) return TW_OK;
  if (!on_device(address, &out->info)) return length < kAsked ? Status{TW_OK} : check_host_memory(address, length);
  out->on_device = true;
  const Status found = find_device(reinterpret_cast<uint64_t>(address), length, &out->info);
  return found == TW_ERR_NO_MATCH ? fail(TW_ERR_OUT_OF_BOUNDS, "the buffer reaches outside its device's memory") : found;
}

void FreeAligned::operator()(std::byte* memory) const { ::operator delete(memory, kAlign); }

AlignedBytes allocate_aligned(uint64_t length) {
  return AlignedBytes(static_cast<std::byte*>(::operator new(length, kAlign, std::nothrow)));
}

ScratchBlock& ScratchBlock::operator=(ScratchBlock&& other) noexcept {
  give_back();
  buffer_ = std::exchange(other.buffer_, Buffer{});
  host_ = std::move(other.host_);
  device_ = std::move(other.device_);
  from_ = std::exchange(other.from_, nullptr);
  return *this;
}

void ScratchBlock::give_back() {
  Scratch* const from = std::exchange(from_, nullptr);
  if (from == nullptr || from->kept_ + buffer_.length > Scratch::kKept) return;
  from->kept_ += buffer_.length;
  from->idle_.push_back(std::move(*this));
}

Status Scratch::take(Device* device, uint64_t length, ScratchBlock* out) {
  if (length == 0) return TW_OK;
  auto best = idle_.end();
  for (auto one = idle_.begin(); one != idle_.end(); ++one) {
    const Buffer& buffer = one->buffer_;
    if ((buffer.on_device ? buffer.info.device : nullptr) != device || buffer.length < length) continue;
    if (best == idle_.end() || buffer.length < best->buffer_.length) best = one;
  }
  if (best != idle_.end()) {
    kept_ -= best->buffer_.length;
    *out = std::move(*best);
    idle_.erase(best);
    out->from_ = this;
    return TW_OK;
  }
  ScratchBlock made;
  made.buffer_.length = std::max(kSmallest, std::bit_ceil(length));
  if (device != nullptr) {
    if (Status s = allocate_device(*device, made.buffer_.length, &made.device_, &made.buffer_.info); is_error(s)) return s;
    made.buffer_.on_device = true;
    made.buffer_.address = reinterpret_cast<std::byte*>(made.device_.address());
  } else {
    made.host_ = allocate_aligned(made.buffer_.length);
    made.buffer_.address = made.host_.get();
    if (made.buffer_.address == nullptr)
      return fail(TW_ERR_NO_MEMORY, "no %llu bytes for a collective's intermediate results",
                  static_cast<unsigned long long>(length));
  }
  *out = std::move(made);
  out->from_ = this;
  return TW_OK;
}

}  // namespace thalweg::impl
