// SPDX-License-Identifier: Apache-2.0
// One process of the model: a registry, and the memory and signals that its workers export. It lives on from program to
// program, because making memory that others can map takes longer than most programs.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/registry.hpp"
#include "memory/signal.hpp"
#include "model/devices.hpp"
#include "model/program.hpp"

namespace thalweg::model {

using namespace thalweg::impl;

constexpr uint64_t kWords = 64;                           // bytes at the end of each memory, for atomics
constexpr uint64_t kReplaced = 24, kReplacedNarrow = 44;  // of them, words that are replaced

struct Exports {
  struct Memory {
    tw_memory* memory = nullptr;
    std::unique_ptr<std::byte[]> plain;  // of the registered one
    KeyBody key{};
    size_t length = 0;             // without the words
    bool revoked = false;          // its release was busy
    std::byte* pointer = nullptr;  // for the host
    std::byte* address() const { return pointer; }
    std::byte* words() const { return pointer + length; }
    bool of_device() const { return memory != nullptr && memory->origin.kind > MemoryKind::pinned; }
  };
  Memory memories[kMemories];
  tw_signal* signals[kSignals] = {};
  KeyBody signal_keys[kSignals] = {};
};

class Host final : SegmentListener {
 public:
  explicit Host(uint64_t incarnation);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  Registry registry;
  /// What a worker exports, all of it alive. Contents undefined.
  Exports& exports(unsigned worker);
  /// Of the worker's memory. What was registered stays as it is until the next exports().
  Status release(Exports::Memory& memory);
  /// Where peers see a segment: a mapping of its own, which outlives the release. Null: it is gone.
  std::byte* view(uint64_t segment, size_t* length);
  /// Library-allocated memory for local buffers; all of it is free again after rewind(). Null: used up.
  std::byte* room(size_t length);
  void rewind();
  /// The library-allocated memory of room(), which operations look up by address.
  const tw_memory& buffers() const { return *buffers_; }
  SignalPool& signals() { return pool_; }
  /// Called when a segment is released.
  std::function<void(uint64_t segment)> on_release;
  /// Is no import of this device memory in use any more?
  std::function<bool(uint64_t segment)> dropped;

 private:
  struct View {
    std::byte* address;
    size_t length;
  };
  void on_segment_released(uint64_t segment) override;
  bool on_keys_revoked(bool) override { return true; }
  bool await_dropped(uint64_t segment, bool) override { return !dropped || dropped(segment); }
  void drop(const View& view);

  SignalPool pool_;
  std::map<unsigned, Exports> exports_;
  std::mutex viewing_;
  std::map<uint64_t, View> views_;
  std::vector<View> old_;  // of segments that were released
  tw_memory* buffers_ = nullptr;
  size_t used_ = 0;
};

/// The hosts of this thread: one for each worker, and one for all where they are one process.
Host& host_of(unsigned worker, bool one_process);

}  // namespace thalweg::model
