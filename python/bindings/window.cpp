// SPDX-License-Identifier: Apache-2.0
// Windows: symmetric memory over ranks.
#include "window.hpp"

#include <thalweg/views.h>

#include <algorithm>

#include "plan.hpp"

namespace thalweg::python {

void Window::drop() noexcept {
  leave();
  tw_window* const ended = std::exchange(handle, nullptr);
  if (ended == nullptr || generation != fork_generation()) return;
  worker->in_turn([ended, where = std::exchange(memory, {}), peers = endpoints, of = group_object] { tw_window_drop(ended); });
}

tw_status Window::close() noexcept {
  Group* const of = group;
  leave();
  tw_window* const ended = std::exchange(handle, nullptr);
  if (ended == nullptr || generation != fork_generation()) return TW_OK;
  Loan ends = std::exchange(memory, {});
  if (worker->handle == nullptr) return TW_OK;
  tw_status status;
  {
    const Using user(users), member(of != nullptr ? of->users : users);
    const Unlocked unlocked({worker});
    status = tw_window_destroy(ended);
  }
  if (status != TW_ERR_BUSY) return status;
  handle = ended;  // a group's, in a function inside progress
  memory = std::move(ends);
  join(*of);
  return status;
}

tw_window* Window::get() const {
  if (handle == nullptr) raise(TW_ERR_HANDLE, "the window is closed");
  worker->get();
  return handle;
}

void Window::join(Group& of) {
  of.windows.push_back(this);
  group = &of;
}

void Window::leave() noexcept {
  if (group != nullptr) std::erase(group->windows, this);
  group = nullptr;
}

namespace {

/// tw_exchange by a callable that takes bytes and gives everyone's, by rank.
tw_status exchange_bytes(void* arg, const void* mine, size_t length, void* values) noexcept {
  Window& window = *static_cast<Window*>(arg);
  const Acquired acquire;
  try {
    const nb::object all = window.exchange(nb::bytes(mine, length));
    size_t rank = 0;
    for (nb::handle one : nb::cast<nb::iterable>(all)) {
      const nb::bytes bytes = nb::cast<nb::bytes>(one);
      if (rank >= window.endpoints.size() || bytes.size() != length) {
        PyErr_Format(PyExc_ValueError, "exchange must give %zu values of %zu bytes, one for each rank", window.endpoints.size(),
                     length);
        throw nb::python_error();
      }
      std::memcpy(static_cast<char*>(values) + rank++ * length, bytes.data(), length);
    }
    if (rank == window.endpoints.size()) return TW_OK;
    PyErr_Format(PyExc_ValueError, "exchange gave %zu values for %zu ranks", rank, window.endpoints.size());
    throw nb::python_error();
  } catch (nb::python_error& error) {
    window.raised = nb::borrow(error.value());
  } catch (const std::exception& error) {
    window.raised = nb::module_::import_("builtins").attr("ValueError")(error.what());
  }
  return TW_ERR_CANCELED;
}

/// Raises what exchange raised, else the status's error.
void check_exchange(Window& window, tw_status status) {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();  // by a signal's handler
  if (window.raised.is_valid()) {
    const nb::object error = std::move(window.raised);
    window.raised.reset();
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
  }
  check(status);
}

nb::object make_window(nb::handle_t<Worker> worker, nb::sequence peers, nb::handle_t<Memory> memory, nb::object exchange,
                       nb::handle timeout) {
  auto self = std::make_unique<Window>();
  self->worker_object = nb::borrow(worker);
  self->worker = nb::inst_ptr<Worker>(worker);
  self->memory = Loan(memory);
  self->exchange = nb::hasattr(exchange, "exchange") ? nb::object(exchange.attr("exchange")) : exchange;
  std::vector<tw_endpoint*> endpoints;
  size_t rank = 0;
  unsigned own = 0;
  for (nb::handle peer : peers) {
    if (peer.is_none()) {
      rank = endpoints.size();
      ++own;
    }
    endpoints.push_back(peer.is_none() ? nullptr : nb::cast<Endpoint&>(peer).get());
    self->endpoints.push_back(nb::borrow(peer));
  }
  if (own != 1) raise(TW_ERR_INVALID, "peers has one endpoint for each rank, and None for this one");
  tw_window_options options = TW_WINDOW_OPTIONS_INIT;
  options.timeout_ns = duration_of(timeout.ptr(), 0);
  tw_memory* part = nb::inst_ptr<Memory>(memory)->get();
  tw_worker* handle = self->worker->enter();
  tw_status status;
  {
    const Unlocked unlocked({self->worker});
    status = tw_window_create(handle, endpoints.data(), static_cast<uint32_t>(endpoints.size()), static_cast<uint32_t>(rank),
                              part, exchange_bytes, self.get(), &options, &self->handle);
  }
  check_exchange(*self, status);
  return nb::cast(self.release(), nb::rv_policy::take_ownership);
}

void window_close(Window& self) {
  if (self.views > 0) raise(TW_ERR_BUSY, "arrays or views over parts of this window are alive: drop them first");
  if (self.users > 0) raise(TW_ERR_BUSY, "another thread is inside a call of this window");
  if (self.handle != nullptr) self.worker->enter();
  check_exchange(self, self.close());
}

/// A rank's part as loads and stores reach it.
struct Part {
  nb::object window;
  void* address;
  size_t length;
};

int part_buffer(PyObject* self, Py_buffer* view, int flags) {
  Part& part = *nb::inst_ptr<Part>(self);
  if (PyBuffer_FillInfo(view, self, part.address, static_cast<Py_ssize_t>(part.length), 0, flags) != 0) return -1;
  ++nb::cast<Window&>(part.window).views;
  return 0;
}

void release_part(PyObject* self, Py_buffer*) { --nb::cast<Window&>(nb::inst_ptr<Part>(self)->window).views; }

PyType_Slot part_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&part_buffer)},
                            {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_part)},
                            {0, nullptr}};

