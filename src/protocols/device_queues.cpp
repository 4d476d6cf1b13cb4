// SPDX-License-Identifier: Apache-2.0
// A queue for copies and one for kernels of each device: an engine and multiprocessors work side by side; beside them the
// persistent kernel, where there is one. Copies complete in the order of submission, whichever engine does them. Those that
// come while two calls are under way are gathered: one call of many is faster than many (two H200, 16 of 1 MiB: 258 GB/s
// instead of 215).
#include "protocols/device_queues.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "devices/program.hpp"
#include "devices/registry.hpp"
#include "memory/place.hpp"
#include "protocols/engine.hpp"
#include "protocols/persistent_line.hpp"
#include "protocols/rendezvous.hpp"
#include "routes/device_table.hpp"
#include "routes/limits.hpp"
#include "trace/trace.hpp"

namespace thalweg::impl {
Status make_ordering(Device& device, const void* native, uint32_t kind, Ordering** out) {
  *out = nullptr;
  void* const handle = const_cast<void*>(native);
  auto ordering = std::make_unique<Ordering>();
  if (kind == TW_AFTER_EVENT) {
    if (Status s = device.wrap_event(handle, &ordering->event); is_error(s)) return s;
  } else {
    std::unique_ptr<Queue> queue;
    if (Status s = device.wrap_queue(handle, &queue); is_error(s)) return s;
    if (queue->capture_state() != CaptureState::none) {
      return fail(TW_ERR_UNSUPPORTED, "the stream is being captured: an operation of the host is no part of a graph");
    }
    if (Status s = device.make_event(&ordering->event); is_error(s)) return s;
    if (Status s = queue->record(*ordering->event); is_error(s)) return s;
  }
  const Status status = ordering->event->query();
  if (status == TW_IN_PROGRESS) *out = ordering.release();
  return is_error(status) ? status : TW_OK;
}

void retain(Ordering* ordering) {
  if (ordering != nullptr) ordering->references.fetch_add(1, std::memory_order_relaxed);
}

void release(Ordering* ordering) {
  if (ordering != nullptr && ordering->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete ordering;
}

namespace {

std::shared_ptr<DeviceUse> use_of(const DeviceUserLists& users) {
  return users.empty() ? nullptr : std::make_shared<DeviceUse>(users);
}

/// Polls each once. look(run), which is out of the list then: true, it is back at the list's end.
template <class Look>
void look_at_each(RunList& runs, Look look) {
  OpRun* first = nullptr;  // of those that stay: it has come round again
  while (OpRun* run = runs.front()) {
    if (run == first) break;
    runs.remove(run);
    if (look(*run) && first == nullptr) first = run;
  }
}

/// A device's copies in the timeline, from their submission to their end as the host sees it. 0: nothing is traced.
uint64_t begin_copies(std::span<const Copy> copies) {
  if (!trace::on()) [[likely]]
    return 0;
  trace::Event event;
  event.what = trace::What::device_copy;
  event.phase = trace::Phase::begins;
  event.id = trace::new_activity();
  for (const Copy& copy : copies) event.bytes += copy.width * copy.rows * copy.slices;
  trace::record_now(event);
  return event.id;
}

void end_copies(uint64_t activity, Status status) {
  trace::Event event;
  event.what = trace::What::device_copy;
  event.phase = trace::Phase::ends;
  event.id = activity;
  event.status = static_cast<int16_t>(status);
  if (trace::on()) trace::record_now(event);
}

void end_loan(OpRun& run) {
  delete std::exchange(run.loan, nullptr);
  run.ended = false;
}

}  // namespace

DeviceQueues::DeviceQueues(Engine& engine) : engine_(engine), stream_waits_(*this, engine.options().first.stream_wait) {}

uint64_t DeviceQueues::Line::now_finished() const {
  return __atomic_load_n(finished, __ATOMIC_ACQUIRE);  // acquire: what the call wrote to host memory is visible
}

/// Before anything of ours can be under way on it.
DeviceCosts DeviceQueues::costs_of(Device& device) {
  DeviceTable* const table = engine_.options().device_costs;
  return table != nullptr ? table->of(device) : DeviceCosts();
}

Status DeviceQueues::make_place(Device& device, Place** out) {
  auto place = std::make_unique<Place>();
  place->device = &device;
  constexpr size_t kWords = 128;  // two cache lines
  Status status = device.load_kernels();
  // Without kernels (a build without them) everything goes by the engine.
  if (status == TW_ERR_UNSUPPORTED) status = TW_OK;
  if (status == TW_OK) place->costs = costs_of(device);
  if (status == TW_OK) status = device.allocate(MemoryKind::pinned, kWords, &place->words);
  if (status == TW_OK) status = device.make_queue(&place->copies.queue, QueueUse::moves);
  if (status == TW_OK) status = device.make_queue(&place->kernels.queue, QueueUse::moves);
  if (is_error(status)) {
    if (place->words != 0) device.free(place->words);
    return status;
  }
  auto* words = reinterpret_cast<uint64_t*>(place->words);
  place->copies.finished = words;
  place->kernels.finished = words + kWords / 2 / sizeof *words;
  const uint64_t first = engine_.options().first.ticket;
  *place->copies.finished = *place->kernels.finished = place->copies.ticket = place->kernels.ticket = first;
  if (engine_.options().persistent.blocks != 0) open_persistent(*place);
  *out = place.get();
  places_.push_back(std::move(place));
  return TW_OK;
}

void DeviceQueues::open_persistent(Place& place) {
  std::shared_ptr<PersistentCopier> persistent;
  if (is_error(PersistentCopier::open(*place.device, engine_.options().persistent, &persistent))) {
    warn_once("persistent", std::string("small copies of devices go by engines, without a persistent kernel: ") + last_error());
    return;
  }
  if (DeviceTable* const table = engine_.options().device_costs; table != nullptr)
    place.costs = table->of(*place.device, *persistent);
  const uint64_t most = persistent_most(place.costs, nearest_link(*place.device, place.costs), persistent->blocks());
  place.persistent = std::make_unique<PersistentLine>(std::move(persistent), most);
}

Status DeviceQueues::place_of(Device& device, Place** out) {
  for (auto& place : places_) {
    if (place->device != &device) continue;
    *out = place.get();
    return TW_OK;
  }
  return make_place(device, out);
}

/// Behind what a call enqueued: its ticket into the line's word. Where the device refused (a part of) it nothing is under
/// way any more, because the buffers go back with the error.
Status DeviceQueues::finish_call(Line& line, Status enqueued) {
  const auto word = reinterpret_cast<uint64_t>(line.finished);
  const Status status = is_error(enqueued) ? enqueued : line.queue->write_value(word, line.ticket + 1, false);
  if (is_error(status)) {
    line.queue->synchronize();
  } else {
    ++line.ticket;
  }
  return status;
}

/// A queue that broke does nothing more. Once what was pending has failed, what comes next gets a new one: not every failure
/// is the device's own end.
void DeviceQueues::replace_broken(Device& device, Line& line) {
  std::unique_ptr<Queue> fresh;
  if (!line.pending.empty() || !is_error(line.queue->query()) || is_error(device.make_queue(&fresh, QueueUse::moves))) return;
  line.queue = std::move(fresh);
  line.ticket = line.now_finished();
}

/// The kernel's own signal is its ticket.
Status DeviceQueues::launch(Line& line, Kernel kernel) {
  const SignalAfter ticket{reinterpret_cast<uint64_t>(line.finished), line.ticket + 1, false};
  std::visit(
      [&](auto& one) {
        if constexpr (requires { one.signal; }) one.signal = ticket;
      },
      kernel);
  const Status status = line.queue->launch(kernel);
  if (!is_error(status)) ++line.ticket;
  return status;
}

void DeviceQueues::end(const Waiter& waiter, Status status) {
  --pending_;
  if (waiter.activity != 0) [[unlikely]]
    end_copies(waiter.activity, status);
  if (waiter.visit != nullptr) waiter.visit->leave();
  waiter.done(engine_, waiter.token, status);
}

/// Of what was gathered: what touches memory that was taken back meanwhile.
std::vector<DeviceQueues::Waiter> DeviceQueues::turn_away(Place& place) {
  std::vector<Waiter> refused;
  size_t at = 0;
  for (auto one = place.gathering.begin(); one != place.gathering.end();) {
    if (one->visit == nullptr || one->visit->enter()) {
      at += (one++)->copies;
      continue;
    }
    const auto from = place.gathered.begin() + static_cast<std::ptrdiff_t>(at);
    place.gathered.erase(from, from + static_cast<std::ptrdiff_t>(one->copies));
    refused.push_back(std::move(*one));
    one = place.gathering.erase(one);
  }
  return refused;
}

/// One call of the queue, with a ticket.
Status DeviceQueues::enqueue(Line& line, std::span<const Copy> copies) {
  // A batch leaves engines free for others, which long copies do not want: one by one.
  constexpr uint64_t kLong = 16u << 20;
  uint64_t bytes = 0;
  for (const Copy& copy : copies) bytes += copy.width * copy.rows * copy.slices;
  const size_t each = bytes / std::max<size_t>(copies.size(), 1) >= kLong ? 1 : copies.size();
  Status status = TW_OK;
  for (size_t i = 0; i < copies.size() && !is_error(status); i += each) status = line.queue->copy(&copies[i], each);
  return finish_call(line, status);
}

Status DeviceQueues::flush(Place& place) {
  Line& line = place.copies;
  const std::vector<Waiter> refused = turn_away(place);
  std::vector<Waiter> waiters;
  waiters.swap(place.gathering);
  std::vector<Copy> copies;
  copies.swap(place.gathered);
  place.gathered_bytes = 0;
  Status status = TW_OK;
  size_t at = 0;  // among the copies
  auto first = waiters.begin();
  while (first != waiters.end()) {
    auto end = first;
    size_t count = 0;
    do count += end->copies;
    while (!(end++)->last && end != waiters.end());
    status = enqueue(line, std::span(copies).subspan(at, count));
    if (is_error(status)) break;
    at += count;
    for (; first != end; ++first) {
      first->ticket = line.ticket;
      place.flow_ticket[static_cast<size_t>(first->flow)] = line.ticket;
      if (first->visit != nullptr) first->visit->enqueued(line.finished, line.ticket);
      line.pending.push_back(std::move(*first));
    }
  }
  // On a broken queue no pending work ends any more: the operation fails with this, and the next one gets a new queue.
  const Status broken = is_error(status) ? line.queue->query() : TW_OK;
  if (is_error(broken)) fail_pending(*place.device, line, broken);
  for (; first != waiters.end(); ++first) end(*first, status);
  for (const Waiter& waiter : refused) end(waiter, TW_ERR_STALE);
  return status;
}

bool DeviceQueues::busy_against(Device& device, Flow flow) {
  if (flow == Flow::none) return false;
  const Flow other = flow == Flow::in ? Flow::out : Flow::in;
  for (auto& place : places_) {
    if (place->device != &device) continue;
    const auto against = [other](const Waiter& waiter) { return waiter.flow == other; };
    if (std::any_of(place->gathering.begin(), place->gathering.end(), against)) return true;
    return place->flow_ticket[static_cast<size_t>(other)] > place->copies.now_finished();
  }
  return false;
}

void DeviceQueues::cut(Device& device) {
  for (auto& place : places_) {
    if (place->device == &device && !place->gathering.empty()) place->gathering.back().last = true;
  }
}

Status DeviceQueues::submit(Device& device, std::span<const Copy> copies, Done done, void* token, const DeviceUserLists& users,
                            Flow flow) {
  Place* place = nullptr;
  if (const Status status = place_of(device, &place); is_error(status)) return status;
  place->gathered.insert(place->gathered.end(), copies.begin(), copies.end());
  for (const Copy& copy : copies) place->gathered_bytes += copy.width * copy.rows * copy.slices;
  place->gathering.push_back({0, done, token, use_of(users), copies.size(), false, flow, begin_copies(copies)});
  ++pending_;
  return TW_OK;
}

uint64_t DeviceQueues::persistent_most_of(Device& device, bool* free) {
  if (engine_.options().persistent.blocks == 0) return 0;
  Place* place = nullptr;
  if (is_error(place_of(device, &place)) || place->persistent == nullptr) return 0;
  *free = place->gathering.empty() && place->copies.pending.empty() && place->persistent->has_room();
  return place->persistent->most();
}

bool DeviceQueues::submit_persistent(Device& device, const Copy& copy, Done done, void* token, const DeviceUserLists& users) {
  Place* place = nullptr;
  if (is_error(place_of(device, &place)) || place->persistent == nullptr) return false;
  std::shared_ptr<DeviceUse> visit = use_of(users);
  if (visit != nullptr && !visit->enter()) return false;
  if (!place->persistent->submit(copy, done, token, std::move(visit))) return false;
  ++pending_;
  return true;
}

Status DeviceQueues::submit(Device& device, const Kernel& kernel, Done done, void* token, const DeviceUserLists& users) {
  Place* place = nullptr;
  if (const Status status = place_of(device, &place); is_error(status)) return status;
  Line& line = place->kernels;
  std::shared_ptr<DeviceUse> visit = use_of(users);
  if (visit != nullptr && !visit->enter()) return fail(TW_ERR_STALE, "this memory is being released; import a new key");
  if (const Status status = launch(line, kernel); is_error(status)) {
    replace_broken(device, line);
    return status;
  }
  if (visit != nullptr) visit->enqueued(line.finished, line.ticket);
  line.pending.push_back({line.ticket, done, token, std::move(visit)});
  ++pending_;
  return TW_OK;
}

Status DeviceQueues::submit(Device& device, const ProgramRun& program, Done done, void* token) {
  Place* place = nullptr;
  if (const Status status = place_of(device, &place); is_error(status)) return status;
  Line& line = place->kernels;
  if (const Status status = finish_call(line, line.queue->run(program)); is_error(status)) {
    replace_broken(device, line);
    return status;
  }
  line.pending.push_back({line.ticket, done, token, nullptr});
  ++pending_;
  return TW_OK;
}

/// Until the line's last call is finished, or the queue is broken.
Status DeviceQueues::wait(Line& line) { return wait(line, line.ticket); }

Status DeviceQueues::wait(Line& line, uint64_t ticket) {
  for (unsigned polls = 1; line.now_finished() < ticket; ++polls) {
    constexpr unsigned kAsk = 1u << 16;
    if (polls % kAsk != 0) continue;
    if (const Status status = line.queue->query(); is_error(status)) return status;
  }
  return TW_OK;
}

Status DeviceQueues::run(Device& device, std::span<const Copy> copies) {
  Place* place = nullptr;
  if (const Status status = place_of(device, &place); is_error(status)) return status;
  Line& line = place->copies;
  Status status = finish_call(line, line.queue->copy(copies.data(), copies.size()));
  if (!is_error(status)) status = wait(line);
  if (is_error(status)) replace_broken(device, line);
  return status;
}

Status DeviceQueues::run(Device& device, const Kernel& kernel) {
  Place* place = nullptr;
  if (const Status status = place_of(device, &place); is_error(status)) return status;
  Line& line = place->kernels;
  Status status = launch(line, kernel);
  if (!is_error(status)) status = wait(line);
  if (is_error(status)) replace_broken(device, line);
  return status;
}

Status DeviceQueues::prepare(Device& device) {
  Place* place = nullptr;
  return place_of(device, &place);
}

void DeviceQueues::measure_no_more() {
  if (DeviceTable* const table = engine_.options().device_costs; table != nullptr) table->forbid();
}

/// Much may be enqueued ahead: time counts while nothing ends.
Status DeviceQueues::check_moving(Device& device) {
  constexpr uint64_t kStands = 200 * kMillisecond;
  Place* place = nullptr;
  if (const Status status = place_of(device, &place); is_error(status)) return status;
  constexpr unsigned kAsk = 1u << 10;
  for (Line* line : {&place->copies, &place->kernels}) {
    if (const Status status = finish_call(*line, TW_OK); is_error(status)) return status;
    Deadline limit(kStands);
    uint64_t finished = line->now_finished();
    for (unsigned polls = 1; finished < line->ticket; ++polls) {
      const uint64_t before = std::exchange(finished, line->now_finished());
      if (finished != before) limit = Deadline(kStands);
      if (limit.passed()) return TW_ERR_TIMED_OUT;
      if (polls % kAsk != 0) continue;
      if (const Status status = line->queue->query(); is_error(status)) return status;
    }
  }
  return TW_OK;
}

Status DeviceQueues::admit(Device& device, uint64_t address, uint64_t length, bool* kernels) {
  constexpr size_t kRemembered = 4096;
  BufferInfo info;
  if (find_device(address, &info) != TW_OK) {
    return fail(TW_ERR_UNSUPPORTED, "a device copies only to and from memory of devices and pinned memory");
  }
  *kernels = true;
  if (info.device == &device || by_cpu(info.kind)) return TW_OK;
  Place* place = nullptr;
  if (const Status status = place_of(device, &place); is_error(status)) return status;
  // Mapped memory may go on in other buffers, each to be given access.
  const bool whole = length <= info.length - (address - info.base);
  if (const auto found = place->admitted.find(info.buffer_id); whole && found != place->admitted.end()) {
    *kernels = found->second;
    return TW_OK;
  }
  *kernels = place->kernels.queue->admit(Use::kernel, address, length) == TW_OK;
  if (!*kernels) {
    const Status status = place->copies.queue->admit(Use::copy, address, length);
    if (is_error(status)) return status;
  }
  if (place->admitted.size() >= kRemembered) place->admitted.clear();
  place->admitted.emplace(info.buffer_id, *kernels);
  return TW_OK;
}

bool DeviceQueues::reaches(Device& device, const Uuid& there) {
  Place* place = nullptr;
  if (is_error(place_of(device, &place))) return false;
  for (const auto& [uuid, reached] : place->reached) {
    if (uuid == there) return reached;
  }
  const PeerAccess access = device.peer(there);  // two questions to the driver: a microsecond
  const bool reached = device.uuid() == there || access.access || access.link == DeviceLink::unknown;
  constexpr size_t kRemembered = 64;
  if (place->reached.size() < kRemembered) place->reached.emplace_back(there, reached);
  return reached;
}

/// What is pending on a queue that broke.
unsigned DeviceQueues::fail_pending(Device& device, Line& line, Status status) {
  std::deque<Waiter> waiters;
  waiters.swap(line.pending);
  replace_broken(device, line);
  for (const Waiter& waiter : waiters) end(waiter, status);
  return static_cast<unsigned>(waiters.size());
}

bool BreakWatch::due() {
  constexpr unsigned kPolls = 64;
  if (++polls_ % kPolls != 0) return false;
  const uint64_t now = monotonic_ns();
  if (now < ask_at_) return false;
  ask_at_ = now + kMillisecond;
  return true;
}

/// A queue that broke finishes nothing more.
unsigned DeviceQueues::look_whether_broken(Device& device, Line& line) {
  if (!line.watch.due()) return 0;
  const Status status = line.queue->query();
  if (!is_error(status) || line.now_finished() >= line.pending.front().ticket) return 0;
  return fail_pending(device, line, status);
}

unsigned DeviceQueues::poll(Device& device, Line& line) {
  if (line.pending.empty()) return 0;
  const uint64_t finished = line.now_finished();
  if (line.pending.front().ticket > finished) return look_whether_broken(device, line);
  unsigned events = 0;
  line.watch.moved();
  while (!line.pending.empty() && line.pending.front().ticket <= finished) {
    const Waiter waiter = std::move(line.pending.front());
    line.pending.pop_front();
    end(waiter, TW_OK);
    ++events;
  }
  return events;
}

/// What the kernel gave back, which is rare, is waited for here: nothing that was submitted later is to be over before it.
unsigned DeviceQueues::poll_persistent(Place& place, const void* only) {
  unsigned events = 0;
  for (PersistentLine::Ended ended; only != nullptr ? place.persistent->wait(only, &ended) : place.persistent->next(&ended);
       ++events) {
    if (ended.status == TW_AGAIN) ended.status = run(*place.device, {&ended.copy, 1});
    end({0, ended.done, ended.token, ended.visit}, ended.status);
  }
  return events;
}

/// much: bytes that do not wait for others any more.
void DeviceQueues::start(Place& place, uint64_t much) {
  if (place.gathering.empty()) return;
  if (place.copies.ticket - place.copies.now_finished() < 2 || place.gathered_bytes >= much) flush(place);
}

void DeviceQueues::start() {
  constexpr uint64_t kMuch = 4u << 20;
  for (size_t i = 0; pending_ != 0 && i < places_.size(); ++i) {
    Place& place = *places_[i];
    const bool idle = place.copies.ticket == place.copies.now_finished();
    if (idle || worth_hiding(place.gathered_bytes, engine_.options().hidden_from)) start(place, kMuch);
  }
}

unsigned DeviceQueues::poll() {
  constexpr uint64_t kGather = 8u << 20;
  unsigned events = 0;
  awaited_ = false;
  for (size_t i = 0; pending_ != 0 && i < places_.size(); ++i) {
    Place& place = *places_[i];
    if (place.persistent != nullptr) events += poll_persistent(place, nullptr);
    if (place.persistent == nullptr || place.persistent->empty()) events += poll(*place.device, place.copies);
    events += poll(*place.device, place.kernels);
    start(place, kGather);
  }
  if (!parked_.empty()) events += poll_parked();
  if (!recalled_.empty()) events += poll_recalled();
  return events;
}

void DeviceQueues::finish(Device& device, void* token) {
  Place* place = nullptr;
  if (is_error(place_of(device, &place))) return;
  const auto mine = [token](const Waiter& waiter) { return waiter.token == token; };
  if (place->persistent != nullptr) poll_persistent(*place, token);
  if (std::any_of(place->gathering.begin(), place->gathering.end(), mine)) flush(*place);
  for (Line* line : {&place->copies, &place->kernels}) {
    std::deque<Waiter>& pending = line->pending;
    for (auto at = pending.begin(); (at = std::find_if(pending.begin(), pending.end(), mine)) != pending.end();) {
      const Status status = wait(*line, at->ticket);
      if (is_error(status)) {  // nothing of this queue ends any more
        fail_pending(device, *line, status);
        break;
      }
      const Waiter waiter = std::move(*at);
      pending.erase(at);
      end(waiter, TW_OK);
    }
  }
}

void DeviceQueues::close() {
  while (OpRun* run = parked_.front()) engine_.complete(*run, TW_ERR_CLOSED, "the worker was destroyed");
  constexpr uint64_t kPatience = 5 * kSecond;  // of a device of the other side that does not come to an end
  while (OpRun* run = recalled_.front()) {
    if (!run->loan->users->close(Deadline(kPatience))) {
      warn_once("device.loan",
                "a worker was destroyed while a device of another one of this process was at one of its buffers");
    }
    end_loan(*run);
    engine_.complete(*run, run->ending);
  }
  while (pending_ != 0) {
    poll();
    for (auto& place : places_) {
      if (!place->gathering.empty()) flush(*place);
      for (Line* line : {&place->copies, &place->kernels}) {
        // Also: the driver has shut down, nothing is under way any more.
        if (const Status status = wait(*line); is_error(status)) fail_pending(*place->device, *line, status);
      }
    }
  }
}

DeviceQueues::~DeviceQueues() {
  for (auto& place : places_) {
    place->persistent.reset();
    place->copies.queue.reset();
    place->kernels.queue.reset();
    for (std::byte* chunk : place->chunks) place->device->free(reinterpret_cast<uint64_t>(chunk));
    place->device->free(place->words);
  }
}

unsigned DeviceQueues::poll_parked() {
  unsigned events = 0;
  look_at_each(parked_, [&](OpRun& run) {
    if (!Engine::goes_on(run) && !all_here(run)) return false;  // its peer's end ends it
    const Status status = run.op->after->event->query();
    if (status == TW_IN_PROGRESS) {
      parked_.push_back(&run);
      return true;
    }
    ++events;
    run.then(engine_, run, status);
    return false;
  });
  return events;
}

uint64_t DeviceQueues::lend(OpRun& run) {
  if (run.loan == nullptr) {
    run.loan = new Loan;
    run.loan->users = DeviceUsers::make_named(&run.loan->name);
    run.extras = true;
  }
  return run.loan->name;
}

bool DeviceQueues::take_back(OpRun& run, Status status) {
  if (run.loan->users->close()) {
    end_loan(run);
    return true;
  }
  run.ended = run.late_end = true;
  run.ending = status;
  run.info.endpoint = nullptr;
  recalled_.push_back(&run);
  return false;
}

unsigned DeviceQueues::poll_recalled() {
  unsigned events = 0;
  look_at_each(recalled_, [&](OpRun& run) {
    if (!take_back(run, run.ending)) return true;
    engine_.complete(run, run.ending);
    ++events;
    return false;
  });
  return events;
}

void DeviceQueues::when_ready(OpRun& run, Then then) {
  const Status status = (run.op->flags & kOpLate) == 0 ? Status{TW_OK} : run.op->after->event->query();
  if (status != TW_IN_PROGRESS) return then(engine_, run, status);
  run.then = then;
  if (run.list != nullptr) run.list->remove(&run);
  parked_.push_back(&run);
}

std::byte* DeviceQueues::take_chunk(Device& device) {
  Place* place = nullptr;
  if (is_error(place_of(device, &place))) return nullptr;
  std::byte* chunk = nullptr;
  if (!place->chunks.empty()) {
    chunk = place->chunks.back();
    place->chunks.pop_back();
  } else {
    uint64_t address = 0;
    if (is_error(device.allocate(MemoryKind::pinned, kChunk, &address))) return nullptr;
    chunk = reinterpret_cast<std::byte*>(address);
  }
  ++chunks_out_;
  return chunk;
}

void DeviceQueues::give_chunk(Device& device, std::byte* chunk) {
  Place* place = nullptr;
  --chunks_out_;
  if (place_of(device, &place) == TW_OK) place->chunks.push_back(chunk);
}

}  // namespace thalweg::impl
