// SPDX-License-Identifier: Apache-2.0
// The one contract to an accelerator; queues and kernels are in queue.hpp and kernel.hpp. Back ends: emulated/ (host memory
// and threads that behave like a GPU), cuda/.
//
// Addresses are 64-bit numbers. Where BufferInfo::host_access is false, only the device's queues and kernels may touch them,
// never a load, a store or memcpy.
//
// Threads and contexts: every function may be called from any thread, with any context current or none, and leaves the
// caller's current context as it was. A back end uses the device's primary context, except for a wrapped queue, which brings
// its own. Nothing is enqueued on a default stream. After fork() the child uses none of it (TW_ERR_FORKED).
//
// Blocking: only what is marked so waits for queued work; it belongs on the service thread, before any waiter is enqueued.
//
// Life: a device outlives its queues, events, allocations and imports. Devices that find_device() knows live until exit.
// After the driver has shut down, at exit, everything returns TW_ERR_CLOSED and frees do nothing.
#pragma once
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "devices/device_link.hpp"
#include "devices/memory_kind.hpp"
#include "devices/queue.hpp"

namespace thalweg::impl {

using Uuid = std::array<uint8_t, 16>;  // names a device in every process; ordinals never leave one
inline Uuid uuid_of(const void* bytes) {
  Uuid uuid;
  std::memcpy(uuid.data(), bytes, uuid.size());
  return uuid;
}

enum class ExportForm : uint8_t {
  none,        // other processes reach it by staging only
  ipc_handle,  // plain data
  descriptor,  // plain data and a file descriptor, to be passed over a unix socket
};

struct BufferInfo {
  MemoryKind kind = MemoryKind::host;
  Device* device = nullptr;       // where it lives, or where host memory was pinned first
  uint64_t buffer_id = 0;         // of the allocation, unique in this process: a re-used address has another one
  uint64_t base = 0, length = 0;  // of the allocation; of the piece around the address when kind is vmm
  bool host_access = true;
  ExportForm exportable = ExportForm::none;
};

/// One piece of memory as sent to other processes: plain data, and untrusted when it comes from a peer.
struct ExportHandle {
  uint8_t device_uuid[16];
  uint64_t incarnation;  // of the exporting process; with buffer_id it names an import
  uint64_t buffer_id;
  uint64_t base, length;  // in the exporter
  ExportForm form;
  MemoryKind kind;
  uint8_t reserved[6];
  uint8_t handle[64];  // the back end's own
};
static_assert(sizeof(ExportHandle) == 120);
struct ExportedMemory {
  ExportHandle handle{};
  UniqueFd fd;  // form == descriptor
};

struct PeerAccess {
  bool access = false;                 // kernels may load and store there, imports from there work; copies work in any case
  bool atomics = false;                // system-scope, 64-bit
  DeviceLink link = DeviceLink::none;  // unknown: a device that this process does not see; only an import tells
  bool whole_lines = false;            // 128 bytes that eight threads store by one instruction arrive as one
};

/// What a queue of the library's is for. Queues of one use may share a channel of the hardware, where the work of one waits for that of
/// another: those whose kernels wait for other ranks, for the host or for users are apart from those that move bytes, which such kernels
/// may wait for.
enum class QueueUse : uint8_t {
  any,         // its kernels may wait
  moves,       // copies, and kernels that wait for nothing
  persistent,  // one kernel, which stays; it begins before waiting work of others
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;
  virtual unsigned ordinal() const = 0;  // in this process, for users to read
  virtual const Uuid& uuid() const = 0;

  /// What it is and by which driver, as costs are kept by: "NVIDIA H200, driver 13.0". Printable.
  virtual std::string model() const = 0;
  /// The device's own time, in nanoseconds: by it the steps of its programs are recorded in the timeline (trace/trace.hpp), which finds out
  /// how it runs beside the host's. False: not this time.
  virtual bool clock(uint64_t* now) { return *now = 0, false; }
  /// Makes ready to ask it: clock() allocates nothing. False: it has none that can be read.
  virtual bool has_clock() { return false; }
  /// Kernels' blocks are spread over so many.
  virtual unsigned multiprocessors() const = 0;

