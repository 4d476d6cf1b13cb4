// SPDX-License-Identifier: Apache-2.0
// fork(): detects a forked child, and what it must undo.
//
// A child inherits every descriptor of its parent. Left open, they would hide the parent's death from its peers, and closing
// them by an object's destructor would hit descriptors that the child has opened since. So each descriptor of the library is
// registered here; a pthread_atfork handler closes all of them in the child and moves the fork generation on. An object
// remembers the generation it was born in: a mismatch means that it belongs to the parent. fork() only; a child made by a
// raw clone system call is not seen.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/status.hpp"

namespace thalweg::impl {

extern std::atomic<uint32_t> fork_generation_word;

/// Moves on in every forked child. One relaxed load: cheap enough for a hot path.
inline uint32_t fork_generation() { return fork_generation_word.load(std::memory_order_relaxed); }

/// The generation an object was made in.
class BornHere {
 public:
  BornHere() : generation_(fork_generation()) {}
  bool forked() const { return generation_ != fork_generation(); }
  /// TW_OK, or TW_ERR_FORKED with a text that names the object.
  Status check(const char* object) const {
    if (!forked()) [[likely]]
      return TW_OK;
    return refuse(object);
  }

 private:
  [[gnu::cold]] static Status refuse(const char* object);
  uint32_t generation_;
};

/// State of this process: a forked child gets a fresh one, because another thread of the parent may have held its lock. The
/// parent's copy is left alone, never freed.
template <typename T>
T& state_of_process() {
  struct Slot {
    uint32_t generation = fork_generation();
    T value;
  };
  static std::atomic<Slot*> current{new Slot};
  Slot* slot = current.load(std::memory_order_acquire);
  if (slot->generation == fork_generation()) [[likely]]
    return slot->value;
  auto* fresh = new Slot;
  if (current.compare_exchange_strong(slot, fresh, std::memory_order_acq_rel)) return fresh->value;
  delete fresh;  // another thread of the child was first
  return slot->value;
}

/// True in a process that was forked from one in which the library was loaded.
bool forked();

/// The registry of descriptors. Used by UniqueFd; any thread. Descriptors above kTracked - 1 are not tracked.
constexpr int kTracked = 1 << 20;
void register_descriptor(int fd);
void unregister_descriptor(int fd);
/// Unregisters and closes in one step that no fork can split.
void close_descriptor(int fd);

}  // namespace thalweg::impl
