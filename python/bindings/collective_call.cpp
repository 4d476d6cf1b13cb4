// SPDX-License-Identifier: Apache-2.0
#include "collective_call.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "reduce.hpp"

namespace thalweg::python {
namespace {

struct Type {
  const char* name;
  uint32_t type;
  uint8_t bytes;
  const char* carrier;  ///< the type by whose name arrays give their memory; null: by their own
};
constexpr std::array<Type, 12> kTypes = {{{"float16", TW_TYPE_FLOAT16, 2, nullptr},
                                          {"bfloat16", TW_TYPE_BFLOAT16, 2, "int16"},
                                          {"float32", TW_TYPE_FLOAT32, 4, nullptr},
                                          {"float64", TW_TYPE_FLOAT64, 8, nullptr},
                                          {"int8", TW_TYPE_INT8, 1, nullptr},
                                          {"int16", TW_TYPE_INT16, 2, nullptr},
                                          {"int32", TW_TYPE_INT32, 4, nullptr},
                                          {"int64", TW_TYPE_INT64, 8, nullptr},
                                          {"uint8", TW_TYPE_UINT8, 1, nullptr},
                                          {"float8_e4m3fn", TW_TYPE_FLOAT8_E4M3, 1, "int8"},
                                          {"float8_e5m2", TW_TYPE_FLOAT8_E5M2, 1, "int8"},
                                          {"bool", TW_TYPE_BOOL, 1, nullptr}}};
constexpr std::array<const char*, 9> kOperations = {"sum", "product", "min",     "max",       "and",
                                                    "or",  "xor",     "average", "scaled_sum"};

const Type& type_of_number(uint32_t type) {
  return *std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& one) { return one.type == type; });
}

uint32_t number_of_type(nb::handle array, nb::handle dtype) {
  const std::string name = name_of_type(array, dtype);
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& one) { return name == one.name; });
  if (found == kTypes.end())
    raise(TW_ERR_INVALID, ("collectives take no type '" + name +
                           "': they take float16, bfloat16, float32, float64, int8 to int64, "
                           "uint8, float8_e4m3fn, float8_e5m2 and bool")
                              .c_str());
  return found->type;
}

/// The text of a type takes longer than a small collective: types are few, and are kept with their numbers.
uint32_t type_of(nb::handle array, nb::handle dtype) {
  static auto* const known = new std::unordered_map<PyObject*, uint32_t>();
  const nb::object type = dtype.is_valid() && !dtype.is_none() ? nb::borrow(dtype) : nb::getattr(array, "dtype", nb::none());
  if (const auto found = known->find(type.ptr()); found != known->end()) return found->second;
  const uint32_t number = number_of_type(array, type);
  if (known->size() < 64) (*known)[nb::object(type).release().ptr()] = number;
  return number;
}

/// An array of a type that its framework gives no memory of, as one of integers.
nb::object carried(nb::handle buffer, uint32_t type) {
  const char* const carrier = type_of_number(type).carrier;
  if (carrier == nullptr || !nb::hasattr(buffer, "dtype") || !nb::hasattr(buffer, "view")) return nb::borrow(buffer);
  const std::string module = nb::cast<std::string>(nb::str(buffer.type().attr("__module__")));
  nb::object framework = nb::module_::import_(module.substr(0, module.find('.')).c_str());
  return buffer.attr("view")(framework.attr(carrier));
}

nb::object array_of(const void* memory, size_t bytes, bool writable, nb::handle dtype) {
  nb::object view = nb::steal(PyMemoryView_FromMemory(static_cast<char*>(const_cast<void*>(memory)),
                                                      static_cast<Py_ssize_t>(bytes), writable ? PyBUF_WRITE : PyBUF_READ));
  if (!view.is_valid()) throw nb::python_error();
  return nb::module_::import_("numpy").attr("frombuffer")(view, nb::arg("dtype") = dtype);
}

