// SPDX-License-Identifier: Apache-2.0
// C interface: queues and graphs.
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "plans/queue.hpp"

using namespace thalweg::impl;

namespace {

/// Where a queue of the place runs; null: a thread.
Status device_at(const char* place, Device** out) {
  MemoryPlace where;
  if (Status s = parse_place(place, &where); is_error(s)) return s;
  if (where.kind == MemoryKind::pinned) {
    return fail(TW_ERR_INVALID, "a queue belongs to a device or to the host, not to pinned memory: say \"host\" or \"cuda:0\"");
  }
  *out = where.device;
  return TW_OK;
}

constexpr tw_queue_options kQueueDefaults = TW_QUEUE_OPTIONS_INIT;

Status make(tw_context* context, const char* place, uint32_t waits, tw_queue** queue, std::unique_ptr<tw_queue>* made) {
  if (Status s = check(context); is_error(s)) return s;
  if (waits > TW_WAITS_AHEAD) return fail(TW_ERR_INVALID, "the option `waits` is one of TW_WAITS_*, not %u", waits);
  if (queue == nullptr) return fail(TW_ERR_INVALID, "the place for the queue is NULL");
  *queue = nullptr;
  Device* device = nullptr;
  if (Status s = device_at(place, &device); is_error(s)) return s;
  Proxy* proxy = nullptr;
  if (Status s = Proxy::of(*context, &proxy); is_error(s)) return s;
  proxy->release_left(false);
  Executor* executor = nullptr;
  if (Status s = proxy->executor(device, &executor); is_error(s)) return s;
  *made = std::make_unique<tw_queue>(*proxy, *executor);
  return TW_OK;
}

/// An interruptible wait polls instead of sleeping in the device's library: as long as a copy takes, then in naps.
Status synchronize(Queue& queue) {
  if (!may_be_interrupted()) return queue.synchronize();
  constexpr uint64_t kYieldNs = 2 * kMillisecond;
  const uint64_t since = monotonic_ns();
  for (;;) {
    if (const Status status = queue.query(); status != TW_IN_PROGRESS) return status;
    if (Status s = interrupted(); is_error(s)) return s;
    if (monotonic_ns() - since < kYieldNs) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace

extern "C" {

tw_status tw_queue_create(tw_context* context, const char* place, const tw_queue_options* given, tw_queue** queue) {
  const Options<tw_queue_options> options(given, kQueueDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  std::unique_ptr<tw_queue> made;
  if (Status s = make(context, place, options->waits, queue, &made); is_error(s)) return s;
  std::unique_ptr<Queue> fresh;
  if (made->executor.device() == nullptr) {
    fresh = make_host_queue();
  } else if (Status s = made->executor.device()->make_queue(&fresh); is_error(s)) {
    return s;
  }
  made->open(std::move(fresh), options->waits);
  *queue = made.release();
  register_queue(*queue);
  return TW_OK;
}

tw_status tw_queue_wrap(tw_context* context, void* stream, const char* place, const tw_queue_options* given, tw_queue** queue) {
  const Options<tw_queue_options> options(given, kQueueDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  std::unique_ptr<tw_queue> made;
  if (Status s = make(context, place, options->waits, queue, &made); is_error(s)) return s;
  if (made->executor.device() == nullptr)
    return fail(TW_ERR_INVALID, "the host has no streams to wrap: name the stream's device");
  if (reinterpret_cast<uintptr_t>(stream) <= 2) {  // NULL, cudaStreamLegacy and cudaStreamPerThread
    return fail(TW_ERR_UNSUPPORTED, "nothing is enqueued on a default stream, where other kernels may run: make a stream");
  }
  std::unique_ptr<Queue> wrapped;
  if (Status s = made->executor.device()->wrap_queue(stream, &wrapped); is_error(s)) return s;
  made->open(std::move(wrapped), options->waits);
  *queue = made.release();
  register_queue(*queue);
  return TW_OK;
}

void tw_queue_destroy(tw_queue* queue) {
  if (queue == nullptr || queue->born.forked()) return;
  delete queue;
}

void* tw_queue_native(tw_queue* queue) { return queue == nullptr ? nullptr : queue->queue->native(); }

tw_status tw_queue_call(tw_queue* queue, void (*fn)(void* arg), void* arg) {
  if (Status s = check(queue); is_error(s)) return s;
  if (fn == nullptr) return fail(TW_ERR_INVALID, "the function is NULL");
  return queue->queue->call(fn, arg);
}

tw_status tw_queue_synchronize(tw_queue* queue) {
  if (Status s = check(queue); is_error(s)) return s;
  if (Status s = synchronize(*queue->queue); is_error(s)) return s;
  return queue->check();
}

tw_status tw_queue_check(tw_queue* queue) {
  if (Status s = check(queue); is_error(s)) return s;
  return queue->check();
}

tw_status tw_queue_uses(tw_queue* queue, const void* address, size_t length, int* in_use) {
  if (Status s = check(queue); is_error(s)) return s;
  if (in_use == nullptr) return fail(TW_ERR_INVALID, "the place for the answer is NULL");
  *in_use = queue->uses(address, length) ? 1 : 0;
  return TW_OK;
}

tw_status tw_stream_check(const void* stream) { return check_stream(stream); }

tw_status tw_queue_begin_capture(tw_queue* queue) {
  if (Status s = check(queue); is_error(s)) return s;
  if (queue->queue->capture_state() != CaptureState::none)
    return fail(TW_ERR_BUSY, "the queue is being captured already: end that capture first (tw_queue_end_capture)");
  queue->leave_captured();  // of a capture that the program has ended by itself
  const Status status = queue->queue->begin_capture();
  queue->capturing = !is_error(status);
  return status;
}

tw_status tw_queue_end_capture(tw_queue* queue, tw_graph** graph) {
  if (Status s = check(queue); is_error(s)) return s;
  if (graph == nullptr) return fail(TW_ERR_INVALID, "the place for the graph is NULL");
  *graph = nullptr;
  auto made = std::make_unique<tw_graph>();
  made->executor = &queue->executor;
  const bool under_way = queue->queue->capture_state() != CaptureState::none;
  const Status status = queue->queue->end_capture(&made->graph);
  if (is_error(status)) {
    // There is no graph of a capture that was spoilt. One that the program has ended by itself is the program's, and one of another
    // thread goes on.
    if (under_way && queue->queue->capture_state() == CaptureState::none) {
      queue->captured.clear();
      queue->capturing = false;
    }
    return status;
  }
  made->runs = std::exchange(queue->captured, {});
  queue->capturing = false;
  *graph = made.release();
  return TW_OK;
}

tw_status tw_graph_launch(tw_graph* graph, tw_queue* queue) {
  if (Status s = check(queue); is_error(s)) return s;
  if (graph == nullptr) return fail(TW_ERR_INVALID, "the graph is NULL");
  if (graph->executor != &queue->executor) return fail(TW_ERR_INVALID, "the graph was captured at another place");
  if (queue->queue->capture_state() != CaptureState::none) {
    // Its runs would be the other graph's, which knows nothing of their plans.
    return fail(TW_ERR_BUSY,
                "the queue is being captured, and a graph is no part of another one: end the capture first "
                "(tw_queue_end_capture), or trigger the plans themselves");
  }
  if (Status s = graph->begin(*queue); is_error(s)) return s;
  if (Status s = graph->graph->launch(*queue->queue); is_error(s)) {
    graph->count(true);
    return s;
  }
  const std::lock_guard order(queue->order);  // what is recorded last stays
  for (const auto& [version, runs] : graph->runs) {
    if (Status s = version->plan.load()->came_behind(*queue->queue); is_error(s)) return s;
  }
  return TW_OK;
}

void tw_graph_destroy(tw_graph* graph) { delete graph; }

}  // extern "C"
