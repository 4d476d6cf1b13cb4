// SPDX-License-Identifier: Apache-2.0
// The arguments of one call of a collective, and how it runs: blocking, as a Request, on a Queue, or as a step of a Plan.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "group.hpp"
#include "plan.hpp"
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

/// How a collective is called: by a method of Group, which waits or returns a Request, by a function of a Queue, by a method
/// of Plan.
enum class Form : uint8_t { blocking, request, queue, plan };

/// The interpreter's arguments of a call.
struct Given {
  PyObject* self;
  PyObject* const* args;
  Py_ssize_t count;
  PyObject* keywords;
};

/// The three functions of a collective in C.
template <class Call, class On, class Planned>
struct Functions {
  Call call;
  On on;
  Planned planned;
};

class CollectiveCall {
 public:
  /// Takes queue and group from the arguments, where they are among them.
  CollectiveCall(Form form, const Given& given);

  template <size_t N>
  std::array<PyObject*, N> parse(const Signature<N>& signature) const {
    std::array<PyObject*, N> values;
    signature.parse(values, given_.args, given_.count, given_.keywords);
    return values;
  }
  /// The type of both buffers' elements; null and None: not given. Raises when they differ.
  void take_type(nb::handle send, nb::handle recv, PyObject* dtype);
  void take_operation(PyObject* op, PyObject* scale, PyObject* commutative, PyObject* repeatable);
  void take_options(PyObject* algorithm, PyObject* timeout, PyObject* after);

  Elements sent(nb::handle buffer);
  Elements received(nb::handle buffer);
  /// A 64-bit number for each rank in memory that a queue's device reads; null and None: null. Of the form of queues.
  uint64_t* numbers_of_ranks(nb::handle array, const char* name, BufferView::Use use);
  size_t bytes(size_t elements) const;
  /// Raises when the buffer has another number of elements.
  static void demand(const char* name, size_t count, size_t wanted);
  /// Raises when it has fewer.
  static void demand_room(const char* name, size_t count, size_t wanted);
  /// count / ranks, without a rest.
  size_t share(const char* name, size_t count) const;

  /// By the function of C that the form takes. args: its own, without group and options.
  template <class F, class... Args>
  PyObject* run(const F& functions, Args... args) {
    tw_group* const group = group_->get();
    group_->worker->disarm();
    if (form_ == Form::queue) {
      tw_queue* const queue = keep_in_queue();
      return enqueued(unlocked(queue_->users, [&] { return functions.on(queue, group, args..., &options_); }));
    }
    if (form_ == Form::plan) {
      tw_plan* const plan = plan_->get();
      uint32_t step = 0;
      const tw_status status =
          unlocked(plan_->users, [&] { return functions.planned(plan, group, args..., &options_, &step); });
      return added(status, step);
    }
    if (form_ == Form::request) {
      operation_.keep(self_);
      operation_.posted(functions.call(group, args..., &options_, &operation_.request));
      return into_request(std::move(operation_));
    }
    return ended(unlocked(group_->users, [&] { return functions.call(group, args..., &options_, nullptr); }));
  }

  /// on: a Queue, or a Plan; null and None: of the group's own call.
  std::string explain(const char* collective, size_t count, PyObject* on) const;

  size_t rank() const { return tw_group_rank(group_->handle); }
  size_t size() const { return tw_group_size(group_->handle); }
  uint32_t type() const { return type_; }
  uint32_t op() const { return op_; }

 private:
  Elements take(BufferView& view, nb::handle buffer, BufferView::Use use);
  void take_function(PyObject* function);
  template <class T>
  PyObject* take_first(const char* name, T** out);
  /// Without the GIL; the worker is progressed.
  template <class Call>
  tw_status unlocked(int& users, Call&& call) {
    const Using user(users), group_user(group_->users);
    return without_gil({group_->worker}, call);
  }
  tw_queue* keep_in_queue();
  PyObject* enqueued(tw_status status) const;
  PyObject* added(tw_status status, uint32_t step);
  PyObject* ended(tw_status status) const;

  const Form form_;
  Given given_;
  Queue* queue_ = nullptr;
  Plan* plan_ = nullptr;
  Group* group_ = nullptr;
  PyObject* const self_;  ///< the group
  Operation operation_;
  tw_collective_options options_ = TW_COLLECTIVE_OPTIONS_INIT;
  std::string algorithm_;
  std::vector<uint32_t> after_;
  std::vector<std::unique_ptr<BufferView>> arrays_;
  uint32_t type_ = TW_TYPE_UINT8, op_ = TW_REDUCE_SUM;
};

}  // namespace thalweg::python
