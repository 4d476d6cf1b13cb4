// SPDX-License-Identifier: Apache-2.0
// C interface: completion queues, counters, records.
#include <memory>
#include <new>

#include "core/c_checks.hpp"
#include "protocols/completions.hpp"

using namespace thalweg::impl;

namespace {

constexpr Takes kTell{"tw_request_tell", fields::told, 0, false};

Status check(const CompletionSink* sink, const char* what) {
  if (sink == nullptr) return fail(TW_ERR_INVALID, "the %s is NULL", what);
  return sink->born.check(what);
}

/// Its worker, which is still there.
Status worker_of(const CompletionSink* sink, const char* what, tw_worker** worker) {
  if (Status s = check(sink, what); is_error(s)) return s;
  if (sink->engine == nullptr) return fail(TW_ERR_CLOSED, "the worker of this %s was destroyed", what);
  *worker = static_cast<tw_worker*>(sink->engine->owner());
  return TW_OK;
}

/// Of the worker that the operation is posted to.
Status check_sink(const CompletionSink& sink, const char* what, const tw_worker& worker) {
  if (Status s = sink.born.check(what); is_error(s)) return s;
  if (sink.engine == worker.engine.get()) return TW_OK;
  return fail(TW_ERR_INVALID, "the %s belongs to another worker than the operation", what);
}

/// Of the queue, counter or signal that is named. A record has none.
Status worker_of_sink(const tw_op_options& options, tw_worker** worker) {
  if (options.queue != nullptr) return worker_of(options.queue, "completion queue", worker);
  if (options.counter != nullptr) return worker_of(options.counter, "counter", worker);
  if (options.done == nullptr) return fail(TW_ERR_INVALID, "TW_REQUEST_NONE tells a completion queue, a counter or a signal");
  if (Status s = thalweg::impl::check(options.done); is_error(s)) return s;
  *worker = thalweg::impl::worker_of(*options.done);
  return *worker != nullptr ? Status{TW_OK} : fail(TW_ERR_CLOSED, "the worker of this signal was destroyed");
}

Status refuse_polling(const tw_worker& worker) {
  if (worker.engine->may_progress()) return TW_OK;
  return fail(TW_ERR_BUSY, "completion queues are polled outside of callbacks and handlers, which run inside progress");
}

}  // namespace

namespace thalweg::impl {

Status check_sinks(const tw_worker& worker, const SinkOptions& given, tw_request* request, Completion* out) {
  if (given.named() > 1)
    return fail(TW_ERR_INVALID, "an operation tells one of callback, queue, counter, record and done of its end; %d are given",
                given.named());
  *out = Completion{request};
  out->arg = given.arg;
  if (given.queue != nullptr) {
    if (Status s = check_sink(*given.queue, "completion queue", worker); is_error(s)) return s;
    out->kind = SinkKind::queue;
    out->sink_target.queue = given.queue;
  } else if (given.counter != nullptr) {
    if (Status s = check_sink(*given.counter, "counter", worker); is_error(s)) return s;
    out->kind = SinkKind::counter;
    out->sink_target.counter = given.counter;
  } else if (given.record != nullptr) {
    out->kind = SinkKind::record;
    out->sink_target.record = given.record;
    given.record->status = TW_IN_PROGRESS;
  } else if (given.done != nullptr) {
    if (Status s = impl::check(given.done); is_error(s)) return s;
    if (worker_of(*given.done) != &worker)
      return fail(TW_ERR_INVALID, "the signal in `done` belongs to another worker than the operation");
    if (given.done->copier != nullptr && !given.done->memory->origin.buffer.device->has_kernels())
      return fail(TW_ERR_UNSUPPORTED,
                  "the signal in `done` lies in device memory, and this build has no kernels to touch it: use one of "
                  "the library's memory");
    out->kind = SinkKind::done;
    out->sink_target.done = given.done;
    out->value = given.done_value;
  }
  return TW_OK;
}

}  // namespace thalweg::impl

