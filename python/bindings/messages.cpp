// SPDX-License-Identifier: Apache-2.0
// Tagged messages and byte streams: the functions called per message, kept lean (see arguments.hpp).
#include "arguments.hpp"
#include "request.hpp"

namespace thalweg::python {
namespace {

/// The layout argument names pieces of a contiguous buffer: within its borders.
void take_layout(Operation& operation, tw_op_options& options, PyObject* value) {
  Layout* layout = as_object<Layout>(value, "layout");
  operation.buffer.describe(options);
  if (layout == nullptr) return;
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

size_t length_of(const Operation& operation, const tw_op_options& options) {
  return options.layout != nullptr ? tw_layout_bytes(options.layout) : operation.buffer.length();
}

template <bool blocking>
PyObject* endpoint_send(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<7> signature("send", 1, 2, {"buffer", "tag", "sync", "immediate", "layout", "timeout", "after"});
    std::array<PyObject*, 7> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    Operation operation(endpoint.worker_object, endpoint.worker, Result::none);
    operation.buffer.acquire(a[0], BufferView::Use::source);
    operation.buffer.order(a[6]);
    tw_op_options options = TW_OP_OPTIONS_INIT;
    const tw_op_options* given = nullptr;
    if (keywords != nullptr || operation.buffer.describe(options)) {
      options.flags = as_bool(a[2]) ? TW_OP_SYNC : 0;
      options.immediate = as_u64(a[3], 0);
      take_layout(operation, options, a[4]);
      given = &options;
    }
    operation.posted(tw_send(endpoint.get(), operation.buffer.data(), length_of(operation, options), as_u64(a[1], 0), given,
                             &operation.request));
    if (blocking && !operation.under_way()) Py_RETURN_NONE;
    if (!blocking) operation.keep(self);
    return deliver(operation, blocking, blocking ? deadline_of(a[5]) : 0);
  });
}

template <bool blocking>
PyObject* receive(PyObject* worker_object, Worker& worker, tw_endpoint* source, PyObject* endpoint,
                  const std::array<PyObject*, 7>& a) {
  Operation operation(worker_object, &worker, Result::received);
  operation.buffer.acquire(a[0], BufferView::Use::destination);
  operation.buffer.order(a[6]);
  if (endpoint != nullptr) operation.endpoint = nb::borrow(endpoint);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.source = source;
  take_layout(operation, options, a[3]);
  uint64_t tag = as_u64(a[1], 0);
  // A receive that is complete at once may give no request to ask: what is known without one stands here before.
  operation.info = {source, tag, 0, length_of(operation, options)};
  operation.posted(tw_recv(worker.enter(), operation.buffer.data(), operation.info.length, tag, as_u64(a[2], UINT64_MAX),
                           &options, &operation.request));
  return deliver(operation, blocking, blocking ? deadline_of(a[4]) : 0);
}

using ReceiveSignature = Signature<7>;
const ReceiveSignature& receive_signature() {
  static const ReceiveSignature signature("recv", 1, 3, {"buffer", "tag", "mask", "layout", "timeout", "source", "after"});
  return signature;
}

template <bool blocking>
PyObject* endpoint_recv(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    std::array<PyObject*, 7> a;
    receive_signature().parse(a, args, count, keywords);
    if (a[5] != nullptr) raise(TW_ERR_INVALID, "an endpoint's receive has that endpoint as its source: use the worker's");
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    return receive<blocking>(endpoint.worker_object.ptr(), *endpoint.worker, endpoint.get(), self, a);
  });
}

template <bool blocking>
PyObject* worker_recv(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    std::array<PyObject*, 7> a;
    receive_signature().parse(a, args, count, keywords);
    Endpoint* source = as_object<Endpoint>(a[5], "source");
    return receive<blocking>(self, *nb::inst_ptr<Worker>(self), source != nullptr ? source->get() : nullptr,
                             source != nullptr ? a[5] : nullptr, a);
  });
}

