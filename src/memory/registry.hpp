// SPDX-License-Identifier: Apache-2.0
// Registered regions and exported keys of this process. One per context; thread-safe; looked up by rkey for every frame
// that addresses memory here, by address to learn whether a buffer is library-allocated, and by buffer id for device memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/platform/fork.hpp"
#include "devices/device.hpp"
#include "devices/host_ranges.hpp"
#include "memory/device_allocation.hpp"
#include "memory/device_users.hpp"
#include "memory/pinning.hpp"
#include "memory/remote.hpp"
#include "memory/segment.hpp"

namespace thalweg::impl {
class Registry;

/// Access of a signal's word: only signal frames may touch it. Beside TW_MEMORY_*, not public.
inline constexpr uint32_t kAccessSignal = 8;

/// What is not host memory is described at registration; a default one means host memory.
struct MemoryOrigin {
  MemoryKind kind = MemoryKind::host;
  uint32_t device = 0;  // ordinal at the owner
  uint8_t device_uuid[16] = {};
  BufferInfo buffer;  // from find_device(); without a device the memory gets no name that peers could import
};
/// Of memory that find_device() knows. Pinned memory is host memory to peers.
MemoryOrigin origin_of(const BufferInfo& info);
}  // namespace thalweg::impl

/// C handle of a registered or library-allocated region. Immutable but for rkeys and the last three, which its registry
/// guards.
struct tw_memory {
  thalweg::impl::BornHere born;
  thalweg::impl::Registry* registry = nullptr;
  std::byte* address = nullptr;
  size_t length = 0;
  uint32_t access = TW_MEMORY_ALL;
  thalweg::impl::MemoryOrigin origin;
  uint64_t segment_id = 0;      // what peers import: the segment, or the name of device memory; 0: they cannot
  uint64_t segment_offset = 0;  // of address in it
  thalweg::impl::Segment segment;
  thalweg::impl::HostSegment host_segment;  // the same; goes before it
  // Allocated, then shared with those of this process who hold it (hold_in_process); or the segment pinned: goes before the segment.
  std::shared_ptr<thalweg::impl::DeviceAllocation> device;
  std::shared_ptr<thalweg::impl::PinningAhead> pinning;  // for devices that others of this process work with; the same
  std::vector<uint64_t> rkeys;
  std::shared_ptr<thalweg::impl::DeviceUsers> users;  // of device memory: devices that work on it for others of this process
  bool exported = false;                              // peers may have seen a key of it alive
  bool holds_name = false;                            // counted in the name of its device memory
  bool awaits_peers = false;                          // the name is gone; peers may not have dropped their imports yet
};

namespace thalweg::impl {

/// Checked access for a frame from a peer: the range [offset, offset+length) of rkey with `access`.
struct Target {
  std::byte* address = nullptr;
  MemoryKind kind = MemoryKind::host;
  Device* device = nullptr;
};

/// Called when a segment is released, so that peers drop their imports of it.
class SegmentListener {
 public:
  virtual ~SegmentListener() = default;
  /// Any thread. Its keys are already revoked; the memory is unmapped here after all listeners have returned (of a name of
  /// device memory without a holder the memory stays). Must not block and must not add or remove listeners.
  virtual void on_segment_released(uint64_t segment) = 0;
  /// Any thread. Keys were revoked: returns when no peer is in the middle of a copy that may have seen one of them alive.
  /// False: one of them does not come to an end; or, unless it `waits`, has not yet.
  virtual bool on_keys_revoked(bool waits) = 0;
  /// Any thread, after on_segment_released of device memory: returns when no peer has it imported any more. False: one of
  /// them does not let go; or, unless it `waits`, has not yet.
  virtual bool await_dropped(uint64_t segment, bool waits) = 0;
};

class Registry {
 public:
  explicit Registry(uint64_t incarnation);
  ~Registry();
  Status register_memory(void* address, size_t length, uint32_t access, tw_memory** out, const MemoryOrigin& origin = {});
  Status allocate(size_t length, uint32_t access, bool huge, tw_memory** out);
  /// Revokes its keys first; of device memory, waits until peers have dropped their imports, and until devices that work on
  /// it for workers of this process have ended. TW_ERR_BUSY: a stopped peer is in the middle of a copy, or does not
  /// drop one, or a device does not come to an end; the memory stays registered.
  Status release(tw_memory* memory) { return release(memory, true); }
  /// The same without a wait, as under a lock. TW_ERR_BUSY: not yet; its keys are revoked, and it is released by another call.
  Status try_release(tw_memory* memory) { return release(memory, false); }
  /// The same without a wait: what cannot go yet is left behind, which nobody else releases. It goes by a later release_left(), or
  /// with the registry.
  void release_or_leave(tw_memory* memory);
  /// Tries all of that again, without a wait. Costs a load when there is none.
  void release_left();
  size_t left() const;                                   // so many were left behind
  Status release_address(void* address);                 // tw_free
  void set_patience(uint64_t ns) { patience_ns_ = ns; }  // with devices of this process: the silence limit
  Status export_range(tw_memory* memory, size_t offset, size_t length, uint32_t access, KeyBody* out);
  /// One key; TW_ERR_STALE when it is not alive. Afterwards no frame that named it is at the memory.
  Status revoke(uint64_t rkey);
  uint64_t incarnation() const { return incarnation_; }

