// SPDX-License-Identifier: Apache-2.0
// The contract to a queue (a CUDA stream, an emulated one, a host queue) and to events.
//
// A queue runs behind the host: what is enqueued happens later, in order. Nothing here waits for queued work except
// synchronize(). Arguments are taken over (baked) at the call. A refused call has enqueued nothing. Memory that queued work
// touches must live until the work is done. Thread-safe, with any or no current context.
//
// Addresses: device memory (own, imported, peer) and pinned host memory. Pageable host memory is refused with
// TW_ERR_UNSUPPORTED: a driver would copy it inside the call, behind everything else. A host queue (no device) takes any.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "devices/kernel.hpp"

namespace thalweg::impl {

class Device;

/// Marks a point in a queue. Re-recording moves it; who waited for the earlier point still does.
class Event {
 public:
  virtual ~Event() = default;
  virtual Status query() = 0;        // TW_OK (also when never recorded), TW_IN_PROGRESS, or an error: its queue broke
  virtual Status synchronize() = 0;  // host waits, without burning a CPU
  virtual void* native() = 0;        // CUevent
};

enum class CaptureState : uint8_t { none, active, invalidated };

class Queue {
 public:
  virtual ~Queue() = default;    // of an own queue: waits for nothing that is not running yet; of a wrapped one: leaves it
  virtual Device* device() = 0;  // null: a host queue
  virtual void* native() = 0;    // CUstream; for cost and explain, and to wrap it elsewhere

  /// Copy-engine work. No order among the copies of one call.
  virtual Status copy(const Copy* copies, size_t count) = 0;
  /// Stores (or adds) value to an aligned 64-bit word after all earlier work of the queue is visible system-wide. Not in
  /// managed memory.
  virtual Status write_value(uint64_t address, uint64_t value, bool add) = 0;
  /// Later work waits until the word is cyclically >= value. Holds no kernel slot; has no limit of its own on a GPU: whoever
  /// enqueues it watches, and releases it by writing the word. Wait on memory of this device or host, never on a peer's.
  virtual Status wait_geq(uint64_t address, uint64_t value) = 0;
  virtual Status launch(const Kernel& kernel) = 0;

  virtual Status record(Event& event) = 0;
  virtual Status wait_event(Event& event) = 0;  // any device's event

  /// Is a graph being captured from this queue? query() and synchronize() are refused then (and would spoil it).
  virtual CaptureState capture_state() = 0;
  virtual Status query() = 0;        // TW_OK idle, TW_IN_PROGRESS, or the error that broke the queue for good
  virtual Status synchronize() = 0;  // host waits
};

}  // namespace thalweg::impl
