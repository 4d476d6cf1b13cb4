// SPDX-License-Identifier: Apache-2.0
// The thread of an emulated queue: runs tasks asynchronously, in order. Queues share it (a user's, and ours that wraps it).
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "devices/emulated/slots.hpp"
#include "devices/queue.hpp"

namespace thalweg::impl::emulated {

class EmulatedStream;

struct Task {
  std::function<Status(EmulatedStream&)> run;  // on whichever stream's thread: a captured one runs on several
  bool kernel = false;                         // holds a kernel slot
  std::function<void()> lost = {};             // instead of run: the stream has broken, or ended
};

/// What a device shares with its streams.
struct Engine {
  explicit Engine(const Options& from) : options(from), slots(from.kernel_slots), faults(from) {}
  const Options options;
  KernelSlots slots;
  Faults faults;
  /// As a driver's: exclusive while a call waits for kernels, and a call that enqueues meanwhile waits, too.
  std::shared_mutex driver;
  std::atomic<bool> held{false};       // streams begin no task
  std::atomic<unsigned> held_back{0};  // streams with a task that cannot begin
};

class EmulatedStream {
 public:
  EmulatedStream(std::shared_ptr<Engine> engine, bool order_only);
  ~EmulatedStream();  // what is queued is dropped; a task that runs ends first
  Status enqueue(Task task);
  Status query();
  Status synchronize();
  /// Of a stepped stream: its next task. False: there is none, or it waits for something.
  bool step();
  /// For tasks: waits until ready() is not TW_IN_PROGRESS, the stream ends, or the wait limit is over. A stepped stream polls
  /// once, and its task is run again.
  Status await(const std::function<Status()>& ready) const;
  /// What the task that runs, and is perhaps run again, keeps to itself until then. Of that task only.
  std::shared_ptr<void>& kept() { return kept_; }
  bool stepped() const { return engine_->options.stepped; }
  bool order_only() const { return order_only_; }  // a default stream: the library enqueues no work there
  Engine& engine() { return *engine_; }

  CaptureState capture_state();
  Status begin_capture();
  Status end_capture(std::vector<Task>* out);

 private:
  void run();
  void wait_while_held(std::unique_lock<std::mutex>& lock);
  bool step_locked(std::unique_lock<std::mutex>& lock);
  Status perform(Task& task);
  static void lose(const Task& task);
  Status refuse_in_capture(const char* what);

  const std::shared_ptr<Engine> engine_;
  const bool order_only_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool running_ = false;
  bool asked_ = false;  // stepped: a query since the last task
  std::atomic<bool> stop_{false};
  Status failed_ = TW_OK;
  CaptureState capture_ = CaptureState::none;
  std::vector<Task> captured_;
  std::shared_ptr<void> kept_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace thalweg::impl::emulated
