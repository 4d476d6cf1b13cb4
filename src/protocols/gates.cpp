// SPDX-License-Identifier: Apache-2.0
#include "protocols/gates.hpp"

#include "devices/registry.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/engine.hpp"

namespace thalweg::impl {
namespace {

/// Release: the bytes of the request, and what it wrote beside them, are there for who sees the word.
void let_through(Gate& gate) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(gate.word), gate.generation, __ATOMIC_RELEASE);
  gate.closed = false;
  gate.waits.reset();
}

Status close(Gate& gate) {
  gate.waits.emplace();
  if (Status s = gate.queue->wait_geq(gate.word, gate.generation + 1); is_error(s)) return s;
  ++gate.generation;
  gate.closed = true;
  const Status status = gate.queue->record(*gate.event);
  if (is_error(status)) let_through(gate);
  return status;
}

}  // namespace

void open(Gate* gate) {
  while (gate != nullptr) {
    Gate* const next = std::exchange(gate->next, nullptr);
    let_through(*gate);
    gate = next;
  }
}

Gate::~Gate() {
  if (closed) let_through(*this);
  if (queue != nullptr)
    queue->synchronize();  // nothing but waits for words that are there: then nobody reads the word any more
  queue.reset();
  if (word != 0) device->free(word);
}

/// A queue that waits must not hold up the library's own, which bring the bytes: streams may share a channel of the hardware, all of
/// them with CUDA_DEVICE_MAX_CONNECTIONS=1. Looked at once, when the gate is made.
Status Gates::make(Device& device, Gate** out) {
  auto gate = std::make_unique<Gate>();
  gate->device = &device;
  if (Status s = device.make_queue(&gate->queue); is_error(s)) return s;
  if (Status s = device.make_event(&gate->event); is_error(s)) return s;
  if (Status s = device.allocate(MemoryKind::pinned, sizeof(uint64_t), &gate->word); is_error(s)) return s;
  *reinterpret_cast<uint64_t*>(gate->word) = gate->generation = first_;
  if (Status s = queues_.prepare(device); is_error(s)) return s;
  queues_.measure_no_more();  // from here on streams may wait for this process
  if (Status s = close(*gate); is_error(s)) return s;
  const Status status = queues_.check_moving(device);
  let_through(*gate);
  if (status == TW_ERR_TIMED_OUT) {
    return fail(TW_ERR_UNSUPPORTED,
                "a waiting stream would hold up this device's copies, so the request might never end: set "
                "CUDA_DEVICE_MAX_CONNECTIONS to 8 or more (it has to be before the first use of CUDA), or wait on the host");
  }
  if (is_error(status)) return status;
  *out = gate.get();
  gates_.push_back(std::move(gate));
  return TW_OK;
}

Status Gates::take(Device& device, Gate** out) {
  unsigned count = 0;
  for (auto& gate : gates_) {
    if (gate->device != &device) continue;
    ++count;
    if (gate->closed) continue;
    *out = gate.get();
    return TW_OK;
  }
  if (count < kMost) return make(device, out);
  return fail(TW_ERR_LIMIT, "streams wait for %u requests of this worker already: let one of them end first", kMost);
}

Status Gates::hold(Device& device, Queue& stream, Gate** of_run) {
  for (Gate* gate = *of_run; gate != nullptr; gate = gate->next) {
    if (gate->device == &device) return stream.wait_event(*gate->event);
  }
  Gate* gate = nullptr;
  if (Status s = take(device, &gate); is_error(s)) return s;
  if (Status s = close(*gate); is_error(s)) return s;
  if (Status s = stream.wait_event(*gate->event); is_error(s)) {
    let_through(*gate);
    return s;
  }
  gate->next = std::exchange(*of_run, gate);
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

Status Engine::before(tw_request request, const void* native) {
  const Guard guard(*this);
  OpRun* run = find(request);
  if (run == nullptr) return impl::fail(TW_ERR_HANDLE, "this request is not alive: it was released, or its worker is gone");
  Device* device = (run->own.flags & kOpDevice) != 0 ? run->own.device : nullptr;
  std::unique_ptr<Queue> stream;
  if (Status s = find_stream(device, native, &stream); is_error(s)) return s;
  if (stream->capture_state() != CaptureState::none) {
    return impl::fail(TW_ERR_UNSUPPORTED, "the stream is being captured: a request is of one time, a graph is replayed");
  }
  if (run->status.load(std::memory_order_relaxed) != TW_IN_PROGRESS) return TW_OK;
  run->extras = true;  // it ends the long way
  return devices().gates().hold(*device, *stream, &run->gate);
}

}  // namespace thalweg::impl
