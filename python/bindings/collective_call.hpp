// SPDX-License-Identifier: Apache-2.0
// The arguments of one call of a collective, and how it runs: blocking, or as a Request.
#pragma once
#include <optional>
#include <vector>

#include "group.hpp"
#include "request.hpp"

namespace thalweg::python {

/// What is sent or received.
struct Elements {
  void* address = nullptr;  ///< TW_IN_PLACE: the other one's
  size_t count = 0;
};

/// Counts of the v forms, and where they begin; offsets empty: one behind the other.
struct Counts {
  /// Raises for another number of them than ranks.
  Counts(nb::handle counts, nb::handle offsets, size_t ranks, const char* name);
  const size_t* offsets_or_null() const { return offsets.empty() ? nullptr : offsets.data(); }
  /// Elements up to the end of the last one.
  size_t extent() const;

  std::vector<size_t> counts, offsets;
};

class CollectiveCall {
 public:
  explicit CollectiveCall(PyObject* self);

  /// The type of both buffers' elements; null and None: not given. Raises when they differ.
  void take_type(nb::handle send, nb::handle recv, PyObject* dtype);
  void take_operation(PyObject* op, PyObject* scale, PyObject* commutative, PyObject* repeatable);
  void take_options(PyObject* algorithm, PyObject* timeout);

  Elements sent(nb::handle buffer);
  Elements received(nb::handle buffer);
  /// Raises when the buffer has another number of elements.
  static void demand(const char* name, size_t count, size_t wanted);
  /// Raises when it has fewer.
  static void demand_room(const char* name, size_t count, size_t wanted);
  /// count / ranks, without a rest.
  size_t share(const char* name, size_t count) const;

  /// post(group, options, request): the function of C.
  template <class Post>
  PyObject* run(bool blocking, Post&& post) {
    tw_group* const group = group_.get();
    group_.worker->disarm();
    if (!blocking) {
      operation_.keep(self_);
      operation_.posted(post(group, &options_, &operation_.request));
      return into_request(std::move(operation_));
    }
    tw_status status;
    {
      const Using user(group_.users);
      status = without_gil({group_.worker}, [&] { return post(group, &options_, nullptr); });
    }
    operation_.raise_raised();
    check(status);
    Py_RETURN_NONE;
  }

  tw_status explain(const char* collective, size_t count, char* to, size_t* length) const {
    return tw_group_explain(group_.handle, collective, count, type_, &options_, to, length);
  }

  size_t rank() const { return tw_group_rank(group_.handle); }
  size_t size() const { return tw_group_size(group_.handle); }
  uint32_t type() const { return type_; }
  uint32_t op() const { return op_; }

 private:
  Elements take(BufferView& view, nb::handle buffer, BufferView::Use use);
  void take_function(PyObject* function);

  PyObject* self_;
  Group& group_;
  Operation operation_;
  tw_collective_options options_ = TW_COLLECTIVE_OPTIONS_INIT;
  std::string algorithm_;
  uint32_t type_ = TW_TYPE_UINT8, op_ = TW_REDUCE_SUM;
};

}  // namespace thalweg::python
