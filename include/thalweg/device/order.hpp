// SPDX-License-Identifier: Apache-2.0
// Memory order, as device code needs it: every observer is another device, another process or the host, so everything here
// is of system scope. machine/ has the instructions: PTX for GPUs, atomic builtins for the host, the twin.
//
// All other headers reach memory only through a Machine: a small value, copied freely, with the members of DirectMachine.
// One of its own lets the same code run where addresses are not simply used as they are: on an emulated device, or in a test
// that makes stores visible in the worst order. In terms of order a Machine promises:
//   - what is stored by write, store or copy may become visible in any order, until fence() or release() by the same thread;
//   - a block's stores are covered by a barrier and then ONE thread's fence or release;
//   - store16 is seen whole or not at all, so a flag in it needs no fence;
//   - acquire() that reads what release() stored sees all that it covers, and so do the threads after a later barrier.
#pragma once
#include <thalweg/device/machine/machine.hpp>

namespace thalweg::device {

/// Addresses are used as they are: on a GPU, and on the host for memory that it can touch. Words are in device memory, of
/// this device or a mapped peer, or in pinned host memory; aligned to their size.
struct DirectMachine {
  static constexpr bool whole_runs =
      machine::kWholeRuns;                       // true: copy() moves a run, called by one thread; false: threads share it
  static constexpr u32 lanes = machine::kLanes;  // threads that walk along long rows together

  /// Plain data, one instruction. T: of 1, 2, 4, 8 or 16 bytes, aligned.
  template <class T>
  THALWEG_DEVICE T read(const T* from) const {
    return machine::read(from);
  }
  template <class T>
  THALWEG_DEVICE void write(T* to, T value) const {
    machine::write(to, value);
  }
  /// A word that does not change while the kernel runs.
  THALWEG_DEVICE u64 constant(const u64* from) const { return machine::constant(from); }
  /// Addresses and bytes; no overlap. Only where whole_runs.
  THALWEG_DEVICE void copy(u64 to, u64 from, u64 bytes) const { machine::copy_bytes(to, from, bytes); }

  /// Where whole_runs: `count` elements as the caller's code may read them, `held` being room for them; where it may write what put()
  /// then brings to its place.
  template <class T>
  THALWEG_DEVICE const T* view(const T* from, u64, T*) const {
    return from;
  }
  template <class T>
  THALWEG_DEVICE T* room(T* to, T*) const {
    return to;
  }
  template <class T>
  THALWEG_DEVICE void put(T*, const T*, u64) const {}

  /// Flags: relaxed. The host's also order the accesses around them.
  THALWEG_DEVICE u64 load(const u64* word) const { return machine::load(word); }
  THALWEG_DEVICE void store(u64* word, u64 value) const { machine::store(word, value); }

  THALWEG_DEVICE u64 acquire(const u64* word) const { return machine::acquire(word); }
  /// fence(), then the store.
  THALWEG_DEVICE void release(u64* word, u64 value) const { machine::release(word, value); }
  /// fence(), then an atomic add.
  THALWEG_DEVICE void add_release(u64* word, u64 value) const { machine::add_release(word, value); }
  /// What this thread stored, and what it has read, is visible everywhere before anything that it stores later.
  THALWEG_DEVICE void fence() const { machine::fence(); }
  /// The same for observers on this device.
  THALWEG_DEVICE void fence_near() const { machine::fence_near(); }

  /// One more block is done: returns how many were before. Releases what the block stored, acquires what the others did.
  THALWEG_DEVICE u32 arrive(u32* counter) const { return machine::arrive(counter); }
  /// One more of `count` blocks of this device is done: was it the last one? The counter is 0 then. Relaxed.
  THALWEG_DEVICE bool last_of(u32* counter, u32 count) const { return machine::last_of(counter, count); }

  /// Atomic operations return what was there. Relaxed: they publish nothing. T: u32 or u64. The word's other users are of the
  /// same domain: devices, or CPUs.
  template <class T>
  THALWEG_DEVICE T fetch_add(T* word, T operand) const {
    return machine::fetch_add(word, operand);
  }
  template <class T>
  THALWEG_DEVICE T fetch_and(T* word, T operand) const {
    return machine::fetch_and(word, operand);
  }
  template <class T>
  THALWEG_DEVICE T fetch_or(T* word, T operand) const {
    return machine::fetch_or(word, operand);
  }
  template <class T>
  THALWEG_DEVICE T fetch_xor(T* word, T operand) const {
    return machine::fetch_xor(word, operand);
  }
  template <class T>
  THALWEG_DEVICE T swap(T* word, T operand) const {
    return machine::swap(word, operand);
  }
  /// Stores `desired` where the word holds `expected`.
  template <class T>
  THALWEG_DEVICE T compare_swap(T* word, T expected, T desired) const {
    return machine::compare_swap(word, expected, desired);
  }

  /// Whole or not at all: to such a read the upper half is never newer than the lower one. Relaxed.
  THALWEG_DEVICE Word16 load16(const Word16* from) const { return machine::load16(from); }
  /// What its sender's thread wrote before, in front of a fence, shows afterwards.
  THALWEG_DEVICE Word16 acquire16(const Word16* from) const { return machine::acquire16(from); }
  THALWEG_DEVICE void store16(Word16* to, Word16 value) const { machine::store16(to, value); }

  THALWEG_DEVICE u64 nanoseconds() const { return machine::nanoseconds(); }
  /// Between two polls of a wait, of which there were `polls`.
  THALWEG_DEVICE void pause(u32 polls) const { machine::pause(polls); }
};

/// The unsigned integer of a type's size, for atomic operations.
template <unsigned Size>
struct WordOf;
template <>
struct WordOf<4> {
  using Type = u32;
};
template <>
struct WordOf<8> {
  using Type = u64;
};
template <class T>
using AtomicWord = typename WordOf<sizeof(T)>::Type;

/// A pointer in memory that only the machine reaches.
template <class T, class M>
THALWEG_DEVICE T* read_pointer(M m, T* const* from) {
  return reinterpret_cast<T*>(m.read(reinterpret_cast<const u64*>(from)));
}

}  // namespace thalweg::device
