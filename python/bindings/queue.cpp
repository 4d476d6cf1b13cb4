// SPDX-License-Identifier: Apache-2.0
// Queues and graphs, and single operations on a queue.
#include "group.hpp"
#include "plan.hpp"
#include "reduce.hpp"

#include <algorithm>

namespace thalweg::python {
namespace {

void call_object(nb::handle function) {
  const nb::object result = nb::steal(PyObject_CallNoArgs(function.ptr()));
  if (!result.is_valid()) PyErr_WriteUnraisable(function.ptr());
}

/// As often as its graph is launched: the graph has the callable, and what is launched has it, too (let_go).
void call_captured(void* arg) {
  const Acquired acquire;
  const nb::object function = nb::borrow(static_cast<PyObject*>(arg));
  call_object(function);
}

/// Once.
void call_entrusted(void* arg) {
  const Acquired acquire;
  call_object(static_cast<Entrusted*>(arg)->take());
}

/// What the queue was given before is done with the objects.
void let_go(void* arg) {
  const Acquired acquire;
  (void)static_cast<Entrusted*>(arg)->take();
}

uint32_t waits_of(const std::string& name) {
  constexpr const char* kNames[] = {"auto", "kernel", "ahead"};  // as TW_WAITS_*
  for (uint32_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return i;
  }
  raise(TW_ERR_INVALID, "waits is \"auto\", \"kernel\" or \"ahead\"");
}

void queue_init(Queue* self, nb::handle_t<Context> context, const std::string& place, nb::handle stream,
                const std::string& waits) {
  new (self) Queue();
  const tw_queue_options options{sizeof options, waits_of(waits)};
  Context* owner = nb::inst_ptr<Context>(context);
  tw_status status;
  if (stream.is_none()) {
    status = tw_queue_create(owner->get(), c_text(place), &options, &self->handle);
  } else {
    status = tw_queue_wrap(owner->get(), stream_handle(stream), c_text(place), &options, &self->handle);
  }
  check(status);
  if (!stream.is_none()) self->stream = nb::borrow(stream);
  self->context = owner;
  self->context_object = nb::borrow(context);
  ++owner->children;
}

void queue_call(Queue& self, nb::callable function) {
  tw_queue* const handle = self.get();
  if (self.capturing) {
    check(tw_queue_call(handle, call_captured, function.ptr()));
    self.captured_calls.push_back(std::move(function));
    return;
  }
  Entrusted& held = self.entrust(std::move(function));
  const tw_status status = tw_queue_call(handle, call_entrusted, &held);
  if (status != TW_OK) (void)held.take();
  check(status);
}

void queue_synchronize(Queue& self) {
  tw_queue* handle = self.get();
  const Using user(self.users);
  check(without_gil({}, [=] { return tw_queue_synchronize(handle); }));
}

bool queue_uses(Queue& self, nb::handle buffer) {
  tw_queue* const handle = self.get();
  BufferView view;
  view.acquire(buffer.ptr(), BufferView::Use::source);
  int in_use = 0;
  check(tw_queue_uses(handle, view.data(), view.length(), &in_use));
  return in_use != 0;
}

void begin_capture(Queue& self) {
  check(tw_queue_begin_capture(self.get()));
  self.capturing = true;
}

nb::object end_capture(nb::handle_t<Queue> owner) {
  Queue& self = *nb::inst_ptr<Queue>(owner);
  Graph graph;
  self.capturing = false;
  graph.kept = std::exchange(self.captured, {});
  graph.calls = std::exchange(self.captured_calls, {});
  graph.buffers = std::exchange(self.captured_buffers, {});
  check(tw_queue_end_capture(self.get(), &graph.handle));
  graph.queue = nb::borrow(owner);
  return nb::cast(std::move(graph), nb::rv_policy::move);
}

/// Has the queue keep the callables of a launched graph, which may be closed before they have run, until they have.
void keep_launched(Queue& on, const std::vector<nb::object>& calls) {
  if (calls.empty()) return;
  if (on.capturing) {  // the graph was launched into another one
    on.captured_calls.insert(on.captured_calls.end(), calls.begin(), calls.end());
    return;
  }
  nb::list all;
  for (const nb::object& one : calls) all.append(one);
  (void)tw_queue_call(on.get(), let_go, &on.entrust(std::move(all)));  // refused: they stay until the queue ends
}

void graph_launch(Graph& self, nb::handle_t<Queue> object) {
  Queue& on = *nb::inst_ptr<Queue>(object);
  tw_queue* const queue = on.get();
  if (self.handle == nullptr) raise(TW_ERR_HANDLE, "the graph is closed");
  const Using user(self.users), queue_user(on.users);
  tw_status status = TW_OK;
  try {
    status = without_gil({}, [&] { return tw_graph_launch(self.handle, queue); });
  } catch (...) {  // by a signal's handler: it may have been launched all the same
    keep_launched(on, self.calls);
    throw;
  }
  keep_launched(on, self.calls);  // also where it has failed: a part of it may be under way
  check(status);
}

/// One operation on a queue: what it prepares at its first call may wait for the peer, and also one that has no peer waits while
/// another thread's is prepared, which asks for the GIL meanwhile. So without it.
template <class Post>
void run_on(Queue& queue, const std::vector<Worker*>& workers, Post post) {
  tw_status status;
  {
    const Using user(queue.users);
    status = without_gil(workers, post);
  }
  check(status);
  queue.let_go_of_buffers();
}

/// The buffer of an operation, as the queue knows it: the same memory and shape has one layout, by which the library finds what it
/// has prepared.
void* keep_buffer(Queue& queue, StepArguments& step, nb::handle buffer, nb::handle layout, BufferView::Use use) {
  auto view = step.take_buffer(buffer, layout, use);
  const bool own = view->layout() != nullptr;
  const BufferView& kept = queue.keep(std::move(view));
  if (own) step.options.layout = kept.layout();
  return kept.data();
}

template <bool sends>
void message_on(nb::handle_t<Queue> on, nb::handle_t<Endpoint> peer, nb::handle buffer, uint64_t channel, nb::handle layout) {
  Queue& queue = *nb::inst_ptr<Queue>(on);
  Endpoint& endpoint = *nb::inst_ptr<Endpoint>(peer);
  tw_queue* const handle = queue.get();
  tw_endpoint* const to = endpoint.get();
  StepArguments step;
  void* const address =
      keep_buffer(queue, step, buffer, layout, sends ? BufferView::Use::source : BufferView::Use::destination);
  queue.keep(nb::borrow(peer));
  run_on(queue, {endpoint.worker}, [&] {
    return sends ? tw_send_on(handle, to, address, step.length, channel, &step.options)
                 : tw_recv_on(handle, to, address, step.length, channel, &step.options);
  });
}

template <bool puts>
void transfer_on(Queue& queue, nb::handle buffer, nb::handle_t<RemoteMemory> remote_object, uint64_t offset, nb::handle signal,
                 uint64_t value, nb::handle layout, nb::handle remote_layout) {
  RemoteMemory& remote = *nb::inst_ptr<RemoteMemory>(remote_object);
  tw_queue* const handle = queue.get();
  tw_remote_memory* const target = remote.get();
  tw_endpoint* const to = remote.endpoint->get();
  StepArguments step;
  void* const address = keep_buffer(queue, step, buffer, layout, puts ? BufferView::Use::source : BufferView::Use::destination);
  step.take_remote_layout(remote_layout);
  step.take_signal(signal, value);
  queue.keep(nb::borrow(remote_object));
  if (!signal.is_none()) queue.keep(nb::borrow(signal));
  run_on(queue, {remote.endpoint->worker}, [&] {
    return puts ? tw_put_on(handle, to, address, step.length, target, offset, &step.options)
                : tw_get_on(handle, to, address, step.length, target, offset, &step.options);
  });
}

void put_on(Queue& queue, nb::handle buffer, nb::handle_t<RemoteMemory> remote, uint64_t offset, nb::handle signal,
            uint64_t value, nb::handle layout, nb::handle remote_layout) {
  transfer_on<true>(queue, buffer, remote, offset, signal, value, layout, remote_layout);
}

void get_on(Queue& queue, nb::handle buffer, nb::handle_t<RemoteMemory> remote, uint64_t offset, nb::handle layout,
            nb::handle remote_layout) {
  transfer_on<false>(queue, buffer, remote, offset, nb::none(), 0, layout, remote_layout);
}

void signal_on(nb::handle_t<Queue> on, nb::handle_t<RemoteSignal> signal, uint64_t value) {
  Queue& queue = *nb::inst_ptr<Queue>(on);
  RemoteSignal& remote = *nb::inst_ptr<RemoteSignal>(signal);
  tw_queue* const handle = queue.get();
  tw_remote_signal* const target = remote.get();
  queue.keep(nb::borrow(signal));
  run_on(queue, {remote.endpoint->worker}, [&] { return tw_signal_on(handle, target, value, nullptr); });
}

void wait_on(nb::handle_t<Queue> on, nb::handle_t<Signal> signal, uint64_t value, const std::string& compare) {
  Queue& queue = *nb::inst_ptr<Queue>(on);
  Signal& word = *nb::inst_ptr<Signal>(signal);
  tw_signal* const waited = word.get();
  tw_queue* const handle = queue.get();
  const uint32_t comparison = compare_of(compare);
  queue.keep(nb::borrow(signal));
  const Using waits(word.waits);
  run_on(queue, {}, [=] { return tw_wait_on(handle, waited, value, comparison, nullptr); });
}

void copy_on(nb::handle_t<Queue> on, nb::handle to, nb::handle source) {
  Queue& queue = *nb::inst_ptr<Queue>(on);
  tw_queue* const handle = queue.get();
  StepArguments from, target;
  void* const source_address = keep_buffer(queue, from, source, nb::none(), BufferView::Use::source);
  void* const address = keep_buffer(queue, target, to, nb::none(), BufferView::Use::destination);
  if (from.length != target.length) raise(TW_ERR_INVALID, "both sides of a copy have the same number of bytes");
  from.options.remote_layout = target.options.layout;
  run_on(queue, {}, [&] { return tw_copy_on(handle, address, source_address, from.length, &from.options); });
}

void reduce_on(nb::handle_t<Queue> on, nb::handle to, nb::handle sources, const std::string& op, nb::handle dtype) {
  Queue& queue = *nb::inst_ptr<Queue>(on);
  tw_queue* const handle = queue.get();
  ReduceArguments reduction(to, sources, op, dtype);
  void* const address = reduction.to();
  for (auto& view : reduction.views) queue.keep(std::move(view));
  std::vector<Worker*> workers;
  for (nb::object& remote : reduction.remotes) {
    Worker* const worker = nb::inst_ptr<RemoteMemory>(remote)->endpoint->worker;
    if (std::find(workers.begin(), workers.end(), worker) == workers.end()) workers.push_back(worker);
    queue.keep(std::move(remote));
  }
  run_on(queue, workers, [&] {
    return tw_reduce_on(handle, address, reduction.sources.data(), reduction.sources.size(), reduction.count, reduction.type,
                        reduction.op, nullptr);
  });
}

}  // namespace

void* stream_handle(nb::handle stream) {
  const After after = after_of(stream);
  if (after.kind != TW_AFTER_STREAM) raise(TW_ERR_INVALID, "an event is no stream to enqueue on");
  return reinterpret_cast<void*>(after.handle);
}

nb::object Entrusted::take() {
  nb::object taken = std::move(object);
  of->erase(at);
  return taken;
}

Entrusted& Queue::entrust(nb::object object) {
  entrusted.push_front({std::move(object), &entrusted, {}});
  entrusted.front().at = entrusted.begin();
  return entrusted.front();
}

const BufferView& Queue::keep(std::unique_ptr<BufferView> view) {
  const std::pair key{view->data(), view->length()};
  const auto [first, last] = buffers.equal_range(key);
  for (auto at = first; at != last; ++at) {
    if (at->second.view->strided() != view->strided()) continue;
    at->second.recent = true;
    return *at->second.view;
  }
  ++fresh;
  fresh_bytes += view->length();
  return *buffers.emplace(key, KeptView{std::move(view)})->second.view;
}

/// Two rounds: what was named since the last one is not asked for, as most buffers are named again and again. Other threads' calls may
/// have named a buffer and not enqueued its operation: then later. While the library is asked, without the GIL, they may name more.
void Queue::let_go_of_buffers() {
  constexpr size_t kFresh = 16, kFreshBytes = size_t{64} << 20;
  if (capturing || users > 0 || (fresh < kFresh && fresh_bytes < kFreshBytes)) return;
  fresh = fresh_bytes = 0;
  std::vector<std::pair<void*, size_t>> asked;
  for (auto& [memory, kept_view] : buffers) {
    if (!std::exchange(kept_view.recent, false)) asked.push_back(memory);
  }
  const auto in_use = [this](const std::pair<void*, size_t>& memory) {
    int uses = 1;
    return tw_queue_uses(handle, memory.first, memory.second, &uses) != TW_OK || uses != 0;
  };
  {
    const Using user(users);  // it is not closed meanwhile
    const Released release;
    std::erase_if(asked, in_use);
  }
  std::vector<std::unique_ptr<BufferView>> gone;  // their ends may run anything
  for (const auto& memory : asked) {
    const auto [first, last] = buffers.equal_range(memory);
    for (auto at = first; at != last;) {
      if (!at->second.recent) gone.push_back(std::move(at->second.view));
      at = at->second.recent ? std::next(at) : buffers.erase(at);
    }
  }
}

void Queue::close() noexcept {
  tw_queue* ended = std::exchange(handle, nullptr);
  if (ended == nullptr) return;
  if (context->generation == fork_generation()) {
    const Released release;  // its thread may be running a callable
    tw_queue_destroy(ended);
  }
  --context->children;
  buffers.clear();
  kept.clear();
  captured.clear();
  captured_calls.clear();
  captured_buffers.clear();
  const auto not_run = std::exchange(entrusted, {});  // their ends may run anything
}

tw_queue* Queue::get() const {
  if (handle == nullptr) raise(TW_ERR_HANDLE, "the queue is closed");
  context->get();
  return handle;
}

void Graph::close() noexcept {
  if (tw_graph* ended = std::exchange(handle, nullptr); ended != nullptr) tw_graph_destroy(ended);
  kept.clear();
  calls.clear();
  buffers.clear();
}

void bind_queue(nb::module_& m) {
  using nb::arg;
  nb::class_<Queue>(m, "Queue",
                    "Runs what is enqueued, in order, behind the caller: a stream of a device, or a thread of the host. Any "
                    "thread may use it.",
                    nb::is_weak_referenceable())
      .def("__init__", &queue_init, arg("context"), arg("place") = "host", nb::kw_only(), arg("stream") = nb::none(),
           arg("waits") = "auto",
           "place: \"host\", \"cuda:1\", \"emulated\". stream: the program's own stream of that device (PyTorch's, CuPy's, "
           "Numba's,\nan object with __cuda_stream__, a number), which is kept; None: a new one. Raises Unsupported for a "
           "default stream.\nwaits: how a device's queue waits for the peers of plans: \"kernel\" (fast, holds "
           "multiprocessors), "
           "\"ahead\" (in\na kernel of one block ahead of it, one launch more), \"auto\" (ahead for kernels "
           "of "
           "many blocks).")
      .def_prop_ro("native", [](Queue& s) { return reinterpret_cast<uintptr_t>(tw_queue_native(s.get())); })
      .def("__cuda_stream__", [](Queue& s) { return nb::make_tuple(0, reinterpret_cast<uintptr_t>(tw_queue_native(s.get()))); })
      .def("call", &queue_call, arg("function"),
           "On a host queue: its thread calls function() in the queue's order; what it raises is printed.")
      .def("synchronize", &queue_synchronize,
           "Waits, with the GIL released, for what is enqueued, then raises its first failure.")
      .def(
          "check", [](Queue& s) { check(tw_queue_check(s.get())); },
          "Raises the first failure of what ran since the last check, with operation and peer. Waits for nothing.")
      .def("uses", &queue_uses, arg("buffer"),
           "Whether operations of this queue that have not ended, or graphs, use memory that begins in this buffer. Waits for "
           "nothing.")
      .def("begin_capture", &begin_capture, "What is enqueued from now on is captured instead of run.")
      .def("end_capture", &end_capture, "The captured work as a Graph.")
      .def(
          "close",
          [](Queue& s) {
            if (s.users > 0) raise(TW_ERR_BUSY, "a thread waits for this queue: end its wait first");
            s.close();
          },
          "Ends the queue; waits for nothing that does not run yet. Raises BusyError while a thread waits for it.");
  nb::class_<Graph>(m, "Graph", "Captured work; it keeps the plans in it, and the buffers that they had.")
      .def("launch", &graph_launch, arg("queue"), "Enqueues it.")
      .def("close", [](Graph& s) {
        if (s.users > 0) raise(TW_ERR_BUSY, "a thread launches this graph");
        s.close();
      });
  context_manager<Queue>(m.attr("Queue"));
  m.def("send_on", &message_on<true>, arg("queue"), arg("peer"), arg("buffer"), arg("channel") = 0, nb::kw_only(),
        arg("layout") = nb::none(),
        "Sends through the channel (peer, channel) when the queue's earlier work is done. The first call with a buffer "
        "prepares it,\n"
        "together with the peer's first call for its end; the buffer is kept by the queue. What fails later is raised by\n"
        "queue.check(). Non-contiguous arrays may be made anew for every call; give the same Layout again. Raises TimedOut,\n"
        "LimitReached past 1024 different operations.");
  m.def("recv_on", &message_on<false>, arg("queue"), arg("peer"), arg("buffer"), arg("channel") = 0, nb::kw_only(),
        arg("layout") = nb::none(), "Receives the channel's next send, in the queue's order. As send_on.");
  m.def("put_on", &put_on, arg("queue"), arg("buffer"), arg("remote"), arg("offset") = 0, nb::kw_only(),
        arg("signal") = nb::none(), arg("value") = 1, arg("layout") = nb::none(), arg("remote_layout") = nb::none(),
        "A put in the queue's order; signal: a RemoteSignal touched with value when the data is there. As send_on.");
  m.def("get_on", &get_on, arg("queue"), arg("buffer"), arg("remote"), arg("offset") = 0, nb::kw_only(),
        arg("layout") = nb::none(), arg("remote_layout") = nb::none(), "A get in the queue's order. As send_on.");
  m.def("signal_on", &signal_on, arg("queue"), arg("signal"), arg("value") = 1,
        "Sets a RemoteSignal, or adds to it, in the queue's order.");
  m.def("copy_on", &copy_on, arg("queue"), arg("to"), arg("source"),
        "Copies between two buffers of this process, in the queue's order.");
  m.def("reduce_on", &reduce_on, arg("queue"), arg("to"), arg("sources"), arg("op") = "sum", nb::kw_only(),
        arg("dtype") = nb::none(), "Plan.reduce() in the queue's order.");
  m.def("wait_on", &wait_on, arg("queue"), arg("signal"), arg("value"),
        arg("compare") = ">=", "The queue's later work waits until the Signal compares so, at most 30 s.");
  add_queue_collectives(m);
  m.def(
      "stream_check", [](nb::handle stream) { check(tw_stream_check(stream_handle(stream))); }, arg("stream"),
      "Queue.check() of whatever wraps this stream.");
}

}  // namespace thalweg::python
