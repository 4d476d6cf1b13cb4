// SPDX-License-Identifier: Apache-2.0
#include "request.hpp"

#include "arguments.hpp"

namespace thalweg::python {
namespace {

constexpr size_t looked_at = 8;  // dropped requests, by a call that adds one or waits: as many as come, and some

/// The library still uses the operation's buffer while Python has lost interest: the worker keeps it until it ends.
void orphan(Operation&& operation) noexcept {
  Worker* worker = operation.worker;
  if (!worker->alive()) return;  // ended with its worker
  nb::object owner;              // perhaps the last that holds the worker, which then ends behind all this
  try {
    nb::object self = nb::cast(Request(std::move(operation)), nb::rv_policy::move);
    owner = std::move(nb::inst_ptr<Request>(self)->operation.worker_object);  // the worker owns it now: no cycle
    if (!worker->entered_elsewhere()) worker->reap_orphans(looked_at);
    worker->orphans.push_back(std::move(self));
  } catch (...) {
    PyErr_Clear();
  }
}

bool request_done(Request& request) {
  Operation& operation = request.operation;
  if (!operation.under_way()) return true;
  Worker& worker = *operation.worker;
  worker.enter();
  worker.disarm();
  if (!worker.progress_thread) tw_worker_progress(worker.handle);
  worker.progressed();
  if (!worker.orphans.empty()) worker.reap_orphans(looked_at);
  worker.dispatch();
  worker.enter();  // a handler, or another thread while it ran, may have closed it
  if (!operation.test()) return false;
  operation.finish();
  return true;
}

nb::object request_wait(Request& request, nb::handle timeout) {
  Operation& operation = request.operation;
  if (operation.under_way()) {
    const uint64_t deadline = deadline_of(timeout.ptr());
    operation.worker->enter();
    operation.await(deadline);
  }
  return operation.value();
}

bool request_spin(Request& request, double seconds) {
  Operation& operation = request.operation;
  if (!operation.under_way()) return true;
  Worker& worker = *operation.worker;
  worker.enter();
  worker.disarm();
  uint64_t stop = 0;
  for (unsigned round = 0;; ++round) {
    tw_worker_progress(worker.handle);
    worker.progressed();
    if (operation.test()) {
      operation.finish();
      return true;
    }
    if ((round & 31) != 31) continue;
    uint64_t now = now_ns();
    if (stop == 0) stop = now + static_cast<uint64_t>(seconds * 1e9);
    if (now >= stop) return false;
  }
}

bool request_cancel(Request& request) {
  Operation& operation = request.operation;
  if (!operation.under_way()) return false;
  operation.worker->enter();
  tw_status status = tw_request_cancel(operation.request);
  if (status == TW_ERR_BUSY || status == TW_ERR_HANDLE) return false;
  check(status);
  return true;
}

void request_before(Request& request, nb::handle stream) {
  const After named = stream.is_none() ? After{} : after_of(stream);
  if (named.kind != TW_AFTER_STREAM) {
    PyErr_Format(PyExc_TypeError, "before takes a stream or a stream's number, not a %s", Py_TYPE(stream.ptr())->tp_name);
    throw nb::python_error();
  }
  Operation& operation = request.operation;
  if (!operation.under_way()) return;
  operation.worker->enter();
  check(tw_request_before(operation.request, reinterpret_cast<const void*>(named.handle)));
}

}  // namespace

Request::~Request() {
  if (!operation.under_way() || !operation.worker_object.is_valid()) return;
  Worker& worker = *operation.worker;
  if (!worker.alive()) return;
  if (!worker.entered_elsewhere() && operation.test()) {
    operation.finish();
  } else {
    orphan(std::move(operation));
  }
}

static void let_others_run() {
  const Released others;
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void Operation::finish() {
  while (true) {
    while (unpacking != nullptr && unpacking->running) {  // in another thread that waits for it, too
      if (unpacking->by == std::this_thread::get_id()) return;
      let_others_run();
    }
    if (!under_way()) return;
    if (outcome != TW_IN_PROGRESS || take_outcome()) return end(outcome);
    let_others_run();
  }
}

bool Operation::take_outcome() {
  std::unique_lock<std::mutex> polled;  // nobody takes it from the queue meanwhile
  if (told != nullptr) polled = std::unique_lock(*told);
  const tw_status ended = tw_request_test(request);
  if (told != nullptr && ended == TW_ERR_HANDLE && worker->alive()) return false;
  if (result == Result::received) {
    (void)tw_request_info(request, &info);
    find_sender();
  }
  if (ended < 0) message = tw_request_message(request);
  if (ended < 0 && message.empty()) message = tw_status_name(ended);
  (void)tw_request_release(request);  // refused where it is told: its entry releases it
  request = TW_REQUEST_NONE;
  outcome = ended;
  return true;
}

/// Not where nobody asks for it any more.
void Operation::find_sender() noexcept {
  if (endpoint.is_valid() || info.endpoint == nullptr || !worker_object.is_valid() || !worker->alive()) return;
  try {
    sender = wrap_endpoint(worker_object, info.endpoint, false);
  } catch (...) {  // no memory
    PyErr_Clear();
  }
}

void Operation::ended_as(const tw_completion& entry, const std::string& text) {
  if (result == Result::received) {
    info = entry.info;
    find_sender();
  }
  if (entry.status < 0) message = text;
  request = TW_REQUEST_NONE;
  outcome = entry.status;
}

void Operation::raise_raised() const {
  const nb::handle raised = unpacking != nullptr    ? unpacking->raised
                            : collective != nullptr ? collective->raised
                                                    : nb::handle();
  if (!raised.is_valid()) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
  throw nb::python_error();
}

nb::object Operation::value() {
  raise_raised();
  if (status == TW_ERR_TRUNCATED) raise_truncated(message.c_str(), info.length);
  if (status < 0) raise(status, message.c_str());
  switch (result) {
    case Result::none:
      return nb::none();
    case Result::number:
      return nb::int_(number_size == 4 ? static_cast<uint64_t>(*reinterpret_cast<uint32_t*>(number.get())) : *number);
    case Result::received:
      break;
  }
  nb::object from = endpoint;
  if (!from.is_valid()) {
    const bool known = sender.is_valid() && !sender.is_none() && !nb::inst_ptr<Endpoint>(sender)->closed();
    from = known ? sender : nb::none();
  }
  return nb::cast(RecvInfo{std::move(from), info.tag, info.immediate, info.length}, nb::rv_policy::move);
}

void Operation::await(uint64_t deadline) {
  if (!under_way()) return;
  const tw_request asked = request;  // another thread that waits for it may take the outcome first
  if (!wait_until(*worker, deadline, [asked] { return tw_request_test(asked) != TW_IN_PROGRESS; }) && under_way()) {
    (void)tw_request_wait(asked, 0);  // words it
    if (tw_request_test(asked) == TW_IN_PROGRESS) raise(TW_ERR_TIMED_OUT);
  }
  finish();
  if (under_way()) raise(TW_ERR_BUSY, "unpack waits for the operation that it belongs to");
}

void Operation::wait(uint64_t deadline) {
  if (!under_way()) return;
  const tw_request asked = request;
  const auto ended = [asked] { return tw_request_test(asked) != TW_IN_PROGRESS; };
  if (!wait_until(*worker, deadline, ended)) {
    (void)tw_request_cancel(request);
    if (!ended()) {
      raise(TW_ERR_TIMED_OUT,
            "it did not end in time and cannot be cancelled any more: it goes on, and its buffer stays the library's until it "
            "ends");
    }
    finish();
    if (status == TW_ERR_CANCELED) raise(TW_ERR_TIMED_OUT, "nothing came in time; the operation was cancelled");
    return;
  }
  finish();
}

void take_layout(Operation& operation, tw_op_options& options, PyObject* value) {
  Layout* layout = as_object<Layout>(value, "layout");
  operation.buffer.describe(options);
  if (layout == nullptr || layout->functions != nullptr) return;
  if (options.layout != nullptr)
    raise(TW_ERR_INVALID, "give either a non-contiguous array or a layout over a contiguous buffer, not both");
  int64_t first = 0, last = 0;
  tw_layout_extent(layout->handle, &first, &last);
  if (first < 0 || last > static_cast<int64_t>(operation.buffer.length())) {
    raise(TW_ERR_OUT_OF_BOUNDS, "the layout reaches outside the buffer");
  }
  options.layout = layout->handle;
  operation.keep(value);
}

PyObject* complete(Operation& operation, uint64_t deadline) {
  try {
    operation.wait(deadline);
  } catch (...) {
    if (operation.under_way()) {
      (void)tw_request_cancel(operation.request);
      orphan(std::move(operation));
    }
    throw;
  }
  nb::object value = operation.result == Result::none && operation.status == TW_OK ? nb::none() : operation.value();
  if (!operation.worker->orphans.empty()) [[unlikely]]
    operation.worker->reap_orphans(looked_at);
  return value.release().ptr();
}

PyObject* into_request(Operation&& operation) {
  return nb::cast(Request(std::move(operation)), nb::rv_policy::move).release().ptr();
}

void Worker::reap_orphans(size_t most) noexcept {
  for (most = std::min(most, orphans.size()); most != 0 && !orphans.empty(); --most) {
    if (next_orphan >= orphans.size()) next_orphan = 0;
    Operation& operation = nb::inst_ptr<Request>(orphans[next_orphan])->operation;
    if (!operation.test()) {
      ++next_orphan;
      continue;
    }
    const nb::object ended = std::move(orphans[next_orphan]);  // whose end may run anything
    orphans[next_orphan] = std::move(orphans.back());
    orphans.pop_back();
    operation.finish();
  }
}

void bind_request(nb::module_& m) {
  nb::class_<RecvInfo>(m, "RecvInfo", "What a receive learned: sender's endpoint, tag, immediate value, length in bytes.")
      .def_prop_ro(
          "endpoint", [](const RecvInfo& info) { return info.endpoint; },
          "The sender's endpoint on this side; None: it is gone.")
      .def_ro("tag", &RecvInfo::tag)
      .def_ro("immediate", &RecvInfo::immediate)
      .def_ro("length", &RecvInfo::length, "True length in bytes.")
      .def("__repr__", [](const RecvInfo& info) {
        return "RecvInfo(tag=" + std::to_string(info.tag) + ", immediate=" + std::to_string(info.immediate) +
               ", length=" + std::to_string(info.length) + ")";
      });

  nb::class_<Request>(m, "Request",
                      "An operation under way. Keeps its buffer alive until it ends, also when the request is dropped.")
      .def("done", &request_done, "Progresses once; True when the operation has ended. Does not raise how it ended.")
      .def_prop_ro(
          "ended", [](const Request& r) { return !r.operation.under_way(); }, "As done(), without progress.")
      .def("wait", &request_wait, nb::arg("timeout") = nb::none(),
           "Progresses until the end, at most timeout seconds (None: no limit), with the GIL released. Returns what the\n"
           "blocking form returns, or raises how it ended; TimedOut leaves the request alive.")
      .def("cancel", &request_cancel, "Asks an unmatched receive or an unannounced send to end with Canceled. False: too late.")
      .def(
          "before", &request_before, nb::arg("stream"),
          "Work that is enqueued on the stream from now on waits until the operation has ended, well or not; returns at once.\n"
          "stream: of PyTorch, CuPy or Numba, an object with __cuda_stream__, or a stream's number (0: the default stream).\n"
          "The worker must be progressed meanwhile: synchronising the stream does not. Raises Unsupported while the stream "
          "is\n"
          "captured, LimitReached past 8 operations of one worker that streams wait for.")
      .def_prop_ro("worker", [](Request& r) { return r.operation.worker_object; })
      .def("_spin", &request_spin, nb::arg("seconds"))
      .def("_value", [](Request& r) { return r.operation.value(); })
      .def_rw("_token", &Request::token, nb::arg().none());
}

}  // namespace thalweg::python
