// SPDX-License-Identifier: Apache-2.0
// Active messages. The library calls a handler inside progress, where Python may not run (another thread may hold the GIL and
// wait for this worker). So the C handler only takes the message, and the thread that progresses calls the Python handlers
// right after, with the GIL.

#include "arguments.hpp"
#include "request.hpp"

namespace thalweg::python {
namespace {

constexpr size_t copied_at_once = 4096;  // larger payloads stay with the library until they are received: one copy, not two
// Waiting messages whose credit has gone back. What comes behind them keeps its own until Python takes it, which stops a sender
// that is faster than the handlers.
constexpr size_t copied_in_all = 1 << 20;

tw_status take_message(void* argument, const tw_am_message* message) {
  Worker& worker = *static_cast<Worker*>(argument);
  AmRecord record{message->endpoint, message->id, {}, {}, message->length, nullptr, false};
  record.header.assign(static_cast<const char*>(message->header), message->header_length);
  const bool small = message->length <= copied_at_once && (message->data != nullptr || message->length == 0);
  std::lock_guard lock(worker.am_mutex);
  const bool keep = !small || worker.am_bytes >= copied_in_all;
  if (keep) {
    record.descriptor = message->descriptor;
    record.here = small;
  } else if (message->length > 0) {
    record.data.assign(static_cast<const char*>(message->data), message->length);
  }
  worker.am_bytes += record.bytes();
  worker.am_queue.push_back(std::move(record));
  worker.am_waiting.fetch_add(1, std::memory_order_release);
  return keep ? TW_IN_PROGRESS : TW_OK;
}

/// A short payload that waited with the library; its credit goes back. Without a run for it it stays there.
void fetch(AmRecord& record) {
  std::string data(record.length, '\0');
  tw_request request = TW_REQUEST_NONE;
  if (tw_am_recv(record.descriptor, data.data(), data.size(), nullptr, &request) < 0) return;
  record.descriptor = nullptr;
  record.data = std::move(data);
  (void)tw_request_release(request);
}

/// What a Python handler gets. A payload that the library still keeps is dropped with this object unless received.
struct AmMessage {
  nb::object worker_object, endpoint;
  Worker* worker;
  AmRecord record;

  AmMessage(nb::object owner, nb::object from, Worker* its_worker, AmRecord taken)
      : worker_object(std::move(owner)), endpoint(std::move(from)), worker(its_worker), record(std::move(taken)) {}
  AmMessage(AmMessage&& other) noexcept
      : worker_object(std::move(other.worker_object)),
        endpoint(std::move(other.endpoint)),
        worker(other.worker),
        record(std::move(other.record)) {
    other.record.descriptor = nullptr;
  }
  /// Is the payload here, or with the library? Else it was received, which is possible once.
  void demand_payload() const {
    if (record.descriptor == nullptr && record.data.size() != record.length)
      raise(TW_ERR_HANDLE, "the payload was received already, or lost by a receive that failed");
  }
  ~AmMessage() {
    if (record.descriptor != nullptr) worker->in_turn([descriptor = record.descriptor] { (void)tw_am_release(descriptor); });
  }
};

nb::object am_recv(AmMessage& self, nb::handle buffer, nb::handle layout, nb::handle after, nb::handle timeout, bool blocking) {
  self.worker->enter();
  self.demand_payload();
  Operation operation(self.worker_object, self.worker, Result::received);
  acquire(operation, buffer.ptr(), BufferView::Use::destination, after.ptr(), layout.ptr());
  operation.endpoint = self.endpoint;
  operation.info = {nullptr, 0, 0, self.record.length};
  tw_op_options options = TW_OP_OPTIONS_INIT;
  take_layout(operation, options, layout.ptr());
  const uint64_t deadline = deadline_of(timeout.ptr());
  if (self.record.descriptor == nullptr) {
    if (options.layout != nullptr) raise(TW_ERR_UNSUPPORTED, "a small payload goes to a contiguous buffer: use .data");
    if (operation.buffer.length() < self.record.data.size())
      raise_truncated("the buffer is shorter than the payload", self.record.length);
    tw_context* context = nb::inst_ptr<Context>(self.worker->context)->get();  // to whatever memory; waits for no stream
    operation.posted(tw_memory_copy(context, operation.buffer.data(), self.record.data.data(), self.record.data.size()));
  } else {
    const tw_status status = tw_am_recv(self.record.descriptor, operation.buffer.data(), length_of(operation, options),
                                        &options, &operation.request);
    if (status >= 0) self.record.descriptor = nullptr;  // one that was refused leaves the payload there
    operation.posted(status);
  }
  return nb::steal(deliver(operation, blocking, deadline));
}

nb::object am_data(AmMessage& self) {
  self.demand_payload();
  if (self.record.descriptor == nullptr) return nb::bytes(self.record.data.data(), self.record.data.size());
  nb::object bytes = nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(self.record.length)));
  am_recv(self, bytes, nb::none(), nb::none(), nb::none(), true);
  nb::bytes data(PyByteArray_AS_STRING(bytes.ptr()), self.record.length);
  self.record.data.assign(data.c_str(), data.size());
  return data;
}

