// SPDX-License-Identifier: Apache-2.0
// A UCX worker: one of Thalweg's, used by one thread at a time. UCS_THREAD_MODE_MULTI is a lock around every call; callbacks and
// handlers run under it, as in UCX, and may call what does not progress.
#pragma once
#include <thalweg/thalweg.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "context.hpp"
#include "request.hpp"

namespace thalweg::ucx {
struct Peer;
struct Flush;

struct Waiting;  // am_arriving.cpp

/// Payloads of one peer that the adapter fetches before their handlers are called.
struct Fetches {
  Fetches();
  ~Fetches();
  uint32_t count = 0;  // under way
  uint64_t bytes = 0;
  std::deque<std::unique_ptr<Waiting>> waiting;  // the others: their senders' requests and credit wait, too
};
inline constexpr uint32_t kMostFetches = 16;
inline constexpr uint64_t kMostFetchedBytes = uint64_t{64} << 20;  // a longer one goes alone

struct AmHandler {
  ucp_worker* worker = nullptr;
  unsigned id = 0;
  uint32_t flags = 0;
  ucp_am_recv_callback_t callback = nullptr;
  ucp_am_callback_t older = nullptr;  // of ucp_worker_set_am_handler
  void* arg = nullptr;
};

}  // namespace thalweg::ucx

struct ucp_worker {
  explicit ucp_worker(ucp_context& owner) : context(owner), pool(owner) {}
  ucp_context& context;
  tw_worker* worker = nullptr;
  tw_completion_queue* queue = nullptr;        // ends of what was posted without a callback
  uint32_t told = 0;                           // how many of them are under way
  uint64_t unpooled = 0;                       // requests in the user's memory that are under way
  tw_op_options plain = TW_OP_OPTIONS_INIT;    // calls_for(): a callback, never a layout or flags
  tw_op_options options = TW_OP_OPTIONS_INIT;  // options_for()
  bool chores =
      false;  // something waits for progress beside Thalweg's worker: postponed, later, closing, flushes, streams, told
  // Calls under way that are none of progress: callbacks and handlers wait for it. With `ending` one that never returns.
  uint32_t holding = 0;
  bool multi = false;
  bool guarded = false;  // calls take Hold: multi, or armed. Short ways look at this alone
  bool ending = false;   // no callback runs any more
  ucs_thread_mode_t mode = UCS_THREAD_MODE_SINGLE;
  std::recursive_mutex mutex;  // multi
  // Armed: `sleeper` sleeps or is about to, until its own progress. Several: another thread did so meanwhile, once; from then on no progress
  // is known to be that of all who sleep.
  bool armed = false, several = false;
  std::thread::id sleeper{};
  thalweg::ucx::Pool pool;
  thalweg::ucx::Request* later = nullptr;  // complete already; their callbacks wait for progress
  thalweg::ucx::Request** later_end = &later;
  std::deque<std::function<void()>> postponed;  // handlers' calls, in the order in which their events came
  std::vector<thalweg::ucx::Request*> closing;  // closes that wait for their endpoints' operations
  std::vector<thalweg::ucx::Flush*> flushes;    // that wait for gets
  std::unordered_set<thalweg::ucx::Peer*> peers;
  uint64_t peers_made = 0;
  // Lost peers, by place and number: whose handlers are to be called, and whose reply endpoints end.
  std::vector<std::pair<thalweg::ucx::Peer*, uint64_t>> losses, sweeps;
  std::deque<ucp_ep*> graves;  // reply endpoints of lost peers, the last few: users may still have them
  std::unordered_map<unsigned, std::unique_ptr<thalweg::ucx::AmHandler>> handlers;
  std::unordered_map<tw_endpoint*, thalweg::ucx::Fetches> fetches;
  std::vector<thalweg::ucx::Peer*> streams;  // with data to fetch
  size_t am_alignment = 1;
  uint64_t uid = 0;
  uint64_t client_id = 0;
  std::string name;
  std::vector<std::byte> address;  // as peers get it
  void* user_data = nullptr;
};

