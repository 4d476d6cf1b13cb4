// SPDX-License-Identifier: Apache-2.0
// Put, get, atomics, flush and fence.

#include "arguments.hpp"
#include "plan.hpp"
#include "request.hpp"

namespace thalweg::python {

uint32_t atomic_of(PyObject* name) {
  static const std::array<const char*, 6> names = {"add", "and", "or", "xor", "swap", "cswap"};
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &length);
  if (text == nullptr) throw nb::python_error();
  for (uint32_t i = 0; i < names.size(); ++i) {
    if (std::string_view(text, static_cast<size_t>(length)) == names[i]) return i;
  }
  raise(TW_ERR_INVALID, "an atomic operation is add, and, or, xor, swap or cswap");
}

uint64_t operand_of(PyObject* value, size_t size, const char* what) {
  if (value == nullptr) return 0;
  const nb::object index = nb::steal(PyNumber_Index(value));
  if (!index.is_valid()) throw nb::python_error();
  int beyond = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &beyond);
  if (number == -1 && beyond == 0 && PyErr_Occurred() != nullptr) throw nb::python_error();
  auto bits = static_cast<uint64_t>(number);
  bool fits = beyond == 0 && (size != 4 || (number >= INT32_MIN && number <= int64_t{UINT32_MAX}));
  if (beyond > 0 && size != 4) {
    bits = PyLong_AsUnsignedLongLong(index.ptr());
    fits = PyErr_Occurred() == nullptr;
    PyErr_Clear();
  }
  if (fits) return bits;
  raise(TW_ERR_INVALID, (std::string("the ") + what + " does not fit a word of " + std::to_string(size == 4 ? 4 : 8) +
                         " bytes: neither unsigned, nor as a negative number")
                            .c_str());
}

void take_notification(tw_op_options& options, PyObject* immediate, PyObject* handler) {
  const bool notifies = immediate != nullptr && immediate != Py_None, handled = handler != nullptr && handler != Py_None;
  if (handled && !notifies) raise(TW_ERR_INVALID, "handler takes an immediate: give both, or neither");
  if (!notifies) return;
  options.immediate = as_u64(immediate, 0);
  options.notify = handled ? TW_NOTIFY_HANDLER : TW_NOTIFY_QUEUE;
  const uint64_t id = handled ? as_u64(handler, 0) : 0;
  if (id >= 4096) raise(TW_ERR_INVALID, "an active message id is below 4096");
  options.handler = static_cast<uint32_t>(id);
}

namespace {

template <bool put, bool blocking>
PyObject* transfer(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<14> signature(put ? "put" : "get", 2, 3,
                                         {"buffer", "remote", "offset", "signal", "value", "after_all", "visible", "layout",
                                          "remote_layout", "timeout", "after", "no_wait", "immediate", "handler"});
    std::array<PyObject*, 14> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    RemoteMemory* remote = as_object<RemoteMemory>(a[1], "remote");
    RemoteSignal* signal = as_object<RemoteSignal>(a[3], "signal");
    if (remote == nullptr) raise(TW_ERR_INVALID, "remote is a RemoteMemory, imported from the peer's key");
    if (remote->endpoint != &endpoint) raise(TW_ERR_INVALID, "the remote memory was imported through another endpoint");
    if (!put && signal != nullptr) raise(TW_ERR_UNSUPPORTED, "a get carries no signal: its end is the notice");

    Operation operation(endpoint.worker_object, endpoint.worker, Result::none);
    acquire(operation, a[0], put ? BufferView::Use::source : BufferView::Use::destination, a[10], a[7]);
    operation.keep(a[1]);
    tw_op_options options = TW_OP_OPTIONS_INIT;
    take_layout(operation, options, a[7]);
    const size_t length = length_of(operation, options);
    if (Layout* layout = as_object<Layout>(a[8], "remote_layout"); layout != nullptr) {
      options.remote_layout = layout->handle;
      operation.keep(a[8]);
    }
    if (signal != nullptr) {
      options.signal = signal->get();
      options.signal_op = signal->adds ? TW_SIGNAL_ADD : TW_SIGNAL_SET;
      options.signal_value = as_u64(a[4], 1);
      operation.keep(a[3]);
    }
    if (!put && (a[12] != nullptr || a[13] != nullptr)) raise(TW_ERR_UNSUPPORTED, "a get notifies nobody: send a message");
    take_notification(options, a[12], a[13]);
    if (as_bool(a[5])) options.flags |= TW_OP_AFTER_ALL;
    if (as_bool(a[6])) options.flags |= TW_OP_REMOTE;
    if (as_bool(a[11])) options.flags |= TW_OP_NO_WAIT;
    uint64_t offset = as_u64(a[2], 0);
    if constexpr (put) {
      operation.posted(
          tw_put(endpoint.get(), operation.buffer.data(), length, remote->get(), offset, &options, &operation.request));
    } else {
      operation.posted(
          tw_get(endpoint.get(), operation.buffer.data(), length, remote->get(), offset, &options, &operation.request));
    }
    return deliver(operation, blocking, blocking ? deadline_of(a[9]) : 0);
  });
}

