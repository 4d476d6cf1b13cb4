// SPDX-License-Identifier: Apache-2.0
// Plans: operations prepared once and triggered again and again.
#include "plan.hpp"
#include "group.hpp"
#include "reduce.hpp"

#include <algorithm>

namespace thalweg::python {
namespace {

/// One that ran when it was dropped.
struct DroppedPlan final : Dropped {
  tw_plan* handle;
  Context* context;
  std::vector<Buffers> buffers;
  std::vector<nb::object> kept;
  DroppedPlan(tw_plan* plan, Context* of, std::vector<Buffers>&& views, std::vector<nb::object>&& objects)
      : handle(plan), context(of), buffers(std::move(views)), kept(std::move(objects)) {}
  bool end() noexcept override {
    tw_status status = TW_OK;
    {
      const Released release;
      status = tw_plan_destroy(handle);
    }
    if (status == TW_ERR_BUSY) return false;
    --context->children;
    return true;
  }
};

void plan_init(Plan* self, nb::handle_t<Context> context, nb::handle place, nb::handle timeout, uint32_t blocks,
               uint64_t chunk_bytes) {
  new (self) Plan();
  Context* owner = nb::inst_ptr<Context>(context);
  owner->end_dropped();
  if (owner->dropped.size() >= Context::kDroppedMax)
    raise(TW_ERR_BUSY,
          "plans of this context were dropped while they ran, and still run: let some of them end, or their peers");
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  const std::string name = place.is_none() ? "" : nb::cast<std::string>(place);
  options.place = place.is_none() ? nullptr : c_text(name);
  options.timeout_ns = duration_of(timeout.ptr(), 0);
  options.blocks = blocks;
  options.chunk_bytes = chunk_bytes;
  check(tw_plan_create(owner->get(), &options, &self->handle));
  self->context = owner;
  self->context_object = nb::borrow(context);
  ++owner->children;
}

template <bool sends>
uint32_t add_message(Plan& self, nb::handle_t<Endpoint> peer, nb::handle buffer, uint64_t channel, nb::handle layout,
                     nb::handle after) {
  StepArguments given;
  tw_plan* plan = self.get();
  auto view = given.take_buffer(buffer, layout, sends ? BufferView::Use::source : BufferView::Use::destination);
  given.take_after(after);
  tw_endpoint* endpoint = self.use(peer);
  uint32_t step = 0;
  const tw_status status = sends ? tw_plan_send(plan, endpoint, view->data(), given.length, channel, &given.options, &step)
                                 : tw_plan_recv(plan, endpoint, view->data(), given.length, channel, &given.options, &step);
  if (!sends && status >= 0) self.stores.push_back(step);
  return self.added(status, step, std::move(view));
}

uint32_t add_put(Plan& self, nb::handle buffer, nb::handle_t<RemoteMemory> remote, uint64_t offset, nb::handle signal,
                 uint64_t value, uint64_t increment, nb::handle layout, nb::handle remote_layout, nb::handle after) {
  StepArguments given;
  tw_plan* plan = self.get();
  auto view = given.take_buffer(buffer, layout, BufferView::Use::source);
  given.take_remote_layout(remote_layout);
  given.take_after(after);
  given.take_signal(signal, value);
  given.options.increment = increment;
  RemoteMemory& target = *nb::inst_ptr<RemoteMemory>(remote);
  tw_remote_memory* memory = target.get();
  tw_endpoint* endpoint = self.use(target.endpoint_object);
  self.kept.push_back(nb::borrow(remote));
  if (!signal.is_none()) self.kept.push_back(nb::borrow(signal));
  uint32_t step = 0;
  const tw_status status = tw_plan_put(plan, endpoint, view->data(), given.length, memory, offset, &given.options, &step);
  return self.added(status, step, std::move(view));
}

uint32_t add_get(Plan& self, nb::handle buffer, nb::handle_t<RemoteMemory> remote, uint64_t offset, nb::handle layout,
                 nb::handle remote_layout, nb::handle after) {
  StepArguments given;
  tw_plan* plan = self.get();
  auto view = given.take_buffer(buffer, layout, BufferView::Use::destination);
  given.take_remote_layout(remote_layout);
  given.take_after(after);
  RemoteMemory& source = *nb::inst_ptr<RemoteMemory>(remote);
  tw_remote_memory* memory = source.get();
  tw_endpoint* endpoint = self.use(source.endpoint_object);
  self.kept.push_back(nb::borrow(remote));
  uint32_t step = 0;
  const tw_status status = tw_plan_get(plan, endpoint, view->data(), given.length, memory, offset, &given.options, &step);
  if (status >= 0) self.stores.push_back(step);
  return self.added(status, step, std::move(view));
}

uint32_t add_signal(Plan& self, nb::handle_t<RemoteSignal> signal, uint64_t value, uint64_t increment, nb::handle after) {
  StepArguments given;
  tw_plan* plan = self.get();
  given.take_after(after);
  given.options.increment = increment;
  RemoteSignal& remote = *nb::inst_ptr<RemoteSignal>(signal);
  tw_remote_signal* target = remote.get();
  self.use(remote.endpoint_object);
  self.kept.push_back(nb::borrow(signal));
  uint32_t step = 0;
  return self.added(tw_plan_signal(plan, target, value, &given.options, &step), step, nullptr);
}

uint32_t add_wait(Plan& self, nb::handle_t<Signal> signal, uint64_t value, const std::string& compare, uint64_t increment,
                  nb::handle after) {
  StepArguments given;
  tw_plan* plan = self.get();
  given.take_after(after);
  given.options.increment = increment;
  tw_signal* waited = nb::inst_ptr<Signal>(signal)->get();
  self.kept.push_back(nb::borrow(signal));
  uint32_t step = 0;
  return self.added(tw_plan_wait(plan, waited, value, compare_of(compare), &given.options, &step), step, nullptr);
}

uint32_t add_copy(Plan& self, nb::handle to, nb::handle from, nb::handle layout, nb::handle to_layout, nb::handle after) {
  StepArguments given, target;
  tw_plan* plan = self.get();
  auto source = given.take_buffer(from, layout, BufferView::Use::source);
  auto destination = target.take_buffer(to, to_layout, BufferView::Use::destination);
  if (given.length != target.length) raise(TW_ERR_INVALID, "both sides of a copy have the same number of bytes");
  given.options.remote_layout = target.options.layout;
  given.take_after(after);
  uint32_t step = 0;
  const tw_status status = tw_plan_copy(plan, destination->data(), source->data(), given.length, &given.options, &step);
  return self.added(status, step, std::move(source), std::move(destination));
}

uint32_t add_reduce(Plan& self, nb::handle to, nb::handle sources, const std::string& op, nb::handle dtype, nb::handle after) {
  StepArguments given;
  tw_plan* plan = self.get();
  ReduceArguments reduction(to, sources, op, dtype);
  given.take_after(after);
  for (const nb::object& remote : reduction.remotes) {
    self.use(nb::inst_ptr<RemoteMemory>(remote)->endpoint_object);
    self.kept.push_back(remote);
  }
  uint32_t step = 0;
  const tw_status status = tw_plan_reduce(plan, reduction.to(), reduction.sources.data(), reduction.sources.size(),
                                          reduction.count, reduction.type, reduction.op, &given.options, &step);
  check(status);
  if (self.buffers.size() <= step) self.buffers.resize(step + 1);
  for (auto& view : reduction.views) self.buffers[step].push_back(std::move(view));
  return step;
}

uint32_t add_atomic(Plan& self, nb::handle op, nb::handle_t<RemoteMemory> remote, uint64_t offset, nb::handle operand,
                    nb::handle compare, size_t size, nb::handle result, nb::handle after) {
  StepArguments given;
  tw_plan* plan = self.get();
  std::unique_ptr<BufferView> old;
  if (!result.is_none()) {
    StepArguments ignored;
    old = ignored.take_buffer(result, nb::none(), BufferView::Use::destination);
    if (old->length() != size || old->layout() != nullptr)
      raise(TW_ERR_INVALID, "the result of an atomic is a buffer of its size");
  }
  given.take_after(after);
  const uint64_t value = operand_of(operand.ptr(), size, "operand"),
                 compared = operand_of(compare.ptr(), size, "compared value");
  RemoteMemory& target = *nb::inst_ptr<RemoteMemory>(remote);
  tw_remote_memory* memory = target.get();
  tw_endpoint* endpoint = self.use(target.endpoint_object);
  self.kept.push_back(nb::borrow(remote));
  uint32_t step = 0;
  const tw_status status = tw_plan_atomic(plan, endpoint, atomic_of(op.ptr()), memory, offset, size, value, compared,
                                          old != nullptr ? old->data() : nullptr, &given.options, &step);
  return self.added(status, step, std::move(old));
}

/// `wait` without the GIL; the endpoints' workers may be progressed.
template <class Wait>
tw_status unlocked(Plan& self, Wait wait) {
  tw_plan* plan = self.get();
  const Using user(self.users);
  return without_gil(self.workers, [&] { return wait(plan); });
}

/// Its end, or what handlers have raised meanwhile.
void ended(Plan& self, tw_status status) {
  check(status);
  for (Worker* worker : self.workers) worker->raise_kept();
}

void plan_prepare(Plan& self, nb::handle timeout) {
  const uint64_t limit = duration_of(timeout.ptr(), TW_FOREVER);
  ended(self, unlocked(self, [&](tw_plan* plan) { return tw_plan_prepare(plan, limit); }));
}

void plan_trigger(nb::handle_t<Plan> object, nb::handle on) {
  Plan& self = *nb::inst_ptr<Plan>(object);
  tw_plan* plan = self.get();
  if (on.is_none()) return check(tw_plan_trigger(plan, nullptr));
  if (!nb::isinstance<Queue>(on)) return check(tw_plan_trigger_stream(plan, stream_handle(on)));
  Queue& queue = *nb::inst_ptr<Queue>(on);
  check(tw_plan_trigger(plan, queue.get()));
  if (!queue.capturing) return;
  queue.captured.push_back(nb::borrow(object));
  for (const Buffers& step : self.buffers)
    queue.captured_buffers.insert(queue.captured_buffers.end(), step.begin(), step.end());
}

bool plan_test(Plan& self) {
  const tw_status status = tw_plan_test(self.get());
  check(status);
  return status == TW_OK;
}

void plan_finish(Plan& self, nb::handle timeout) {
  const uint64_t limit = duration_of(timeout.ptr(), TW_FOREVER);
  ended(self, unlocked(self, [&](tw_plan* plan) { return tw_plan_finish(plan, limit); }));
}

void plan_run(Plan& self, nb::handle timeout) {
  const uint64_t limit = duration_of(timeout.ptr(), TW_FOREVER);
  ended(self, unlocked(self, [&](tw_plan* plan) { return tw_plan_run(plan, limit); }));
}

/// Another address is all that the library hears of a new buffer: what lies where around it stays as it was prepared.
void demand_alike(const BufferView& prepared, const BufferView& view) {
  if (prepared.layout() != nullptr) {
    if (view.layout() == nullptr || !(view.strided() == prepared.strided()))
      raise(TW_ERR_INVALID, "the new array has not the shape and strides of the one that was prepared: give one that has");
    return;
  }
  if (view.layout() != nullptr) raise(TW_ERR_INVALID, "the new array is not contiguous, as the prepared one is: copy it first");
  if (view.length() < prepared.length())
    raise(TW_ERR_OUT_OF_BOUNDS, "the new buffer is shorter than the one that was prepared");
}

void plan_update(Plan& self, uint32_t step, nb::handle buffer, nb::handle value) {
  uint64_t number = 0;
  if (!value.is_none()) number = operand_of(value.ptr(), sizeof number, "value");
  std::unique_ptr<BufferView> view;
  StepArguments given;
  const bool stored = std::find(self.stores.begin(), self.stores.end(), step) != self.stores.end();
  const auto use = stored ? BufferView::Use::destination : BufferView::Use::source;
  if (!buffer.is_none()) view = given.take_buffer(buffer, nb::none(), use);
  if (view != nullptr && (step >= self.buffers.size() || self.buffers[step].empty())) {
    check(unlocked(self, [&](tw_plan* plan) { return tw_plan_update(plan, step, nullptr, nullptr); }));  // is there one?
    raise(TW_ERR_INVALID, "this step has no local buffer");
  }
  if (view != nullptr) demand_alike(*self.buffers[step].front(), *view);
  const void* const address = view != nullptr ? view->data() : nullptr;
  tw_status status =
      unlocked(self, [&](tw_plan* plan) { return tw_plan_update(plan, step, address, value.is_none() ? nullptr : &number); });
  check(status);
  std::shared_ptr<BufferView> before = std::move(view);
  if (before != nullptr) self.buffers[step].front().swap(before);
  const bool kept = before != nullptr && status == TW_IN_PROGRESS;  // a peer may still store to it
  if (kept) self.buffers[step].push_back(before);                   // if that is not waited for any more: until the plan ends
  while (status == TW_IN_PROGRESS) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    status = unlocked(self, [&](tw_plan* plan) { return tw_plan_update(plan, step, nullptr, nullptr); });
    check(status);
  }
  if (kept) std::erase(self.buffers[step], before);
}

std::string plan_explain(Plan& self) {
  tw_plan* plan = self.get();
  return text_of([&](char* to, size_t* size) { return tw_plan_explain(plan, to, size); });
}

}  // namespace