namespace thalweg::ucx {

/// What a call posts may wait for progress: matched already, kept for the next frame, one fragment of many. A thread that sleeps until the
/// worker has news does not see it, and a call that progresses has disarmed the worker.
[[gnu::cold]] void wake_sleeper(ucp_worker& worker);

/// The worker's lock, where several threads use it.
class Lock {
 public:
  explicit Lock(ucp_worker& worker) : worker_(worker.multi ? &worker : nullptr) {
    if (worker_ != nullptr) worker_->mutex.lock();
  }
  ~Lock() {
    if (worker_ != nullptr) worker_->mutex.unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  ucp_worker* worker_;
};

/// The lock of a call that may leave something for progress: it wakes who sleeps, in every thread mode.
class Hold {
 public:
  explicit Hold(ucp_worker& worker) : lock_(worker), worker_(worker) {}
  ~Hold() {
    if (worker_.armed) [[unlikely]]
      wake_sleeper(worker_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  const Lock lock_;
  ucp_worker& worker_;
};

/// Callbacks, handlers and losses wait for progress meanwhile.
class HoldBack {
 public:
  explicit HoldBack(ucp_worker& worker) : worker_(worker) { ++worker_.holding; }
  ~HoldBack() { --worker_.holding; }
  HoldBack(const HoldBack&) = delete;
  HoldBack& operator=(const HoldBack&) = delete;

 private:
  ucp_worker& worker_;
};

/// What a handler is to be told, once the call under way has returned: first thing in the next progress, and with worker.ending where
/// there is none.
[[gnu::cold]] void postpone(ucp_worker& worker, std::function<void()> call);

/// The options of an operation that ends in `request`, by `end`: good for the next call.
inline const tw_op_options* calls_for(Request& request, ucp_worker& worker, tw_callback end) {
  tw_op_options& options = worker.plain;
  options.callback = end;
  options.arg = &request;
  return &options;
}
/// The same with a layout and flags.
inline const tw_op_options* options_for(Request& request, const tw_layout* layout, uint32_t flags) {
  tw_op_options& options = request.worker->options;
  options.callback = ended;
  options.flags = flags;
  options.layout = layout;
  options.arg = &request;
  return &options;
}

inline Request* take(ucp_worker& worker, const Wanted& wanted, RequestKind kind) {
  Request* const request = wanted.memory != nullptr ? &request_of(wanted.memory) : worker.pool.get();
  if (request == nullptr) [[unlikely]]
    return nullptr;
  request->status.store(UCS_INPROGRESS, std::memory_order_relaxed);
  request->pooled = wanted.memory == nullptr;
  if (wanted.memory != nullptr) {
    ++worker.unpooled;
    request->calling = false;  // none of the pool is posted anew before it is free
  }
  request->released = request->muted = request->told = request->fetches = request->in_later = false;
  request->kind = kind;
  request->memory = static_cast<uint8_t>(wanted.memory_type);
  request->buffer = nullptr;
  request->worker = &worker;
  request->endpoint = nullptr;
  request->operation = TW_REQUEST_NONE;
  request->invoke = wanted.invoke;
  request->callback.any = wanted.callback;
  request->user_data = wanted.user_data;
  request->layout = nullptr;
  request->extra = nullptr;
  request->unpacked = UCS_OK;
  request->info = {0, 0};
  return request;
}

/// Who has armed the worker and progresses it sleeps no more.
[[gnu::cold]] void end_sleep(ucp_worker& worker);
/// What waits beside Thalweg's worker, which it progresses, too.
[[gnu::noinline]] unsigned do_chores(ucp_worker& worker);
/// All that progress does, under the lock.
inline unsigned progress(ucp_worker& worker) {
  if (worker.armed) [[unlikely]]
    end_sleep(worker);
  if (worker.chores) [[unlikely]]
    return do_chores(worker);
  return tw_worker_progress(worker.worker);
}

/// Address of a worker as this library gives it out: a header, then Thalweg's.
struct AddressHeader {
  char magic[4];
  uint32_t flags;
  uint64_t uid;
  uint64_t client_id;
};
inline constexpr char kAddressMagic[4] = {'T', 'W', 'U', '1'};
/// False: it is none of this library's.
bool parse_address(const void* address, AddressHeader* header);

}  // namespace thalweg::ucx