/// This thread is in the middle of the worker's progress, and runs Python there: nobody ends the worker meanwhile, nor enters it.
class Inside {
 public:
  explicit Inside(Worker& worker) : worker_(worker), before_(std::exchange(worker.inside, std::this_thread::get_id())) {
    ++worker_.waiters;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    --worker_.waiters;  // what was handed over is for the thread that leaves the progress
    worker_.inside = before_;
  }

 private:
  Worker& worker_;
  const std::thread::id before_;
};

/// inout = function(inout, from), by arrays of NumPy's; what it raises is raised at the end, and fails the group.
tw_status combine(const void* from, void* inout, size_t count, void* arg) {
  auto& parts = *static_cast<CollectiveParts*>(arg);
  const Acquired interpreter;
  if (parts.raised.is_valid()) return TW_ERR_INVALID;
  const Inside inside(*parts.worker);
  const nb::error_scope pending;
  try {
    const size_t bytes = count * nb::cast<size_t>(parts.dtype.attr("itemsize"));
    nb::object lower = array_of(inout, bytes, true, parts.dtype), higher = array_of(from, bytes, false, parts.dtype);
    nb::object result = parts.function(lower, higher);
    if (!result.is_none() && !result.is(lower)) lower[nb::slice(nb::none(), nb::none(), nb::none())] = result;
    return TW_OK;
  } catch (nb::python_error& error) {
    parts.raised = nb::borrow(error.value());
  } catch (...) {
    parts.raised = nb::steal(PyObject_CallNoArgs(PyExc_MemoryError));
  }
  return TW_ERR_INVALID;
}

nb::object numpy_type(uint32_t type) {
  const Type& wanted = type_of_number(type);
  if (wanted.carrier != nullptr) (void)nb::module_::import_("ml_dtypes");
  return nb::module_::import_("numpy").attr("dtype")(wanted.name);
}

std::vector<size_t> numbers(nb::handle given, size_t ranks, const char* name) {
  std::vector<size_t> out;
  for (nb::handle one : given) out.push_back(static_cast<size_t>(as_u64(one.ptr(), 0)));
  if (out.size() != ranks) {
    raise(TW_ERR_INVALID, (std::string(name) + " has " + std::to_string(out.size()) + " entries, and the group " +
                           std::to_string(ranks) + " ranks")
                              .c_str());
  }
  return out;
}

bool given(nb::handle argument) { return argument.is_valid() && !argument.is_none(); }

}  // namespace

Counts::Counts(nb::handle number, nb::handle begin, size_t ranks, const char* name) {
  if (!given(number)) raise(TW_ERR_INVALID, (std::string(name) + " is missing: it has an entry for each rank").c_str());
  counts = numbers(number, ranks, name);
  if (given(begin)) offsets = numbers(begin, ranks, "offsets");
}

size_t Counts::extent() const {
  size_t end = 0, at = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (!offsets.empty()) at = offsets[i];
    if (counts[i] > SIZE_MAX / 16 || at > SIZE_MAX / 16) return SIZE_MAX;  // no buffer has as many
    if (counts[i] != 0) end = std::max(end, at + counts[i]);
    at += counts[i];
  }
  return end;
}

/// A positional argument before those of the signature.
template <class T>
PyObject* CollectiveCall::take_first(const char* name, T** out) {
  if (given_.count == 0) {
    PyErr_Format(PyExc_TypeError, "the first arguments of a collective in this form are positional: %s is missing", name);
    throw nb::python_error();
  }
  PyObject* const object = *given_.args++;
  --given_.count;
  *out = as_object<T>(object, name);
  if (*out != nullptr) return object;
  PyErr_Format(PyExc_TypeError, "%s is None", name);
  throw nb::python_error();
}

CollectiveCall::CollectiveCall(Form form, const Given& given)
    : form_(form),
      given_(given),
      self_([&] {
        if (form == Form::queue) take_first("queue", &queue_);
        if (form == Form::plan) plan_ = nb::inst_ptr<Plan>(given.self);
        if (form == Form::queue || form == Form::plan) return take_first("group", &group_);
        group_ = nb::inst_ptr<Group>(given.self);
        return given.self;
      }()),
      operation_(group_->worker_object, group_->worker, Result::none) {
  group_->get();
  group_->worker->enter();
  operation_.collective = std::make_unique<CollectiveParts>();
}

