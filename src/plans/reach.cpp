// SPDX-License-Identifier: Apache-2.0
#include "plans/reach.hpp"

#include <utility>

#include "core/worker.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"

namespace thalweg::impl {
namespace {

Status by_host(RemoteRegion& region, uint64_t* address, Mapping** mapping) {
  if (of_device(region)) {
    return fail(TW_ERR_UNREACHABLE, "it is device memory, and the host runs this plan: run it on a queue of that device");
  }
  if (in_process(region)) return find_in_process(region, address);
  if (Status s = map_region(region); s != TW_OK) return s;
  *address = reinterpret_cast<uint64_t>(region.mapped);
  *mapping = region.mapping;
  return TW_OK;
}

Status by_device(RemoteRegion& region, Executor& executor, uint64_t* address, Mapping** mapping) {
  const KeyBody& key = region.key;
  if (!of_device(region)) {
    return fail(TW_ERR_UNREACHABLE, "it is host memory, and %s runs this plan: give device memory", executor.name().c_str());
  }
  Peer& peer = *region.peer;
  if (in_process(region)) {
    const Status status = find_in_process(region, address);
    return is_error(status) ? status : executor.admit(*address, key.length);
  }
  if (key.segment == 0 || (peer.link->features & kLinkMaps) == 0) {
    return fail(
        TW_ERR_UNREACHABLE,
        "it is not shared between the processes: pool or managed memory, or another machine. Allocate it with cudaMalloc "
        "or as exportable pieces");
  }
  const Status status = import_range(peer, key.segment, key.segment_offset, key.length, *executor.device(), mapping);
  if (status == TW_OK) *address = (*mapping)->device_address + key.segment_offset;
  return status;
}

}  // namespace

Status find_in_process(RemoteRegion& region, uint64_t* address) {
  const KeyBody& key = region.key;
  if (region.revoked) return fail(TW_ERR_STALE, "this memory was released; import a new key");
  Target target;
  const Status status = Registry::resolve_in_process(key.rkey, 0, key.length, key.access, &target);
  *address = reinterpret_cast<uint64_t>(target.address);
  switch (status) {
    case TW_OK:
      return TW_OK;
    case TW_ERR_STALE:
      region.revoked = true;
      return fail(status, "this memory was released; import a new key");
    case TW_ERR_OUT_OF_BOUNDS:
      return fail(status, "the key names a range outside of the memory that it was exported for");
    default:
      return fail(status, "the key claims more access than its memory was exported with");
  }
}

Status reach(tw_worker& worker, RemoteRegion& region, Executor& executor, Reached* out) {
  const Engine::Guard guard(*worker.engine);
  if (region.peer == nullptr) return fail(TW_ERR_STALE, "it was imported through an endpoint that is closed");
  const Peer& peer = *region.peer;
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  if (peer.link == nullptr) return TW_IN_PROGRESS;
  if (region.key.incarnation != peer.identity.incarnation) return fail(TW_ERR_STALE, "its key is of an earlier process");
  Reached made;
  const Status status = executor.device() == nullptr ? by_host(region, &made.address_, &made.mapping_)
                                                     : by_device(region, executor, &made.address_, &made.mapping_);
  if (status != TW_OK) {
    made.mapping_ = nullptr;
    return status;
  }
  if (made.mapping_ != nullptr) ++made.mapping_->users;
  made.worker_ = &worker;
  made.region_ = &region;
  region.references.fetch_add(1, std::memory_order_relaxed);
  *out = std::move(made);
  return TW_OK;
}

Reached& Reached::operator=(Reached&& other) noexcept {
  std::swap(worker_, other.worker_);
  std::swap(region_, other.region_);
  std::swap(mapping_, other.mapping_);
  std::swap(address_, other.address_);
  return *this;
}

void Reached::reset() {
  if (region_ == nullptr) return;
  {
    const Engine::Guard guard(*worker_->engine);
    if (mapping_ != nullptr) --mapping_->users;
    release_region(region_);
  }
  worker_ = nullptr;
  region_ = nullptr;
  mapping_ = nullptr;
  address_ = 0;
}

}  // namespace thalweg::impl
