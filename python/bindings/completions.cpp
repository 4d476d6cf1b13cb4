// SPDX-License-Identifier: Apache-2.0
// Completion queues and counters. A Request completes to one of them; its queue holds it until it is taken from there.
#include <array>
#include <mutex>
#include <unordered_map>

#include "arguments.hpp"
#include "request.hpp"

namespace thalweg::python {

struct CompletionQueue {
  nb::object worker_object;
  Worker* worker = nullptr;
  tw_completion_queue* handle = nullptr;
  uintptr_t last = 0;
  int waits = 0;                                   ///< threads that wait for it
  std::unordered_map<uintptr_t, nb::object> told;  ///< requests by the arg of their entries
  /// Of several threads; entries name memory until the next poll. Held without the GIL, never while it is asked for.
  std::shared_ptr<std::mutex> polling = std::make_shared<std::mutex>();

  CompletionQueue() = default;
  CompletionQueue(CompletionQueue&& other) noexcept
      : worker_object(std::move(other.worker_object)), worker(other.worker), handle(std::exchange(other.handle, nullptr)) {}
  ~CompletionQueue() { close(); }
  void close() noexcept;
  tw_completion_queue* get() const {
    if (handle == nullptr) raise(TW_ERR_HANDLE, "the completion queue is closed");
    worker->get();
    return handle;
  }
};

struct Counter {
  nb::object worker_object;
  Worker* worker = nullptr;
  tw_counter* handle = nullptr;
  int waits = 0;  ///< threads that wait for it

  Counter() = default;
  Counter(Counter&& other) noexcept
      : worker_object(std::move(other.worker_object)), worker(other.worker), handle(std::exchange(other.handle, nullptr)) {}
  ~Counter() { close(); }
  void close() noexcept;
  tw_counter* get() const {
    if (handle == nullptr) raise(TW_ERR_HANDLE, "the counter is closed");
    worker->get();
    return handle;
  }
};

namespace {

nb::object queue_make(nb::handle_t<Worker> owner, bool notifications) {
  CompletionQueue queue;
  tw_completion_queue_options options = TW_COMPLETION_QUEUE_OPTIONS_INIT;
  options.notifications = notifications ? 1 : 0;
  check(tw_completion_queue_create(nb::inst_ptr<Worker>(owner)->enter(), &options, &queue.handle));
  queue.worker = nb::inst_ptr<Worker>(owner);
  queue.worker_object = nb::borrow(owner);
  return nb::cast(std::move(queue), nb::rv_policy::move);
}

/// Entries, and copies of what they name.
struct Entries {
  static constexpr size_t kMost = 256;
  std::array<tw_completion, kMost> list{};
  std::vector<std::string> texts;  ///< an error's message, or a notification's bytes
  size_t count = 0;
  tw_status status = TW_OK;