template <bool blocking>
PyObject* endpoint_bytes_send(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<2> signature("bytes_send", 1, 1, {"buffer", "timeout"});
    std::array<PyObject*, 2> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    Operation operation(endpoint.worker_object, endpoint.worker, Result::none);
    operation.buffer.acquire(a[0], BufferView::Use::source);
    if (operation.buffer.layout() != nullptr)
      raise(TW_ERR_UNSUPPORTED, "byte streams take contiguous buffers: copy it, or use send");
    operation.keep(self);
    tw_op_options options = TW_OP_OPTIONS_INIT;
    operation.buffer.describe(options);
    operation.posted(
        tw_bytes_send(endpoint.get(), operation.buffer.data(), operation.buffer.length(), &options, &operation.request));
    return deliver(operation, blocking, blocking ? deadline_of(a[1]) : 0);
  });
}

template <bool blocking>
PyObject* endpoint_bytes_recv(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<3> signature("bytes_recv", 1, 1, {"buffer", "all", "timeout"});
    std::array<PyObject*, 3> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    Operation operation(endpoint.worker_object, endpoint.worker, Result::received);
    operation.buffer.acquire(a[0], BufferView::Use::destination);
    if (operation.buffer.layout() != nullptr) raise(TW_ERR_UNSUPPORTED, "byte streams take contiguous buffers: use recv");
    operation.endpoint = nb::borrow(self);
    tw_op_options options = TW_OP_OPTIONS_INIT;
    operation.buffer.describe(options);
    options.flags = as_bool(a[1]) ? TW_OP_WAIT_ALL : 0;
    operation.info = {endpoint.handle, 0, 0, operation.buffer.length()};
    operation.posted(
        tw_bytes_recv(endpoint.get(), operation.buffer.data(), operation.buffer.length(), &options, &operation.request));
    return deliver(operation, blocking, blocking ? deadline_of(a[2]) : 0);
  });
}

/// A message taken out of matching by probe: it must be received.
struct Matched {
  nb::object worker_object;
  Worker* worker;
  tw_message* handle;
  tw_recv_info info;
  nb::object endpoint;
};

nb::object matched_recv(Matched& self, nb::handle buffer, bool blocking) {
  self.worker->enter();
  if (self.handle == nullptr) raise(TW_ERR_HANDLE, "the message was received already");
  Operation operation(self.worker_object, self.worker, Result::received);
  operation.buffer.acquire(buffer.ptr(), BufferView::Use::destination);
  operation.endpoint = self.endpoint;
  operation.info = self.info;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  operation.buffer.describe(options);
  operation.posted(tw_message_recv(std::exchange(self.handle, nullptr), operation.buffer.data(), operation.buffer.length(),
                                   &options, &operation.request));
  return nb::steal(deliver(operation, blocking));
}

nb::object worker_probe(nb::handle_t<Worker> owner, uint64_t tag, uint64_t mask, nb::handle source, bool take) {
  Worker& worker = *nb::inst_ptr<Worker>(owner);
  tw_worker* handle = worker.enter();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  if (Endpoint* from = as_object<Endpoint>(source.ptr(), "source"); from != nullptr) options.source = from->get();
  if (!worker.progress_thread) tw_progress(handle);
  tw_recv_info info{};
  tw_message* message = nullptr;
  tw_status status = tw_probe(handle, tag, mask, &options, &info, take ? &message : nullptr);
  if (status == TW_ERR_NO_MATCH) return nb::none();
  check(status);
  nb::object from = info.endpoint != nullptr ? wrap_endpoint(owner, info.endpoint, false) : nb::none();
  if (!take) return nb::cast(RecvInfo{from, info.tag, info.immediate, info.length}, nb::rv_policy::move);
  return nb::cast(Matched{nb::borrow(owner), &worker, message, info, from}, nb::rv_policy::move);
}