nb::object window_view(nb::handle_t<Window> owner, uint32_t rank) {
  Window& self = *nb::inst_ptr<Window>(owner);
  void* address = nullptr;
  check(tw_window_address(self.get(), rank, &address));
  nb::object part = nb::cast(Part{nb::borrow(owner), address, tw_window_length(self.handle)}, nb::rv_policy::move);
  nb::object view = nb::steal(PyMemoryView_FromObject(part.ptr()));
  if (!view.is_valid()) throw nb::python_error();
  return view;
}

nb::object window_remote(nb::handle_t<Window> owner, uint32_t rank) {
  Window& self = *nb::inst_ptr<Window>(owner);
  RemoteMemory remote;
  check(tw_window_remote(self.get(), rank, &remote.handle));
  remote.owner = nb::borrow(owner);
  // Of this rank: the worker's endpoint to itself, which the window has, too.
  if (rank == tw_window_rank(self.handle) && self.endpoints[rank].is_none())
    self.endpoints[rank] = self.worker_object.attr("connect")(self.worker_object.attr("address"));
  if (self.endpoints[rank].is_none()) raise(TW_ERR_PEER_LOST, "the connection to this rank is over");
  remote.endpoint_object = self.endpoints[rank];
  remote.endpoint = nb::inst_ptr<Endpoint>(remote.endpoint_object);
  return nb::cast(std::move(remote), nb::rv_policy::move);
}

nb::object window_endpoint(nb::handle_t<Window> owner, uint32_t rank) {
  window_remote(owner, rank);  // checks the rank; the own one has its endpoint then
  return nb::inst_ptr<Window>(owner)->endpoints[rank];
}

/// What code of one place needs, by value; it keeps the window.
struct BoundWindow {
  nb::object window;
  tw_device_window view;
};

nb::object window_bind(nb::handle_t<Window> owner, const std::string& place) {
  Window& self = *nb::inst_ptr<Window>(owner);
  tw_window* handle = self.get();
  self.worker->enter();
  tw_device_window bound{};
  const char* const name = c_text(place);
  const Using user(self.users);
  check(without_gil({self.worker}, [&] { return tw_window_bind(handle, name, &bound); }));
  return nb::cast(BoundWindow{nb::borrow(owner), bound}, nb::rv_policy::move);
}

void window_register_on(Window& self, Queue& queue) {
  tw_window* handle = self.get();
  tw_queue* on = queue.get();
  self.worker->enter();
  const Using user(self.users), used(queue.users);
  check(without_gil({self.worker}, [&] { return tw_window_register_on(handle, on); }));
}

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

void bind_bound_window(nb::module_& m) {
  nb::class_<BoundWindow>(
      m, "BoundWindow",
      "What kernels of a device, or the host's code, take by value: bytes(bound) is a thalweg::device::Window\n"
      "(thalweg/device/types.hpp). Addresses are those of the place it was bound to.")
      .def_prop_ro("rank", [](BoundWindow& s) { return s.view.rank; })
      .def_prop_ro("size", [](BoundWindow& s) { return s.view.size; })
      .def_prop_ro("length", [](BoundWindow& s) { return s.view.length; })
      .def_prop_ro(
          "bases", [](BoundWindow& s) { return number(s.view.bases); },
          "Address of the table of every rank's address, in the place's memory.")
      .def_prop_ro("abort_flag", [](BoundWindow& s) { return number(s.view.guard.abort_flag); })
      .def_prop_ro("failure", [](BoundWindow& s) { return number(s.view.guard.failure); })
      .def_prop_ro("abort", [](BoundWindow& s) { return number(s.view.guard.abort); })
      .def_prop_ro(
          "limit", [](BoundWindow& s) { return static_cast<double>(s.view.guard.limit_ns) * 1e-9; },
          "Seconds that a wait of device code lasts at most.")
      .def("__bytes__", [](BoundWindow& s) { return nb::bytes(&s.view, sizeof s.view); });
}

}  // namespace

