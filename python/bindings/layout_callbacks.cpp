// SPDX-License-Identifier: Apache-2.0
// Layouts of Python functions. The library calls a layout's functions under a worker's lock, where Python may not run
// (another thread may hold the GIL and wait for that lock). So an object is packed by the thread that posts, before the
// library sees the operation, and unpacked by the thread that takes its outcome, with the GIL; bytes of Python's lie in
// between.
#include "layout_callbacks.hpp"

#include "request.hpp"

namespace thalweg::python {
namespace {

/// Never called: operations of this package do not give the layout to the library, and others refuse it.
tw_status refuse(void*, const void*, size_t, int, void**) { return TW_ERR_UNSUPPORTED; }

nb::object bytes_of(size_t size) {
  nb::object bytes = nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!bytes.is_valid()) throw nb::python_error();
  return bytes;
}

/// What a function may keep: it keeps the bytes, too.
nb::object view_of(nb::handle bytes, size_t begin, size_t end) {
  nb::object view = nb::steal(PyMemoryView_FromObject(bytes.ptr()));
  if (!view.is_valid()) throw nb::python_error();
  return view[nb::slice(static_cast<Py_ssize_t>(begin), static_cast<Py_ssize_t>(end))];
}

void pack(const LayoutFunctions& functions, nb::handle object, nb::handle bytes, size_t size) {
  for (size_t at = 0; at < size;) {
    const auto written = nb::cast<size_t>(functions.pack(object, at, view_of(bytes, at, size)));
    if (written == 0 || written > size - at) {
      raise(TW_ERR_INVALID, "pack returns how many bytes it has written: at least one, at most len(dest)");
    }
    at += written;
  }
}

}  // namespace

Layout layout_callbacks(nb::object size, nb::object pack_function, nb::object unpack_function) {
  if (pack_function.is_none() && unpack_function.is_none()) raise(TW_ERR_INVALID, "give pack, unpack or both");
  tw_layout_callbacks_options options = TW_LAYOUT_CALLBACKS_OPTIONS_INIT;
  options.start = &refuse;
  options.packed_size = [](void*) { return size_t{0}; };
  options.pack = [](void*, uint64_t, void*, size_t) { return int64_t{TW_ERR_UNSUPPORTED}; };
  options.finish = [](void*) {};
  tw_layout* made = nullptr;
  check(tw_layout_callbacks(&options, &made));
  Layout layout(made);
  layout.functions =
      std::make_shared<LayoutFunctions>(LayoutFunctions{std::move(size), std::move(pack_function), std::move(unpack_function)});
  return layout;
}

void acquire_by_calls(Operation& operation, PyObject* object, BufferView::Use use, PyObject* after, const Layout& layout) {
  const LayoutFunctions& functions = *layout.functions;
  const bool source = use == BufferView::Use::source;
  if ((source ? functions.pack : functions.unpack).is_none()) {
    raise(TW_ERR_UNSUPPORTED, source ? "the layout has no pack: nothing is sent from it; make it with one"
                                     : "the layout has no unpack: nothing is received into it; make it with one");
  }
  if (after != nullptr && after != Py_None && after != Py_False) {
    raise(TW_ERR_UNSUPPORTED, "a layout of callbacks cannot come after a stream or an event: synchronise with that first");
  }
  const nb::object kept = nb::borrow(object);
  const auto size = nb::cast<size_t>(functions.size(kept));
  const nb::object bytes = bytes_of(size);
  if (source) pack(functions, kept, bytes, size);
  operation.buffer.acquire(bytes.ptr(), use);
  if (source) return;
  operation.unpacking = std::make_unique<Unpacking>();
  operation.unpacking->functions = layout.functions;
  operation.unpacking->object = kept;
  operation.unpacking->bytes = bytes;
}

bool Unpacking::run(size_t length) noexcept {
  const nb::error_scope pending;  // of the thread that completes the operation
  try {
    nb::object source = view_of(bytes, 0, length).attr("toreadonly")();
    functions->unpack(object, 0, source);
  } catch (nb::python_error& error) {
    raised = nb::borrow(error.value());
  } catch (...) {
    raised = nb::steal(PyObject_CallNoArgs(PyExc_MemoryError));
  }
  return !raised.is_valid();
}

void Operation::end_unpacking(tw_status how) noexcept {
  unpacking->running = true;
  unpacking->by = std::this_thread::get_id();
  if (how == TW_OK || how == TW_ERR_TRUNCATED) {
    const size_t length = result == Result::received ? std::min(info.length, buffer.length()) : buffer.length();
    if (length != 0 && !unpacking->run(length)) how = TW_ERR_INVALID;
  }
  status = how;
  unpacking->running = false;
}

}  // namespace thalweg::python