Plan::~Plan() {
  if (handle == nullptr || close() != TW_ERR_BUSY) return;
  context->dropped.push_back(std::make_unique<DroppedPlan>(handle, context, std::move(buffers), std::move(kept)));
}

tw_status Plan::close() noexcept {
  tw_plan* const ended = std::exchange(handle, nullptr);  // no other thread takes it meanwhile
  if (ended == nullptr) return TW_OK;
  tw_status status = TW_OK;
  if (context->generation == fork_generation()) {
    const Released release;
    status = tw_plan_destroy(ended);
  }
  if (status == TW_ERR_BUSY) {
    handle = ended;
    return status;
  }
  --context->children;
  buffers.clear();
  kept.clear();
  workers.clear();
  context->end_dropped();
  return status;
}

tw_plan* Plan::get() const {
  if (handle == nullptr) raise(TW_ERR_HANDLE, "the plan is closed");
  context->get();
  return handle;
}

tw_endpoint* Plan::use(nb::handle peer) {
  Endpoint& endpoint = *nb::inst_ptr<Endpoint>(peer);
  tw_endpoint* const given = endpoint.get();
  keep(peer, endpoint.worker);
  return given;
}

void Plan::keep(nb::handle object, Worker* worker) {
  kept.push_back(nb::borrow(object));
  if (std::find(workers.begin(), workers.end(), worker) == workers.end()) workers.push_back(worker);
}

