// SPDX-License-Identifier: Apache-2.0
// Other threads that work beside a program on its engines and registries, with the engines' own locks: they register and
// release memory, test the program's requests, post, wait for and cancel operations of their own (own.hpp), arm, wake,
// explain, and progress.
//
// The schedule is one thread's at a time, because the reference must know what happened before what: the holder of the turn
// progresses, carries frames and ends connections; the program's thread has it, and passes it between two events to a thread
// that wants to progress. Everything else the others do without it, at any time.
#pragma once
#include <array>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>

#include "model/own.hpp"

namespace thalweg::model {

class Threads {
 public:
  Threads(World& world, unsigned count, uint64_t seed);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// The caller has the turn from here on, until join().
  void start();

  // --- by the holder of the turn
  /// Another thread may have it for a while.
  void breathe();
  /// No thread does anything beside the turn while it is held.
  std::unique_lock<std::shared_mutex> pause();
  /// A request that anybody may test, also when it is long released.
  void show(tw_request request);

  // --- the program's thread, at the end
  void join();
  bool finish();
  void check();
  void give_back();

  /// By any of the others.
  void wrong(const char* what);
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  std::string failure();

 private:
  static constexpr size_t kShown = 64;
  struct Worker;  // one of them
  void live(Worker& mine);
  void act(Worker& mine);
  void progress(Worker& mine);
  void test_a_request(Worker& mine);
  void explain_something(Worker& mine);
  void arm_or_wake(Worker& mine);
  void use_registry(Worker& mine);
  void use_signals(Worker& mine);

  World& world_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex turn_;
  std::atomic<unsigned> wanted_{0}, ready_{0};
  std::shared_mutex acting_;
  std::atomic<bool> paused_{false}, stop_{false}, failed_{false}, joined_{true};
  std::array<std::atomic<tw_request>, kShown> shown_{};
  std::atomic<size_t> next_shown_{0};
  std::mutex failing_;
  std::string failure_;
};

}  // namespace thalweg::model
