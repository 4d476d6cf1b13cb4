// SPDX-License-Identifier: Apache-2.0
#include "wait.hpp"

namespace thalweg::python {

uint64_t duration_of(PyObject* seconds, uint64_t otherwise) {
  if (seconds == nullptr || seconds == Py_None) return otherwise;
  double value = PyFloat_AsDouble(seconds);
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!(value >= 0)) raise(TW_ERR_INVALID, "a time in seconds is not negative (None: no limit)");
  if (value > 1e9) return TW_FOREVER;
  return static_cast<uint64_t>(value * 1e9);
}

uint64_t deadline_of(PyObject* seconds) {
  uint64_t duration = duration_of(seconds, TW_FOREVER);
  return duration == TW_FOREVER ? TW_FOREVER : now_ns() + duration;
}

}  // namespace thalweg::python
