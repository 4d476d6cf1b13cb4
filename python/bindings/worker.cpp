// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>

#include <optional>

#include "request.hpp"

namespace thalweg::python {
namespace {

void worker_init(Worker* self, nb::object context, const std::string& threads, const std::string& progress,
                 uint64_t unexpected_budget) {
  new (self) Worker();
  Context& parent = nb::cast<Context&>(context);
  tw_worker_options options = TW_WORKER_OPTIONS_INIT;
  if (threads != "single" && threads != "multi") raise(TW_ERR_INVALID, "threads is \"single\" or \"multi\"");
  if (progress != "caller" && progress != "thread") raise(TW_ERR_INVALID, "progress is \"caller\" or \"thread\"");
  self->progress_thread = progress == "thread";
  self->multi = threads == "multi" || self->progress_thread;
  options.threads = self->multi ? TW_THREADS_MULTI : TW_THREADS_SINGLE;
  options.progress = self->progress_thread ? TW_PROGRESS_THREAD : TW_PROGRESS_CALLER;
  options.unexpected_budget = unexpected_budget;
  check(tw_worker_create(parent.get(), &options, &self->handle));
  ++parent.children;
  self->context = std::move(context);
}

nb::bytes worker_address(Worker& self) {
  return bytes_of([&](void* address, size_t* size) { return tw_worker_address(self.get(), address, size); });
}

unsigned worker_progress(Worker& self) {
  self.enter();
  self.disarm();
  unsigned events = tw_worker_progress(self.handle);
  self.progressed();
  if (!self.orphans.empty()) self.reap_orphans();
  if (self.dispatch()) ++events;
  return events;
}

bool worker_wait(Worker& self, nb::handle timeout) {
  self.enter();
  uint64_t deadline = deadline_of(timeout.ptr());
  // One sleep is one event at least: the caller looks itself for what it waits for.
  bool came = false;
  while (!came) {
    uint64_t now = now_ns();
    if (now >= deadline) break;
    tw_status status;
    {
      Waiting waiting(self);
      status = tw_worker_wait(self.handle, std::min(deadline - now, slice_ns));
    }
    if (status != TW_ERR_TIMED_OUT) check(status);
    came = status == TW_OK;
    if (!self.orphans.empty()) self.reap_orphans();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    self.enter();
    if (self.dispatch()) came = true;
    self.enter();
  }
  return came;
}

bool worker_arm(Worker& self) {
  tw_status status = tw_worker_arm(self.enter());
  if (status == TW_ERR_BUSY) return false;
  check(status);
  self.armed = true;
  return true;
}

/// One turn of an event loop: progress, then the watched requests that have ended (None: nothing happened).
nb::object worker_turn(Worker& self) {
  self.armed = false;
  bool touched = std::exchange(self.touched, false);  // calls since the last turn may have ended watched requests
  unsigned events = 0;
  try {
    events = worker_progress(self);
  } catch (...) {  // a handler raised: what ended meanwhile is for the next turn
    self.touched = true;
    throw;
  }
  self.touched = false;
  if (events == 0 && !touched && !self.progress_thread) return nb::none();
  nb::list ended;
  for (nb::object& request : std::exchange(self.watched, {})) {
    Operation& operation = nb::inst_ptr<Request>(request)->operation;
    if (!self.alive()) break;  // a function that unpacked has closed it, and on_close has told who waits
    if (operation.test()) {
      operation.finish();
      ended.append(std::move(request));
    } else {
      self.watched.push_back(std::move(request));
    }
  }
  return ended;
}

PyObject* worker_flush(Worker& self, nb::handle owner, bool blocking, uint64_t deadline) {
  Operation operation(owner, &self, Result::none);
  self.enter();
  self.disarm();
  operation.posted(tw_worker_flush(self.handle, &operation.request));
  return deliver(operation, blocking, deadline);
}

/// Handlers may be methods of what has the worker: such a cycle is found.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const auto& [id, callable] : nb::inst_ptr<Worker>(self)->handlers) Py_VISIT(callable.ptr());
  return 0;
}

int clear(PyObject* self) {
  const auto callables = std::exchange(nb::inst_ptr<Worker>(self)->handlers, {});
  return 0;
}

PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse)}, {Py_tp_clear, reinterpret_cast<void*>(&clear)}, {0, nullptr}};

}  // namespace

void Worker::close() noexcept {
  if (handle == nullptr) return;
  tell_closing();
  if (handle == nullptr) return;
  end_handed();
  tw_worker* ended = std::exchange(handle, nullptr);
  if (generation == fork_generation()) tw_worker_destroy(ended);
  handed_over.clear();
  if (generation == fork_generation()) {
    for (const auto& end : std::exchange(after_close, {})) end();
  }
  const auto requests = std::exchange(watched, {}), dropped = std::exchange(orphans, {});
  const auto callables = std::exchange(handlers, {});
  const auto of_endpoints = std::exchange(kept, {});
  const nb::object told = std::move(on_disarm), kept = std::move(raised);
  if (kept.is_valid()) {  // no call comes that could raise it
    const nb::error_scope pending;
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(kept.ptr())), kept.ptr());
    PyErr_WriteUnraisable(nullptr);
  }
  if (!context.is_valid()) return;
  --nb::inst_ptr<Context>(context)->children;
  nb::inst_ptr<Context>(context)->end_dropped();
}

tw_worker* Worker::get() const {
  if (handle == nullptr) raise(TW_ERR_CLOSED, "the worker is closed");
  if (generation != fork_generation())
    raise(TW_ERR_FORKED, "the worker belongs to the parent process: make one of its own after fork()");
  return handle;
}

