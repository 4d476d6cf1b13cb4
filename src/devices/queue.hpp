// SPDX-License-Identifier: Apache-2.0
// The contract to a queue (a CUDA stream, an emulated one, a host queue) and to events.
//
// A queue is asynchronous to the host: work is done later, in order. Nothing here waits for queued work except
// synchronize(). Arguments are taken over (baked) at the call. A refused call has enqueued nothing. Memory that queued work
// touches must live until the work is done. Thread-safe, with any or no current context.
//
// Addresses: device memory (own, imported, peer) and pinned host memory, which the caller has asked about (find_device()), made
// or imported. A queue does not check that: querying the driver for every call would cost as much as the call.
// If unsure, call admit() first. Pageable host memory is never allowed: a driver would copy it inside the call, after
// everything else. A host queue (no device) takes any. An emulated queue checks every address all the same.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.hpp"
#include "devices/kernel.hpp"
#include "devices/program.hpp"

namespace thalweg::impl {

class Device;
class Queue;

/// What work does with memory. Copies reach every device, if need be through the host; kernels and words (of write_value and
/// wait_geq) only what is mapped for their device; words not managed memory.
enum class Use : uint8_t { copy, kernel, word };

/// Marks a point in a queue. Re-recording moves it; earlier waits still wait for the earlier point.
class Event {
 public:
  virtual ~Event() = default;
  virtual Status query() = 0;        // TW_OK (also when never recorded), TW_IN_PROGRESS, or an error: its queue broke
  virtual Status synchronize() = 0;  // host waits, without burning a CPU
  virtual void* native() = 0;        // CUevent
};

enum class CaptureState : uint8_t { none, active, invalidated };

/// A queue's work, captured, to be enqueued any number of times. It holds addresses, not memory. Ended while it runs, it goes
/// on to its end.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual Status launch(Queue& queue) = 0;  // a queue of the device where it was captured; TW_ERR_INVALID otherwise
};

class Queue {
 public:
  virtual ~Queue() = default;    // of an own queue: waits for nothing that is not running yet; of a wrapped one: leaves it
  virtual Device* device() = 0;  // null: a host queue
  virtual void* native() = 0;    // CUstream; for cost and explain, and to wrap it elsewhere

  /// May work of this queue use [address, address + length) so? Gives access to memory of another device of this process, which
  /// kernels and words need and copies are faster with: ask once for each allocation (buffer id) and device before the first such
  /// work, on any own queue; for a wrapped queue, on that one. TW_ERR_UNSUPPORTED: pageable host memory, or a word in managed
  /// memory; TW_ERR_OUT_OF_BOUNDS: not (all) of one allocation; TW_ERR_UNREACHABLE: no peer access. May block; not for hot paths.
  virtual Status admit(Use use, uint64_t address, uint64_t length) = 0;

  /// Copy-engine work. No order among the copies of one call.
  virtual Status copy(const Copy* copies, size_t count) = 0;
  /// Stores (or adds) value to an aligned 64-bit word after all earlier work of the queue is visible system-wide. Not in
  /// managed memory.
  virtual Status write_value(uint64_t address, uint64_t value, bool add) = 0;
  /// Later work waits until the word is cyclically >= value. Holds no kernel slot; has no timeout on a GPU: the caller
  /// watches it, and releases it by writing the word. Wait on memory of this device or host, never on a peer's.
  virtual Status wait_geq(uint64_t address, uint64_t value) = 0;
  virtual Status launch(const Kernel& kernel) = 0;
  /// One run of a program, all of it in one launch. Its steps' waits hold a kernel's slot, so what fulfils them must not be
  /// queued after it. TW_ERR_INVALID: `placed` is missing.
  virtual Status run(const ProgramRun& program) = 0;
  /// On the queue's own thread. TW_ERR_UNSUPPORTED: a device's queue.
  virtual Status call(void (*function)(void* argument), void* argument) = 0;

  virtual Status record(Event& event) = 0;
  virtual Status wait_event(Event& event) = 0;  // any device's event

  /// From here on work is kept for a graph instead of being run, until end_capture() by the same thread, which gives an error
  /// and no graph where the capture was spoilt. Others may use other queues meanwhile.
  virtual Status begin_capture() = 0;
  virtual Status end_capture(std::unique_ptr<Graph>* out) = 0;
  /// Is a graph being captured from this queue? query() and synchronize() are refused then (and would spoil it).
  virtual CaptureState capture_state() = 0;
  virtual Status query() = 0;        // TW_OK idle, TW_IN_PROGRESS, or the error that broke the queue for good
  virtual Status synchronize() = 0;  // host waits
};

/// A queue without a device: a thread that does what is enqueued, in order, with memory that the host may touch.
std::unique_ptr<Queue> make_host_queue();

}  // namespace thalweg::impl
