// SPDX-License-Identifier: Apache-2.0
// Recording, asking, waiting.
#include "devices/cuda/event.hpp"

namespace thalweg::impl::cuda {

CudaEvent::~CudaEvent() {
  if (users_ || event_ == nullptr || device_.forked()) return;
  device_.driver().EventDestroy(event_);  // pending waits for it stay valid
}

Status CudaEvent::make(CuContext context) {
  CuEvent fresh = nullptr;
  const Status status =
      check(device_.driver().EventCreate(&fresh, kEventBlockingSync | kEventDisableTiming), "making an event");
  if (is_error(status)) return status;
  if (event_ != nullptr) device_.driver().EventDestroy(event_);
  event_ = fresh;
  context_ = context;
  return TW_OK;
}

void* CudaEvent::native() {
  const std::lock_guard lock(mutex_);
  return event_;
}

Status CudaEvent::record(CuContext context, CuStream stream) {
  const std::lock_guard lock(mutex_);
  if (!users_ && context != context_) {
    if (Status s = make(context); is_error(s)) return s;
  }
  const Turn turn(device_);
  return check(device_.driver().EventRecord(event_, stream), "recording an event");
}

Status CudaEvent::wait(CuStream stream) {
  const std::lock_guard lock(mutex_);
  const Turn turn(device_);
  return check(device_.driver().StreamWaitEvent(stream, event_, 0), "waiting for an event");
}

/// Needs no context.
Status CudaEvent::query() {
  if (Status s = device_.check_alive(); is_error(s)) return s;
  const Relaxed relaxed(device_.driver());
  const std::lock_guard lock(mutex_);
  const CuResult result = device_.driver().EventQuery(event_);
  return result == result::not_ready ? Status{TW_IN_PROGRESS} : check(result, "asking an event");
}

Status CudaEvent::synchronize() {
  const OnDevice current(device_);
  if (is_error(current.status())) return current.status();
  return check(device_.driver().EventSynchronize(static_cast<CuEvent>(native())), "waiting for an event");
}

}  // namespace thalweg::impl::cuda