  /// At most `most`; any thread state.
  void take(CompletionQueue& queue, size_t most) {
    const std::lock_guard lock(*queue.polling);
    status = tw_completion_queue_poll(queue.handle, list.data(), std::min(most, kMost), &count);
    if (status != TW_OK) count = 0;
    for (size_t i = 0; i < count; ++i) {
      const tw_completion& entry = list[i];
      const auto* data = static_cast<const char*>(entry.data);
      texts.push_back(data != nullptr ? std::string(data, entry.info.length) : entry.message != nullptr ? entry.message : "");
    }
  }
};

/// The request of an entry, which knows its outcome from here on; invalid: the entry has none.
nb::object request_of(CompletionQueue& queue, const tw_completion& entry, const std::string& text) {
  auto node = queue.told.extract(reinterpret_cast<uintptr_t>(entry.arg));
  if (entry.kind == TW_COMPLETION_NOTIFICATION || node.empty()) return {};
  Operation& operation = nb::inst_ptr<Request>(node.mapped())->operation;
  if (operation.under_way() && operation.outcome == TW_IN_PROGRESS) operation.ended_as(entry, text);
  return node.mapped();
}

nb::object notification_of(const CompletionQueue& queue, const tw_completion& entry, const std::string& text) {
  if (entry.kind != TW_COMPLETION_NOTIFICATION) return nb::none();
  nb::object from =
      entry.info.endpoint != nullptr ? wrap_endpoint(queue.worker_object, entry.info.endpoint, false) : nb::none();
  return nb::make_tuple(std::move(from), nb::bytes(text.data(), text.size()));
}

/// Requests that were unpacked, and notifications. All know their outcome before any function of Python runs, which may wait for one.
nb::list list_of(CompletionQueue& queue, const Entries& entries) {
  check(entries.status);
  std::vector<nb::object> all(entries.count);
  for (size_t i = 0; i < entries.count; ++i) all[i] = request_of(queue, entries.list[i], entries.texts[i]);
  nb::list ended;
  for (size_t i = 0; i < entries.count; ++i)
    ended.append(all[i].is_valid() ? all[i] : notification_of(queue, entries.list[i], entries.texts[i]));
  for (const nb::object& one : all) {
    if (one.is_valid()) nb::inst_ptr<Request>(one)->operation.finish();
  }
  try {
    queue.worker->dispatch();
  } catch (nb::python_error& error) {
    if (entries.count == 0) throw;
    queue.worker->keep_raised(error);  // what was taken from the queue is taken: the next call raises it
  }
  return ended;
}

nb::list queue_poll(CompletionQueue& queue, size_t count) {
  queue.get();
  queue.worker->enter();
  queue.worker->disarm();
  Entries entries;
  entries.take(queue, count);
  return list_of(queue, entries);
}

nb::list queue_wait(CompletionQueue& queue, size_t count, nb::handle timeout) {
  queue.get();
  queue.worker->enter();
  if (count == 0) raise(TW_ERR_INVALID, "count is at least 1");
  const uint64_t deadline = deadline_of(timeout.ptr());
  Entries entries;
  const auto come = [&] {
    if (entries.count == 0 && entries.status == TW_OK) entries.take(queue, count);
    return entries.count != 0 || entries.status != TW_OK;
  };
  bool some = false;
  {
    const Using waits(queue.waits);
    some = wait_until(*queue.worker, deadline, come);
  }
  if (!some) raise(TW_ERR_TIMED_OUT, "nothing has ended here in time; the operations go on");
  return list_of(queue, entries);
}

nb::object counter_make(nb::handle_t<Worker> owner) {
  Counter counter;
  check(tw_counter_create(nb::inst_ptr<Worker>(owner)->enter(), &counter.handle));
  counter.worker = nb::inst_ptr<Worker>(owner);
  counter.worker_object = nb::borrow(owner);
  return nb::cast(std::move(counter), nb::rv_policy::move);
}

uint64_t counter_value(const Counter& counter, bool failures) {
  uint64_t completed = 0, failed = 0;
  check(tw_counter_read(counter.get(), &completed, &failed));
  return failures ? failed : completed;
}

void counter_wait(Counter& counter, uint64_t total, nb::handle timeout) {
  tw_counter* const handle = counter.get();
  counter.worker->enter();
  const uint64_t deadline = deadline_of(timeout.ptr());
  const Using waits(counter.waits);
  const auto ended = [handle, total] {
    uint64_t completed = 0, failed = 0;
    return tw_counter_read(handle, &completed, &failed) != TW_OK || completed + failed >= total;
  };
  if (!wait_until(*counter.worker, deadline, ended)) check(tw_counter_wait(handle, total, 0));
}

void request_tell(nb::handle_t<Request> self, nb::handle queue_object, nb::handle counter_object, nb::handle signal_object,
                  uint64_t value) {
  auto* queue = as_object<CompletionQueue>(queue_object.ptr(), "queue");
  auto* counter = as_object<Counter>(counter_object.ptr(), "counter");
  auto* signal = as_object<Signal>(signal_object.ptr(), "signal");
  Operation& operation = nb::inst_ptr<Request>(self)->operation;
  operation.worker->enter();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  if (queue != nullptr) options.queue = queue->get();
  if (counter != nullptr) options.counter = counter->get();
  if (signal != nullptr) options.done = signal->get();
  options.done_value = value;
  if (queue != nullptr) options.arg = reinterpret_cast<void*>(++queue->last);
  if (!operation.under_way() && operation.status < 0)
    raise(TW_ERR_INVALID, "the operation has failed and its end was taken: tell of it before");
  check(tw_request_tell(operation.under_way() ? operation.request : TW_REQUEST_NONE, &options));
  if (queue != nullptr && operation.under_way()) operation.told = queue->polling;
  if (queue != nullptr) queue->told.emplace(queue->last, nb::borrow(self));
  if (counter != nullptr) operation.keep(counter_object);
  if (signal != nullptr) operation.keep(signal_object);
}

/// Requests that have ended take their outcome, which goes with the queue; the others keep their buffers, with the worker.
void leave(Worker& worker, std::unordered_map<uintptr_t, nb::object> told) {
  for (auto& [number, request] : told) {
    Operation& operation = nb::inst_ptr<Request>(request)->operation;
    if (operation.test()) {
      operation.finish();
    } else {
      worker.orphans.push_back(std::move(request));
    }
  }
}

template <class Sink>
void close_sink(Sink& sink, const char* text) {
  if (sink.waits > 0) raise(TW_ERR_BUSY, text);
  sink.close();
}

}  // namespace

void CompletionQueue::close() noexcept {
  tw_completion_queue* const ended = std::exchange(handle, nullptr);
  if (ended == nullptr) return;
  auto left = std::exchange(told, {});
  if (!left.empty()) worker->in_turn([by = worker, left = std::move(left)] { leave(*by, left); });
  worker->end_sink(ended, tw_completion_queue_destroy);
}

void Counter::close() noexcept {
  tw_counter* const ended = std::exchange(handle, nullptr);
  if (ended != nullptr) worker->end_sink(ended, tw_counter_destroy);
}

void bind_completions(nb::module_& m) {
  using nb::arg;
  nb::class_<CompletionQueue>(
      m, "CompletionQueue",
      "Where Requests end that were told to (Request.tell), in the order of their ends: one look for all of them.")
      .def(nb::new_(&queue_make), arg("worker"), nb::kw_only(), arg("notifications") = false,
           "notifications: what peers' put, post and put_blocks notify this worker of comes here, too, instead of to\n"
           "Worker.next_notification().")
      .def("poll", &queue_poll, arg("count") = Entries::kMost,
           "The Requests that have ended, at most count and 256; progresses once where there is none. Their value or error is\n"
           "Request.wait()'s. Of a notification: (endpoint, bytes). What a handler of active messages raises comes out of the\n"
           "next call where this one has something to return.")
      .def("wait", &queue_wait, arg("count") = Entries::kMost, arg("timeout") = nb::none(),
           "The same, progressing until there is one, at most timeout seconds, with the GIL released. Raises TimedOut.")
      .def(
          "__len__", [](const CompletionQueue& queue) { return queue.told.size(); }, "Requests that were not taken yet.")
      .def(
          "close", [](CompletionQueue& s) { close_sink(s, "a thread waits for this completion queue: end its wait first"); },
          "Ends the queue. Requests under way go on, kept by the worker. Raises BusyError while a thread waits for it.");
  nb::class_<Counter>(m, "Counter", "Counts the ends of Requests that were told to (Request.tell).")
      .def(nb::new_(&counter_make), arg("worker"))
      .def_prop_ro(
          "completed", [](const Counter& counter) { return counter_value(counter, false); }, "How many ended well.")
      .def_prop_ro(
          "failed", [](const Counter& counter) { return counter_value(counter, true); }, "How many failed.")
      .def("wait", &counter_wait, arg("total"), arg("timeout") = nb::none(),
           "Progresses until total have ended, well or not, at most timeout seconds, with the GIL released. Raises TimedOut.")
      .def(
          "close", [](Counter& s) { close_sink(s, "a thread waits for this counter: end its wait first"); },
          "Ends the counter. Raises BusyError while a thread waits for it.");
  nb::borrow<nb::class_<Request>>(m.attr("Request"))
      .def("tell", &request_tell, nb::kw_only(), arg("queue") = nb::none(), arg("counter") = nb::none(),
           arg("signal") = nb::none(), arg("value") = 1,
           "Where the end is told, one of: queue (a CompletionQueue that then gives this Request), counter (a Counter), signal "
           "(a\n"
           "Signal of the same worker, set to value or, of kind \"add\", added to where the operation ended well; its word may "
           "lie\n"
           "in device memory, where kernels and plans wait for it). At once where it has ended already.");
}

}  // namespace thalweg::python