void worker_am_register(Worker& self, uint16_t id, nb::object handler) {
  tw_worker* handle = self.enter();
  std::erase_if(self.handlers, [&](const auto& entry) { return entry.first == id; });
  if (handler.is_none()) {
    check(tw_am_register(handle, id, nullptr, nullptr));
    return;
  }
  check(tw_am_register(handle, id, &take_message, &self));
  self.handlers.emplace_back(id, std::move(handler));
}

template <bool blocking>
PyObject* endpoint_am_send(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<8> signature("am_send", 1, 3,
                                        {"id", "header", "buffer", "protocol", "timeout", "after", "layout", "no_wait"});
    std::array<PyObject*, 8> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    uint64_t id = as_u64(a[0], 0);
    if (id >= 4096) raise(TW_ERR_INVALID, "an active message id is below 4096");
    Operation operation(endpoint.worker_object, endpoint.worker, Result::none);
    BufferView header;
    if (a[1] != nullptr && a[1] != Py_None) header.acquire(a[1], BufferView::Use::source);
    if (header.layout() != nullptr || header.on_device()) {
      raise(TW_ERR_INVALID, "a header is contiguous bytes on the host: put the rest in the buffer");
    }
    if (a[2] != nullptr && a[2] != Py_None) acquire(operation, a[2], BufferView::Use::source, a[5], a[6]);
    tw_op_options options = TW_OP_OPTIONS_INIT;
    take_layout(operation, options, a[6]);
    if (a[3] != nullptr && a[3] != Py_None) {
      std::string protocol = nb::cast<std::string>(nb::handle(a[3]));
      if (protocol != "eager" && protocol != "rendezvous") raise(TW_ERR_INVALID, "protocol is \"eager\" or \"rendezvous\"");
      options.flags = protocol == "eager" ? TW_OP_EAGER : TW_OP_RENDEZVOUS;
    }
    if (as_bool(a[7])) options.flags |= TW_OP_NO_WAIT;
    operation.keep(self);
    if (header.length() > 0) operation.keep(a[1]);
    operation.posted(tw_am_send(endpoint.get(), static_cast<uint16_t>(id), header.data(), header.length(),
                                operation.buffer.data(), length_of(operation, options), &options, &operation.request));
    return deliver(operation, blocking, blocking ? deadline_of(a[4]) : 0);
  });
}

const char am_doc[] =
    "Sends an active message to the peer's handler of id (below 4096): a header (bytes or any contiguous buffer of the host; "
    "up to\n"
    "AM_HEADER_SHORT bytes cost least; copied before the call returns) and a buffer. LimitReached: the header is longer than "
    "the\n"
    "receiver's unexpected_budget has room for.\n"
    "protocol: \"eager\", \"rendezvous\" or None (by size). Returns when the buffer may be reused. layout, after and no_wait: "
    "as in "
    "send.";

FastMethods methods{
    {"am_send", &endpoint_am_send<true>,
     "id, header=b'', buffer=None, *, protocol=None, timeout=None, after=None, layout=None, no_wait=False", am_doc},
    {"iam_send", &endpoint_am_send<false>,
     "id, header=b'', buffer=None, *, protocol=None, after=None, layout=None, no_wait=False", "As am, but returns a Request."},
};

}  // namespace

