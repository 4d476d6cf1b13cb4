// SPDX-License-Identifier: Apache-2.0
// A view of any buffer-protocol, DLPack or __cuda_array_interface__ object, without a copy: an address and bytes, or an
// address and a strided layout; and the stream whose work has to be done before.
#pragma once
#include <nanobind/ndarray.h>

#include "device_array.hpp"
#include "errors.hpp"

namespace thalweg::python {

/// The layout of an array in C order of its elements, dimensions merged where they are adjacent in memory.
struct Strided {
  size_t bytes = 0;         ///< in all
  size_t block = 0;         ///< contiguous bytes
  unsigned dimensions = 0;  ///< 0: one block
  uint64_t count[8] = {};   ///< dimension 0 varies fastest
  int64_t stride[8] = {};   ///< bytes

  bool operator==(const Strided&) const = default;
  /// shape and strides (bytes) as in the buffer protocol; strides null: C-contiguous. Raises for more than 8 after merging.
  static Strided of(int dimensions, const Py_ssize_t* shape, const Py_ssize_t* strides, size_t element);
};

/// Holds an object's buffer until it is destroyed. Movable; the address stays.
class BufferView {
 public:
  enum class Use { source, destination };

  BufferView() = default;
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;
  BufferView(BufferView&& other) noexcept;
  BufferView& operator=(BufferView&&) = delete;
  ~BufferView() {
    if (held_) PyBuffer_Release(&view_);
    if (tensor_ != nullptr) delete tensor_;
    if (memory_ != nullptr) --memory_->views;
  }

  /// Takes object's buffer. A contiguous one gives address and length; another one gives a layout as well. Raises for what
  /// has no buffer, is read-only but a destination, holds Python objects, or has too many dimensions.
  void acquire(PyObject* object, Use use) {
    // The common case first: what is C-contiguous answers this in a few nanoseconds.
    int flags = PyBUF_ND | PyBUF_FORMAT | (use == Use::destination ? PyBUF_WRITABLE : 0);
    if (PyObject_CheckBuffer(object) != 0 && PyObject_GetBuffer(object, &view_, flags) == 0) [[likely]] {
      held_ = true;
      if (view_.format != nullptr && view_.format[0] != '\0' && view_.format[1] != '\0') [[unlikely]]
        check_format();
      else if (view_.format != nullptr && view_.format[0] == 'O') [[unlikely]]
        check_format();
      data_ = view_.buf;
      length_ = static_cast<size_t>(view_.len);
      return;
    }
    acquire_slow(object, use);
  }

  void* data() const { return data_; }
  size_t length() const { return length_; }                   ///< bytes moved
  const tw_layout* layout() const { return layout_.handle; }  ///< null: contiguous
  const Strided& strided() const { return strided_; }
  bool on_device() const { return array_.is_valid(); }  ///< by its object's description: not to be touched here
  const After& after() const { return after_; }
  /// By an argument `after`; null and None leave it to the object.
  void order(PyObject* after) {
    if (after != nullptr && after != Py_None) [[unlikely]]
      after_ = after_of(after);
  }
  /// Options of an operation on it, beside address and length. False: none.
  bool describe(tw_op_options& options) const {
    options.layout = layout();
    options.after_kind = after_.kind;
    options.after = reinterpret_cast<const void*>(after_.handle);
    return layout() != nullptr || after_.kind != TW_AFTER_NONE;
  }

 private:
  void acquire_slow(PyObject* object, Use use);
  void acquire_strided(PyObject* object, Use use);
  bool acquire_memory(PyObject* object, Use use);
  bool acquire_cuda(PyObject* object, Use use);
  void acquire_capsule(PyObject* object, Use use);
  void take_tensor(nb::handle from, Use use);
  void check_device() const;
  void take_shape(int dimensions, const Py_ssize_t* shape, const Py_ssize_t* strides, size_t element, Use use);
  void check_format();

  Py_buffer view_;
  bool held_ = false;
  nb::ndarray<nb::ro>* tensor_ = nullptr;
  nb::object array_;          ///< keeps a device's array or Memory alive
  Memory* memory_ = nullptr;  ///< of a device: counted among its views
  After after_;
  void* data_ = nullptr;
  size_t length_ = 0;
  Layout layout_;
  Strided strided_;
};

/// The bytes of an argument: contiguous, on the host. Raises TypeError for what has not the buffer protocol.
void acquire_bytes(BufferView& view, nb::handle object, const char* name);

/// The table of ways of an operation on a buffer: tw_endpoint_explain_buffer.
std::string explain_buffer(tw_endpoint* endpoint, const std::string& verb, nb::handle buffer, tw_remote_memory* remote);

}  // namespace thalweg::python