uint32_t Plan::added(tw_status status, uint32_t step, std::unique_ptr<BufferView> view, std::unique_ptr<BufferView> second) {
  check(status);
  if (buffers.size() <= step) buffers.resize(step + 1);
  if (view != nullptr) buffers[step].push_back(std::move(view));
  if (second != nullptr) buffers[step].push_back(std::move(second));
  return step;
}

std::unique_ptr<BufferView> StepArguments::take_buffer(nb::handle buffer, nb::handle layout, BufferView::Use use) {
  auto view = std::make_unique<BufferView>();
  view->acquire(buffer.ptr(), use);
  options.layout = view->layout();
  length = view->length();
  if (layout.is_none()) return view;
  Layout& part = nb::cast<Layout&>(layout);
  int64_t first = 0, last = 0;
  tw_layout_extent(part.handle, &first, &last);
  if (options.layout != nullptr) raise(TW_ERR_INVALID, "give either a non-contiguous array or a layout, not both");
  if (first < 0 || last > static_cast<int64_t>(length)) raise(TW_ERR_OUT_OF_BOUNDS, "the layout reaches outside the buffer");
  options.layout = part.handle;
  length = tw_layout_bytes(part.handle);
  return view;
}

void StepArguments::take_remote_layout(nb::handle layout) {
  if (!layout.is_none()) options.remote_layout = nb::cast<Layout&>(layout).handle;
}

