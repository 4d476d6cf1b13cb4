// SPDX-License-Identifier: Apache-2.0
// tw_queue: a device's stream, or a thread of the host's, with what was triggered on it.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "plans/plan.hpp"

namespace thalweg::impl {
using CapturedRuns = std::map<std::shared_ptr<Version>, uint64_t>;  // how many that a launch starts
}

struct tw_queue {
  using Status = thalweg::impl::Status;
  tw_queue(thalweg::impl::Proxy& of, thalweg::impl::Executor& by) : proxy(of), executor(by) { proxy.users_.fetch_add(1); }
  ~tw_queue();
  /// waits_: TW_WAITS_*.
  void open(std::unique_ptr<thalweg::impl::Queue> of, uint32_t waits_);
  /// check() reports failures of this plan's runs.
  void note(tw_plan& plan);
  static void forget(tw_plan& plan);  // by every queue
  Status check();
  /// `run` is called with the plan of one step that the _on functions keep for these arguments; made and prepared when there is none.
  /// One thread's at a time: a value that is set is that run's.
  using Work = std::function<Status(tw_plan&)>;
  Status kept(thalweg::impl::PlanStep&& step, const tw_op_options& options, const Work& run);
  /// The same of a plan to which `fill` adds its steps. buffers: the memory that it uses here. Where another allocation lies now, at the
  /// same address, another plan is made: peers know the buffer by its allocation.
  using Buffers = std::span<const void* const>;
  /// key: its first `shared` bytes are the same where plans use the same channels.
  struct Key {
    std::string text;
    size_t shared = 0;
  };
  Status kept(const Key& key, Buffers buffers, const Work& fill, const Work& run);
  /// A buffer that begins there, by a kept plan that has a run under way, has failed, or is in a graph. True, too, while a thread
  /// prepares one.
  bool uses(const void* address, size_t length);

  thalweg::impl::BornHere born;
  const uint64_t number = next_number();  // no other's, unlike its address
  thalweg::impl::Proxy& proxy;
  thalweg::impl::Executor& executor;
  std::unique_ptr<thalweg::impl::Queue> queue;
  uint32_t waits = TW_WAITS_AUTO;
  std::mutex order;                      // a run's kernel comes right behind the one that waits ahead of it
  bool waited_ahead = false;             // under order: some run did
  bool of_stream = false;                // the library's wrapper of a stream (queue_of_stream)
  bool capturing = false;                // the library began a capture, and has not ended it; like what follows, of one thread
  thalweg::impl::CapturedRuns captured;  // since it began
  void leave_captured();                 // to a graph that the program has ended by itself

 private:
  static uint64_t next_number();
  struct Buffer {
    const void* address;
    uint64_t allocation;
    bool of_device;
  };
  struct Kept {
    tw_plan* plan;
    uint64_t used;      // by which of the calls, last
    uint32_t receives;  // of one channel
    std::vector<Buffer> buffers;
  };
  using AllKept = std::map<std::string, Kept>;
  AllKept::iterator find(const std::string& key);
  Status enqueue(AllKept::iterator found, const Key& key, Buffers buffers, const Work& fill, const Work& run);
  Status keep(const Key& key, Buffers buffers, const Work& fill);
  Status ready(tw_plan& plan);
  Status refuse_in_capture(const char* what);
  uint64_t allocation_at(const void* address, bool ask) const;
  Buffer buffer_at(const void* address) const;
  bool has_moved(const Kept& one) const;
  static bool may_use_buffers(tw_plan& plan);
  bool drop(const Kept& one);
  void drop_returned();
  void drop_ended();
  bool drop_oldest(std::vector<AllKept::iterator> of);
  void leave_room(const Key& key, uint32_t receives);
  bool await_room(const thalweg::impl::Deadline& deadline);
  void discard_capture();
  /// Holds keeping_. A first operation is prepared under it, which takes as long as its peer takes: who waits for it can be
  /// interrupted. TW_ERR_BUSY: this thread has it, as an interpreter may run anything while an operation is prepared.
  class Keeping {
   public:
    explicit Keeping(tw_queue& queue) : queue_(queue), status_(take()) {}
    Keeping(const Keeping&) = delete;
    Keeping& operator=(const Keeping&) = delete;
    ~Keeping();
    Status status() const { return status_; }

   private:
    Status take();
    tw_queue& queue_;
    const Status status_;
  };
  std::mutex keeping_;
  std::atomic<std::thread::id> keeper_{};  // who holds it
  AllKept kept_;
  /// Of a plan that was dropped: a peer had not given them back.
  struct Owed {
    std::vector<Buffer> buffers;
    std::vector<std::weak_ptr<const int>> lives;
  };
  std::vector<Owed> owed_;
  uint64_t calls_ = 0;
  std::mutex mutex_;
  std::set<tw_plan*> noted_;
};

struct tw_graph {
  thalweg::impl::Executor* executor = nullptr;
  std::unique_ptr<thalweg::impl::Graph> graph;
  thalweg::impl::CapturedRuns runs;
  /// Counts the runs of a launch, and claims their channels. TW_ERR_STALE: a plan has ended.
  thalweg::impl::Status begin(tw_queue& on);
  void count(bool back);
};

namespace thalweg::impl {

/// The wrapper of a stream that only plans know by its handle (tw_plan_trigger_stream); it keeps a list of them. The stream
/// may end unnoticed, so only its user's calls query it; the wrapper ends with the last of its plans.
Status queue_of_stream(tw_plan& plan, void* stream, tw_queue** out);
Status check(const tw_queue* queue);
void register_queue(tw_queue* queue);  // made by a user
/// What `queue` gets from now on comes after what the queue of that number, of the same device, has by now. One that has ended had all of
/// it done.
Status come_behind(Queue& queue, uint64_t number);
inline uint64_t number_of(const tw_queue* queue) { return queue == nullptr ? 0 : queue->number; }
Status check_stream(const void* stream);

}  // namespace thalweg::impl