nb::object make_group_window(nb::handle_t<Group> owner, nb::handle_t<Memory> memory, nb::handle timeout) {
  Group& group = *nb::inst_ptr<Group>(owner);
  auto self = std::make_unique<Window>();
  self->worker_object = group.worker_object;
  self->worker = group.worker;
  self->group_object = nb::borrow(owner);
  self->memory = Loan(memory);
  tw_window_options options = TW_WINDOW_OPTIONS_INIT;
  options.timeout_ns = duration_of(timeout.ptr(), 0);
  tw_memory* const part = nb::inst_ptr<Memory>(memory)->get();
  group_call(group, [&](tw_group* handle) { return tw_group_window(handle, part, &options, &self->handle); });
  self->join(group);
  for (uint32_t i = 0; i < tw_window_size(self->handle); ++i) {
    tw_endpoint* peer = nullptr;
    if (i != tw_window_rank(self->handle)) check(tw_window_endpoint(self->handle, i, &peer));
    self->endpoints.push_back(peer != nullptr ? wrap_endpoint(self->worker_object, peer, false) : nb::none());
  }
  return nb::cast(self.release(), nb::rv_policy::take_ownership);
}

void bind_window(nb::module_& m) {
  using nb::arg;
  nb::class_<Window>(
      m, "Window",
      "Symmetric memory: a part of one length from every rank. Made by all ranks or by none; each step that says so is\n"
      "collective. Uses the worker, whose thread it belongs to; check() takes any thread. The GIL is released while waiting.",
      nb::is_weak_referenceable())
      .def(nb::new_(&make_window), arg("worker"), arg("peers"), arg("memory"), arg("exchange"), nb::kw_only(),
           arg("timeout") = nb::none(),
           "Collective. peers: an endpoint of this worker for each rank, None for this one. memory: this rank's part, kept.\n"
           "exchange: a Store, or a callable that takes this rank's bytes and returns the list of all ranks' (mpi4py's\n"
           "comm.allgather). timeout: seconds for connecting, and of waits of device code (30). Raises InvalidError, with "
           "the\n"
           "rank, when parts differ in length or a rank was refused; TimedOut, PeerLost.")
      .def_prop_ro("rank", [](Window& s) { return tw_window_rank(s.get()); })
      .def_prop_ro("size", [](Window& s) { return tw_window_size(s.get()); })
      .def("__len__", [](Window& s) { return tw_window_length(s.get()); })
      .def(
          "view", &window_view, arg("rank"),
          "A writable memoryview of a rank's part where this process reaches it by loads and stores; raises Unsupported, with\n"
          "the reason, where it does not, PeerLost.")
      .def("remote", &window_remote, arg("rank"),
           "A rank's part as RemoteMemory, also the own one's, for put, get and atomics over any transport; it ends with the "
           "window.")
      .def("endpoint", &window_endpoint, arg("rank"),
           "The Endpoint to a rank: of peers, or of the worker to itself for the own rank.")
      .def("bind", &window_bind, arg("place"),
           "What code at place (\"cuda:1\", \"emulated\", \"host\") needs to use the window: a BoundWindow. Raises Unsupported "
           "or\n"
           "Unreachable, with the rank and the remedy, where a part cannot be reached by loads and stores from there; "
           "PeerLost.\n"
           "Binding a place again clears what check() reports of it.")
      .def("register_on", &window_register_on, arg("queue"),
           "Collective, of Group.window: from now on kernels of the group's collectives on queues use each other's buffers in\n"
           "it themselves. A buffer that lies in it on one rank lies in it on all ranks, at any offset. Raises InvalidError,\n"
           "Unsupported, on all ranks alike.")
      .def(
          "check", [](Window& s) { check(tw_window_check(s.get())); },
          "Raises what went wrong first: PeerLost, or the failure that device code recorded. Any thread; waits for nothing.")
      .def("close", &window_close,
           "Collective: lets go of the peers' parts and waits until all ranks have. Raises BusyError while views are alive,\n"
           "PeerLost. A window that is dropped without it waits for nobody.")
      .def_prop_ro("closed", [](const Window& s) { return s.handle == nullptr; });
  nb::class_<Part>(m, "_WindowPart", nb::type_slots(part_slots));
  bind_bound_window(m);
  context_manager<Window>(m.attr("Window"));
}

}  // namespace thalweg::python
