// SPDX-License-Identifier: Apache-2.0
// What a forked child must know and undo.
//
// A child inherits every descriptor of its parent. Left open, they would hide the parent's death from its peers, and closing
// them by an object's destructor would hit descriptors that the child has opened since. So each descriptor of the library is
// registered here; a pthread_atfork handler closes all of them in the child and moves the fork generation on. An object
// remembers the generation it was born in: a mismatch means that it belongs to the parent. fork() only; a child made by a raw
// clone system call is not seen.
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

/// True in a process that was forked from one in which the library was loaded.
bool forked();

/// The registry of descriptors. Used by UniqueFd; any thread. Descriptors above kTracked - 1 are not tracked.
constexpr int kTracked = 1 << 20;
void register_descriptor(int fd);
void unregister_descriptor(int fd);
/// Unregisters and closes in one step that no fork can split.
void close_descriptor(int fd);

/// Runs in a forked child before its descriptors are closed, in the order of registration. Only async-signal-safe work:
/// another thread of the parent may have held any lock.
class ChildHook {
 public:
  using Function = void (*)(void* arg);
  ChildHook(Function function, void* arg);
  ~ChildHook();
  ChildHook(const ChildHook&) = delete;
  ChildHook& operator=(const ChildHook&) = delete;

 private:
  friend struct ForkHandlers;
  Function function_;
  void* arg_;
  ChildHook* next_ = nullptr;
  ChildHook* previous_ = nullptr;
};

}  // namespace thalweg::impl
