// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

namespace thalweg::python {
namespace {

[[noreturn]] void raise_with(tw_status status, const char* text, nb::handle length) {
  if (text == nullptr || *text == '\0') text = tw_last_error();
  std::string message = text != nullptr && *text != '\0' ? text : tw_status_name(status);
  nb::object make = nb::module_::import_("thalweg.errors").attr("from_status");
  nb::object error = make(static_cast<int>(status), message, length);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace

void raise(tw_status status, const char* text) { raise_with(status, text, nb::none()); }

void raise_truncated(const char* text, size_t length) { raise_with(TW_ERR_TRUNCATED, text, nb::int_(length)); }

}  // namespace thalweg::python