template <bool blocking>
PyObject* atomic(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<10> signature(
        "atomic", 4, 4, {"op", "remote", "offset", "operand", "compare", "size", "fetch", "timeout", "visible", "no_wait"});
    std::array<PyObject*, 10> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    RemoteMemory* remote = as_object<RemoteMemory>(a[1], "remote");
    if (remote == nullptr) raise(TW_ERR_INVALID, "remote is a RemoteMemory, imported from the peer's key");
    if (remote->endpoint != &endpoint) raise(TW_ERR_INVALID, "the remote memory was imported through another endpoint");
    uint64_t size = as_u64(a[5], 8);
    if (size != 4 && size != 8) raise(TW_ERR_INVALID, "an atomic word has 4 or 8 bytes");
    bool fetch = as_bool(a[6], true);
    Operation operation(endpoint.worker_object, endpoint.worker, fetch ? Result::number : Result::none);
    operation.number_size = static_cast<uint8_t>(size);
    if (fetch) operation.number = std::make_unique<uint64_t>(0);
    operation.keep(a[1]);
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.flags = (as_bool(a[8]) ? TW_OP_REMOTE : 0) | (as_bool(a[9]) ? TW_OP_NO_WAIT : 0);
    operation.posted(tw_atomic(endpoint.get(), atomic_of(a[0]), remote->get(), as_u64(a[2], 0), size,
                               operand_of(a[3], size, "operand"), operand_of(a[4], size, "compared value"),
                               operation.number.get(), options.flags != 0 ? &options : nullptr, &operation.request));
    return deliver(operation, blocking, blocking ? deadline_of(a[7]) : 0);
  });
}

template <bool blocking>
PyObject* flush(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<1> signature("flush", 0, 1, {"timeout"});
    std::array<PyObject*, 1> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    Operation operation(endpoint.worker_object, endpoint.worker, Result::none);
    operation.keep(self);
    tw_endpoint* const handle = endpoint.get();
    endpoint.worker->disarm();
    operation.posted(tw_endpoint_flush(handle, &operation.request));
    return deliver(operation, blocking, blocking ? deadline_of(a[0]) : 0);
  });
}

const char put_doc[] =
    "Writes a buffer into the peer's memory at offset bytes; returns when the buffer may be reused, with visible when the "
    "data\n"
    "is visible there. signal: a RemoteSignal set (or added) to value when this put's data is there, or with after_all that "
    "of\n"
    "every earlier put of the endpoint too. remote_layout places the bytes, relative to offset. immediate: 64 bits of which "
    "the\n"
    "peer is notified behind the data (and the signal): 8 bytes from its Worker.next_notification() or CompletionQueue, or, "
    "with\n"
    "handler, the header of an active message. after, no_wait: as in send. Raises PeerLost, Stale.";
const char get_doc[] = "Reads the peer's memory at offset bytes into a writable buffer; returns when the data is there.";
const char atomic_doc[] =
    "op (add, and, or, xor, swap, cswap) on the aligned word of size bytes at offset; returns the old value, or None without\n"
    "fetch, with visible when it is done there. compare: only for cswap. It and operand fit the word, unsigned or as a "
    "negative number\n"
    "(two's complement). no_wait: as in send. Raises InvalidError.";
const char i_doc[] = "As the function without i, but returns a Request.";

#define PUT                                                                                                              \
  "buffer, remote, offset=0, *, signal=None, value=1, after_all=False, visible=False, layout=None, remote_layout=None, " \
  "immediate=None, handler=None, "
#define GET "buffer, remote, offset=0, *, layout=None, remote_layout=None, "
#define ATOMIC "op, remote, offset, operand, *, compare=0, size=8, fetch=True, "
FastMethods methods{
    {"put", &transfer<true, true>, PUT "timeout=None, after=None, no_wait=False", put_doc},
    {"iput", &transfer<true, false>, PUT "after=None, no_wait=False", i_doc},
    {"get", &transfer<false, true>, GET "timeout=None, after=None, no_wait=False", get_doc},
    {"iget", &transfer<false, false>, GET "after=None, no_wait=False", i_doc},
    {"atomic", &atomic<true>, ATOMIC "timeout=None, visible=False, no_wait=False", atomic_doc},
    {"iatomic", &atomic<false>, ATOMIC "visible=False, no_wait=False", i_doc},
    {"flush", &flush<true>, "timeout=None",
     "Waits until all earlier one-sided operations of the endpoint are visible at the target."},
    {"iflush", &flush<false>, "", i_doc},
};
#undef PUT
#undef GET
#undef ATOMIC

}  // namespace

void bind_one_sided(nb::module_& m) {
  nb::object endpoint = m.attr("Endpoint");
  methods.add_to(endpoint);
  nb::borrow<nb::class_<Endpoint>>(endpoint).def(
      "fence", [](Endpoint& e) { check(tw_endpoint_fence(e.get())); },
      "Later one-sided operations become visible after earlier ones. Does not wait.");
}

}  // namespace thalweg::python
