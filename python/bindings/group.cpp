// SPDX-License-Identifier: Apache-2.0
// Groups: ranks that work together, and the world of a program's processes.
#include "group.hpp"

#include <nanobind/stl/optional.h>
#include <thalweg/views.h>

#include <optional>

#include "window.hpp"

namespace thalweg::python {
namespace {

nb::object wrap_group(nb::object worker, tw_group* made, bool world) {
  auto self = std::make_unique<Group>();
  self->worker = nb::inst_ptr<Worker>(worker);
  self->worker_object = std::move(worker);
  self->handle = made;
  self->world = world;
  return nb::cast(self.release(), nb::rv_policy::take_ownership);
}

/// The worker and the context that tw_init has made become objects like any other.
nb::object wrap_world(tw_group* made, const tw_worker_options& options) {
  auto context = std::make_unique<Context>();
  context->handle = tw_group_context(made);
  auto worker = std::make_unique<Worker>();
  worker->handle = tw_group_worker(made);
  worker->progress_thread = options.progress == TW_PROGRESS_THREAD;
  worker->multi = worker->progress_thread || options.threads == TW_THREADS_MULTI;
  tw_group_yield_worker(made);
  ++context->children;
  worker->context = nb::cast(context.release(), nb::rv_policy::take_ownership);
  return wrap_group(nb::cast(worker.release(), nb::rv_policy::take_ownership), made, true);
}

nb::object init(std::optional<std::string> store, std::optional<uint32_t> rank, std::optional<uint32_t> count,
                std::optional<nb::bytes> job_key, std::optional<std::string> transports, std::optional<std::string> interfaces,
                bool tls, const std::string& threads, const std::string& progress, nb::handle timeout) {
  if (threads != "single" && threads != "multi") raise(TW_ERR_INVALID, "threads is \"single\" or \"multi\"");
  if (progress != "caller" && progress != "thread") raise(TW_ERR_INVALID, "progress is \"caller\" or \"thread\"");
  tw_context_options context = TW_CONTEXT_OPTIONS_INIT;
  if (job_key) {
    context.job_key = job_key->c_str();
    context.job_key_length = job_key->size();
  }
  context.transports = c_text(transports);
  context.interfaces = c_text(interfaces);
  context.tls = tls ? 1 : 0;
  tw_worker_options worker = TW_WORKER_OPTIONS_INIT;
  worker.threads = threads == "multi" ? TW_THREADS_MULTI : TW_THREADS_SINGLE;
  worker.progress = progress == "thread" ? TW_PROGRESS_THREAD : TW_PROGRESS_CALLER;
  tw_init_options options = TW_INIT_OPTIONS_INIT;
  options.store = c_text(store);
  options.rank = rank.value_or(TW_STORE_ENVIRONMENT);
  options.count = count.value_or(TW_STORE_ENVIRONMENT);
  options.context = &context;
  options.worker = &worker;
  options.timeout_ns = duration_of(timeout.ptr(), 0);
  tw_group* made = nullptr;
  check(without_gil({}, [&] { return tw_init(&options, &made); }));
  hide_job_key();
  return wrap_world(made, worker);
}

nb::object group_endpoint(Group& self, uint32_t rank) {
  tw_endpoint* endpoint = nullptr;
  group_call(self, [&](tw_group* group) { return tw_group_endpoint(group, rank, &endpoint); });
  return wrap_endpoint(self.worker_object, endpoint, false);
}

nb::list group_exchange(Group& self, nb::bytes mine) {
  const size_t length = mine.size(), size = tw_group_size(self.get());
  std::string values(size * length, '\0');
  group_call(self, [&](tw_group* group) { return tw_group_exchange(group, mine.c_str(), length, values.data()); });
  nb::list all;
  for (size_t i = 0; i < size; ++i) all.append(nb::bytes(values.data() + i * length, length));
  return all;
}

/// A color or key of a split. Raises TypeError for what is no integer.
uint32_t split_number(nb::handle value, const char* refusal) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  int beyond = 0;
  const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &beyond);
  if (number == -1 && beyond == 0 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (beyond != 0 || number < 0 || number > int64_t{UINT32_MAX}) raise(TW_ERR_INVALID, refusal);
  return static_cast<uint32_t>(number);
}

uint32_t split_key(nb::handle value) {
  return split_number(
      value,
      "a key is from 0 to 2^32 - 1: add one number to the keys of all ranks, such as the group's size, because only "
      "their order counts");
}

nb::object group_split(Group& self, nb::handle color, nb::handle key) {
  const uint32_t part_of = color.is_none()
                               ? TW_UNDEFINED
                               : split_number(color, "a color is from 0 to 2^32 - 1; None says that this rank is in no group");
  const uint32_t order = split_key(key);
  tw_group* part = nullptr;
  group_call(self, [&](tw_group* group) { return tw_group_split(group, part_of, order, &part); });
  return part != nullptr ? wrap_group(self.worker_object, part, false) : nb::none();
}

nb::object group_split_by(Group& self, const std::string& what, nb::handle key) {
  constexpr const char* kWhat[] = {"host", "numa", "devices"};  // TW_SPLIT_*
  uint32_t number = 0;
  while (number < 3 && what != kWhat[number]) ++number;
  if (number == 3) raise(TW_ERR_INVALID, "what is \"host\", \"numa\" or \"devices\"");
  const uint32_t order = split_key(key);
  tw_group* part = nullptr;
  group_call(self, [&](tw_group* group) { return tw_group_split_by(group, number, order, &part); });
  return wrap_group(self.worker_object, part, false);
}

template <tw_status (*Make)(tw_group*, tw_group**)>
nb::object group_make(Group& self) {
  tw_group* made = nullptr;
  group_call(self, [&](tw_group* group) { return Make(group, &made); });
  return wrap_group(self.worker_object, made, false);
}

std::vector<uint32_t> ranks_lost(Group& self) {
  uint32_t count = tw_group_size(self.get());
  std::vector<uint32_t> ranks(count);
  check(tw_group_lost(self.handle, ranks.data(), &count));
  ranks.resize(count);
  return ranks;
}

nb::list group_lost(Group& self) {
  nb::list all;
  for (const uint32_t rank : ranks_lost(self)) all.append(rank);
  return all;
}

void group_close(Group& self) {
  if (self.handle == nullptr || self.generation != fork_generation()) return;
  if (self.users > 0) raise(TW_ERR_BUSY, "another thread is inside a call of this group");
  for (const Window* window : self.windows) {
    if (window->views > 0)
      raise(TW_ERR_BUSY, "arrays or views over parts of a window of this group are alive: drop them first");
    if (window->users > 0) raise(TW_ERR_BUSY, "another thread is inside a call of a window of this group");
  }
  if (self.worker->waiters > 0 && self.worker->inside == std::this_thread::get_id())
    raise(TW_ERR_BUSY, "this function runs in the middle of a call of the group's worker: close it after that");
  tw_status status = TW_OK;
  if (self.worker->handle != nullptr) self.worker->enter();
  tw_group* const ended = std::exchange(self.handle, nullptr);  // no other thread takes it meanwhile
  if (ended == nullptr) return;
  if (self.worker->handle != nullptr) {
    const Unlocked unlocked({self.worker});
    status = tw_group_destroy(ended);
  }
  if (status == TW_ERR_BUSY) {
    self.handle = ended;
  } else {
    while (!self.windows.empty()) self.windows.back()->drop();
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();  // by a signal's handler
  check(status);
  if (self.world) self.worker_object.attr("close")();
}

}  // namespace

void bind_group(nb::module_& m) {
  using nb::arg;
  nb::class_<Group>(
      m, "Group",
      "Ranks that work together, numbered from 0; init() gives the world, whose worker ends with it. What is called collective "
      "is\n"
      "called by all ranks in the same order, and raises PeerLost, with the rank, when one is lost. Belongs to the worker's\n"
      "thread; the GIL is released while waiting.",
      nb::is_weak_referenceable())
      .def_prop_ro("rank", [](Group& s) { return tw_group_rank(s.get()); })
      .def_prop_ro("size", [](Group& s) { return tw_group_size(s.get()); })
      .def_prop_ro("worker", [](Group& s) { return s.worker_object; })
      .def_prop_ro("context", [](Group& s) { return s.worker->context; })
      .def("endpoint", &group_endpoint, arg("rank"),
           "The Endpoint to a rank, connected when it is first asked for; the group's. A receive from it alone names it as "
           "source.\n"
           "Raises PeerLost, TimedOut.")
      .def("exchange", &group_exchange, arg("mine"),
           "Collective: the list of all ranks' bytes; all give the same number of them. For set-up.")
      .def("duplicate", &group_make<tw_group_duplicate>, "Collective: the same ranks, apart from this group.")
      .def("split", &group_split, arg("color").none(), arg("key") = 0,
           "Collective: ranks that give the same color are a group, ordered by key, and by rank where keys are equal. None: in "
           "no\n"
           "group, and returns None.")
      .def("split_by", &group_split_by, arg("what"), arg("key") = 0,
           "Collective: the ranks of one \"host\", NUMA node (\"numa\"), or whose \"devices\" NVLink joins.")
      .def("lost", &group_lost, "Ranks whose connection with this one is over. Waits for nothing.")
      .def("shrink", &group_make<tw_group_shrink>, "Collective over the ranks that are left: a group of them.")
      .def("window", &make_group_window, arg("memory"), nb::kw_only(), arg("timeout") = nb::none(),
           "Collective: a Window over the group, which stays open as long; timeout as there. Window.register_on lets the\n"
           "group's collectives on queues use it.")
      .def("close", &group_close,
           "Ends the group here, and its windows, which wait for nobody then; with the world its connections and its worker,\n"
           "too: what was posted arrives if the peers progress within 2 s. Raises BusyError, also while views of a window's\n"
           "parts are alive.")
      .def_prop_ro("closed", [](const Group& s) { return s.handle == nullptr; });
  context_manager<Group>(m.attr("Group"));
  add_collectives(m.attr("Group"));
  m.def(
      "init", &init, nb::kw_only(), arg("store") = nb::none(), arg("rank") = nb::none(), arg("count") = nb::none(),
      arg("job_key") = nb::none(), arg("transports") = nb::none(), arg("interfaces") = nb::none(), arg("tls") = false,
      arg("threads") = "single", arg("progress") = "caller", arg("timeout") = nb::none(),
      "The world: all processes that were started together, by thalweg run, torchrun, mpirun or srun --mpi=pmix, as a Group; "
      "by\n"
      "nothing: a group of one. Collective. store, rank, count: instead of a launcher's environment. job_key to progress: as "
      "of\n"
      "Context and Worker. timeout: seconds until all ranks have come (60). Raises TimedOut with the ranks that are missing,\n"
      "InvalidError, Unsupported.");
}

}  // namespace thalweg::python