void CollectiveCall::take_type(nb::handle send, nb::handle recv, PyObject* dtype) {
  const nb::handle named(dtype);
  if (!given(send) && !given(recv) && !given(named)) raise(TW_ERR_INVALID, "neither send nor recv is given");
  type_ = type_of(given(send) ? send : recv, named);
  if (!given(send) || !given(recv) || given(named)) return;
  if (nb::hasattr(recv, "dtype") && type_of(recv, {}) != type_)
    raise(TW_ERR_INVALID, "send and recv have different types: give dtype= where that is meant");
}

void CollectiveCall::take_operation(PyObject* op, PyObject* scale, PyObject* commutative, PyObject* repeatable) {
  if (as_bool(repeatable)) options_.flags |= TW_COLLECTIVE_REPEATABLE;
  if (scale != nullptr && scale != Py_None) options_.scale = nb::cast<double>(nb::handle(scale));
  options_.commutative = as_bool(commutative, true) ? 1 : 0;
  if (op == nullptr) return;
  if (PyUnicode_Check(op) == 0) return take_function(op);
  const std::string name = nb::cast<std::string>(nb::handle(op));
  const auto found = std::find_if(kOperations.begin(), kOperations.end(), [&](const char* one) { return name == one; });
  if (found == kOperations.end())
    raise(TW_ERR_INVALID, ("collectives take no operation '" + name +
                           "': they take sum, product, min, max, and, or, xor, average, "
                           "scaled_sum, and a function of two arrays")
                              .c_str());
  op_ = static_cast<uint32_t>(found - kOperations.begin());
}

void CollectiveCall::take_function(PyObject* function) {
  if (PyCallable_Check(function) == 0) {
    PyErr_Format(PyExc_TypeError, "op is the name of an operation or a function of two arrays, not a %s",
                 Py_TYPE(function)->tp_name);
    throw nb::python_error();
  }
  if (group_->worker->multi)
    raise(
        TW_ERR_UNSUPPORTED,
        "functions of Python combine elements only where one thread progresses the worker: make it with threads=\"single\" and "
        "progress=\"caller\"");
  op_ = TW_REDUCE_USER;
  CollectiveParts& parts = *operation_.collective;
  parts.function = nb::borrow(function);
  parts.worker = group_->worker;
  parts.dtype = numpy_type(type_);
  options_.reduce = &combine;
  options_.reduce_arg = &parts;
}

void CollectiveCall::take_options(PyObject* algorithm, PyObject* timeout, PyObject* after) {
  options_.timeout_ns = duration_of(timeout, 0);
  if (after != nullptr) {
    if (form_ != Form::plan) raise(TW_ERR_INVALID, "after names steps of a plan: this is none of its steps");
    for (nb::handle step : nb::cast<nb::iterable>(nb::handle(after))) after_.push_back(nb::cast<uint32_t>(step));
    options_.after_steps = after_.data();
    options_.after_count = after_.size();
  }
  if (algorithm == nullptr || algorithm == Py_None) return;
  algorithm_ = nb::cast<std::string>(nb::handle(algorithm));
  options_.algorithm = c_text(algorithm_);
}

Elements CollectiveCall::take(BufferView& view, nb::handle buffer, BufferView::Use use) {
  view.acquire(carried(buffer, type_).ptr(), use);
  if (view.layout() != nullptr) raise(TW_ERR_UNSUPPORTED, "collectives take contiguous memory: copy the array first");
  if (form_ == Form::blocking || form_ == Form::request) synchronize(view.after());
  const size_t bytes = type_of_number(type_).bytes;
  if (view.length() % bytes != 0) raise(TW_ERR_INVALID, "a buffer is not a whole number of elements");
  return {view.data(), view.length() / bytes};
}

