// SPDX-License-Identifier: Apache-2.0
// Events of emulated devices: a word that the recording queue's task settles.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "devices/queue.hpp"

namespace thalweg::impl::emulated {

/// One recorded point. Settled when the queue gets there, or when its task is dropped without having run.
struct EventPoint {
  std::atomic<Status> status{TW_IN_PROGRESS};
};

/// What a handle of an event names; the Event that made it and those that wrap it share it.
class EventState : public std::enable_shared_from_this<EventState> {
 public:
  std::shared_ptr<EventPoint> point();  // null: never recorded
  std::shared_ptr<EventPoint> start_point();

 private:
  std::mutex mutex_;
  std::shared_ptr<EventPoint> point_;
};

class EmulatedEvent final : public Event {
 public:
  explicit EmulatedEvent(std::shared_ptr<EventState> state) : state_(std::move(state)) {}
  Status query() override;
  Status synchronize() override;
  void* native() override { return state_.get(); }
  EventState& state() { return *state_; }

 private:
  const std::shared_ptr<EventState> state_;
};

}  // namespace thalweg::impl::emulated
