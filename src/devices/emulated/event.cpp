// SPDX-License-Identifier: Apache-2.0
// Events: one atomic word a recorded point.
#include "devices/emulated/event.hpp"

namespace thalweg::impl::emulated {

std::shared_ptr<EventPoint> EventState::point() {
  const std::lock_guard lock(mutex_);
  return point_;
}

std::shared_ptr<EventPoint> EventState::start_point() {
  auto fresh = std::make_shared<EventPoint>();
  const std::lock_guard lock(mutex_);
  point_ = fresh;
  return fresh;
}

Status EmulatedEvent::query() {
  const std::shared_ptr<EventPoint> point = state_->point();
  const Status status = point == nullptr ? TW_OK : point->status.load(std::memory_order_acquire);
  return is_error(status) ? fail(status, "the queue that recorded this event broke or ended before it got there") : status;
}

Status EmulatedEvent::synchronize() {
  if (const std::shared_ptr<EventPoint> point = state_->point()) point->status.wait(TW_IN_PROGRESS, std::memory_order_acquire);
  return query();
}

}  // namespace thalweg::impl::emulated
