// SPDX-License-Identifier: Apache-2.0
// The one contract to an accelerator. Back ends: emulated/ (host memory and threads that behave like a GPU), cuda/.
//
// Addresses are device addresses: only the device's queues and kernels may touch them, never memcpy. A queue runs behind
// the host: what is enqueued happens later, in order. Nothing here may block behind a queue's unfinished work except
// synchronize().
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "memory/remote.hpp"

namespace thalweg::impl {

struct BufferInfo {
  MemoryKind kind = MemoryKind::host;
  int device = -1;
  uint64_t buffer_id = 0;  // of the allocation: a re-used address has another one
  uint64_t base = 0, length = 0;
};

/// A rectangular copy; dims of one collapse to a plain copy.
struct Copy {
  uint64_t to, from;
  uint64_t width;  // bytes per row
  uint64_t rows = 1, slices = 1;
  int64_t to_row = 0, from_row = 0;  // row pitches
  int64_t to_slice = 0, from_slice = 0;
};

/// In-order work of one device (a CUDA stream) or of the host (a host queue).
class Queue {
 public:
  virtual ~Queue() = default;
  virtual Status copy(const Copy* copies, size_t count) = 0;
  /// Stores (or adds) value to a 64-bit word after all earlier work of the queue is visible to whoever reads the word.
  virtual Status write_value(uint64_t address, uint64_t value, bool add) = 0;
  /// Later work waits until the word is cyclically >= value.
  virtual Status wait_geq(uint64_t address, uint64_t value) = 0;
  /// Runs a kernel twin on the queue: it may dereference device addresses through translate().
  virtual Status launch(std::function<void()> kernel) = 0;
  virtual Status query() = 0;        // TW_OK idle, TW_IN_PROGRESS
  virtual Status synchronize() = 0;  // host waits
};

/// What travels to another process so that it can import device memory.
struct ExportedMemory {
  uint8_t device_uuid[16];
  uint64_t id, length;
  UniqueFd fd;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;
  virtual const uint8_t* uuid() const = 0;  // 16 bytes, the same in every process
  virtual Status allocate(size_t length, uint64_t* address) = 0;
  virtual Status free(uint64_t address) = 0;
  /// TW_OK and *info when the address is this device's; TW_ERR_NO_MATCH otherwise.
  virtual Status identify(uint64_t address, BufferInfo* info) const = 0;
  virtual Status export_memory(uint64_t address, ExportedMemory* out) = 0;
  virtual Status import_memory(ExportedMemory&& from, uint64_t* address) = 0;
  virtual Status release_import(uint64_t address) = 0;
  virtual Status make_queue(std::unique_ptr<Queue>* out) = 0;
  /// Where kernels' host-side twins reach a device address; null for real accelerators.
  virtual std::byte* translate(uint64_t address, size_t length) = 0;
};

}  // namespace thalweg::impl
