// SPDX-License-Identifier: Apache-2.0
// Making and wrapping streams; words, events, questions.
#include "devices/cuda/queue.hpp"

#include "devices/cuda/event.hpp"

namespace thalweg::impl::cuda {
namespace {

bool is_standard(void* native) { return reinterpret_cast<uintptr_t>(native) <= kPerThreadStream; }

}  // namespace

/// Streams of one priority share the hardware's channels, some 8 or 32 (CUDA_DEVICE_MAX_CONNECTIONS), of different ones none.
Status CudaDevice::make_queue(std::unique_ptr<Queue>* out, QueueUse use) {
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  const int priority = use == QueueUse::moves ? kMovesPriority : kHighestPriority;
  CuStream stream = nullptr;
  const CuResult made = use == QueueUse::any ? driver().StreamCreate(&stream, kStreamNonBlocking)
                                             : driver().StreamCreateWithPriority(&stream, kStreamNonBlocking, priority);
  if (Status s = check(made, "making a stream"); is_error(s)) return s;
  const uint64_t counter = use == QueueUse::persistent ? 0 : take_counter();
  *out = std::make_unique<CudaQueue>(*this, current.context(), stream, CudaQueue::Kind::own, counter);
  return TW_OK;
}

/// A default stream is that of the primary context, the per-thread one that of whichever thread calls.
Status CudaDevice::wrap_queue(void* native, std::unique_ptr<Queue>* out) {
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  const auto stream = static_cast<CuStream>(native);
  if (is_standard(native)) {
    *out = std::make_unique<CudaQueue>(*this, current.context(), stream, CudaQueue::Kind::standard, 0);
    return TW_OK;
  }
  CuContext context = nullptr;
  if (Status s = check(driver().StreamGetCtx(stream, &context), "looking at the stream"); is_error(s)) return s;
  CuDevice home = -1;
  {
    const Current theirs(driver(), context);
    if (is_error(theirs.status())) return theirs.status();
    if (Status s = check(driver().CtxGetDevice(&home), "looking at the stream"); is_error(s)) return s;
  }
  if (home != ordinal_) return fail(TW_ERR_INVALID, "this is a stream of GPU %d, not of GPU %d", home, ordinal_);
  const uint64_t counter = context == current.context() ? take_counter() : 0;  // it is memory of the primary context
  *out = std::make_unique<CudaQueue>(*this, context, stream, CudaQueue::Kind::users, counter);
  return TW_OK;
}

Status CudaDevice::make_event(std::unique_ptr<Event>* out) {
  const OnDevice current(*this);
  if (is_error(current.status())) return current.status();
  auto event = std::make_unique<CudaEvent>(*this);
  if (Status s = event->make(current.context()); is_error(s)) return s;
  *out = std::move(event);
  return TW_OK;
}

Status CudaDevice::wrap_event(void* native, std::unique_ptr<Event>* out) {
  if (native == nullptr) return fail(TW_ERR_INVALID, "there is no event");
  *out = std::make_unique<CudaEvent>(*this, static_cast<CuEvent>(native));
  return TW_OK;
}

/// A counter that a kernel may still use is not given back: when they run out, signals take a launch of their own. A user's stream
/// where none was used is not asked: plans' streams may end first.
CudaQueue::~CudaQueue() {
  if (device_.forked()) return;
  const Current current(driver(), context_);
  const Relaxed relaxed(driver(), current.status());
  if (is_error(current.status())) return;
  const auto idle = [this] { return capture() == CaptureState::none && driver().StreamQuery(stream_) == result::success; };
  if (counter_ != 0 && (!counted_.load(std::memory_order_relaxed) || idle())) device_.give_back_counter(counter_);
  if (kind_ == Kind::own) driver().StreamDestroy(stream_);
}

Status CudaQueue::ready() const {
  if (kind_ == Kind::standard) {
    return fail(
        TW_ERR_UNSUPPORTED,
        "nothing is enqueued on a default stream, where the caller's kernels run; order an own queue after it by an event");
  }
  return device_.check_alive();
}

CaptureState CudaQueue::capture() {
  unsigned status = kCaptureNone;
  if (driver().StreamIsCapturing(stream_, &status) != result::success || status == kCaptureNone) return CaptureState::none;
  return status == kCaptureActive ? CaptureState::active : CaptureState::invalidated;
}

CaptureState CudaQueue::capture_state() {
  const Current current(driver(), context_, device_.check_alive());
  return is_error(current.status()) ? CaptureState::none : capture();
}

Status CudaQueue::at_rest() {
  if (capture() == CaptureState::none) return TW_OK;
  return fail(TW_ERR_INVALID, "asking or waiting for a queue that is being captured would spoil the capture; end it first");
}

Status CudaQueue::query() {
  const Current current(driver(), context_, device_.check_alive());
  const Relaxed relaxed(driver(), current.status());
  if (is_error(current.status())) return current.status();
  if (Status s = at_rest(); is_error(s)) return s;
  const CuResult result = driver().StreamQuery(stream_);
  return result == result::not_ready ? Status{TW_IN_PROGRESS} : check(result, "asking a stream");
}

Status CudaQueue::synchronize() {
  const Current current(driver(), context_, device_.check_alive());
  const Relaxed relaxed(driver(), current.status());
  if (is_error(current.status())) return current.status();
  if (Status s = at_rest(); is_error(s)) return s;
  return check(driver().StreamSynchronize(stream_), "waiting for a stream");
}

Status CudaQueue::admit(Use use, uint64_t address, uint64_t length) {
  const Current current(driver(), context_, device_.check_alive());
  const Relaxed relaxed(driver(), current.status());
  return is_error(current.status()) ? current.status() : device_.admit(use, context_, address, length);
}

Status CudaQueue::check_word(uint64_t address) {
  if (address % sizeof(uint64_t) == 0) [[likely]]
    return TW_OK;
  return fail(TW_ERR_MISALIGNED, "a queue's word must be aligned to 8 bytes");
}

Status CudaQueue::write_value(uint64_t address, uint64_t value, bool add) {
  const Current current(driver(), context_, ready());
  if (is_error(current.status())) return current.status();
  if (Status s = check_word(address); is_error(s)) return s;
  if (add) {  // streams only store
    const Relaxed relaxed(driver(), current.status());
    return signal_alone({address, value, true}, 0);
  }
  const Turn turn(device_);
  return check(driver().StreamWriteValue64(stream_, address, value, 0), "enqueuing a store");
}

/// Flush: data written before the word was set must be visible to what follows, in whatever order it arrived.
unsigned CudaQueue::wait_flags() const { return kWaitGeq | (device_.flushes() ? kWaitFlush : 0); }

Status CudaQueue::wait_geq(uint64_t address, uint64_t value) {
  const Current current(driver(), context_, ready());
  if (is_error(current.status())) return current.status();
  if (Status s = check_word(address); is_error(s)) return s;
  const Turn turn(device_);
  return check(driver().StreamWaitValue64(stream_, address, value, wait_flags()), "enqueuing a wait");
}

Status CudaQueue::record(Event& event) {
  const Current current(driver(), context_, device_.check_alive());
  if (is_error(current.status())) return current.status();
  return static_cast<CudaEvent&>(event).record(context_, stream_);
}

Status CudaQueue::wait_event(Event& event) {
  const Current current(driver(), context_, device_.check_alive());
  if (is_error(current.status())) return current.status();
  return static_cast<CudaEvent&>(event).wait(stream_);
}

}  // namespace thalweg::impl::cuda