  // ---- memory. For staging, tests and measuring; users' buffers come from wherever users allocate.
  /// Any kind but host. Contents undefined. pinned is reachable by every device. May block on queued work, as free may.
  virtual Status allocate(MemoryKind kind, size_t length, uint64_t* address) = 0;
  /// Memory of the device `other` that work of this one may use, to measure with: opens nothing of that device, whose context may cost
  /// hundreds of MiB there. TW_ERR_UNREACHABLE: no peer access.
  virtual Status allocate_at(const Uuid& other, size_t length, uint64_t* address) = 0;
  virtual Status free(uint64_t address) = 0;  // what allocate() or allocate_at() gave; TW_ERR_HANDLE otherwise
  /// Page-locks existing host pages (also a mapped shared segment) for every device, at the same address. TW_ERR_BUSY when
  /// (a part of) them is pinned already, by any code. Costs up to a millisecond per MiB; may block.
  virtual Status register_host(void* address, size_t length) = 0;
  virtual Status unregister_host(void* address) = 0;

  // ---- sharing between processes
  /// Handles for all pieces that [address, address + length) touches, in order: one, but for vmm. The caller sends them and
  /// keeps the memory alive until every importer has answered. TW_ERR_UNSUPPORTED with the reason when
  /// BufferInfo::exportable is none: use staging.
  virtual Status export_memory(uint64_t address, uint64_t length, uint64_t incarnation, std::vector<ExportedMemory>* out) = 0;
  /// Maps another process's pieces contiguously for this device, which the importer chooses; pieces[0].base is at
  /// *address then. Descriptors are taken. Costs milliseconds and may block until no kernel runs. TW_ERR_UNREACHABLE: no
  /// peer access from here to there; TW_ERR_INVALID: an ipc_handle of this very process (use the address itself);
  /// TW_ERR_STALE: the memory is gone. Several imports of one piece may share a mapping; each is released.
  virtual Status import_memory(std::span<ExportedMemory> pieces, uint64_t* address) = 0;
  virtual Status release_import(uint64_t address) = 0;   // after its last use has been waited for; may block
  virtual PeerAccess peer(const Uuid& other) const = 0;  // cheap; enables nothing

  // ---- work
  /// An own queue, non-blocking against default streams.
  virtual Status make_queue(std::unique_ptr<Queue>* out, QueueUse use = QueueUse::any) = 0;
  /// A user's queue, which stays the user's and must outlive *out. A default stream (null) can be recorded and waited for;
  /// other work on it is refused. TW_ERR_INVALID: a stream of another device.
  virtual Status wrap_queue(void* native, std::unique_ptr<Queue>* out) = 0;
  virtual Status make_event(std::unique_ptr<Event>* out) = 0;  // without timing
  virtual Status wrap_event(void* native, std::unique_ptr<Event>* out) = 0;
  /// Loads every kernel of kernel.hpp, so that no later launch has to: loading may block on a spinning kernel.
  virtual Status load_kernels() = 0;
  /// Has this build any? Cheap; false: load_kernels() and launches return TW_ERR_UNSUPPORTED.
  virtual bool has_kernels() const = 0;
};

/// All devices of one kind in this process. Lives until exit.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  /// What is at address, <= 100 ns: one query of several attributes. TW_ERR_NO_MATCH, without a text: ordinary host memory,
  /// or the device library has not been initialised (by the application, or by devices()); identify() never does that.
  virtual Status identify(uint64_t address, BufferInfo* info) = 0;
  /// Initialises the device library; a device was asked for. An error has why there is none.
  virtual Status devices(std::vector<Device*>* out) = 0;
};

}  // namespace thalweg::impl
