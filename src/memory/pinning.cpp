// SPDX-License-Identifier: Apache-2.0
// The counted ranges of this process.
#include "memory/pinning.hpp"

#include <pthread.h>

#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/platform/fork.hpp"
#include "base/platform/signals.hpp"
#include "devices/deferred_release.hpp"
#include "devices/registry.hpp"
#include "memory/device_allocation.hpp"

namespace thalweg::impl {
namespace {

struct Range {
  uint64_t length = 0;
  unsigned users = 0;
  DeviceAllocation pin;
};
struct Ranges {
  std::mutex mutex;
  std::map<uint64_t, Range> by_start;
};

/// The range that holds all of [address, address + length).
auto around(std::map<uint64_t, Range>& ranges, uint64_t address, size_t length) {
  auto at = ranges.upper_bound(address);
  if (at == ranges.begin()) return ranges.end();
  --at;
  const uint64_t within = address - at->first;
  return within <= at->second.length && length <= at->second.length - within ? at : ranges.end();
}

}  // namespace

Pinning::Pinning(Pinning&& other) noexcept : range_(std::exchange(other.range_, 0)) {}

Pinning& Pinning::operator=(Pinning&& other) noexcept {
  if (this != &other) {
    reset();
    range_ = std::exchange(other.range_, 0);
  }
  return *this;
}

Status Pinning::make(Device& device, uint64_t address, size_t length, Pinning* out) {
  Ranges& all = state_of_process<Ranges>();
  *out = Pinning();
  const std::lock_guard lock(all.mutex);
  auto found = around(all.by_start, address, length);
  if (found == all.by_start.end()) {
    BufferInfo info;
    if (find_device(address, length, &info) == TW_OK) {
      return info.kind == MemoryKind::pinned ? Status{TW_OK} : fail(TW_ERR_INVALID, "only host memory can be pinned");
    }
    DeviceAllocation pin;
    if (Status s = DeviceAllocation::pin(device, reinterpret_cast<void*>(address), length, &pin); is_error(s)) return s;
    found = all.by_start.emplace(address, Range{length, 0, std::move(pin)}).first;
  }
  ++found->second.users;
  out->range_ = found->first;
  return TW_OK;
}

void Pinning::reset() {
  const uint64_t range = std::exchange(range_, 0);
  if (range == 0) return;
  Ranges& all = state_of_process<Ranges>();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_start.find(range);
  if (found != all.by_start.end() && --found->second.users == 0) all.by_start.erase(found);  // absent: a forked child
}

void PinningAhead::end(Status status, std::string why) {
  status_ = status;
  why_ = std::move(why);
  done_.store(true, std::memory_order_release);
  done_.notify_all();
}

std::shared_ptr<PinningAhead> PinningAhead::start(Device& device, uint64_t address, size_t length) {
  auto made = std::make_shared<PinningAhead>();
  PinningAhead* const self = made.get();  // outlives the thread
  try {
    const SignalsBlocked blocked;
    made->thread_ = std::thread([self, &device, address, length] {
      pthread_setname_np(pthread_self(), "thalweg-pinning");
      const Status status = Pinning::make(device, address, length, &self->share_);
      self->end(status, is_error(status) ? last_error() : "");
    });
  } catch (const std::system_error& error) {
    made->end(TW_ERR_NO_MEMORY, std::string("no thread to pin memory with: ") + error.what());
  }
  return made;
}

PinningAhead::~PinningAhead() {
  if (!thread_.joinable()) return;
  born_.forked() ? thread_.detach() : thread_.join();
}

Status PinningAhead::status() const {
  if (!done_.load(std::memory_order_acquire)) return TW_IN_PROGRESS;
  return is_error(status_) ? fail(status_, "%s", why_.c_str()) : status_;
}

void release_pinned(Segment&& memory, std::shared_ptr<void> share, std::shared_ptr<PinningAhead> ahead) {
  struct Held {
    Segment memory;  // the last to end
    std::shared_ptr<void> share;
    std::shared_ptr<PinningAhead> ahead;
  };
  const size_t bytes = memory.size();
  release_later(std::make_shared<Held>(Held{std::move(memory), std::move(share), std::move(ahead)}), bytes);
}

}  // namespace thalweg::impl