void StepArguments::take_after(nb::handle steps) {
  for (nb::handle step : nb::cast<nb::iterable>(steps)) after.push_back(nb::cast<uint32_t>(step));
  options.after_steps = after.data();
  options.after_count = after.size();
}

void StepArguments::take_signal(nb::handle signal, uint64_t value) {
  if (signal.is_none()) return;
  RemoteSignal& remote = nb::cast<RemoteSignal&>(signal);
  options.signal = remote.get();
  options.signal_op = remote.adds ? TW_SIGNAL_ADD : TW_SIGNAL_SET;
  options.signal_value = value;
}

void bind_plan(nb::module_& m) {
  using nb::arg;
  const auto none = nb::none();
  nb::class_<Plan>(
      m, "Plan",
      "Operations prepared once and triggered again and again, by the host, a Queue or a stream. Functions that add a step\n"
      "return its number; steps named in `after` end before it begins, others have no order. Buffers, on the host or a\n"
      "device, are kept until the plan is closed; a non-contiguous array, or layout, moves only its elements.",
      nb::is_weak_referenceable())
      .def(
          "__init__", &plan_init, arg("context"), nb::kw_only(), arg("place") = none, arg("timeout") = none, arg("blocks") = 0,
          arg("chunk_bytes") = 0,
          "place: whose queue runs it (\"cuda:1\", \"host\"); None: that of the first buffer on a device. timeout: seconds of\n"
          "every wait in a run (30). blocks: thread blocks of a device; 0: chosen. chunk_bytes: a copy, put, get or reduction\n"
          "that reads what a step of its `after` writes begins with the first so many bytes that are there; 0: chosen,\n"
          "2**64 - 1: after all of them.")
      .def("send", &add_message<true>, arg("peer"), arg("buffer"), arg("channel") = 0, nb::kw_only(), arg("layout") = none,
           arg("after") = nb::make_tuple(), "Through the channel (peer, channel): the n-th send meets the peer's n-th receive.")
      .def("recv", &add_message<false>, arg("peer"), arg("buffer"), arg("channel") = 0, nb::kw_only(), arg("layout") = none,
           arg("after") = nb::make_tuple(), "From the channel (peer, channel).")
      .def("put", &add_put, arg("buffer"), arg("remote"), arg("offset") = 0, nb::kw_only(), arg("signal") = none,
           arg("value") = 1, arg("increment") = 0, arg("layout") = none, arg("remote_layout") = none,
           arg("after") = nb::make_tuple(),
           "Writes into a peer's memory. signal: a RemoteSignal touched with value when the data is there; increment is added\n"
           "to value with every trigger after the first.")
      .def("get", &add_get, arg("buffer"), arg("remote"), arg("offset") = 0, nb::kw_only(), arg("layout") = none,
           arg("remote_layout") = none, arg("after") = nb::make_tuple(), "Reads a peer's memory.")
      .def("signal", &add_signal, arg("signal"), arg("value") = 1, nb::kw_only(), arg("increment") = 0,
           arg("after") = nb::make_tuple(), "Sets a RemoteSignal, or adds to it.")
      .def("wait", &add_wait, arg("signal"), arg("value"), arg("compare") = ">=", nb::kw_only(), arg("increment") = 0,
           arg("after") = nb::make_tuple(), "Waits for a Signal.")
      .def("copy", &add_copy, arg("to"), arg("source"), nb::kw_only(), arg("layout") = none, arg("to_layout") = none,
           arg("after") = nb::make_tuple(),
           "Between two buffers of this process, of any shapes that have the same number of bytes. layout: of the source.")
      .def("reduce", &add_reduce, arg("to"), arg("sources"), arg("op") = "sum", nb::kw_only(), arg("dtype") = none,
           arg("after") = nb::make_tuple(),
           "to[i] = sources[0][i] op sources[1][i] ...: contiguous buffers of the same size, or (RemoteMemory, offset) of "
           "peers.\n"
           "op: sum, product, min, max, and, or, xor. dtype: float16, bfloat16, float32, float64, int8 to int64, uint8; None: "
           "that of\n"
           "`to`. 16-bit types are accumulated in 32 bits. The same operands give the same bits on every device.")
      .def("atomic", &add_atomic, arg("op"), arg("remote"), arg("offset"), arg("operand"), nb::kw_only(), arg("compare") = 0,
           arg("size") = 8, arg("result") = none, arg("after") = nb::make_tuple(),
           "add, and, or, xor, swap or cswap on a word; operand and compare as of Endpoint.atomic. result: a buffer of size "
           "bytes for "
           "the\nold value.")
      .def("prepare", &plan_prepare, arg("timeout") = none,
           "Resolves everything, together with the peers of the channels, which prepare their ends. Re-arms a failed plan. "
           "Waits\n"
           "with the GIL released, progressing the endpoints' workers. Raises TimedOut with the channel that is missing.")
      .def("trigger", &plan_trigger, arg("on") = none,
           "Starts it. on: a Queue, or a stream of the plan's device (PyTorch, CuPy, Numba, __cuda_stream__, a number): behind "
           "its\nearlier work; None: by the host, then test or finish. Raises BusyError when the last run by the host is not "
           "over.")
      .def("test", &plan_test, "Is the run by the host over? Raises how it failed.")
      .def("finish", &plan_finish, arg("timeout") = none,
           "Waits, with the GIL released, until the run by the host is over. Raises how it failed, TimedOut.")
      .def("run", &plan_run, arg("timeout") = none, "One run by the host, from start to end: trigger() and finish(timeout).")
      .def("update", &plan_update, arg("step"), arg("buffer") = none, arg("value") = none,
           "Another buffer of the same length, shape and strides, or another value, for a step of a plan that does not run. A "
           "Graph "
           "that "
           "was\ncaptured before keeps the old one; of a stream that another library captured, keep the buffer yourself.")
      .def("explain", &plan_explain, "Every step, its way and why.")
      .def(
          "close",
          [](Plan& s) {
            if (s.users > 0) raise(TW_ERR_BUSY, "a thread waits for this plan: end its wait first");
            check(s.close());
          },
          "Ends it. Raises BusyError while it runs, or a thread waits for it.");
  add_planned_collectives(m.attr("Plan"));
  context_manager<Plan>(m.attr("Plan"));
}

}  // namespace thalweg::python
