// SPDX-License-Identifier: Apache-2.0
// Arguments of the few functions called per message. They take the interpreter's vector of arguments directly
// (METH_FASTCALL | METH_KEYWORDS), because a general dispatcher would cost as much as the message itself.
#pragma once
#include <array>
#include <deque>
#include <initializer_list>
#include <string>

#include "errors.hpp"

namespace thalweg::python {

/// Names of a function's parameters: the first `required` must be given, those from `positional` on only by keyword.
template <size_t N>
class Signature {
 public:
  Signature(const char* function, size_t required, size_t positional, std::array<const char*, N> names)
      : function_(function), required_(required), positional_(positional), names_(names) {
    for (size_t i = 0; i < N; ++i) interned_[i] = PyUnicode_InternFromString(names[i]);
  }

  /// Fills values (null: not given) or raises TypeError.
  void parse(std::array<PyObject*, N>& values, PyObject* const* args, Py_ssize_t count, PyObject* keywords) const {
    values.fill(nullptr);
    if (static_cast<size_t>(count) > positional_) [[unlikely]] {
      fail("%s() takes at most %zu positional arguments", function_, positional_);
    }
    for (Py_ssize_t i = 0; i < count; ++i) values[i] = args[i];
    if (keywords != nullptr) {
      Py_ssize_t given = PyTuple_GET_SIZE(keywords);
      for (Py_ssize_t i = 0; i < given; ++i) {
        PyObject* name = PyTuple_GET_ITEM(keywords, i);
        PyObject*& value = values[find(name)];
        if (value != nullptr) fail("%s() got the argument '%U' twice", function_, name);
        value = args[count + i];
      }
    }
    for (size_t i = 0; i < required_; ++i) {
      if (values[i] == nullptr) fail("%s() misses the argument '%s'", function_, names_[i]);
    }
  }

 private:
  size_t find(PyObject* name) const {
    for (size_t i = 0; i < N; ++i) {
      if (interned_[i] == name) return i;
    }
    for (size_t i = 0; i < N; ++i) {
      if (PyUnicode_Compare(interned_[i], name) == 0) return i;
    }
    fail("%s() has no argument '%U'", function_, name);
  }

  template <class... Values>
  [[noreturn]] static void fail(const char* format, Values... values) {
    PyErr_Format(PyExc_TypeError, format, values...);
    throw nb::python_error();
  }

  const char* function_;
  size_t required_, positional_;
  std::array<const char*, N> names_;
  std::array<PyObject*, N> interned_;
};

inline uint64_t as_u64(PyObject* value, uint64_t otherwise) {
  if (value == nullptr) return otherwise;
  uint64_t number = PyLong_AsUnsignedLongLong(value);
  if (number == UINT64_MAX && PyErr_Occurred() != nullptr) [[unlikely]] {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();  // NumPy's integers and other __index__ types
    nb::object index = nb::steal(PyNumber_Index(value));
    if (!index.is_valid()) throw nb::python_error();
    number = PyLong_AsUnsignedLongLong(index.ptr());
    if (number == UINT64_MAX && PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  return number;
}

inline bool as_bool(PyObject* value, bool otherwise = false) {
  if (value == nullptr) return otherwise;
  int truth = PyObject_IsTrue(value);
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

/// The C++ half of an argument, or null for None and what was not given. Raises TypeError for another type.
template <class T>
T* as_object(PyObject* value, const char* name) {
  if (value == nullptr || value == Py_None) return nullptr;
  if (!nb::isinstance<T>(value)) {
    PyErr_Format(PyExc_TypeError, "%s is a %s", name, Py_TYPE(value)->tp_name);
    throw nb::python_error();
  }
  return nb::inst_ptr<T>(value);
}

/// The notification of a put or a posted signal (one_sided.cpp).
void take_notification(tw_op_options& options, PyObject* immediate, PyObject* handler);

using FastFunction = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

/// Methods and functions that take the interpreter's vector of arguments, with the parameters' text for inspect.signature. It
/// lives as long as the module.
class FastMethods {
 public:
  struct Entry {
    const char* name;
    FastFunction function;
    const char* parameters;
    const char* doc;
  };
  FastMethods() = default;
  FastMethods(std::initializer_list<Entry> entries) {
    for (const Entry& entry : entries) add(entry.name, entry.function, "$self", entry.parameters, entry.doc);
  }
  /// first: "$self" of methods, "$module" of functions.
  void add(const std::string& name, FastFunction function, const char* first, const std::string& parameters, const char* doc) {
    const char* const kept = texts_.emplace_back(name).c_str();
    texts_.push_back(name + "(" + first + ", " + parameters + ")\n--\n\n" + doc);
    methods_.push_back({kept, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
                        METH_FASTCALL | METH_KEYWORDS, texts_.back().c_str()});
  }
  void add_to(nb::handle type) {
    for (PyMethodDef& method : methods_) {
      nb::object descriptor = nb::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &method));
      if (!descriptor.is_valid()) throw nb::python_error();
      nb::setattr(type, method.ml_name, descriptor);
    }
  }
  void add_to(nb::module_& module) {
    const nb::object name = module.attr("__name__");
    for (PyMethodDef& method : methods_) {
      nb::object function = nb::steal(PyCFunction_NewEx(&method, module.ptr(), name.ptr()));
      if (!function.is_valid()) throw nb::python_error();
      nb::setattr(module, method.ml_name, function);
    }
  }

 private:
  std::deque<std::string> texts_;  // neither moves
  std::deque<PyMethodDef> methods_;
};

}  // namespace thalweg::python
