// SPDX-License-Identifier: Apache-2.0
#include "plans/reach.hpp"

#include <utility>

#include "core/worker.hpp"
#include "protocols/one_sided.hpp"
#include "protocols/reach_device.hpp"
#include "routes/peer_places.hpp"

namespace thalweg::impl {
Status find_in_process(RemoteRegion& region, uint64_t* address) {
  const KeyBody& key = region.key;
  if (region.revoked) return fail(TW_ERR_STALE, "this memory was released; import a new key");
  Target target;
  const Status status = Registry::resolve_in_process(key.rkey, 0, key.length, key.access, &target);
  *address = reinterpret_cast<uint64_t>(target.address);
  const bool words = (key.access & (TW_MEMORY_ATOMIC | kAccessSignal)) != 0;
  switch (status) {
    case TW_OK:  // what touches a word has looked at the key's address for its alignment
      if (!words || (*address ^ key.base) % sizeof(uint64_t) == 0) return TW_OK;
      return fail(TW_ERR_MISALIGNED, "the key's address is not that of its memory: import what the export wrote unchanged");
    case TW_ERR_STALE:
      region.revoked = true;
      return fail(status, "this memory was released; import a new key");
    case TW_ERR_OUT_OF_BOUNDS:
      return fail(status, "the key names a range outside of the memory that it was exported for");
    default:
      return fail(status, "the key claims more access than its memory was exported with");
  }
}

Status reach_pinned(RemoteRegion& region, Device& device, uint64_t* address, Mapping** mapping) {
  if (in_process(region)) {
    if (Status s = find_in_process(region, address); is_error(s)) return s;
    return Registry::pin_in_process(region.key.rkey, device);
  }
  if (Status s = map_region(region); s != TW_OK) return s;
  *address = reinterpret_cast<uint64_t>(region.mapped);
  *mapping = region.mapping;
  return pin_mapping_ahead(device, *region.mapping);
}

Status describe(RemoteRegion& region, const Device* device, uint64_t* address, Prepared* facts) {
  const Link* const link = region.peer != nullptr ? region.peer->link : nullptr;
  facts->place = peer_place(region.key, link != nullptr ? link->features : 0);
  facts->mine = in_process(region);
  if (facts->mine) {
    if (Status s = find_in_process(region, address); is_error(s)) return s;
    facts->place = local_place(*address, region.key.length);
    if (!facts->place.on_device()) facts->place.reach |= kPinnable;  // its owner has registered it
  }
  describe_runner(device, facts);
  return TW_OK;
}

namespace {

Status import_for(RemoteRegion& region, Device& device, uint64_t* address, Mapping** mapping) {
  const KeyBody& key = region.key;
  const Status status = import_range(*region.peer, key.segment, key.segment_offset, key.length, device, mapping);
  if (status == TW_OK) *address = (*mapping)->device_address + key.segment_offset;
  return status;
}

}  // namespace

Status take_prepared(PreparedRoute route, RemoteRegion& region, Device* device, uint64_t* address, Mapping** mapping) {
  switch (route) {
    case PreparedRoute::mapped: {
      const Status status = map_region(region);
      if (status != TW_OK) return status;
      *address = reinterpret_cast<uint64_t>(region.mapped);
      *mapping = region.mapping;
      return TW_OK;
    }
    case PreparedRoute::pinned:
      return reach_pinned(region, *device, address, mapping);
    case PreparedRoute::imported:
      return import_for(region, *device, address, mapping);
    default:
      return TW_ERR_UNREACHABLE;
  }
}

Status reach(tw_worker& worker, RemoteRegion& region, Executor& executor, bool changes, Reached* out) {
  const Engine::Guard guard(*worker.engine);
  if (region.peer == nullptr) return fail(TW_ERR_STALE, "it was imported through an endpoint that is closed");
  const Peer& peer = *region.peer;
  if (is_error(peer.state)) return fail(peer.state, "%s", peer.why.c_str());
  if (peer.link == nullptr) return TW_IN_PROGRESS;
  if (region.key.incarnation != peer.identity.incarnation) return fail(TW_ERR_STALE, "its key is of an earlier process");
  Reached made;
  Reaching& how = made.how;
  how.facts.changes = changes;
  how.facts.carriable = true;
  if (Status s = describe(region, executor.device(), &made.address_, &how.facts); is_error(s)) return s;
  how.asked = true;
  Status status = how.try_routes(TW_ERR_UNREACHABLE, [&](PreparedRoute route) {
    made.mapping_ = nullptr;
    return route == PreparedRoute::own ? executor.grant(made.address_, region.key.length)
                                       : take_prepared(route, region, executor.device(), &made.address_, &made.mapping_);
  });
  if (status == TW_ERR_UNSUPPORTED) status = TW_ERR_UNREACHABLE;
  if (status != TW_OK) {
    made.mapping_ = nullptr;
    out->how = std::move(how);
    if (status != TW_ERR_UNREACHABLE) return status;
    return fail(status, "%s does not reach it: %s", executor.name().c_str(), out->how.why_not().c_str());
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
  std::swap(how, other.how);
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