extern "C" {

tw_status tw_completion_test(const tw_completion* record) {
  if (record == nullptr) return fail(TW_ERR_INVALID, "the record is NULL");
  return __atomic_load_n(&record->status, __ATOMIC_ACQUIRE);  // with the bytes and the other fields
}

tw_status tw_request_tell(tw_request request, const tw_op_options* given) {
  const Options<tw_op_options> options(given, kOpDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (Status s = check_options(*options, kTell); is_error(s)) return s;
  tw_worker* worker = nullptr;
  Status status = request != TW_REQUEST_NONE ? find_worker(request, &worker) : worker_of_sink(*options, &worker);
  if (is_error(status)) return status;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  Completion completion;
  status = completion_of(*worker, sinks_of(*options), nullptr, &completion);
  if (is_error(status)) return status;
  if (completion.kind == SinkKind::none || completion.kind == SinkKind::callback)
    return fail(TW_ERR_INVALID, "a request tells a completion queue, a counter, a record or a signal: name one in the options");
  Completions& completions = worker->engine->completions();
  return request != TW_REQUEST_NONE ? completions.tell_of(request, completion) : completions.tell_ended(completion);
}

tw_status tw_completion_queue_create(tw_worker* worker, const tw_completion_queue_options* given, tw_completion_queue** queue) {
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  if (queue == nullptr) return fail(TW_ERR_INVALID, "the place for the queue is NULL");
  const tw_completion_queue_options defaults = TW_COMPLETION_QUEUE_OPTIONS_INIT;
  const Options<tw_completion_queue_options> options(given, defaults);
  if (Status s = options.status(); is_error(s)) return s;
  std::unique_ptr<tw_completion_queue> made(new (std::nothrow) tw_completion_queue);
  if (made == nullptr) return fail(TW_ERR_NO_MEMORY, "no memory for a completion queue");
  made->notifications = options->notifications != 0;
  if (Status s = worker->engine->completions().add(*made); is_error(s)) return s;
  *queue = made.release();
  return TW_OK;
}

tw_status tw_completion_queue_destroy(tw_completion_queue* queue) {
  if (Status s = check(queue, "completion queue"); is_error(s)) return s;
  if (Status s = queue->engine != nullptr ? queue->engine->completions().remove(*queue) : TW_OK; is_error(s)) return s;
  delete queue;
  return TW_OK;
}

tw_status tw_completion_queue_poll(tw_completion_queue* queue, tw_completion* entries, size_t count, size_t* taken) {
  tw_worker* worker = nullptr;
  if (Status s = worker_of(queue, "completion queue", &worker); is_error(s)) return s;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  if (taken == nullptr || (entries == nullptr && count != 0)) return fail(TW_ERR_INVALID, "entries or taken is NULL");
  if (Status s = refuse_polling(*worker); is_error(s)) return s;
  Completions& completions = worker->engine->completions();
  *taken = completions.take_entries(*queue, entries, count);
  if (*taken != 0 || count == 0) return TW_OK;
  worker->progress();
  worker->progressed();
  *taken = completions.take_entries(*queue, entries, count);
  return TW_OK;
}

tw_status tw_completion_queue_wait(tw_completion_queue* queue, tw_completion* entries, size_t count, uint64_t timeout_ns,
                                   size_t* taken) {
  tw_worker* worker = nullptr;
  if (Status s = worker_of(queue, "completion queue", &worker); is_error(s)) return s;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  if (taken == nullptr || entries == nullptr || count == 0)
    return fail(TW_ERR_INVALID, "entries or taken is NULL, or count is 0");
  if (Status s = refuse_polling(*worker); is_error(s)) return s;
  *taken = 0;
  Completions& completions = worker->engine->completions();
  const auto some = [&] { return *taken != 0 || (*taken = completions.take_entries(*queue, entries, count)) != 0; };
  const Status status = worker->wait_until(some, timeout_ns);
  return is_error(status) ? fail(status, "nothing has ended here; the operations go on") : Status{TW_OK};
}

tw_status tw_counter_create(tw_worker* worker, tw_counter** counter) {
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  if (counter == nullptr) return fail(TW_ERR_INVALID, "the place for the counter is NULL");
  auto* const made = new (std::nothrow) tw_counter;
  if (made == nullptr) return fail(TW_ERR_NO_MEMORY, "no memory for a counter");
  worker->engine->completions().add(*made);
  *counter = made;
  return TW_OK;
}

tw_status tw_counter_destroy(tw_counter* counter) {
  if (Status s = check(counter, "counter"); is_error(s)) return s;
  if (Status s = counter->engine != nullptr ? counter->engine->completions().remove(*counter) : TW_OK; is_error(s)) return s;
  delete counter;
  return TW_OK;
}

tw_status tw_counter_read(const tw_counter* counter, uint64_t* completed, uint64_t* failed) {
  if (Status s = check(counter, "counter"); is_error(s)) return s;
  // acquire: what is counted has moved
  if (completed != nullptr) *completed = counter->completed.load(std::memory_order_acquire);
  if (failed != nullptr) *failed = counter->failed.load(std::memory_order_acquire);
  return TW_OK;
}

tw_status tw_counter_wait(tw_counter* counter, uint64_t total, uint64_t timeout_ns) {
  const auto ended = [counter] {
    return counter->completed.load(std::memory_order_acquire) + counter->failed.load(std::memory_order_acquire);
  };
  if (Status s = check(counter, "counter"); is_error(s)) return s;
  if (ended() >= total) return TW_OK;
  tw_worker* worker = nullptr;
  if (Status s = worker_of(counter, "counter", &worker); is_error(s)) return s;
  const Enter enter(*worker);
  if (is_error(enter.status())) return enter.status();
  const Status status = worker->wait_until([&] { return ended() >= total; }, timeout_ns);
  if (!is_error(status) || status == TW_ERR_BUSY) return status;
  return fail(status, "%llu of %llu operations have ended; the others go on", static_cast<unsigned long long>(ended()),
              static_cast<unsigned long long>(total));
}

}  // extern "C"
