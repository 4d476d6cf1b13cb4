// SPDX-License-Identifier: Apache-2.0
// Who runs the steps of plans: a device, or the host. Its memory holds what running them needs, because words are waited for
// where they are near: programs and their state in memory of its own, words that peers write in memory they can import.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <thalweg/device/types.hpp>

#include "core/context.hpp"
#include "devices/place.hpp"
#include "memory/layout.hpp"
#include "routes/prepared.hpp"

namespace thalweg::impl {

/// Hands out 64-byte aligned, zeroed pieces of memory at one place. One that is as long as a block has memory of its own, which is
/// released with it; what is freed of others serves the next of about that length.
class Arena {
 public:
  Arena(tw_context& context, const MemoryPlace& place) : context_(context), place_(place) {}
  ~Arena();
  Status allocate(size_t length, uint64_t* address);
  /// The piece may be allocated again at once: nothing else may access it any more.
  void free(uint64_t address, size_t length);
  /// The block of memory that holds `address`, for a key.
  tw_memory* holder(uint64_t address) const;
  size_t bytes() const;  // of all blocks

 private:
  size_t block_size() const;
  Status make_block(size_t length, uint64_t* address);
  tw_memory* take_block(uint64_t address);
  Status take(size_t length, uint64_t* address);
  tw_context& context_;
  const MemoryPlace place_;
  mutable std::mutex mutex_;
  std::vector<tw_memory*> blocks_;
  uint64_t next_ = 0, end_ = 0;           // of the newest block of short pieces
  std::multimap<size_t, uint64_t> free_;  // by length
};

/// How a runner reaches one memory: what src/routes was asked with, and what was tried in vain.
struct Reaching {
  Prepared facts;
  uint32_t failed = 0;  // PreparedRoute bits
  std::string why;      // how the last of them failed
  bool asked = false;
  PreparedRoute route() const { return prepared_route(facts, failed); }
  /// Why the runner does not get there by itself.
  std::string why_not() const { return why.empty() ? why_not_reached(facts) : why; }
  void fail_route(PreparedRoute route);  // with the thread's error text
  /// By the best route that works: `take` tries one, and TW_ERR_UNREACHABLE and TW_ERR_UNSUPPORTED leave the others. `none`: there is none.
  template <class Take>
  Status try_routes(Status none, const Take& take) {
    Status status = none;
    while (route() < PreparedRoute::carried) {
      const PreparedRoute next = route();
      status = take(next);
      if (status != TW_ERR_UNREACHABLE && status != TW_ERR_UNSUPPORTED) break;
      fail_route(next);
    }
    return status;
  }
};

/// Who runs what touches facts->place, null: the host, and what that device gets to there.
void describe_runner(const Device* device, Prepared* facts);

/// What is asked of memory of this process, beside where it is.
struct Asks {
  bool waits = false;      // a word, for which a step waits
  bool carriable = false;  // the host may do the step instead
  uint64_t row = 0;        // of a receive: bytes of its rows; all of a contiguous one's
};

class Executor {
 public:
  /// device null: the host.
  Executor(tw_context& context, Device* device);
  Device* device() const { return device_; }
  const std::string& name() const { return name_; }  // "host", "cuda:1"
  /// Kernels are loaded before any waits.
  Status open();

  Arena& own() { return own_; }        // programs, state, receive buffers
  Arena& shared() { return shared_; }  // words that peers write
  Arena& pinned() { return pinned_; }  // host memory that the executor reaches too
  /// Copies into or out of the executor's memory; returns when it is done. Not under a capture of the calling thread.
  Status store(uint64_t to, const void* from, size_t length);
  Status load(void* to, uint64_t from, size_t length);

  unsigned multiprocessors() const { return multiprocessors_; }  // the host: 0

  /// May this executor's steps load and store at [address, address + length) of this process? TW_ERR_UNSUPPORTED or
  /// TW_ERR_UNREACHABLE with the reason. *how, if not null: what was asked; its route is `carried` where the host is to do the step.
  Status admit(uint64_t address, uint64_t length, Asks asks = {}, Reaching* how = nullptr);
  /// Of memory that src/routes lets it reach at its own address. What is imported is granted already.
  Status grant(uint64_t address, uint64_t length);

 private:
  Status pin(uint64_t address);
  tw_context& context_;
  Device* const device_;
  const unsigned multiprocessors_;
  std::string name_;
  Arena own_, shared_, pinned_;
  std::unique_ptr<Queue> queue_;  // a device's, which is asked for access; nothing is enqueued there
};

/// Packed bytes of a local buffer: contiguous and strided layouts as they are; of a list, and of more than three counts, the
/// pieces are stored into the executor's memory (*table, 0: none; *table_length bytes). An error leaves *out as it is, and no table.
Status make_side(Executor& executor, uint64_t address, const Layout* layout, uint64_t length, device::Side* out,
                 uint64_t* table, size_t* table_length);

}  // namespace thalweg::impl
