// SPDX-License-Identifier: Apache-2.0
// Listeners and endpoints: how connections begin and end.
#include <nanobind/stl/optional.h>

#include <optional>

#include "buffer.hpp"
#include "request.hpp"

namespace thalweg::python {
namespace {

/// Connection options from Python's arguments. The texts must outlive it.
tw_endpoint_options endpoint_options(const std::optional<nb::bytes>& data, uint64_t timeout_ns,
                                     const std::optional<std::string>& transport, bool tls) {
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  if (data) {
    options.private_data = data->c_str();
    options.private_length = data->size();
  }
  options.timeout_ns = timeout_ns;
  options.transport = c_text(transport);
  options.tls = tls ? 1 : 0;
  return options;
}

bool endpoint_wait(Endpoint& self, nb::handle timeout) {
  tw_endpoint* const handle = self.get();
  if (!wait_until(*self.worker, deadline_of(timeout.ptr()), [=] { return tw_endpoint_state(handle) != TW_IN_PROGRESS; }))
    check(tw_endpoint_wait(handle, 0));
  const tw_status state = tw_endpoint_state(handle);
  if (state != TW_ERR_REJECTED) return check(state), true;
  std::string text = tw_last_error();
  size_t length = 0;
  const void* data = tw_endpoint_data(handle, &length);
  if (length > 0) text += "; the listener's reason: " + std::string(static_cast<const char*>(data), length);
  raise(state, text.c_str());
}

nb::object endpoint_connect(nb::handle_t<Worker> owner, nb::handle address, std::optional<nb::bytes> data, nb::handle timeout,
                            std::optional<std::string> transport, bool tls, bool wait) {
  Worker& worker = *nb::inst_ptr<Worker>(owner);
  tw_endpoint_options options = endpoint_options(data, duration_of(timeout.ptr(), 0), transport, tls);
  tw_endpoint* endpoint = nullptr;
  if (PyUnicode_Check(address.ptr()) == 0) {
    BufferView bytes;
    acquire_bytes(bytes, address, "address");
    check(tw_connect(worker.enter(), bytes.data(), bytes.length(), &options, &endpoint));
  } else {
    const std::string text = nb::cast<std::string>(address);
    const char* const name = c_text(text);
    tw_worker* handle = worker.enter();
    tw_status status;
    {
      const Waiting waiting(worker);  // a name may have to be looked up
      status = tw_connect_to(handle, name, &options, &endpoint);
    }
    check(status);
  }
  nb::object made = wrap_endpoint(owner, endpoint, true);
  if (wait) endpoint_wait(*nb::inst_ptr<Endpoint>(made), nb::none());
  return made;
}

nb::bytes endpoint_data(Endpoint& self) {
  size_t length = 0;
  const void* data = tw_endpoint_data(self.get(), &length);
  return nb::bytes(data != nullptr ? data : "", length);
}

void endpoint_close(Endpoint& self, bool force) {
  if (self.handle == nullptr || self.worker->handle == nullptr) return;
  if (self.worker->generation != fork_generation()) return;
  self.worker->enter();
  if (self.closed()) return;  // it has ended by itself
  self.worker->disarm();
  tw_endpoint* const handle = self.let_go();
  tw_request request = TW_REQUEST_NONE;
  tw_status status = tw_endpoint_close(handle, force ? TW_CLOSE_FORCE : TW_CLOSE_GRACEFUL, &request);
  const auto gone = [](tw_status ended) { return ended == TW_ERR_PEER_LOST || ended == TW_ERR_CLOSED; };  // as closed as can be
  if (status == TW_ERR_LIMIT) self.take_back(handle);
  if (status != TW_IN_PROGRESS) {
    if (!gone(status)) check(status);
    return;
  }
  Operation closing(self.worker_object, self.worker, Result::none);
  closing.request = request;
  const nb::object object = nb::steal(into_request(std::move(closing)));
  Operation& operation = nb::inst_ptr<Request>(object)->operation;
  operation.await(TW_FOREVER);
  if (!gone(operation.status)) operation.value();
}

nb::object endpoint_iclose(nb::handle_t<Endpoint> owner, bool force) {
  Endpoint& self = *nb::inst_ptr<Endpoint>(owner);
  Operation operation(self.worker_object, self.worker, Result::none);
  self.get();
  self.worker->disarm();
  tw_endpoint* const handle = self.let_go();
  const tw_status status = tw_endpoint_close(handle, force ? TW_CLOSE_FORCE : TW_CLOSE_GRACEFUL, &operation.request);
  if (status == TW_ERR_LIMIT) self.take_back(handle);
  operation.posted(status);
  return nb::steal(into_request(std::move(operation)));
}

std::string endpoint_explain(Endpoint& self, const std::string& verb, size_t length, nb::handle buffer) {
  tw_endpoint* handle = self.get();
  if (!buffer.is_none()) return explain_buffer(handle, verb, buffer, nullptr);
  const char* const name = c_text(verb);
  return text_of([&](char* to, size_t* size) { return tw_endpoint_explain(handle, name, length, to, size); });
}

/// A connection request is answered once; the C handle goes with the answer. One that is dropped is rejected.
struct Incoming {
  nb::object listener;
  Listener* from;
  tw_connection_request* handle;
  std::string data, peer;

