// SPDX-License-Identifier: Apache-2.0
#include "protocols/stream_waits.hpp"

#include "devices/registry.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/engine.hpp"

namespace thalweg::impl {
namespace {

/// Release: whatever sees the word also sees the request's bytes and its other writes.
void release(StreamWait& wait) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(wait.word), wait.generation, __ATOMIC_RELEASE);
  wait.pending = false;
  wait.waits.reset();
}

Status arm(StreamWait& wait) {
  wait.waits.emplace();
  if (Status s = wait.queue->wait_geq(wait.word, wait.generation + 1); is_error(s)) {
    wait.waits.reset();
    return s;
  }
  ++wait.generation;
  wait.pending = true;
  const Status status = wait.queue->record(*wait.event);
  if (is_error(status)) release(wait);
  return status;
}

}  // namespace

void release_all(StreamWait* wait) {
  while (wait != nullptr) {
    StreamWait* const next = std::exchange(wait->next, nullptr);
    release(*wait);
    wait = next;
  }
}

StreamWait::~StreamWait() {
  if (pending) release(*this);
  if (queue != nullptr) queue->synchronize();  // it holds only waits that are fulfilled; afterwards no device reads the word
  queue.reset();
  if (word != 0) device->free(word);
}

/// A waiting queue must not block the library's own queues, which bring the bytes: streams may share a hardware channel, and
/// with CUDA_DEVICE_MAX_CONNECTIONS=1 all of them do. Checked once, when the wait is made.
Status StreamWaits::make(Device& device, StreamWait** out) {
  auto wait = std::make_unique<StreamWait>();
  wait->device = &device;
  if (Status s = device.make_queue(&wait->queue); is_error(s)) return s;
  if (Status s = device.make_event(&wait->event); is_error(s)) return s;
  if (Status s = device.allocate(MemoryKind::pinned, sizeof(uint64_t), &wait->word); is_error(s)) return s;
  *reinterpret_cast<uint64_t*>(wait->word) = wait->generation = first_;
  if (Status s = queues_.prepare(device); is_error(s)) return s;
  queues_.measure_no_more();  // from here on streams may wait for this process
  if (Status s = arm(*wait); is_error(s)) return s;
  const Status status = queues_.check_moving(device);
  release(*wait);
  if (status == TW_ERR_TIMED_OUT) {
    return fail(TW_ERR_UNSUPPORTED,
                "a waiting stream would hold up this device's copies, so the request might never end: set "
                "CUDA_DEVICE_MAX_CONNECTIONS to 8 or more (it has to be before the first use of CUDA), or wait on the host");
  }
  if (is_error(status)) return status;
  *out = wait.get();
  stream_waits_.push_back(std::move(wait));
  return TW_OK;
}

Status StreamWaits::take(Device& device, StreamWait** out) {
  unsigned count = 0;
  for (auto& wait : stream_waits_) {
    if (wait->device != &device) continue;
    ++count;
    if (wait->pending) continue;
    *out = wait.get();
    return TW_OK;
  }
  if (count < kMost) return make(device, out);
  return fail(TW_ERR_LIMIT, "streams wait for %u requests of this worker already: let one of them end first", kMost);
}

Status StreamWaits::hold(Device& device, Queue& stream, StreamWait** of_run) {
  for (StreamWait* wait = *of_run; wait != nullptr; wait = wait->next) {
    if (wait->device == &device) return stream.wait_event(*wait->event);
  }
  StreamWait* wait = nullptr;
  if (Status s = take(device, &wait); is_error(s)) return s;
  if (Status s = arm(*wait); is_error(s)) {
    std::erase_if(stream_waits_, [wait](const auto& one) { return one.get() == wait; });  // its queue takes nothing more
    return s;
  }
  if (Status s = stream.wait_event(*wait->event); is_error(s)) {
    release(*wait);
    return s;
  }
  wait->next = std::exchange(*of_run, wait);
  return TW_OK;
}

namespace {

/// The stream, as one of `device`, or of the first device that knows it where that is null.
Status find_stream(Device*& device, const void* native, std::unique_ptr<Queue>* stream) {
  void* const handle = const_cast<void*>(native);
  if (device != nullptr) return device->wrap_queue(handle, stream);
  std::string why = "there is no device in this process";
  for (Device* any : list_devices(nullptr)) {
    device = any;
    if (any->wrap_queue(handle, stream) == TW_OK) return TW_OK;
    why = last_error();
  }
  return fail(TW_ERR_INVALID, "no device here has this stream: %s", why.c_str());
}

}  // namespace

Status hold_stream(Engine& engine, tw_request request, const void* native) {
  const Engine::Guard guard(engine);
  OpRun* run = engine.runs().find(request);
  if (run == nullptr) return fail(TW_ERR_HANDLE, "this request is not alive: it was released, or its worker is gone");
  Device* device = (run->own.flags & kOpDevice) != 0 ? run->own.device : nullptr;
  std::unique_ptr<Queue> stream;
  if (Status s = find_stream(device, native, &stream); is_error(s)) return s;
  if (stream->capture_state() != CaptureState::none) {
    return fail(TW_ERR_UNSUPPORTED, "the stream is being captured: a request is of one time, a graph is replayed");
  }
  if (run->status.load(std::memory_order_relaxed) != TW_IN_PROGRESS) return TW_OK;
  run->extras = true;  // it ends the long way
  return engine.devices().stream_waits().hold(*device, *stream, &run->stream_wait);
}

}  // namespace thalweg::impl