  /// Held while resolved memory is touched: release() waits until no Reading that could see the memory is left. Costs one
  /// atomic each way. Never nested on one thread, never held over a callback or a wait: who waits for a device enters the
  /// memory's users() and ends it (at_devices).
  class Reading {
   public:
    explicit Reading(const Registry& registry);
    ~Reading() {
      if (!ended_) end();
    }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    void end();  // once

   private:
    const Registry& registry_;
    bool ended_ = false;
  };

  /// TW_ERR_STALE (unknown or revoked), TW_ERR_OUT_OF_BOUNDS, TW_ERR_PERMISSION, or TW_OK. Hot: one hash look-up; stores no
  /// error text. The address is good while `reading` lives.
  Status resolve(const Reading& reading, uint64_t rkey, uint64_t offset, uint64_t length, uint32_t access, Target* out) const;
  /// The same over all registries of this process: an rkey is random, so no two have the same. For what is set up rarely:
  /// takes a lock of the process. Not under a Reading. Nothing holds the memory afterwards.
  static Status resolve_in_process(uint64_t rkey, uint64_t offset, uint64_t length, uint32_t access, Target* out);
  /// All of the host memory that the key is of is pinned for devices of this sort, until its release. TW_IN_PROGRESS
  /// until it is. TW_ERR_STALE: the key is not alive in this process. Not under a Reading.
  static Status pin_in_process(uint64_t rkey, Device& device);
  /// The same of the library-allocated memory of this context that holds `address`.
  Status pin_allocated(uint64_t address, Device& device);
  /// Device memory that the library allocated for any context of this process: while *out lives it stays allocated, whatever
  /// becomes of its registration and context. Between processes an import stands for this. *out null: memory of the host, or its
  /// user's own. TW_ERR_STALE: the key is not alive in this process. Not under a Reading.
  static Status hold_in_process(uint64_t rkey, std::shared_ptr<void>* out);
  /// What work of devices on this memory enters, so that release() waits for it. Null: host memory, or a key that is not
  /// alive.
  std::shared_ptr<DeviceUsers> users(const Reading& reading, uint64_t rkey) const;
  /// The segment that holds [address, address+length), or false. Hot: an empty registry answers at once.
  bool find_segment(const void* address, size_t length, uint64_t* segment, uint64_t* offset) const;
  /// A new descriptor for a live segment, to be passed to a peer (service thread). TW_ERR_STALE when it is gone.
  Status segment_fd(uint64_t segment, int* fd, size_t* length) const;

  /// Names the device memory in [address, address + length), which `info` describes at `address`, so that peers can import
  /// it. Found, or made, by buffer id and never by address alone: memory that was freed and allocated again gets a new name,
  /// and peers must drop the old one. Bounded: the least recently used name goes first, those of a tw_memory stay. *segment
  /// is unguessable; *offset: of address in what an importer maps. TW_ERR_UNSUPPORTED with the reason when the memory cannot
  /// be exported: staging is the way. Hot when known; not under a Reading.
  Status name_device_memory(const BufferInfo& info, uint64_t address, uint64_t length, uint64_t* segment, uint64_t* offset);
  /// Handles of a named range, in order, at most DeviceNames::kMaxPieces (service thread: may take a while). TW_ERR_STALE:
  /// the name, or the memory, is gone.
  Status export_device_segment(uint64_t segment, std::vector<ExportedMemory>* out);

  void add_listener(SegmentListener* listener);
  void remove_listener(SegmentListener* listener);  // no call to it afterwards

 private:
  struct State;
  class Writing;
  static std::shared_ptr<PinningAhead> pinning_of(tw_memory& memory, Device& device);
  Status release(tw_memory* memory, bool waits);
  Status revoke_all(tw_memory* memory, bool waits);
  Status give_up_name(tw_memory* memory, bool waits);
  Status make_name(const BufferInfo& info, uint64_t address, uint64_t length, tw_memory* holder, uint64_t* segment,
                   uint64_t* offset);
  void forget_name(uint64_t segment);
  void announce_release(uint64_t segment);
  std::unique_ptr<State> state_;
  uint64_t incarnation_, patience_ns_ = 5'000'000'000;
};

Status parse_key(const void* bytes, size_t length, KeyBody* out);  // fuzzed
/// *length: capacity in, length out. TW_ERR_TRUNCATED when the capacity is too small.
Status write_key(const KeyBody& key, void* bytes, size_t* length);

}  // namespace thalweg::impl
