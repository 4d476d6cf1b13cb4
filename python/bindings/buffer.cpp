// SPDX-License-Identifier: Apache-2.0
#include "buffer.hpp"

namespace thalweg::python {

Strided Strided::of(int dimensions, const Py_ssize_t* shape, const Py_ssize_t* strides, size_t element) {
  Strided out;
  out.block = element;
  out.bytes = element;
  for (int d = 0; d < dimensions; ++d) out.bytes *= static_cast<size_t>(shape[d]);
  if (out.bytes == 0) return out;
  if (strides == nullptr) {
    out.block = out.bytes;
    return out;
  }
  for (int d = dimensions - 1; d >= 0; --d) {  // from the fastest to the slowest
    if (shape[d] == 1) continue;
    uint64_t count = static_cast<uint64_t>(shape[d]);
    int64_t stride = strides[d];
    if (out.dimensions == 0 && stride == static_cast<int64_t>(out.block)) {
      out.block *= count;
      continue;
    }
    if (out.dimensions > 0) {
      unsigned last = out.dimensions - 1;
      if (stride == out.stride[last] * static_cast<int64_t>(out.count[last])) {
        out.count[last] *= count;
        continue;
      }
    }
    if (out.dimensions == 8) raise(TW_ERR_UNSUPPORTED, "an array of more than 8 separate dimensions: copy it first");
    out.count[out.dimensions] = count;
    out.stride[out.dimensions++] = stride;
  }
  return out;
}

BufferView::BufferView(BufferView&& other) noexcept
    : view_(other.view_),
      held_(std::exchange(other.held_, false)),
      tensor_(std::exchange(other.tensor_, nullptr)),
      array_(std::move(other.array_)),
      memory_(std::exchange(other.memory_, nullptr)),
      after_(other.after_),
      data_(other.data_),
      length_(other.length_),
      layout_(std::move(other.layout_)),
      strided_(other.strided_) {}

void BufferView::check_format() {
  if (view_.format == nullptr) return;
  bool name = false;  // between colons stand the names of a record's fields
  bool objects = false;
  for (const char* c = view_.format; *c != '\0'; ++c) {
    if (*c == ':') name = !name;
    if (*c == 'O' && !name) objects = true;
  }
  if (objects) {
    raise(TW_ERR_INVALID, "an array of Python objects holds addresses, not data: use send_object and recv_object");
  }
}

void BufferView::take_shape(int dimensions, const Py_ssize_t* shape, const Py_ssize_t* strides, size_t element, Use use) {
  strided_ = Strided::of(dimensions, shape, strides, element);
  length_ = strided_.bytes;
  if (length_ == 0 || strided_.dimensions == 0) return;
  for (unsigned d = 0; d < strided_.dimensions; ++d) {
    if (strided_.stride[d] == 0 && use == Use::destination) {
      raise(TW_ERR_INVALID, "the destination is a broadcast array, its elements overlap: give an array of its own memory");
    }
  }
  tw_layout* layout = nullptr;
  check(tw_layout_strided(strided_.dimensions, strided_.block, strided_.count, strided_.stride, &layout));
  layout_ = Layout(layout);
}

void BufferView::acquire_strided(PyObject* object, Use use) {
  int flags = PyBUF_STRIDES | PyBUF_FORMAT | (use == Use::destination ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object, &view_, flags) != 0) {
    if (use == Use::destination) {
      PyErr_Clear();
      Py_buffer readable;
      if (PyObject_GetBuffer(object, &readable, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
        PyBuffer_Release(&readable);
        raise(TW_ERR_INVALID, "the destination is read-only: give a writable buffer (bytearray, numpy.empty, tw.Memory)");
      }
    }
    throw nb::python_error();
  }
  held_ = true;
  check_format();
  data_ = view_.buf;
  take_shape(view_.ndim, view_.shape, view_.strides, static_cast<size_t>(view_.itemsize), use);
}

constexpr const char* kReadOnlyTensor = "the destination tensor is read-only: give a writable one";

/// Memory of a device; host memory has the buffer protocol.
bool BufferView::acquire_memory(PyObject* object, Use use) {
  if (!nb::isinstance<Memory>(object)) return false;
  Memory& memory = *nb::inst_ptr<Memory>(object);
  if (memory.handle == nullptr || memory.info.host_access != 0) return false;
  if (use == Use::destination && !memory.writable) raise(TW_ERR_INVALID, kReadOnlyTensor);
  data_ = tw_memory_address(memory.handle);
  length_ = tw_memory_length(memory.handle);
  array_ = nb::borrow(object);
  memory_ = &memory;
  ++memory.views;
  return true;
}

/// What claims to lie on a device does so, as far as this process's devices know.
void BufferView::check_device() const {
  if (length_ == 0) return;
  tw_memory_info info = TW_MEMORY_INFO_INIT;
  check(tw_memory_query(data_, &info));
  if (info.kind == TW_MEMORY_HOST) {
    raise(TW_ERR_UNSUPPORTED,
          "the array lies on a device, but this process finds no device memory at its address: `thalweg info` says which "
          "devices there are and why others are missing; until then copy the array to the host first");
  }
}

bool BufferView::acquire_cuda(PyObject* object, Use use) {
  DeviceArray array;
  if (!read_cuda_interface(object, &array)) return false;
  if (use == Use::destination && array.read_only) raise(TW_ERR_INVALID, kReadOnlyTensor);
  array_ = nb::borrow(object);
  data_ = reinterpret_cast<void*>(array.data);
  after_ = array.after;
  take_shape(array.dimensions, array.shape, array.strided ? array.strides : nullptr, array.element, use);
  check_device();
  return true;
}

void BufferView::acquire_capsule(PyObject* object, Use use) {
  take_tensor(device_capsule(object, &after_), use);
  array_ = nb::borrow(object);
  check_device();
}

void BufferView::take_tensor(nb::handle from, Use use) {
  nb::ndarray<nb::ro> tensor;
  if (!nb::try_cast(from, tensor)) {
    PyErr_Clear();
    std::string text =
        std::string(Py_TYPE(from.ptr())->tp_name) + " has neither the buffer protocol nor DLPack nor __cuda_array_interface__";
    raise(TW_ERR_INVALID, text.c_str());
  }
  if (use == Use::destination && PyCapsule_CheckExact(from.ptr()) == 0) {  // an unversioned capsule does not know
    nb::ndarray<> writable;
    if (!nb::try_cast(from, writable)) raise(TW_ERR_INVALID, kReadOnlyTensor);
  }
  tensor_ = new nb::ndarray<nb::ro>(std::move(tensor));
  if (tensor_->ndim() > 32) raise(TW_ERR_UNSUPPORTED, "a tensor of more than 32 dimensions");
  Py_ssize_t shape[32], strides[32];
  for (size_t d = 0; d < tensor_->ndim(); ++d) {
    shape[d] = static_cast<Py_ssize_t>(tensor_->shape(d));
    strides[d] = static_cast<Py_ssize_t>(tensor_->stride(d)) * static_cast<Py_ssize_t>(tensor_->itemsize());
  }
  data_ = const_cast<void*>(static_cast<const void*>(tensor_->data()));
  take_shape(static_cast<int>(tensor_->ndim()), shape, strides, tensor_->itemsize(), use);
}

/// A tensor of PyTorch's whose memory holds the conjugates, or the negatives, of its elements. Some of its versions hand it out all the
/// same.
static void refuse_lazy(PyObject* object) {
  for (const char* bit : {"conj", "neg"}) {
    const std::string name = std::string("is_") + bit;
    if (PyObject_HasAttrString(object, name.c_str()) == 0) return;
    const nb::object set = nb::handle(object).attr(name.c_str())();
    if (set.ptr() != Py_True) continue;
    raise(TW_ERR_INVALID, (std::string("the tensor's memory holds other values than it has, its ") +
                           (*bit == 'c' ? "conjugate" : "negative") + " bit is set: give tensor.resolve_" + bit + "()")
                              .c_str());
  }
}

void BufferView::acquire_slow(PyObject* object, Use use) {
  PyErr_Clear();
  if (acquire_memory(object, use)) return;
  refuse_lazy(object);
  // CuPy's arrays have the buffer protocol and refuse it for memory of a device.
  const bool names_device = PyObject_HasAttrString(object, "__cuda_array_interface__") != 0;
  if (PyObject_CheckBuffer(object) != 0 && !names_device) return acquire_strided(object, use);
  const DlpackPlace place = dlpack_place(object);
  if (place == DlpackPlace::host) return take_tensor(object, use);
  if (acquire_cuda(object, use)) return;  // names its stream, where DLPack asks for work
  place == DlpackPlace::device ? acquire_capsule(object, use) : take_tensor(object, use);
}

void acquire_bytes(BufferView& view, nb::handle object, const char* name) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) {
    PyErr_Format(PyExc_TypeError, "%s has no bytes: it is of type %s, without the buffer protocol", name,
                 Py_TYPE(object.ptr())->tp_name);
    throw nb::python_error();
  }
  view.acquire(object.ptr(), BufferView::Use::source);
  if (view.layout() != nullptr || view.on_device())
    raise(TW_ERR_INVALID, (std::string(name) + " is not contiguous bytes on the host: copy it first").c_str());
}

std::string explain_buffer(tw_endpoint* endpoint, const std::string& verb, nb::handle buffer, tw_remote_memory* remote) {
  BufferView view;
  view.acquire(buffer.ptr(), BufferView::Use::source);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  view.describe(options);
  const char* const name = c_text(verb);
  return text_of([&](char* to, size_t* size) {
    return tw_endpoint_explain_buffer(endpoint, name, view.data(), view.length(), remote, &options, to, size);
  });
}

}  // namespace thalweg::python
