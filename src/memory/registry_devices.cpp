// SPDX-License-Identifier: Apache-2.0
// The registry's part in sharing device memory: names, their exports, and their end.
#include <algorithm>
#include <cstring>

#include "memory/place.hpp"
#include "memory/registry_state.hpp"

namespace thalweg::impl {

MemoryOrigin origin_of(const BufferInfo& info) {
  MemoryOrigin origin;
  if (info.device == nullptr || by_cpu(info.kind)) return origin;
  origin.kind = info.kind;
  origin.device = info.device->ordinal();
  std::memcpy(origin.device_uuid, info.device->uuid().data(), sizeof origin.device_uuid);
  origin.buffer = info;
  return origin;
}

Status Registry::name_device_memory(const BufferInfo& info, uint64_t address, uint64_t length, uint64_t* segment,
                                    uint64_t* offset) {
  {
    const Reading reading(*this);
    if (const DeviceName* name = state_->names.find(info, address, length); name != nullptr) [[likely]] {
      *segment = name->segment;
      *offset = address - name->base();
      return TW_OK;
    }
  }
  return make_name(info, address, length, nullptr, segment, offset);
}

[[gnu::cold]] Status Registry::make_name(const BufferInfo& info, uint64_t address, uint64_t length, tw_memory* holder,
                                         uint64_t* segment, uint64_t* offset) {
  auto made = std::make_unique<DeviceName>();
  if (Status s = DeviceNames::describe(info, address, length, made.get()); is_error(s)) return s;
  if (Status s = random_identifier(&made->segment); is_error(s)) return s;
  std::vector<uint64_t> gone;
  {
    const Writing writing(*state_);
    DeviceNames& names = state_->names;
    const DeviceName* found = names.find(info, address, length);  // another thread's, or one that gets a holder
    if (found == nullptr) {
      while (names.find(made->segment) != nullptr || state_->segments.contains(made->segment)) ++made->segment;
      found = made.get();
      gone = names.make_room(*made);
      names.add(std::move(made));
    }
    *segment = found->segment;
    *offset = address - found->base();
    if (holder != nullptr) {
      ++names.find(found->segment)->holders;
      holder->holds_name = true;
    }
  }
  for (uint64_t old : gone) announce_release(old);
  return TW_OK;
}

Status Registry::export_device_segment(uint64_t segment, std::vector<ExportedMemory>* out) {
  DeviceName name;
  {
    const Reading reading(*this);
    const DeviceName* found = state_->names.find(segment);
    if (found == nullptr) return fail(TW_ERR_STALE, "the peer asks for device memory that is not shared (any more)");
    name.device = found->device;
    name.pieces = found->pieces;
  }
  bool same = DeviceNames::alive(name);
  if (same) {
    const Status s = name.device->export_memory(name.base(), name.end() - name.base(), incarnation_, out);
    if (is_error(s)) return s;
    // It may have been freed, and its address used again, in between: what was exported counts.
    same = std::equal(out->begin(), out->end(), name.pieces.begin(), name.pieces.end(),
                      [](const auto& one, const auto& piece) { return one.handle.buffer_id == piece.buffer_id; });
  }
  if (same) return TW_OK;
  out->clear();
  forget_name(segment);
  return fail(TW_ERR_STALE, "the peer asks for device memory that was freed");
}

void Registry::forget_name(uint64_t segment) {
  {
    const Writing writing(*state_);
    const DeviceName* name = state_->names.find(segment);
    if (name == nullptr) return;
    state_->names.remove(*name);
  }
  announce_release(segment);
}

/// Of device memory: its last holder takes the name away, tells the peers, and waits for them, again when they did not let go in time.
Status Registry::give_up_name(tw_memory* memory, bool waits) {
  bool taken = false;
  {
    const Writing writing(*state_);
    if (memory->holds_name) {
      memory->holds_name = false;
      DeviceName* name = state_->names.find(memory->segment_id);  // null: the memory was freed before its registration
      memory->awaits_peers = name != nullptr && --name->holders == 0;
      taken = memory->awaits_peers;
      if (taken) state_->names.remove(*name);
    }
    if (!memory->awaits_peers) return TW_OK;
  }
  if (taken) announce_release(memory->segment_id);
  const std::shared_lock lock(state_->listening);
  for (SegmentListener* listener : state_->listeners) {
    if (!listener->await_dropped(memory->segment_id, waits)) {
      return fail(TW_ERR_BUSY,
                  "a peer still uses this device memory, or is stopped; release it again when its operations have ended");
    }
  }
  memory->awaits_peers = false;
  return TW_OK;
}

}  // namespace thalweg::impl
