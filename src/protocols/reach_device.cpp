// SPDX-License-Identifier: Apache-2.0
// Reaching a peer's device memory.
#include "protocols/reach_device.hpp"

#include <string>
#include <utility>

#include "base/log.hpp"
#include "devices/registry.hpp"
#include "memory/pinning.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/one_sided.hpp"
#include "routes/peer_places.hpp"

namespace thalweg::impl {

Device* device_of(const RemoteRegion& region) { return find_device(uuid_of(region.key.device_uuid)); }

Status import_range(Peer& peer, uint64_t segment, uint64_t offset, uint64_t length, Device& device, Mapping** mapping) {
  const Status status = peer.link->port->import_device(*peer.link, segment, device, mapping);
  if (status != TW_OK) return status;
  const bool inside = offset <= (*mapping)->length && length <= (*mapping)->length - offset;
  return inside ? TW_OK : fail(TW_ERR_OUT_OF_BOUNDS, "the peer names a range outside of its memory");
}

Status reach_region(Peer& peer, const RemoteRegion& region, Device& device, DeviceReach* out) {
  const KeyBody& key = region.key;
  *out = {};
  if (in_process(region)) {
    Engine& engine = *peer.engine;
    {
      Target target;
      const Registry::Reading reading(engine.registry());
      const Status status = engine.registry().resolve(reading, key.rkey, 0, key.length, 0, &target);
      if (is_error(status)) return status;
      out->address = reinterpret_cast<uint64_t>(target.address);
      if (auto users = engine.registry().users(reading, key.rkey); users != nullptr) out->users.push_back(std::move(users));
    }
    // Not while it is read: that may load kernels, and registrations would wait for it. A release waits for `users`.
    return engine.devices().admit(device, out->address, key.length, &out->kernels);
  }
  if (!peer_place(key, peer.link->features).reached(kByPort)) {
    return fail(TW_ERR_UNSUPPORTED, "the peer's memory is not shared: it is pool or managed memory, or on another machine");
  }
  if (!peer.engine->options().imports)
    return fail(TW_ERR_UNREACHABLE, "a plan's queue may wait for this: nothing is imported then");
  const Status status = import_range(peer, key.segment, key.segment_offset, key.length, device, &out->mapping);
  if (status == TW_OK) out->address = out->mapping->device_address + key.segment_offset;
  return status;
}

namespace {

/// All of the mapping, for as long as it is mapped here.
void pin(Device& device, Mapping& mapping) {
  auto pinning = std::make_shared<Pinning>();
  const Status status = Pinning::make(device, reinterpret_cast<uint64_t>(mapping.address), mapping.length, pinning.get());
  if (status == TW_OK) {
    mapping.pinned = std::move(pinning);
  } else {
    mapping.unpinnable = true;
    warn_once("device.unpinned",
              std::string("copies between devices and a peer's host memory go through bounce buffers: ") + last_error());
  }
}

}  // namespace

bool pin_mapping(Device& device, Mapping& mapping) {
  if (mapping.pinned == nullptr && !mapping.unpinnable) pin(device, mapping);
  return mapping.pinned != nullptr;
}

bool pin_once_worth(Device& device, Mapping& mapping, uint64_t length) {
  const bool worth = worth_pinning(mapping.pinned != nullptr, mapping.staged, mapping.length);
  if (worth && pin_mapping(device, mapping)) return true;
  mapping.staged += length;
  return false;
}

Status pin_mapping_ahead(Device& device, Mapping& mapping) {
  if (mapping.pinned != nullptr) return TW_OK;
  if (mapping.unpinnable) return fail(TW_ERR_UNREACHABLE, "it is host memory that could not be pinned here");
  if (mapping.pinning == nullptr)
    mapping.pinning = PinningAhead::start(device, reinterpret_cast<uint64_t>(mapping.address), mapping.length);
  const Status status = mapping.pinning->status();
  if (status == TW_IN_PROGRESS) return status;
  const auto ended = std::exchange(mapping.pinning, nullptr);
  if (status == TW_OK) {
    mapping.pinned = ended;
    return TW_OK;
  }
  mapping.unpinnable = true;
  const std::string why = last_error();
  return fail(TW_ERR_UNREACHABLE, "it is host memory that could not be pinned here: %s", why.c_str());
}

const char* why_not_reached_by_devices(const RemoteRegion& region) {
  if (of_device(region)) return "the target is device memory";
  if (region.mapped == nullptr || region.mapping == nullptr) {
    return "the target is host memory that is not mapped here: allocate it with tw_memory_allocate";
  }
  const Mapping& mapping = *region.mapping;
  if (mapping.unpinnable) return "the target is host memory that could not be pinned here";
  return worth_pinning(mapping.pinned != nullptr, mapping.staged, mapping.length)
             ? nullptr
             : "the target is host memory that is not pinned here yet: it will be when as many bytes as it has were relayed";
}

Status reach_host_region(Peer& peer, RemoteRegion& region, Device& device, uint64_t length, DeviceReach* out) {
  *out = {};
  if (of_device(region) || !peer.engine->options().imports) return TW_ERR_UNSUPPORTED;
  if (const Status status = settle_import(&region); status != TW_OK) return status;
  if (region.mapped == nullptr || region.mapping == nullptr) return TW_ERR_UNSUPPORTED;
  Mapping& mapping = *region.mapping;
  if (!pin_once_worth(device, mapping, length)) return TW_ERR_UNSUPPORTED;
  out->address = reinterpret_cast<uint64_t>(region.mapped);
  out->mapping = &mapping;
  return TW_OK;
}

}  // namespace thalweg::impl