void Worker::tell_disarmed() noexcept {
  armed = false;
  if (!on_disarm.is_valid() || on_disarm.is_none()) return;
  try {
    on_disarm();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("an event loop that is to progress");
  }
}

/// While its descriptor is still there, and no other thread enters.
void Worker::tell_closing() noexcept {
  const nb::object told = std::move(on_close);
  if (!told.is_valid() || told.is_none() || generation != fork_generation()) return;
  const bool before = closing.exchange(true);
  try {
    told();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("an event loop whose worker ends");
  }
  closing.store(before);
}

void Worker::left() noexcept {
  if (--waiters == 0 && !handed_over.empty()) end_handed();
}

void Worker::end_handed() noexcept {
  const auto ends = std::exchange(handed_over, {});
  if (!alive()) return;
  for (const auto& end : ends) end();
}

bool Worker::leave_all() noexcept {
  constexpr auto nap = std::chrono::microseconds(200);
  constexpr int naps = 50'000;  // ten seconds: a call of the library that does not look is bounded by its own time-out
  closing.store(true);
  for (int i = 0; i < naps && waiters > 0 && alive(); ++i) {
    (void)tw_worker_wake(handle);
    const Released release;
    std::this_thread::sleep_for(nap);
  }
  if (waiters == 0) return true;
  closing.store(false);
  return false;
}

/// Another thread closes it: waits until that is done, because the caller may reuse its buffers then. Returns if closing
/// failed.
static void await_close(const Worker& worker) {
  while (worker.closing.load() && worker.alive() && !Unlocked::inside()) {
    const Released release;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (worker.closing.load()) raise(TW_ERR_CLOSED, "the worker was closed by another thread");
}

tw_worker* Worker::enter() const {
  if (closing.load(std::memory_order_relaxed)) [[unlikely]]
    await_close(*this);
  if (entered_elsewhere()) [[unlikely]] {
    raise(TW_ERR_THREAD, "another thread waits in this single-thread worker: make it with threads=\"multi\"");
  }
  touched = true;
  return get();
}

void bind_worker(nb::module_& m) {
  using nb::arg;
  nb::class_<Worker>(
      m, "Worker",
      "A progress engine: endpoints, messages and their matching belong to one.\n\n"
      "threads: \"single\" (one thread at a time) or \"multi\"; progress: \"caller\" (this worker's calls move its\n"
      "work) or \"thread\" (the library's thread does); unexpected_budget: bytes of unmatched messages kept (0: 64 MiB).\n"
      "After fork() the child gets ForkedError.",
      nb::is_weak_referenceable(), nb::type_slots(slots))
      .def("__init__", &worker_init, arg("context"), nb::kw_only(), arg("threads") = "single", arg("progress") = "caller",
           arg("unexpected_budget") = 0)
      .def_prop_ro("context", [](Worker& w) { return w.context; })
      .def_prop_ro("address", &worker_address, "The bytes by which others connect: to travel by any means.")
      .def("progress", &worker_progress,
           "Moves the worker's work forward, never blocks. Returns the number of events (0: idle).")
      .def("wait", &worker_wait, arg("timeout") = nb::none(),
           "Sleeps until something happened, at most timeout seconds, with the GIL released. False: nothing came.")
      .def(
          "wake", [](Worker& w) { check(tw_worker_wake(w.get())); }, "Makes a sleeping wait return. Any thread.")
      .def(
          "fileno",
          [](Worker& w) {
            int fd = -1;
            check(tw_worker_fd(w.get(), &fd));
            return fd;
          },
          "A descriptor that becomes readable when progress is needed, once armed. Owned by the worker.")
      .def("arm", &worker_arm, "Arms the descriptor. False: something came in meanwhile, progress first.")
      .def(
          "flush",
          [](nb::handle_t<Worker> w, nb::handle timeout) {
            return nb::steal(worker_flush(*nb::inst_ptr<Worker>(w), w, true, deadline_of(timeout.ptr())));
          },
          arg("timeout") = nb::none(),
          "Waits until all earlier one-sided operations of all endpoints are visible at their targets.")
      .def(
          "iflush", [](nb::handle_t<Worker> w) { return nb::steal(worker_flush(*nb::inst_ptr<Worker>(w), w, false, 0)); },
          "As flush, but returns a Request.")
      .def("_turn", &worker_turn)
      .def_prop_ro("_shared", [](const Worker& w) { return w.multi; })
      .def_rw("_on_disarm", &Worker::on_disarm, arg().none())
      .def_rw("_on_close", &Worker::on_close, arg().none())
      .def(
          "_watch",
          [](Worker& w, nb::object request) {
            if (w.handle != nullptr) w.watched.push_back(std::move(request));
          },
          arg("request"))
      .def(
          "close",
          [](Worker& w) {
            if (w.waiters > 0 && w.inside == std::this_thread::get_id())
              raise(TW_ERR_BUSY, "this handler runs in the middle of a call that waits in the worker: close it after that");
            if (w.waiters > 0 && w.alive() && !w.leave_all()) {
              raise(TW_ERR_BUSY, "a thread is inside a call of this worker that does not end: end that first");
            }
            w.close();
          },
          "Ends every endpoint without waiting; what is pending ends with ClosedError, and so do the waits of other threads "
          "in\n"
          "this worker, for which it waits.")
      .def_prop_ro("closed", [](const Worker& w) { return w.handle == nullptr; });
  context_manager<Worker>(m.attr("Worker"));
}

}  // namespace thalweg::python
