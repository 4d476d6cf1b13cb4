// SPDX-License-Identifier: Apache-2.0
// C interface: workers and their progress.
#include <thalweg/views.h>

#include <new>
#include <stdexcept>

#include "base/platform/cpu.hpp"
#include "core/c_checks.hpp"
#include "trace/trace.hpp"

using namespace thalweg::impl;

namespace {

[[gnu::noinline]] unsigned progress_all(tw_worker& worker) {
  const unsigned events = worker.progress_all(1);
  worker.progressed();
  return events;
}

Status make_worker(tw_context& context, const tw_worker_options& options, tw_worker** out) {
  try {
    *out = new tw_worker(context, options);
  } catch (const std::length_error& error) {  // by its engine
    return fail(TW_ERR_LIMIT, "%s", error.what());
  } catch (const std::bad_alloc&) {
    return fail(TW_ERR_NO_MEMORY, "no memory for a worker");
  }
  return TW_OK;
}

}  // namespace

extern "C" {

tw_status tw_worker_create(tw_context* context, const tw_worker_options* given, tw_worker** out) {
  if (out == nullptr) return fail(TW_ERR_INVALID, "the place for the worker is NULL");
  *out = nullptr;
  Status status = check(context);
  if (is_error(status)) return status;
  const tw_worker_options defaults = TW_WORKER_OPTIONS_INIT;
  const Options<tw_worker_options> options(given, defaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (options->threads > TW_THREADS_MULTI || options->progress > TW_PROGRESS_THREAD) {
    return fail(TW_ERR_INVALID, "unknown thread or progress mode");
  }
  tw_worker* worker = nullptr;
  status = make_worker(*context, *options, &worker);
  if (is_error(status)) return status;
  status = worker->open(*options);
  if (is_error(status)) {
    const std::string why = last_error();
    delete worker;
    set_last_error(why);
    return status;
  }
  context->workers.fetch_add(1);
  *out = worker;
  return TW_OK;
}

void tw_worker_destroy(tw_worker* worker) {
  if (worker == nullptr || worker->born.forked()) return;
  tw_context& context = worker->context;
  delete worker;
  context.workers.fetch_sub(1);
}

unsigned tw_worker_progress(tw_worker* worker) {
  if (is_error(check(worker))) [[unlikely]]
    return 0;
  const Enter enter(*worker);
  if (is_error(enter.status())) return 0;
  if (!worker->nothing_new()) return progress_all(*worker);
  cpu_pause();  // the loads of a caller that polls without one hold up the very line that it waits for
  return 0;
}

tw_status tw_worker_wait(tw_worker* worker, uint64_t timeout_ns) {
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  return worker->wait(timeout_ns);
}

tw_status tw_worker_wake(tw_worker* worker) {
  if (worker == nullptr) return TW_ERR_INVALID;  // no text: a signal handler may be calling
  if (worker->born.forked()) return TW_ERR_FORKED;
  worker->inbox.wake();
  return TW_OK;
}

tw_status tw_worker_fd(tw_worker* worker, int* fd) {
  const Status status = check(worker);
  if (is_error(status)) return status;
  if (fd == nullptr) return fail(TW_ERR_INVALID, "the place for the descriptor is NULL");
  *fd = worker->epoll.get();
  return TW_OK;
}

tw_status tw_worker_arm(tw_worker* worker) {
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  Status status = worker->arm_descriptor();
  if (status == TW_ERR_BUSY) worker->inbox.take_wake();
  return status;
}

tw_status tw_worker_address(tw_worker* worker, void* address, size_t* length) {
  const Status status = check(worker);
  if (is_error(status)) return status;
  if (length == nullptr) return fail(TW_ERR_INVALID, "the length is NULL");
  return write_address(worker->address, address, length);
}

tw_context* tw_worker_context(tw_worker* worker) { return worker == nullptr ? nullptr : &worker->context; }

tw_status tw_worker_flush(tw_worker* worker, tw_request* request) {
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  OpDesc op;
  op.verb = Verb::flush;
  if (request != nullptr) *request = TW_REQUEST_NONE;
  const Status started = worker->engine->start(op, Completion{request});
  worker->posted();
  if (started == TW_OK && worker->engine->may_progress()) {
    worker->progress();
    worker->progressed();
  }
  return started;
}

uint64_t tw_wait_began() { return trace::moment(); }

void tw_wait_ended(uint64_t began) {
  if (trace::on()) trace::Span(trace::What::wait, began).finish();
}

}  // extern "C"