  Incoming(nb::object owner, Listener* by, tw_connection_request* request, std::string bytes, std::string client)
      : listener(std::move(owner)), from(by), handle(request), data(std::move(bytes)), peer(std::move(client)) {}
  Incoming(Incoming&& other) noexcept
      : listener(std::move(other.listener)),
        from(other.from),
        handle(std::exchange(other.handle, nullptr)),
        data(std::move(other.data)),
        peer(std::move(other.peer)) {}
  ~Incoming() {
    if (handle != nullptr) from->worker->in_turn([request = handle] { (void)tw_reject(request, nullptr, 0); });
  }
  /// An answer that is refused leaves it to be answered.
  template <class Answer>
  void answer(Answer give) {
    if (handle == nullptr) raise(TW_ERR_HANDLE, "the connection request was answered already");
    from->get();
    check(give(handle));
    handle = nullptr;
  }
};

nb::object listener_next(nb::handle_t<Listener> owner) {
  Listener& self = *nb::inst_ptr<Listener>(owner);
  tw_connection_request* request = nullptr;
  tw_status status = tw_listener_next(self.get(), &request);
  if (status == TW_AGAIN) return nb::none();
  check(status);
  size_t length = 0;
  const void* data = tw_connection_request_data(request, &length);
  const char* peer = tw_connection_request_peer(request);
  return nb::cast(
      Incoming{nb::borrow(owner), &self, request, std::string(static_cast<const char*>(data), data != nullptr ? length : 0),
               peer != nullptr ? peer : ""},
      nb::rv_policy::move);
}

nb::object incoming_accept(Incoming& self, std::optional<nb::bytes> data, std::optional<std::string> transport) {
  tw_endpoint_options options = endpoint_options(data, 0, transport, false);
  tw_endpoint* endpoint = nullptr;
  self.answer([&](tw_connection_request* request) { return tw_accept(request, &options, &endpoint); });
  return wrap_endpoint(self.from->worker_object, endpoint, true);
}

nb::object listener_accept(nb::handle_t<Listener> owner, nb::handle timeout, std::optional<nb::bytes> data,
                           std::optional<std::string> transport) {
  Listener& self = *nb::inst_ptr<Listener>(owner);
  uint64_t deadline = deadline_of(timeout.ptr());
  nb::object request = listener_next(owner);
  while (request.is_none()) {
    if (now_ns() >= deadline) raise(TW_ERR_TIMED_OUT, "nobody connected in time");
    self.worker->enter();
    // Any event of the worker ends a sleep; the next poll shows whether it was a connection.
    uint64_t slice = std::min(deadline, now_ns() + slice_ns);
    {
      Waiting waiting(*self.worker);
      (void)tw_worker_wait(self.worker->handle, slice > now_ns() ? slice - now_ns() : 0);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    self.worker->dispatch();
    request = listener_next(owner);
  }
  return incoming_accept(nb::cast<Incoming&>(request), std::move(data), std::move(transport));
}

nb::object listener_make(nb::handle_t<Worker> owner, const std::string& address, uint32_t backlog) {
  Worker& worker = *nb::inst_ptr<Worker>(owner);
  tw_listener_options options = TW_LISTENER_OPTIONS_INIT;
  options.backlog = backlog;
  Listener listener;
  check(tw_listen(worker.enter(), c_text(address), &options, &listener.handle));
  listener.worker_object = nb::borrow(owner);
  listener.worker = &worker;
  return nb::cast(std::move(listener), nb::rv_policy::move);
}

}  // namespace

nb::object wrap_endpoint(nb::handle worker, tw_endpoint* endpoint, bool owned) {
  Worker& by = *nb::inst_ptr<Worker>(worker);
  void* const user = tw_endpoint_user(endpoint);
  Endpoint* const known = user == nullptr || user == &by.kept ? nullptr : nb::inst_ptr<Endpoint>(static_cast<PyObject*>(user));
  if (known != nullptr) {
    tw_request none = TW_REQUEST_NONE;
    if (owned && known->owned) (void)tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, &none);  // one of two handles: counts down
    owned = known->owned = known->owned || owned;
    if (Py_REFCNT(known->object) != 0) return nb::borrow(known->object);
    // Else what is told of its end, through a weak reference, asks for the endpoint: a new object takes all that it had.
  }
  if (tw_endpoint_state(endpoint) == TW_ERR_HANDLE) return nb::none();
  nb::object object = nb::inst_alloc_zero(nb::type<Endpoint>());
  Endpoint& made = *nb::inst_ptr<Endpoint>(object);
  made.worker_object = nb::borrow(worker);
  made.worker = &by;
  made.handle = endpoint;
  made.owned = owned;
  made.object = object.ptr();
  made.kept = known != nullptr ? std::move(known->kept) : by.take_kept(endpoint);
  tw_endpoint_set_user(endpoint, object.ptr());
  return object;
}

void Worker::keep(tw_endpoint* endpoint, nb::object what) noexcept {
  std::vector<nb::object> over;  // of endpoints that have ended; they end last, because that may run Python
  for (auto at = kept.begin(); at != kept.end();) {
    if (tw_endpoint_user(at->first) == &kept) {
      ++at;
    } else {
      over.push_back(std::move(at->second));
      at = kept.erase(at);
    }
  }
  kept.emplace(endpoint, std::move(what));
  tw_endpoint_set_user(endpoint, &kept);
}

nb::object Worker::take_kept(tw_endpoint* endpoint) noexcept {
  if (tw_endpoint_user(endpoint) != &kept) return {};
  const auto node = kept.extract(endpoint);
  return node.empty() ? nb::object() : std::move(node.mapped());
}

tw_endpoint* Endpoint::let_go() noexcept {
  tw_endpoint* const gone = std::exchange(handle, nullptr);
  if (kept.is_valid()) {
    worker->keep(gone, std::move(kept));
  } else {
    tw_endpoint_set_user(gone, nullptr);
  }
  return gone;
}

void Endpoint::take_back(tw_endpoint* refused) noexcept {
  handle = refused;
  kept = worker->take_kept(refused);
  tw_endpoint_set_user(handle, object);
}

void Endpoint::drop() noexcept {
  if (handle == nullptr || worker == nullptr || !worker->alive() || !named()) return;
  tw_endpoint* const ended = let_go();
  if (!owned) return;
  worker->disarm();
  worker->in_turn([ended] {
    tw_request request = TW_REQUEST_NONE;
    if (tw_endpoint_close(ended, TW_CLOSE_GRACEFUL, &request) == TW_IN_PROGRESS) (void)tw_request_release(request);
  });
}

tw_endpoint* Endpoint::get() const {
  if (handle == nullptr) [[unlikely]]
    raise(TW_ERR_CLOSED, "the endpoint is closed");
  worker->enter();
  if (!named()) [[unlikely]]
    raise(TW_ERR_CLOSED, "the endpoint has ended, as its peer had");
  return handle;
}

void Listener::close() noexcept {
  tw_listener* ended = std::exchange(handle, nullptr);
  if (ended != nullptr) worker->in_turn([ended] { tw_listener_close(ended); });
}

tw_listener* Listener::get() const {
  if (handle == nullptr) raise(TW_ERR_CLOSED, "the listener is closed");
  worker->enter();
  return handle;
}

void bind_endpoint(nb::module_& m) {
  using nb::arg;
  nb::class_<Endpoint>(m, "Endpoint",
                       "A connection between two workers. Worker.connect and Listener.accept make it; dropping it closes it.",
                       nb::is_weak_referenceable())
      .def_prop_ro("worker", [](Endpoint& e) { return e.worker_object; })
      .def_prop_ro(
          "transport", [](Endpoint& e) { return tw_endpoint_transport(e.get()); },
          "\"shm\", \"tcp\" or \"self\"; \"\" while connecting.")
      .def_prop_ro(
          "protected", [](Endpoint& e) { return tw_endpoint_protected(e.get()) != 0; },
          "Can no third party read or change what travels? True over shared memory, unix sockets, TLS and in one process; "
          "False over\n"
          "plain tcp, and while connecting.")
      .def_prop_ro(
          "state", [](Endpoint& e) { return tw_status_name(e.ended() ? TW_ERR_CLOSED : tw_endpoint_state(e.get())); },
          "\"ok\", \"in_progress\" while connecting, or the name of the error that ended it.")
      .def_prop_ro("data", &endpoint_data, "Private bytes that came with accept or reject.")
      .def("wait", &endpoint_wait, arg("timeout") = nb::none(),
           "Progresses until connected, at most timeout seconds. Raises why it failed, or TimedOut.")
      .def(
          "close", &endpoint_close, nb::kw_only(), arg("force") = false,
          "Ends the connection. Graceful: flushes, tells the peer, waits with the GIL released. force: does not wait, what is\n"
          "pending ends with ClosedError.")
      .def("iclose", &endpoint_iclose, nb::kw_only(), arg("force") = false, "As close, but returns a Request.")
      .def_prop_ro("closed", [](const Endpoint& e) { return e.closed(); })
      .def_prop_rw(
          "_kept", [](const Endpoint& e) { return e.kept.is_valid() ? e.kept : nb::none(); },
          [](Endpoint& e, nb::object what) { e.kept = std::move(what); })
      .def("explain", &endpoint_explain, arg("verb") = "send", arg("length") = 8, nb::kw_only(), arg("buffer") = nb::none(),
           "The table of protocols for a verb (send, am, bytes, put, get, atomic, signal, put_blocks, get_blocks) of length "
           "bytes:\n"
           "candidates, predicted cost, why the loser lost. buffer: of a message from there, such as an array on a device, "
           "instead of a length.");
  nb::class_<Incoming>(
      m, "ConnectionRequest",
      "A client that asks to connect: answer it once, by accept or reject. One that is dropped unanswered is rejected.")
      .def_prop_ro(
          "data", [](const Incoming& i) { return nb::bytes(i.data.data(), i.data.size()); }, "The client's private bytes.")
      .def_ro("peer", &Incoming::peer, "The client's address as text.")
      .def(
          "accept", &incoming_accept, arg("data") = nb::none(), nb::kw_only(), arg("transport") = nb::none(),
          "Takes the connection; data: private bytes for the client; transport: only \"shm\" or \"tcp\". An answer that raises "
          "was not\n"
          "given.")
      .def(
          "reject",
          [](Incoming& i, nb::bytes data) {
            i.answer([&](tw_connection_request* request) { return tw_reject(request, data.c_str(), data.size()); });
          },
          arg("data") = nb::bytes("", 0), "Refuses; data tells the client why.");
  nb::class_<Listener>(m, "Listener", "Waits for connections to \"host:port\", \":port\" or \"unix:/path\" on a worker.")
      .def_prop_ro(
          "port", [](Listener& l) { return tw_listener_port(l.get()); }, "The port listened on (0 for unix).")
      .def_prop_ro("worker", [](Listener& l) { return l.worker_object; })
      .def("next", &listener_next, "The next waiting ConnectionRequest, or None. Does not progress.")
      .def("accept", &listener_accept, arg("timeout") = nb::none(), nb::kw_only(), arg("data") = nb::none(),
           arg("transport") = nb::none(),
           "Waits for a client, at most timeout seconds, and takes the connection. data: private bytes for the client;\n"
           "transport: only \"shm\" or \"tcp\". Where these are wrong the client is rejected.")
      .def("close", &Listener::close, "Stops listening; connections made stay.")
      .def_prop_ro("closed", [](const Listener& l) { return l.handle == nullptr; });
  nb::borrow<nb::class_<Worker>>(m.attr("Worker"))
      .def("connect", &endpoint_connect, arg("address"), nb::kw_only(), arg("data") = nb::none(), arg("timeout") = nb::none(),
           arg("transport") = nb::none(), arg("tls") = false, arg("wait") = true,
           "Connects to a worker's address (bytes, or a buffer of them) or to a listener (\"host:port\", \"[v6]:port\", "
           "\"unix:/path\").\n\n"
           "data: private bytes for the listener's user; timeout: seconds until connected (10); transport: only \"shm\" or "
           "\"tcp\";\n"
           "tls: TLS 1.3 with the job key. wait=False returns at once: operations may be posted and start when connected.\n"
           "To a worker that there is a connection to already it gives that Endpoint. Raises Unreachable, Rejected,\n"
           "AuthenticationError, TimedOut.")
      .def("listen", &listener_make, arg("address") = "127.0.0.1:0", nb::kw_only(), arg("backlog") = 0,
           "Listens at \"host:port\", \":port\" (all interfaces; port 0 picks one) or \"unix:/path\". Returns a Listener.\n"
           "backlog: connection requests not answered yet (0: 128). Raises AddressInUse.");
  context_manager<Endpoint>(m.attr("Endpoint"));
  context_manager<Listener>(m.attr("Listener"));
}

}  // namespace thalweg::python
