// SPDX-License-Identifier: Apache-2.0
// Tagged messages and byte streams: the functions called per message, kept lean (see arguments.hpp).
#include "arguments.hpp"
#include "request.hpp"

namespace thalweg::python {
namespace {

template <bool blocking>
PyObject* endpoint_send(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<8> signature("send", 1, 2,
                                        {"buffer", "tag", "sync", "immediate", "layout", "timeout", "after", "no_wait"});
    std::array<PyObject*, 8> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    Operation operation(endpoint.worker_object, endpoint.worker, Result::none);
    acquire(operation, a[0], BufferView::Use::source, a[6], a[4]);
    tw_op_options options = TW_OP_OPTIONS_INIT;
    const tw_op_options* given = nullptr;
    if (keywords != nullptr || operation.buffer.describe(options)) {
      options.flags = (as_bool(a[2]) ? TW_OP_SYNC : 0) | (as_bool(a[7]) ? TW_OP_NO_WAIT : 0);
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
  acquire(operation, a[0], BufferView::Use::destination, a[6], a[3]);
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
    static const Signature<3> signature("bytes_send", 1, 1, {"buffer", "timeout", "no_wait"});
    std::array<PyObject*, 3> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    Operation operation(endpoint.worker_object, endpoint.worker, Result::none);
    operation.buffer.acquire(a[0], BufferView::Use::source);
    if (operation.buffer.layout() != nullptr)
      raise(TW_ERR_UNSUPPORTED, "byte streams take contiguous buffers: copy it, or use send");
    operation.keep(self);
    tw_op_options options = TW_OP_OPTIONS_INIT;
    operation.buffer.describe(options);
    options.flags = as_bool(a[2]) ? TW_OP_NO_WAIT : 0;
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

nb::object matched_recv(Matched& self, nb::handle buffer, nb::handle layout, nb::handle after, nb::handle timeout,
                        bool blocking) {
  self.worker->enter();
  if (self.handle == nullptr) raise(TW_ERR_HANDLE, "the message was received already");
  Operation operation(self.worker_object, self.worker, Result::received);
  acquire(operation, buffer.ptr(), BufferView::Use::destination, after.ptr(), layout.ptr());
  operation.endpoint = self.endpoint;
  operation.info = self.info;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  take_layout(operation, options, layout.ptr());
  const uint64_t deadline = deadline_of(timeout.ptr());
  const tw_status status =
      tw_message_recv(self.handle, operation.buffer.data(), length_of(operation, options), &options, &operation.request);
  if (status >= 0) self.handle = nullptr;  // one that was refused leaves the message there
  operation.posted(status);
  return nb::steal(deliver(operation, blocking, deadline));
}

nb::object worker_probe(nb::handle_t<Worker> owner, uint64_t tag, uint64_t mask, nb::handle source, bool take) {
  Worker& worker = *nb::inst_ptr<Worker>(owner);
  tw_worker* handle = worker.enter();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  if (Endpoint* from = as_object<Endpoint>(source.ptr(), "source"); from != nullptr) options.source = from->get();
  worker.disarm();
  if (!worker.progress_thread) tw_worker_progress(handle);
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
    "Sends a buffer as one message; returns when it may be reused, with sync when it was matched. timeout: seconds; on expiry\n"
    "an unannounced send is cancelled and TimedOut raised. no_wait: raises Again where the message would wait for the peer's "
    "credit.\n"
    "after: a stream or event whose work so far the buffer waits for, or False; by default its framework's current stream. The "
    "GIL\n"
    "is released while waiting. Raises PeerLost, TimedOut.";
const char isend_doc[] = "As send, but returns a Request, which keeps the buffer.";
const char recv_doc[] =
    "Receives the earliest message whose tag equals tag in the bits of mask into a writable buffer; returns RecvInfo.\n"
    "timeout: seconds. Raises Truncated (with .length, nothing is written past the buffer), TimedOut, PeerLost.\n"
    "An endpoint receives from its peer alone, a worker from anyone or from source=endpoint. after: as in send.";
const char irecv_doc[] = "As recv, but returns a Request, which keeps the buffer.";
const char bytes_send_doc[] =
    "Appends a contiguous buffer to the endpoint's byte stream, which has no message borders. no_wait: as in send.";
const char bytes_recv_doc[] =
    "Takes 1 to len(buffer) bytes from the byte stream, or with all that many. Returns RecvInfo with .length.";
const char i_doc[] = "As the function without i, but returns a Request.";

#define ANY_MASK "mask=18446744073709551615"
FastMethods endpoint_methods{
    {"send", &endpoint_send<true>,
     "buffer, tag=0, *, sync=False, immediate=0, layout=None, timeout=None, after=None, no_wait=False", send_doc},
    {"isend", &endpoint_send<false>, "buffer, tag=0, *, sync=False, immediate=0, layout=None, after=None, no_wait=False",
     isend_doc},
    {"recv", &endpoint_recv<true>, "buffer, tag=0, " ANY_MASK ", *, layout=None, timeout=None, after=None", recv_doc},
    {"irecv", &endpoint_recv<false>, "buffer, tag=0, " ANY_MASK ", *, layout=None, after=None", irecv_doc},
    {"bytes_send", &endpoint_bytes_send<true>, "buffer, *, timeout=None, no_wait=False", bytes_send_doc},
    {"ibytes_send", &endpoint_bytes_send<false>, "buffer, *, no_wait=False", i_doc},
    {"bytes_recv", &endpoint_bytes_recv<true>, "buffer, *, all=False, timeout=None", bytes_recv_doc},
    {"ibytes_recv", &endpoint_bytes_recv<false>, "buffer, *, all=False", i_doc},
};

FastMethods worker_methods{
    {"recv", &worker_recv<true>, "buffer, tag=0, " ANY_MASK ", *, layout=None, timeout=None, source=None, after=None",
     recv_doc},
    {"irecv", &worker_recv<false>, "buffer, tag=0, " ANY_MASK ", *, layout=None, source=None, after=None", irecv_doc},
};
#undef ANY_MASK

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
          "recv",
          [](Matched& s, nb::handle buffer, nb::handle layout, nb::handle timeout, nb::handle after) {
            return matched_recv(s, buffer, layout, after, timeout, true);
          },
          arg("buffer"), nb::kw_only(), arg("layout") = nb::none(), arg("timeout") = nb::none(), arg("after") = nb::none(),
          "Receives it into a writable buffer. Returns RecvInfo. layout, timeout and after as in Endpoint.recv.")
      .def(
          "irecv",
          [](Matched& s, nb::handle buffer, nb::handle layout, nb::handle after) {
            return matched_recv(s, buffer, layout, after, nb::none(), false);
          },
          arg("buffer"), nb::kw_only(), arg("layout") = nb::none(), arg("after") = nb::none(),
          "As recv, but returns a Request.");
  nb::object worker = m.attr("Worker");
  nb::borrow<nb::class_<Worker>>(worker).def(
      "probe", &worker_probe, arg("tag") = 0, arg("mask") = UINT64_MAX, nb::kw_only(), arg("source") = nb::none(),
      arg("take") = false,
      "Looks for an unmatched message: RecvInfo, or None. take: gives a Message that must be received instead.");
  worker_methods.add_to(worker);
  endpoint_methods.add_to(m.attr("Endpoint"));
}

}  // namespace thalweg::python
