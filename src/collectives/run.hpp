// SPDX-License-Identifier: Apache-2.0
// Runs a schedule: each step is an operation of the engine, started when the steps before it have ended, in the progress of the
// group's worker.
//
// Life: taken from its group (Collectives::take_run), start(), and given back by itself when it is over: when all steps have
// ended, or when it has failed and what was under way has ended. Under the engine's lock.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/buffers.hpp"
#include "collectives/elements.hpp"
#include "collectives/prepared_schedule.hpp"
#include "protocols/engine.hpp"

namespace thalweg::impl {

class Collectives;

/// What one call runs.
struct CollectiveTask {
  std::shared_ptr<const PreparedSchedule> schedule;
  Bound bound;
  Device* device = nullptr;  // combines elements and holds intermediate results; null: the host
  Operation operation;
  uint32_t element = 1;            // bytes
  uint64_t called = 0;             // CalledThing
  uint64_t scaled_count = 0;       // elements of the output that the last pass scales; 0: none
  std::optional<uint64_t> number;  // of the collective in its group; none: the next one where it starts
};

class CollectiveRun {
 public:
  explicit CollectiveRun(Collectives& owner) : owner_(owner) {}
  CollectiveRun(const CollectiveRun&) = delete;
  CollectiveRun& operator=(const CollectiveRun&) = delete;

  /// handle: the request, completed when it is over; null: a thread waits for over(), and then calls take_result().
  void start(CollectiveTask task, OpRun* handle);
  /// Acquire: what was received is visible.
  bool over() const { return over_.load(std::memory_order_acquire); }
  Status status() const { return status_; }  // once it is over
  /// Of a blocking call, once: how it ended. Gives the run back.
  Status take_result();
  /// Ends with an error: receives that wait are withdrawn. The group has failed.
  void give_up(Status status, const std::string& why);
  /// What is under way, for a text: "rank 3, rank 5"; the first of them in *rank.
  std::string missing(uint32_t* rank) const;
  /// The rank's links are closed with this error: last resort, where a peer does not give a buffer back.
  void close_peers(const std::string& why);

 private:
  /// A step that is under way.
  struct StepRun {
    CollectiveRun* run = nullptr;
    uint32_t step = 0;
    bool under_way = false;
    tw_request request = TW_REQUEST_NONE;
  };

  void advance();
  void step_ended(uint32_t step);
  Status start_step(uint32_t step);
  Status start_send(const CollectiveStep& step, StepRun& state);
  Status start_recv(const CollectiveStep& step, StepRun& state);
  Status copy(std::byte* to, const Buffer& to_buffer, std::byte* from, const Buffer& from_buffer, uint64_t length,
              StepRun& state);
  Status start_reduce(const CollectiveStep& step, StepRun& state);
  OpDesc message(const Part& part, uint32_t number) const;
  /// The rank's peer, which is not lost.
  Status reach(uint32_t rank, Peer** peer);
  Peer* lost_sender(uint32_t rank, const OpDesc& op) const;
  void check_received(const StepRun& state, const tw_recv_info& info);
  void step_failed(const StepRun& state, Status status, const std::string& why);
  void finish();
  static void on_message(void* arg, tw_request request, Status status, const tw_recv_info* info);
  static void on_device(Engine& engine, void* token, Status status);
  static void on_reduced(Engine& engine, void* token, Status status);
  void device_step_over(StepRun& state, Status status);

  Collectives& owner_;
  CollectiveTask task_;
  OpRun* handle_ = nullptr;
  uint64_t number_ = 0;          // of the collective in its group
  std::vector<StepRun> states_;  // by step
  std::vector<uint32_t> waits_;  // by step: steps before it that have not ended
  std::vector<uint32_t> ready_;
  std::vector<uint64_t> sources_;  // of a reduction
  ReduceRoom room_;
  uint32_t left_ = 0, under_way_ = 0;
  bool advancing_ = false;
  Status status_ = TW_OK;
  std::string why_;
  std::atomic<bool> over_{false};
};

}  // namespace thalweg::impl
