// SPDX-License-Identifier: Apache-2.0

#include "arguments.hpp"
#include "plan.hpp"
#include "request.hpp"

namespace thalweg::python {
namespace {

bool adds(const std::string& kind) {
  if (kind != "set" && kind != "add") raise(TW_ERR_INVALID, "a signal's kind is \"set\" (one writer) or \"add\" (any number)");
  return kind == "add";
}

nb::object signal_make(nb::handle_t<Worker> owner, const std::string& kind, uint64_t initial, nb::handle memory,
                       uint64_t offset) {
  Signal signal;
  signal.adds = adds(kind);
  tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
  options.kind = signal.adds ? TW_SIGNAL_ADD : TW_SIGNAL_SET;
  options.initial = initial;
  options.offset = offset;
  if (Memory* where = as_object<Memory>(memory.ptr(), "memory"); where != nullptr) {
    options.memory = where->get();
    signal.memory = Loan(memory);
  } else if (offset != 0) {
    raise(TW_ERR_INVALID, "an offset is one into `memory`: give both, or neither");
  }
  check(tw_signal_create(nb::inst_ptr<Worker>(owner)->enter(), &options, &signal.handle));
  signal.worker = nb::inst_ptr<Worker>(owner);
  signal.worker_object = nb::borrow(owner);
  return nb::cast(std::move(signal), nb::rv_policy::move);
}

nb::bytes signal_export(Signal& self) {
  return bytes_of([&](void* key, size_t* size) { return tw_signal_export(self.get(), key, size); });
}

bool signal_test(Signal& self, uint64_t value, const std::string& compare) {
  tw_status status = tw_signal_test(self.get(), value, compare_of(compare));
  check(status);
  return status == TW_OK;
}

void signal_close(Signal& self) {
  if (self.waits > 0) raise(TW_ERR_BUSY, "a thread waits for this signal: end its wait first");
  if (self.handle == nullptr || !self.worker->alive() || self.worker->entered_elsewhere()) return self.close();
  check(tw_signal_destroy(self.handle));  // busy: it stays
  self.handle = nullptr;
  self.memory = Loan();
}

void signal_wait(Signal& self, uint64_t value, const std::string& compare, nb::handle timeout) {
  tw_signal* const handle = self.get();
  self.worker->enter();
  const uint32_t comparison = compare_of(compare);
  const uint64_t deadline = deadline_of(timeout.ptr());
  const Using waits(self.waits);
  const auto came = [=] { return tw_signal_test(handle, value, comparison) != TW_IN_PROGRESS; };
  if (!wait_until(*self.worker, deadline, came, Comes::by_store)) check(tw_signal_wait(handle, value, comparison, 0));
  check(tw_signal_test(handle, value, comparison));
}

nb::object remote_make(nb::handle_t<Endpoint> owner, nb::bytes key, const std::string& kind) {
  RemoteSignal remote;
  remote.adds = adds(kind);
  check(tw_signal_import(nb::inst_ptr<Endpoint>(owner)->get(), key.c_str(), key.size(), &remote.handle));
  remote.endpoint = nb::inst_ptr<Endpoint>(owner);
  remote.endpoint_object = nb::borrow(owner);
  return nb::cast(std::move(remote), nb::rv_policy::move);
}

template <bool blocking>
nb::object remote_post(nb::handle_t<RemoteSignal> owner, uint64_t value, bool after_all, bool visible, bool no_wait,
                       nb::handle immediate, nb::handle handler) {
  RemoteSignal& self = *nb::inst_ptr<RemoteSignal>(owner);
  Operation operation(self.endpoint->worker_object, self.endpoint->worker, Result::none);
  operation.keep(owner);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.flags = (after_all ? TW_OP_AFTER_ALL : 0) | (visible ? TW_OP_REMOTE : 0) | (no_wait ? TW_OP_NO_WAIT : 0);
  take_notification(options, immediate.ptr(), handler.ptr());
  operation.posted(tw_signal_post(self.get(), value, &options, &operation.request));
  return nb::steal(deliver(operation, blocking));
}

}  // namespace

uint32_t compare_of(const std::string& compare) {
  if (compare == ">=") return TW_COMPARE_GE;
  if (compare == "==") return TW_COMPARE_EQ;
  if (compare == "!=") return TW_COMPARE_NE;
  raise(TW_ERR_INVALID, "compare is \">=\" (cyclic), \"==\" or \"!=\"");
}

void Signal::close() noexcept {
  tw_signal* const ended = std::exchange(handle, nullptr);
  const Loan where = std::move(memory);
  if (ended == nullptr || (!worker->alive() && !nb::inst_ptr<Context>(worker->context)->alive())) return;  // its words are gone
  worker->end_sink(ended, tw_signal_destroy, where);
}

tw_signal* Signal::get() const {
  if (handle == nullptr) raise(TW_ERR_HANDLE, "the signal is closed");
  worker->get();
  return handle;
}

void RemoteSignal::close() noexcept {
  tw_remote_signal* ended = std::exchange(handle, nullptr);
  if (ended != nullptr) endpoint->worker->end_import(ended, tw_remote_signal_release);
}

tw_remote_signal* RemoteSignal::get() const {
  if (handle == nullptr) raise(TW_ERR_HANDLE, "the remote signal is released");
  endpoint->get();
  return handle;
}

void bind_signal(nb::module_& m) {
  using nb::arg;
  nb::class_<Signal>(m, "Signal",
                     "A 64-bit word at its waiter, set (one writer) or added to (any number) from afar. The kind is fixed.")
      .def(nb::new_(&signal_make), arg("worker"), arg("kind") = "set", arg("initial") = 0, nb::kw_only(),
           arg("memory") = nb::none(), arg("offset") = 0,
           "memory: a Memory that has the word at offset bytes, such as a device's, where kernels and plans wait for it; it is "
           "kept,\nand cannot be released, until the signal ends; nothing else may use these 8 bytes. None: the library's.")
      .def("export", &signal_export, "The key by which peers import it.")
      .def_prop_ro(
          "value", [](Signal& s) { return tw_signal_read(s.get()); }, "The word; what it covers is visible.")
      .def("test", &signal_test, arg("value"), arg("compare") = ">=", "Does the comparison hold? Does not progress.")
      .def("wait", &signal_wait, arg("value"), arg("compare") = ">=", arg("timeout") = nb::none(),
           "Progresses until the comparison holds (>= is cyclic), at most timeout seconds, with the GIL released. Raises "
           "TimedOut.")
      .def(
          "reset", [](Signal& s, uint64_t value) { check(tw_signal_reset(s.get(), value)); }, arg("value") = 0,
          "Stores the word. Only when nobody waits and nothing is in flight.")
      .def("close", &signal_close,
           "Ends the signal. Raises BusyError, and it stays, while a thread waits for it or operations will end in it.");
  nb::class_<RemoteSignal>(m, "RemoteSignal",
                           "A peer's signal, imported through an endpoint from its key; kind as at its home.")
      .def(nb::new_(&remote_make), arg("endpoint"), arg("key"), arg("kind") = "set")
      .def("post", &remote_post<true>, arg("value") = 1, nb::kw_only(), arg("after_all") = false, arg("visible") = false,
           arg("no_wait") = false, arg("immediate") = nb::none(), arg("handler") = nb::none(),
           "Sets or adds value, alone; with after_all when all earlier puts of the endpoint are there. Returns at once, with\n"
           "visible when it is done there. no_wait: raises Again instead of waiting for the peer's credit.\n"
           "immediate, handler: as in put.")
      .def("ipost", &remote_post<false>, arg("value") = 1, nb::kw_only(), arg("after_all") = false, arg("visible") = false,
           arg("no_wait") = false, arg("immediate") = nb::none(), arg("handler") = nb::none(),
           "As post, but returns a Request.")
      .def("release", &RemoteSignal::close, "Ends the import.");
}

}  // namespace thalweg::python
