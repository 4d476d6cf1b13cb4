// SPDX-License-Identifier: Apache-2.0
// From a tw_status to the named Python exception of thalweg.errors, and from C++ exceptions back into the interpreter.
#pragma once
#include <optional>
#include <string>

#include "objects.hpp"

namespace thalweg::python {

/// Raises the exception of status with text (null: tw_last_error()).
[[noreturn]] void raise(tw_status status, const char* text = nullptr);
/// Raises the exception of truncated with the message's true length.
[[noreturn]] void raise_truncated(const char* text, size_t length);

inline void check(tw_status status) {
  if (status < 0) [[unlikely]]
    raise(status);
}

/// A str as the C functions take it; lives as long as the text. One that has a NUL is refused: they would read it up to there.
inline const char* c_text(const std::string& text) {
  if (text.find('\0') != std::string::npos) [[unlikely]]
    raise(TW_ERR_INVALID, "a text has a NUL character in it, where C's strings end: leave it out");
  return text.c_str();
}
inline const char* c_text(const std::optional<std::string>& text) { return text ? c_text(*text) : nullptr; }

/// The text that ask(buffer, &size) writes.
template <class Ask>
std::string text_of(Ask&& ask) {
  size_t size = 0;
  check(ask(static_cast<char*>(nullptr), &size));
  std::string text(size + size / 8 + 256, '\0');  // it may grow in between
  size = text.size();
  check(ask(text.data(), &size));
  return text.c_str();
}

/// The bytes that ask(buffer, &size) writes: keys, addresses.
template <class Ask>
nb::bytes bytes_of(Ask&& ask) {
  size_t size = 0;
  check(ask(nullptr, &size));
  std::string bytes(size, '\0');
  check(ask(bytes.data(), &size));
  return nb::bytes(bytes.data(), size);
}

/// Runs body in a function called by the interpreter: a C++ exception becomes a Python one. Returns null then.
template <class Body>
PyObject* guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace thalweg::python
