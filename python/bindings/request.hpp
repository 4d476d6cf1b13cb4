// SPDX-License-Identifier: Apache-2.0
// An operation under way: what it reads or writes is kept alive from the call until its end. Blocking calls keep it on the
// stack; the others move it into a Request.
#pragma once
#include <memory>
#include <mutex>
#include <thread>

#include "arguments.hpp"
#include "buffer.hpp"
#include "wait.hpp"

namespace thalweg::python {

enum class Result : uint8_t { none, received, number };

/// What an operation received for an object whose layout unpacks it (layout_callbacks.cpp).
struct Unpacking {
  std::shared_ptr<LayoutFunctions> functions;
  nb::object object, bytes;
  nb::object raised;     ///< by unpack; invalid: nothing was
  bool running = false;  ///< unpack is, in thread `by`
  std::thread::id by;
  /// Unpacks the first `length` bytes. False: it has raised.
  bool run(size_t length) noexcept;
};

/// What a collective uses beside Operation::buffer.
struct CollectiveParts {
  BufferView recv;
  nb::object function, dtype;  ///< of Python's that combines elements, and what its arrays are of; invalid: none
  Worker* worker = nullptr;    ///< which calls it from its progress
  nb::object raised;           ///< by the function; invalid: nothing was
};

struct Operation {
  Operation(nb::handle owner, Worker* its_worker, Result kind)
      : worker_object(nb::borrow(owner)), worker(its_worker), result(kind) {}
  Operation(Operation&&) noexcept = default;

  nb::object worker_object;  ///< keeps the worker alive
  Worker* worker;
  Result result;
  uint8_t number_size = 8;
  tw_status status = TW_IN_PROGRESS;
  tw_request request = TW_REQUEST_NONE;
  BufferView buffer;
  nb::object kept;                   ///< endpoint, remote memory, layouts: whatever else the library uses
  nb::object endpoint;               ///< of a receive from one endpoint: saves the look-up
  nb::object sender;                 ///< what info.endpoint was when the outcome was taken; later it may be another one
  std::unique_ptr<uint64_t> number;  ///< where a fetched value lands
  tw_recv_info info{};
  std::string message;
  std::unique_ptr<Unpacking> unpacking;  ///< null: what it receives is where it belongs
  std::unique_ptr<CollectiveParts> collective;
  std::shared_ptr<std::mutex> told;    ///< of the completion queue that takes its end, and releases the request; null: none
  tw_status outcome = TW_IN_PROGRESS;  ///< of an ended one whose end() is to come

  /// Takes what a posting call returned: done, under way, or an error to raise.
  void posted(tw_status returned) {
    if (returned == TW_IN_PROGRESS && request != TW_REQUEST_NONE) return;
    if (returned < 0) raise(returned);
    if (returned == TW_AGAIN) raise(TW_AGAIN, "nothing could be queued without waiting");
    if (request != TW_REQUEST_NONE) return finish();
    end(TW_OK);
  }

  /// Keeps one more object alive until the end.
  void keep(nb::handle object) { kept = kept.is_valid() ? nb::object(nb::make_tuple(kept, object)) : nb::borrow(object); }

  bool under_way() const { return status == TW_IN_PROGRESS; }
  bool test() {  ///< true when it has ended; any thread state
    return !under_way() || tw_request_test(request) != TW_IN_PROGRESS;
  }
  /// A completion queue has given its end, and released the request: finish() has it from here on.
  void ended_as(const tw_completion& entry, const std::string& text);
  /// Takes the outcome of an ended request and releases it; once, by the first of its waiters.
  void finish();
  /// The same of the request alone. False: a thread that polls the completion queue has it, and brings it in a moment.
  bool take_outcome();
  void find_sender() noexcept;
  /// It has ended so; what came with it is unpacked.
  void end(tw_status how) noexcept {
    if (unpacking != nullptr) [[unlikely]]
      return end_unpacking(how);
    status = how;
  }
  void end_unpacking(tw_status how) noexcept;
  /// Raises what a function of Python's, called by the operation, has raised.
  void raise_raised() const;
  /// Waits at most until the deadline, or raises TimedOut with the library's text.
  void await(uint64_t deadline);
  /// The value of an ended operation, or raises how it ended.
  nb::object value();
  /// Waits for the end, or raises TimedOut; the operation is cancelled then, or continues if it is too late for that.
  void wait(uint64_t deadline);
};

struct Request {
  explicit Request(Operation&& taken) : operation(std::move(taken)) {}
  Request(Request&&) noexcept = default;
  ~Request();

  Operation operation;
  nb::object token;  ///< anything the event loop keeps with it
};

void acquire_by_calls(Operation& operation, PyObject* object, BufferView::Use use, PyObject* after, const Layout& layout);
/// Takes the operation's buffer, after what `after` names. With a layout of callbacks any object: it is packed now, or
/// unpacked at the end.
inline void acquire(Operation& operation, PyObject* object, BufferView::Use use, PyObject* after, PyObject* layout) {
  if (layout != nullptr && layout != Py_None) [[unlikely]] {
    const Layout* given = as_object<Layout>(layout, "layout");
    if (given->functions != nullptr) return acquire_by_calls(operation, object, use, after, *given);
  }
  operation.buffer.acquire(object, use);
  operation.buffer.order(after);
}
/// The buffer's address, layout and stream into options. `layout`, when given, names pieces of a contiguous buffer, within
/// its borders.
void take_layout(Operation& operation, tw_op_options& options, PyObject* layout);
inline size_t length_of(const Operation& operation, const tw_op_options& options) {
  return options.layout != nullptr ? tw_layout_bytes(options.layout) : operation.buffer.length();
}

/// Waits and gives the value, as blocking calls do. On an exception the operation is handed to the worker until it ends.
PyObject* complete(Operation& operation, uint64_t deadline);
/// A Request object of the operation, for the calls that return one.
PyObject* into_request(Operation&& operation);

inline PyObject* deliver(Operation& operation, bool blocking, uint64_t deadline = TW_FOREVER) {
  return blocking ? complete(operation, deadline) : into_request(std::move(operation));
}

}  // namespace thalweg::python
