// SPDX-License-Identifier: Apache-2.0
// Host to host by the CPU; what a device's queue reaches by its copy engine; pageable memory in pieces through a pinned
// bounce buffer.
#include "memory/local_copy.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "devices/registry.hpp"
#include "memory/place.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kPiece = size_t{4} << 20;

struct Operand {
  uint64_t address;
  Device* device = nullptr;  // null: pageable
  bool ordinary = true;      // host memory, pageable or pinned: the CPU copies it
};

Status look(uint64_t address, size_t length, Operand* out) {
  BufferInfo info;
  const Status found = find_device(address, length, &info);
  *out = {address};
  if (found == TW_ERR_NO_MATCH) return TW_OK;
  if (is_error(found)) return found;
  out->device = info.device;
  out->ordinary = by_cpu(info.kind);
  return TW_OK;
}

/// Does a queue of `device` take it?
bool reaches(const Device& device, const Operand& side) {
  return side.device != nullptr && std::string_view(device.name()) == side.device->name();
}

void* host(uint64_t address) { return reinterpret_cast<void*>(address); }

Status run(Queue& queue, uint64_t to, uint64_t from, size_t length) {
  const Copy copy{to, from, length};
  if (Status s = queue.copy(&copy, 1); is_error(s)) return s;
  return queue.synchronize();
}

}  // namespace

struct LocalCopier::CopyQueue {
  DeviceAllocation bounce;  // made when pageable memory comes first
  std::unique_ptr<Queue> queue;
  Device* device = nullptr;

  Status copy(const Operand& to, const Operand& from, size_t length);
};

Status LocalCopier::CopyQueue::copy(const Operand& to, const Operand& from, size_t length) {
  const bool direct_to = reaches(*device, to), direct_from = reaches(*device, from);
  if (direct_to && direct_from) return run(*queue, to.address, from.address, length);
  if (bounce.device() == nullptr) {
    if (Status s = DeviceAllocation::allocate(*device, MemoryKind::pinned, kPiece, &bounce); is_error(s)) return s;
  }
  for (size_t done = 0; done < length;) {
    const size_t piece = std::min(kPiece, length - done);
    if (!direct_from) std::memcpy(host(bounce.address()), host(from.address + done), piece);
    const Status status = direct_to ? run(*queue, to.address + done, bounce.address(), piece)
                                    : run(*queue, bounce.address(), from.address + done, piece);
    if (is_error(status)) return status;
    if (!direct_to) std::memcpy(host(to.address + done), host(bounce.address()), piece);
    done += piece;
  }
  return TW_OK;
}

LocalCopier::LocalCopier() = default;
LocalCopier::~LocalCopier() = default;

Status LocalCopier::take(Device& device, std::unique_ptr<CopyQueue>* out) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(idle_.begin(), idle_.end(), [&](const auto& queue) { return queue->device == &device; });
    if (found != idle_.end()) {
      *out = std::move(*found);
      idle_.erase(found);
      return TW_OK;
    }
  }
  *out = std::make_unique<CopyQueue>();
  (*out)->device = &device;
  return device.make_queue(&(*out)->queue, QueueUse::moves);
}

Status LocalCopier::copy(uint64_t to_address, uint64_t from_address, size_t length) {
  if (length == 0) return TW_OK;
  if (to_address == 0 || from_address == 0) return fail(TW_ERR_INVALID, "a copy needs two addresses");
  Operand to, from;
  if (Status s = look(to_address, length, &to); is_error(s)) return s;
  if (Status s = look(from_address, length, &from); is_error(s)) return s;
  if (to.ordinary && from.ordinary) {
    std::memmove(host(to.address), host(from.address), length);
    return TW_OK;
  }
  Device& device = to.ordinary ? *from.device : *to.device;
  if (!from.ordinary && !reaches(device, from))
    return fail(TW_ERR_UNSUPPORTED, "devices %s and %s copy from each other by way of host memory only; copy there first",
                device.name(), from.device->name());
  std::unique_ptr<CopyQueue> queue;
  if (Status s = take(device, &queue); is_error(s)) return s;
  const Status status = queue->copy(to, from, length);
  if (is_error(status)) return status;  // its queue may be broken
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(queue));
  return TW_OK;
}

}  // namespace thalweg::impl