bool Worker::dispatch() {
  if (am_waiting.load(std::memory_order_acquire) == 0) [[likely]]
    return false;
  raise_kept();
  return run_handlers();
}

void Worker::dispatch_inside() noexcept {
  const size_t kept = raised.is_valid() ? 1 : 0;
  if (am_waiting.load(std::memory_order_acquire) == kept) return;
  const std::thread::id before = std::exchange(inside, std::this_thread::get_id());
  for (bool failed = true; failed;) {
    try {
      run_handlers();
      failed = false;
    } catch (nb::python_error& error) {
      keep_raised(error);
    } catch (...) {  // no memory
      failed = false;
    }
  }
  inside = before;
}

void Worker::keep_raised(nb::python_error& error) noexcept {
  if (raised.is_valid()) return error.discard_as_unraisable("a handler of active messages");
  raised = nb::borrow(error.value());
  am_waiting.fetch_add(1, std::memory_order_release);  // waits look
}

void Worker::raise_kept() {
  if (!raised.is_valid()) return;
  am_waiting.fetch_sub(1, std::memory_order_release);
  const nb::object error = std::move(raised);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

bool Worker::take_message(AmRecord* record) {
  const std::lock_guard lock(am_mutex);
  if (am_queue.empty()) return false;
  *record = std::move(am_queue.front());
  am_queue.pop_front();
  am_bytes -= record->bytes();
  am_waiting.fetch_sub(1, std::memory_order_release);
  return true;
}

bool Worker::run_handlers() {
  nb::object self = nb::find(this);
  bool any = false;
  while (handle != nullptr) {
    AmRecord record;
    if (!take_message(&record)) break;
    any = true;
    if (record.here) fetch(record);
    nb::object handler;
    for (auto& [id, callable] : handlers) {
      if (id == record.id) handler = callable;
    }
    nb::object from = record.endpoint != nullptr ? wrap_endpoint(self, record.endpoint, false) : nb::none();
    nb::object message = nb::cast(AmMessage(self, std::move(from), this, std::move(record)), nb::rv_policy::move);
    if (handler.is_valid()) handler(message);
  }
  return any;
}

void bind_active_messages(nb::module_& m) {
  using nb::arg;
  nb::class_<AmMessage>(m, "AmMessage", "An active message given to its handler. Dropping it drops a payload not received.")
      .def_prop_ro(
          "endpoint", [](const AmMessage& a) { return a.endpoint; }, "Reply here; None: the connection is over.")
      .def_prop_ro("id", [](const AmMessage& a) { return a.record.id; })
      .def_prop_ro("header", [](const AmMessage& a) { return nb::bytes(a.record.header.data(), a.record.header.size()); })
      .def_prop_ro(
          "length", [](const AmMessage& a) { return a.record.length; }, "Bytes of the payload.")
      .def_prop_ro("data", &am_data, "The payload as bytes; a large one is received now, progressing.")
      .def(
          "recv",
          [](AmMessage& a, nb::handle buffer, nb::handle layout, nb::handle timeout, nb::handle after) {
            return am_recv(a, buffer, layout, after, timeout, true);
          },
          arg("buffer"), nb::kw_only(), arg("layout") = nb::none(), arg("timeout") = nb::none(), arg("after") = nb::none(),
          "Receives the payload into a writable buffer without another copy. layout, timeout and after as in Endpoint.recv.")
      .def(
          "irecv",
          [](AmMessage& a, nb::handle buffer, nb::handle layout, nb::handle after) {
            return am_recv(a, buffer, layout, after, nb::none(), false);
          },
          arg("buffer"), nb::kw_only(), arg("layout") = nb::none(), arg("after") = nb::none(),
          "As recv, but returns a Request.");
  nb::borrow<nb::class_<Worker>>(m.attr("Worker"))
      .def("am_register", &worker_am_register, arg("id"), arg("handler").none(),
           "Calls handler(AmMessage) for active messages of id (below 4096), from this worker's progress in the thread that\n"
           "progresses; it may post and reply. None takes it away. What it raises comes out of the call that progressed.");
  methods.add_to(m.attr("Endpoint"));
}

}  // namespace thalweg::python