/// The buffers are the queue's until it ends: it keeps what it has prepared for them.
tw_queue* CollectiveCall::keep_in_queue() {
  tw_queue* const queue = queue_->get();
  for (BufferView* view : {&operation_.buffer, &operation_.collective->recv}) {
    if (view->data() != nullptr) queue_->keep(std::make_unique<BufferView>(std::move(*view)));
  }
  for (std::unique_ptr<BufferView>& array : arrays_) queue_->keep(std::move(array));
  queue_->keep(nb::borrow(self_));
  return queue;
}

PyObject* CollectiveCall::enqueued(tw_status status) const {
  check(status);
  queue_->let_go_of_buffers();
  Py_RETURN_NONE;
}

PyObject* CollectiveCall::added(tw_status status, uint32_t step) {
  check(status);
  plan_->keep(self_, group_->worker);
  plan_->added(status, step, std::make_unique<BufferView>(std::move(operation_.buffer)),
               std::make_unique<BufferView>(std::move(operation_.collective->recv)));
  return PyLong_FromUnsignedLong(step);
}

PyObject* CollectiveCall::ended(tw_status status) const {
  operation_.raise_raised();
  check(status);
  group_->worker->raise_kept();  // by a handler of active messages meanwhile
  Py_RETURN_NONE;
}

std::string CollectiveCall::explain(const char* collective, size_t count, PyObject* on) const {
  const bool planned = on != nullptr && nb::isinstance<Plan>(on);
  const Queue* const queue = planned ? nullptr : as_object<Queue>(on, "on");
  return text_of([&](char* to, size_t* size) {
    if (!planned && queue == nullptr) return tw_group_explain(group_->handle, collective, count, type_, &options_, to, size);
    return tw_group_explain_on(planned ? nullptr : queue->get(), group_->handle, collective, count, type_, &options_, to, size);
  });
}

Elements CollectiveCall::sent(nb::handle buffer) { return take(operation_.buffer, buffer, BufferView::Use::source); }

Elements CollectiveCall::received(nb::handle buffer) {
  return take(operation_.collective->recv, buffer, BufferView::Use::destination);
}

uint64_t* CollectiveCall::numbers_of_ranks(nb::handle array, const char* name, BufferView::Use use) {
  if (!given(array)) return nullptr;
  const nb::object type = nb::getattr(array, "dtype", nb::none());
  if (!type.is_none() && !nb::cast<std::string>(nb::str(type)).ends_with("int64"))
    raise(TW_ERR_INVALID, (std::string(name) + " is not of int64 or uint64").c_str());
  auto view = std::make_unique<BufferView>();
  view->acquire(array.ptr(), use);
  if (view->layout() != nullptr || view->length() != size() * sizeof(uint64_t)) {
    raise(TW_ERR_INVALID, (std::string(name) + " has " + std::to_string(view->length()) +
                           " bytes: it has 64 bits for each of " + std::to_string(size()) + " ranks, one behind the other")
                              .c_str());
  }
  return static_cast<uint64_t*>(arrays_.emplace_back(std::move(view))->data());
}

size_t CollectiveCall::bytes(size_t elements) const { return elements * type_of_number(type_).bytes; }

void CollectiveCall::demand(const char* name, size_t count, size_t wanted) {
  if (count == wanted) return;
  raise(TW_ERR_INVALID,
        (std::string(name) + " has " + std::to_string(count) + " elements instead of " + std::to_string(wanted)).c_str());
}

void CollectiveCall::demand_room(const char* name, size_t count, size_t wanted) {
  if (count >= wanted) return;
  raise(TW_ERR_INVALID, (std::string(name) + " has " + std::to_string(count) + " elements, and counts and offsets reach to " +
                         std::to_string(wanted))
                            .c_str());
}

size_t CollectiveCall::share(const char* name, size_t count) const {
  const size_t ranks = size();
  if (count % ranks != 0)
    raise(TW_ERR_INVALID, (std::string(name) + " has " + std::to_string(count) + " elements, which " + std::to_string(ranks) +
                           " ranks do not share evenly")
                              .c_str());
  return count / ranks;
}

}  // namespace thalweg::python
