// SPDX-License-Identifier: Apache-2.0
// A peer's memory as an executor's steps address it.
#pragma once
#include "core/endpoint.hpp"
#include "plans/executor.hpp"

namespace thalweg::impl {

/// A region that is reached: it stays mapped while this lives, so its owner's release waits. Give it back on the thread that
/// may progress the endpoint's worker, or under its lock.
class Reached {
 public:
  Reached() = default;
  Reached(Reached&& other) noexcept { *this = std::move(other); }
  Reached& operator=(Reached&& other) noexcept;
  ~Reached() { reset(); }
  void reset();
  uint64_t address() const { return address_; }  // of the region's first byte
  bool same_memory(const Reached& other) const { return mapping_ == other.mapping_; }
  /// The owner wants it back, or is lost.
  bool revoked() const { return mapping_ != nullptr && mapping_->revoked.load(std::memory_order_relaxed); }
  /// How; also where it is not reached.
  Reaching how;

 private:
  friend Status reach(tw_worker& worker, RemoteRegion& region, Executor& executor, bool changes, Reached* out);
  tw_worker* worker_ = nullptr;
  RemoteRegion* region_ = nullptr;  // counted
  Mapping* mapping_ = nullptr;      // counted as used
  uint64_t address_ = 0;
};

/// The address of a region of this process, whichever context registered it: by that context's own record, because the bytes of
/// a key may have come from anybody. Under the engine's lock.
Status find_in_process(RemoteRegion& region, uint64_t* address);

/// The peer's host memory, pinned here for kernels of the device, or in its owner's name within one process: whole, so that users of
/// parts agree. *mapping, if not null afterwards, must be counted for as long as it is used. TW_OK, TW_IN_PROGRESS (as below), or why
/// not. Under the engine's lock.
Status reach_pinned(RemoteRegion& region, Device& device, uint64_t* address, Mapping** mapping);

/// What src/routes is asked with of a region, for `device`, null: this CPU. *address: of memory of this process. An error: it is gone.
/// Under the engine's lock.
Status describe(RemoteRegion& region, const Device* device, uint64_t* address, Prepared* facts);
/// A region of another process by a route of src/routes, for `device`, null: this CPU. As reach_pinned; TW_ERR_UNREACHABLE and
/// TW_ERR_UNSUPPORTED leave the other routes. Under the engine's lock.
Status take_prepared(PreparedRoute route, RemoteRegion& region, Device* device, uint64_t* address, Mapping** mapping);

/// TW_OK; TW_IN_PROGRESS: call again after progress of the worker; TW_ERR_UNREACHABLE: why the executor's loads and stores
/// do not get there; or another error. changes: also atomic operations, or signals that add.
Status reach(tw_worker& worker, RemoteRegion& region, Executor& executor, bool changes, Reached* out);

}  // namespace thalweg::impl
