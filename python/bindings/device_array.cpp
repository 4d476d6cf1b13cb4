// SPDX-License-Identifier: Apache-2.0
// The one place that knows frameworks' streams. No framework is imported: the array's creator has done that.
#include "device_array.hpp"

#include <nanobind/stl/string.h>

#include <string>

#include "errors.hpp"

namespace thalweg::python {
namespace {

// DLDeviceType
constexpr int kHost = 1, kCuda = 2, kCudaHost = 3, kExtension = 12, kCudaManaged = 13;

/// An attribute, or an invalid object when there is none.
nb::object attribute(nb::handle object, const char* name) {
  nb::object value = nb::steal(PyObject_GetAttrString(object.ptr(), name));
  if (value.is_valid()) return value;
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return value;
}

nb::object item(nb::handle dictionary, const char* name) {
  PyObject* value = PyDict_GetItemString(dictionary.ptr(), name);
  return value == nullptr || value == Py_None ? nb::object() : nb::borrow(value);
}

[[noreturn]] void refuse(const char* what) {
  raise(TW_ERR_INVALID, (std::string("its __cuda_array_interface__ ") + what).c_str());
}

/// Frameworks count the default stream as 0 or, in the array API, as 1.
After stream(uintptr_t handle) { return {TW_AFTER_STREAM, handle == 1 ? 0 : handle}; }

/// Tensors of PyTorch do not name a stream: work on them is in their device's current one.
After torch_stream(nb::handle tensor) {
  nb::object torch = nb::module_::import_("sys").attr("modules").attr("get")("torch");
  const std::string module = nb::cast<std::string>(nb::str(tensor.type().attr("__module__")));
  if (torch.is_none() || module.rfind("torch", 0) != 0) return {};
  return stream(nb::cast<uintptr_t>(torch.attr("cuda").attr("current_stream")(tensor.attr("device")).attr("cuda_stream")));
}

After stream_of(nb::handle object, nb::handle interface) {
  if (nb::object number = item(interface, "stream"); number.is_valid()) return stream(nb::cast<uintptr_t>(number));
  if (PyDict_GetItemString(interface.ptr(), "stream") != nullptr) return {};  // None: there is nothing to wait for
  return torch_stream(object);
}

/// "<f4" and the like: a byte order, a letter, the bytes of an element.
size_t element_of(nb::handle typestr) {
  const std::string text = nb::cast<std::string>(typestr);
  if (text.size() < 3 || text[1] == 'O') refuse("has a type that is not data");
  return std::stoul(text.substr(2));
}

}  // namespace

bool read_cuda_interface(nb::handle object, DeviceArray* out) {
  nb::object interface = attribute(object, "__cuda_array_interface__");
  if (!interface.is_valid()) return false;
  if (!nb::isinstance<nb::dict>(interface)) refuse("is no dict");
  nb::object shape = item(interface, "shape"), type = item(interface, "typestr"), data = item(interface, "data");
  if (!shape.is_valid() || !type.is_valid() || !data.is_valid()) refuse("lacks shape, typestr or data");
  if (item(interface, "mask").is_valid()) refuse("has a mask: move data and mask one by one");
  if (nb::len(shape) > DeviceArray::kMost) refuse("has more than 32 dimensions");
  nb::object strides = item(interface, "strides");
  if (strides.is_valid() && nb::len(strides) != nb::len(shape)) refuse("has not as many strides as dimensions");
  out->element = element_of(type);
  out->dimensions = static_cast<int>(nb::len(shape));
  out->strided = strides.is_valid();
  for (int d = 0; d < out->dimensions; ++d) {
    out->shape[d] = nb::cast<Py_ssize_t>(shape[d]);
    if (out->shape[d] < 0) refuse("has a negative shape");
    if (out->strided) out->strides[d] = nb::cast<Py_ssize_t>(strides[d]);
  }
  out->data = nb::cast<uintptr_t>(data[0]);
  out->read_only = nb::cast<bool>(data[1]);
  out->after = stream_of(object, interface);
  return true;
}

After after_of(nb::handle value) {
  if (value.is(Py_False)) return {};
  if (nb::isinstance<nb::int_>(value)) return stream(nb::cast<uintptr_t>(value));
  if (nb::object give = attribute(value, "__cuda_stream__"); give.is_valid()) return stream(nb::cast<uintptr_t>(give()[1]));
  if (nb::object number = attribute(value, "cuda_stream"); number.is_valid()) return stream(nb::cast<uintptr_t>(number));
  if (nb::object number = attribute(value, "cuda_event"); number.is_valid())
    return {TW_AFTER_EVENT, nb::cast<uintptr_t>(number)};
  const bool event = nb::cast<std::string>(nb::str(value.type().attr("__name__"))).find("Event") != std::string::npos;
  nb::object number = attribute(value, "ptr");  // CuPy
  if (!number.is_valid()) {
    number = attribute(value, "handle");  // Numba: a ctypes value
    if (number.is_valid()) number = attribute(number, "value");
    if (number.is_none()) number = nb::int_(0);
  }
  if (!number.is_valid()) {
    PyErr_Format(PyExc_TypeError, "after is a stream, an event, a stream's number or False, not a %s",
                 Py_TYPE(value.ptr())->tp_name);
    throw nb::python_error();
  }
  return event ? After{TW_AFTER_EVENT, nb::cast<uintptr_t>(number)} : stream(nb::cast<uintptr_t>(number));
}

void synchronize(const After& after) {
  if (after.kind == TW_AFTER_NONE) return;
  const nb::object loaded = nb::module_::import_("sys").attr("modules").attr("get");
  nb::object stream;
  if (nb::object torch = loaded("torch"); !torch.is_none()) {
    nb::object cuda = torch.attr("cuda");
    stream = after.handle == 0 ? cuda.attr("default_stream")() : cuda.attr("ExternalStream")(after.handle);
  } else if (nb::object cupy = loaded("cupy"); !cupy.is_none()) {
    stream = cupy.attr("cuda").attr("ExternalStream")(after.handle);
  } else if (nb::object numba = loaded("numba.cuda"); !numba.is_none()) {
    stream = after.handle == 0 ? numba.attr("default_stream")() : numba.attr("external_stream")(after.handle);
  } else {
    raise(TW_ERR_UNSUPPORTED, "a stream of a framework other than PyTorch, CuPy and Numba: give an array that names no stream");
  }
  stream.attr("synchronize")();
}

DlpackPlace dlpack_place(nb::handle object) {
  nb::object where = attribute(object, "__dlpack_device__");
  if (!where.is_valid()) return DlpackPlace::none;
  const int type = nb::cast<int>(where()[0]);
  return type == kHost || type == kCudaHost ? DlpackPlace::host : DlpackPlace::device;
}

nb::object device_capsule(nb::handle object, After* after) {
  nb::object give = object.attr("__dlpack__");
  const int type = nb::cast<int>(object.attr("__dlpack_device__")()[0]);
  if (type == kExtension) return give();
  if (type != kCuda && type != kCudaManaged) {
    const std::string text = "the tensor lies on a device of DLPack's type " + std::to_string(type) +
                             ", which this build does not reach: copy it to the host first";
    raise(TW_ERR_UNSUPPORTED, text.c_str());
  }
  *after = stream(1);  // by the array API's numbers the default stream, which the producer makes wait for its own
  return give(nb::arg("stream") = 1);
}

}  // namespace thalweg::python
