// SPDX-License-Identifier: Apache-2.0
// What rows of windows share: device code on one side's part of a window of two ranks. Kernels' twins run here on the host:
// where the executor is the host as they are, where it is a device with a machine that makes the device load and store.
#pragma once
#include <thalweg/windows.h>
#include <thalweg/device/window.hpp>

#include "prepared.hpp"

namespace conformance {

namespace device = thalweg::device;
using device::Compare, device::SignalOp, device::u32, device::u64;

/// Each load and store of device code is a copy by the device. Atomic operations are not: one side at a time.
struct CopyMachine : device::DirectMachine {
  tw_context* context = nullptr;

  void copy(u64 to, u64 from, u64 bytes) const {
    must(tw_memory_copy(context, reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), "tw_memory_copy");
  }
  template <class T>
  T read(const T* from) const {
    T value;
    copy(reinterpret_cast<u64>(&value), reinterpret_cast<u64>(from), sizeof value);
    return value;
  }
  template <class T>
  void write(T* to, T value) const {
    copy(reinterpret_cast<u64>(to), reinterpret_cast<u64>(&value), sizeof value);
  }
  u64 constant(const u64* from) const { return read(from); }
  u64 load(const u64* word) const { return read(word); }
  u64 acquire(const u64* word) const { return read(word); }
  void store(u64* word, u64 value) const { write(word, value); }
  void release(u64* word, u64 value) const { write(word, value); }
  void add_release(u64* word, u64 value) const { write(word, read(word) + value); }
  template <class T>
  T fetch_add(T* word, T operand) const {
    const T old = read(word);
    write(word, static_cast<T>(old + operand));
    return old;
  }
  template <class T>
  T compare_swap(T* word, T expected, T desired) const {
    const T old = read(word);
    if (old == expected) write(word, desired);
    return old;
  }
  device::Word16 load16(const device::Word16* from) const {
    const u64 high = read(&from->high);
    return {read(&from->low), high};
  }
  void store16(device::Word16* to, device::Word16 value) const {
    write(&to->low, value.low);
    write(&to->high, value.high);
  }
};

/// One side of a window of two ranks.
class Part {
 public:
  Part(Side& side, const Row& r, size_t length);
  ~Part() {
    if (window_ != nullptr) (void)tw_window_destroy(window_);
  }
  Part(const Part&) = delete;
  /// Both sides can. Otherwise the one that cannot was refused as documented.
  bool bind();
  /// The device function did what it should; else why not.
  void done(bool ok) const {
    if (ok) return;
    must(tw_window_check(window_), "device code");
    failed("device code gave up, and tw_window_check knows nothing of it");
  }
  /// body(machine): as the executor's code.
  template <class Body>
  void code(Body body) const {
    if (!on_device_) return body(device::DirectMachine{});
    CopyMachine machine;
    machine.context = side_.context;
    body(machine);
  }
  /// Zeros, as rooms of LL messages begin.
  void clear(u64 offset, u64 bytes);
  /// What is there now is as it should be.
  void keep(u64 offset, u64 bytes);
  u32 other() const { return static_cast<u32>(!side_.rank); }
  void close();
  Cells cells;
  device::Window window{};

 private:
  void share(const void* mine, size_t length, void* all);
  static tw_status exchange(void* arg, const void* mine, size_t length, void* values);
  Side& side_;
  const Row& row_;
  const bool on_device_;
  bool one_process_ = false;
  std::string why_;  // of an exchange that failed
  tw_window* window_ = nullptr;
};

/// Where things are in each part: words of signals and answers, then data at any alignment.
struct Room {
  u64 signal, answer, data;
  explicit Room(const Row& r) : signal(8 * (1 + r.seed % 7)), answer(128 + 8 * (r.seed % 9)), data(256 + r.seed % 61) {}
  static size_t length(uint64_t bytes) { return 256 + 61 + bytes + 131; }
};

/// Rank 0's body of each run, then rank 1's, which checks what came; rank 1's answer ends a run. All by device code.
template <class First, class Second>
void take_turns(Side& side, const Row& r, Part& part, First first, Second second) {
  const Room room(r);
  for (const u64 word : {room.signal, room.answer}) part.clear(word, sizeof word);
  side.barrier();
  for (unsigned run = 0; run < kRuns; ++run) {
    const u64 count = run + 1;
    part.code([&](auto m) {
      if (side.rank == 0) {
        first(run, m);
        part.done(device::wait(device::Block(), part.window, room.answer, Compare::equal, count, run, m));
        part.cells.expect(room.answer, &count, sizeof count);
      } else {
        second(run, m);
        part.cells.verify();  // before rank 0 goes on
        part.done(device::signal(device::Block(), part.window, 0, room.answer, count, SignalOp::set, m));
      }
    });
    if (side.rank == 0) part.cells.verify();
  }
  side.barrier();
}

/// The whole of a row: its window, refused or used.
template <class Use>
void over_window(Side& side, const Row& r, size_t length, Use use) {
  Part part(side, r, length);
  if (part.bind()) use(part);
  part.close();
  side.barrier();
}

}  // namespace conformance