const char send_doc[] =
    "send(buffer, tag=0, *, sync=False, immediate=0, layout=None, timeout=None, after=None)\n--\n\n"
    "Sends a buffer as one message; returns when it may be reused, with sync when it was matched. timeout: seconds; on expiry\n"
    "an unannounced send is cancelled and TimedOut raised. after: a stream or event whose work so far the buffer waits for, "
    "or\n"
    "False; by default its framework's current stream. The GIL is released while waiting. Raises PeerLost, TimedOut.";
const char isend_doc[] =
    "isend(buffer, tag=0, *, sync=False, immediate=0, layout=None, after=None)\n--\n\nAs send, but returns a Request, which "
    "keeps the "
    "buffer.";
const char recv_doc[] =
    "recv(buffer, tag=0, mask=FULL_TAG_MASK, *, layout=None, timeout=None, after=None)\n--\n\n"
    "Receives the earliest message whose tag equals tag in the bits of mask into a writable buffer; returns RecvInfo.\n"
    "timeout: seconds. Raises Truncated (with .length, nothing is written past the buffer), TimedOut, PeerLost.\n"
    "An endpoint receives from its peer alone, a worker from anyone or from source=endpoint. after: as in send.";
const char irecv_doc[] =
    "irecv(buffer, tag=0, mask=FULL_TAG_MASK, *, layout=None, after=None)\n--\n\nAs recv, but returns a Request, which keeps "
    "the buffer.";
const char bytes_send_doc[] =
    "bytes_send(buffer, *, timeout=None)\n--\n\nAppends a contiguous buffer to the endpoint's byte stream, which has no "
    "message borders.";
const char bytes_recv_doc[] =
    "bytes_recv(buffer, *, all=False, timeout=None)\n--\n\nTakes 1 to len(buffer) bytes from the byte stream, or with all that "
    "many. "
    "Returns RecvInfo with .length.";

PyMethodDef endpoint_methods[] = {
    fast_method("send", &endpoint_send<true>, send_doc),
    fast_method("isend", &endpoint_send<false>, isend_doc),
    fast_method("recv", &endpoint_recv<true>, recv_doc),
    fast_method("irecv", &endpoint_recv<false>, irecv_doc),
    fast_method("bytes_send", &endpoint_bytes_send<true>, bytes_send_doc),
    fast_method("ibytes_send", &endpoint_bytes_send<false>, bytes_send_doc),
    fast_method("bytes_recv", &endpoint_bytes_recv<true>, bytes_recv_doc),
    fast_method("ibytes_recv", &endpoint_bytes_recv<false>, bytes_recv_doc),
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef worker_methods[] = {
    fast_method("recv", &worker_recv<true>, recv_doc),
    fast_method("irecv", &worker_recv<false>, irecv_doc),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_messages(nb::module_& m) {
  using nb::arg;
  nb::class_<Matched>(m, "Message", "A message taken out of matching by Worker.probe(take=True): it must be received.")
      .def_prop_ro(
          "length", [](const Matched& s) { return s.info.length; }, "Bytes.")
      .def_prop_ro("tag", [](const Matched& s) { return s.info.tag; })
      .def_prop_ro("immediate", [](const Matched& s) { return s.info.immediate; })
      .def_prop_ro("endpoint", [](const Matched& s) { return s.endpoint; })
      .def(
          "recv", [](Matched& s, nb::handle buffer) { return matched_recv(s, buffer, true); }, arg("buffer"),
          "Receives it into a writable buffer. Returns RecvInfo.")
      .def(
          "irecv", [](Matched& s, nb::handle buffer) { return matched_recv(s, buffer, false); }, arg("buffer"),
          "As recv, but returns a Request.");
  nb::object worker = m.attr("Worker");
  nb::borrow<nb::class_<Worker>>(worker).def(
      "probe", &worker_probe, arg("tag") = 0, arg("mask") = UINT64_MAX, nb::kw_only(), arg("source") = nb::none(),
      arg("take") = false,
      "Looks for an unmatched message: RecvInfo, or None. take: gives a Message that must be received instead.");
  add_methods(worker, worker_methods);
  add_methods(m.attr("Endpoint"), endpoint_methods);
}

}  // namespace thalweg::python
