// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_area.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "core/c_checks.hpp"
#include "groups/exchange.hpp"
#include "plans/c_steps.hpp"
#include "plans/queue.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kThreads = 512;               // of a block, at most
constexpr uint64_t kFewThreads = 128;            // of LL, as long as there are blocks for more
constexpr uint64_t kMagic = 0x7468616c64657635;  // of this form of the messages
constexpr uint64_t kSlotsOfBlock = 1u << 20;     // bytes of a block of threads
constexpr uint64_t kThreadsOfLines = 256;        // of LL128, at most: each has twice as many registers
constexpr uint64_t kBlockShare = 8192;           // bytes that it moves, at least, where there are several
constexpr uint64_t kManyBytes = 8u << 20;        // for fewer, no more than kUnitBlocks
constexpr uint64_t kFew = 64u << 10, kMany = 4u << 20, kMore = 16u << 20;  // bytes of what is measured
constexpr uint64_t kFewInLines = 2048;                                     // fewer than one block of threads has at once
constexpr uint64_t kManySentOn = 16u << 20;                                // of a broadcast that is stored on
constexpr uint64_t kCut = 16u << 10;

/// What each rank says of how far it came.
struct AreaOffer {
  uint64_t magic = kMagic;
  int32_t status = TW_OK;
  uint32_t blocks = 0, measures = 0, whole_lines = 0;
  Uuid device{};
  AreaCosts costs;
};

Status gather(ExchangeCall& call, const AreaOffer& mine, ExchangeEnd& end, std::vector<AreaOffer>* all) {
  all->resize(call.group.size);
  return exchange(call, &mine, sizeof mine, all->data(), end);
}

/// The first rank that cannot, with why.
bool all_can(const std::vector<AreaOffer>& all, const char* what, std::string* why_not) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].magic == kMagic && all[i].status == TW_OK) continue;
    *why_not = "rank " + std::to_string(i) + what;
    return false;
  }
  return true;
}

AreaCosts slowest(const std::vector<AreaOffer>& all) {
  AreaCosts most = all[0].costs;
  for (const AreaOffer& one : all) {
    for (size_t line = 0; line < kAreaLines; ++line) {
      for (size_t i = 0; i < AreaCosts::kLengths; ++i) most.ns[line][i] = std::max(most.ns[line][i], one.costs.ns[line][i]);
    }
  }
  return most;
}

bool in_windows(AreaLine line) {
  return line == AreaLine::symmetric || line == AreaLine::slots || line == AreaLine::loads || line == AreaLine::stores;
}
/// An allreduce in two phases, else every rank sends each a block.
bool is_sliced(AreaLine line) {
  return line == AreaLine::two_lines || line == AreaLine::two_phases || line == AreaLine::symmetric || line == AreaLine::slots;
}
bool by_lines(AreaLine line) { return line == AreaLine::lines || line == AreaLine::two_lines; }
bool by_words(AreaLine line) { return line == AreaLine::ll || by_lines(line); }
/// Of so many bytes of a block, those that a rank sends or loads.
double moved(AreaLine line, uint64_t bytes, double ranks) {
  return static_cast<double>(bytes) * (is_sliced(line) ? 2 * (ranks - 1) / ranks : ranks - 1);
}

/// Blocks of a rank's kernel. Kernels of ranks wait for each other, so those of one device have to find room there together.
uint32_t blocks_of(const std::vector<AreaOffer>& all) {
  uint32_t blocks = device::kExchangeBlocks;
  for (const AreaOffer& one : all) {
    const auto sharing = std::ranges::count(all, one.device, &AreaOffer::device);
    blocks = std::min(blocks, one.blocks / static_cast<uint32_t>(sharing));
  }
  return std::bit_floor(std::max(blocks, 1u));
}

bool share_devices(const std::vector<AreaOffer>& all) {
  return std::ranges::any_of(all,
                             [&](const AreaOffer& one) { return std::ranges::count(all, one.device, &AreaOffer::device) > 1; });
}

uint32_t offered_blocks(const Executor& by) {
  return std::clamp(std::bit_floor(by.multiprocessors()), 1u, device::kExchangeBlocks);
}

bool lines_arrive_whole(const Device& here, const std::vector<AreaOffer>& all) {
  return all.size() <= device::kFirstAreas &&
         std::ranges::all_of(all, [&](const AreaOffer& one) { return here.peer(one.device).whole_lines; });
}

/// A stream's wrapper, and a plan's own queue, may end unnoticed.
bool stays_known(const tw_queue* queue) { return queue != nullptr && !queue->of_stream; }

/// Nanoseconds of a run, of several that follow each other in a graph: the host's calls do not count. The fastest of some graphs.
Status time_plan(tw_plan& plan, tw_queue& queue, int runs, double* ns) {
  constexpr int kGraphs = 4;
  std::unique_ptr<Graph> graph;
  if (Status s = queue.queue->begin_capture(); is_error(s)) return s;
  Status status = TW_OK;
  for (int i = 0; i < runs && !is_error(status); ++i) status = plan.trigger(&queue);
  const Status captured = queue.queue->end_capture(&graph);
  if (is_error(status) || is_error(captured)) return is_error(status) ? status : captured;
  for (int i = 0; i < kGraphs; ++i) {
    const uint64_t begin = monotonic_ns();
    if (Status s = graph->launch(*queue.queue); is_error(s)) return s;
    if (Status s = queue.queue->synchronize(); is_error(s)) return s;
    const double each = static_cast<double>(monotonic_ns() - begin) / runs;
    *ns = i == 0 ? each : std::min(*ns, each);
  }
  return plan.check();
}

}  // namespace

DeviceArea::DeviceArea(tw_group& group, Executor& by, std::shared_ptr<EnqueueOrder> order)
    : group_(&group), rank_(group.rank), size_(group.size), executor_(by), order_(std::move(order)) {}

DeviceArea::~DeviceArea() { end(); }

/// Kernels of other ranks may still store there until they end their areas, which may be much later: nobody waits for that. Where a
/// run has failed, the memory stays its context's.
void DeviceArea::end() {
  bool in_step = false;
  {
    const std::lock_guard lock(mutex_);
    in_step = !is_error(failed_);
    if (in_step) {
      failed_ = TW_ERR_STALE;
      why_ = "the group has ended";
    }
  }
  window_.reset();
  if (memory_ != nullptr && in_step) memory_->registry->release_or_leave(memory_);
  memory_ = nullptr;
}

Status DeviceArea::agree(tw_group& group, Executor& by, std::shared_ptr<EnqueueOrder> order, bool measures, ExchangeEnd& end,
                         std::shared_ptr<DeviceArea>* out, std::string* why_not) {
  const Occupied here(group);
  const auto call = std::make_shared<ExchangeCall>(group, ExchangeKind::kernels);
  AreaOffer mine;
  std::vector<AreaOffer> all;
  bool well = false;
  // All ranks come as far as this one, whatever failed on one of them, and then go on alike.
  const auto meet = [&](Status so_far, const char* what) {
    const std::string why = is_error(so_far) ? last_error() : "";
    mine.status = so_far;
    if (Status s = gather(*call, mine, end, &all); is_error(s)) return s;
    well = all_can(all, what, why_not);
    if (!well && !why.empty()) *why_not += " (" + why + ")";
    return Status{TW_OK};
  };
  const bool can = by.device() != nullptr && group.size > 1 && group.size <= device::kMostExchangers;
  if (can) {
    mine.blocks = offered_blocks(by);
    mine.device = by.device()->uuid();
  }
  mine.measures = measures ? 1 : 0;
  const Status able = can ? Status{TW_OK} : impl::fail(TW_ERR_UNSUPPORTED, "on %s", by.name().c_str());
  if (Status s = meet(able, " calls on a queue of the host, or is one of more than 64"); is_error(s) || !well) return s;
  auto area = std::make_shared<DeviceArea>(group, by, std::move(order));
  area->shares_device_ = share_devices(all);
  mine.whole_lines = lines_arrive_whole(*by.device(), all) ? 1 : 0;
  const Status made = area->make(call, blocks_of(all));
  if (Status s = meet(made, "'s device does not reach the memory of all others"); is_error(s) || !well) return s;
  area->lines_ = std::ranges::all_of(all, [](const AreaOffer& one) { return one.whole_lines == 1; });
  if (std::ranges::all_of(all, [](const AreaOffer& one) { return one.measures == 1; })) {
    const Status measured = area->measure(*call, &mine.costs);
    if (Status s = meet(measured, " could not measure how long kernels take"); is_error(s) || !well) return s;
    area->costs_ = slowest(all);
  }
  *out = std::move(area);
  return TW_OK;
}

/// A window fails on all ranks, or on none.
Status DeviceArea::make(const std::shared_ptr<ExchangeCall>& call, uint32_t blocks) {
  blocks_ = blocks;
  piece_ = std::bit_floor(kSlotsOfBlock / (4 * size_));
  const Status allocated = allocate();  // without memory, the window is refused, and the others are told
  const std::string why = is_error(allocated) ? last_error() : "";
  tw_window* window = nullptr;
  tw_window_options options = TW_WINDOW_OPTIONS_INIT;
  options.timeout_ns = group_->timeout_ns;
  if (Status s = make_window(call, memory_, &options, &window); is_error(s))
    return is_error(allocated) ? impl::fail(allocated, "%s", why.c_str()) : s;
  window_.reset(window);
  return window_->bind(executor_.name().c_str(), &view_);
}

Status DeviceArea::allocate() {
  const device::AreaLayout layout{blocks_, size_, piece_};
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = executor_.name().c_str();
  if (Status s = tw_memory_allocate(&group_->worker.context, layout.length(), &options, &memory_); is_error(s)) return s;
  const std::vector<std::byte> zeros(layout.slot(0, 0, 0, 0));
  const Status stored = executor_.store(reinterpret_cast<uint64_t>(tw_memory_address(memory_)), zeros.data(), zeros.size());
  if (!is_error(stored)) return TW_OK;
  const std::string why = last_error();
  (void)tw_memory_release(
      std::exchange(memory_, nullptr));  // with flags and turns of whatever was there, kernels would go wrong
  return impl::fail(stored, "%s", why.c_str());
}

void measured_by(AreaLine line, uint32_t rank, uint32_t size, uint64_t bytes, device::Exchange* out) {
  out->low_latency = by_words(line) ? 1 : 0;
  out->lines = by_lines(line) ? 1 : 0;
  out->symmetric = in_windows(line) ? 1 : 0;
  out->by_slots = line == AreaLine::slots ? 1 : 0;
  out->slice = is_sliced(line) ? slice_of(bytes, size) : 0;
  out->unsliced = size;
  out->reduces = line == AreaLine::lines || line == AreaLine::one_phase || line == AreaLine::stores ? 0 : 1;
  out->type = TW_TYPE_FLOAT32;
  out->op = TW_REDUCE_SUM;
  out->takes = first_ranks(size);
  out->sends = out->takes & ~rank_bit(rank);
  out->bytes = bytes;
}

/// A run has no input, but what the area holds.
Status DeviceArea::add_runs(AreaLine line, uint64_t bytes, uint64_t room, tw_plan* plan) {
  auto step = std::make_shared<ExchangeStep>();
  measured_by(line, rank_, size_, bytes, &step->what);
  step->input_bytes = step->output_bytes = bytes;
  step->what.input = room;
  step->what.output = room + bytes;
  if (in_windows(line)) {  // in the slots, which hold nothing now, or what is stored there meanwhile
    const uint64_t begin = reinterpret_cast<uint64_t>(tw_memory_address(memory_));
    step->what.inputs = step->what.outputs = reinterpret_cast<const device::u64*>(view_.bases);
    step->what.input_place = (device::AreaLayout{blocks_, size_, piece_}.slot(0, 0, 0, 0) + 127) / 128 * 128;
    step->what.output_place = step->what.input_place + (bytes + 127) / 128 * 128;
    step->what.input_limit = step->what.input_place;  // alike on all ranks
    step->what.output_limit = step->what.output_place;
    step->what.place_align = sizeof(float);
    step->what.input_near = 1;
    step->what.input = begin + step->what.input_place;
    step->what.output = begin + step->what.output_place;
  }
  fill(false, step.get());
  step->area = shared_from_this();
  if (Status s = plan->add(exchange_step("the measuring of a group's kernels", std::move(step)), kOpDefaults, nullptr);
      is_error(s))
    return s;
  return plan->prepare(0);
}

/// What this rank measures by, and the first that failed.
struct DeviceArea::Measuring {
  Measuring(ExchangeCall& call, Executor& by) : call(call), executor(by) {}
  ~Measuring() {
    if (room != 0) executor.own().free(room, kRoom);
  }
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;
  bool well() const { return !is_error(status); }
  void take(Status next) {
    if (!well() || !is_error(next)) return;
    status = next;
    why = last_error();
  }
  /// Bounded: every wait of a plan is.
  void end(tw_plan& plan) {
    (void)queue->queue->synchronize();
    tw_queue::forget(plan);
    take(plan.release());
  }
  static constexpr uint64_t kRoom = 2 * kMore;
  ExchangeCall& call;
  Executor& executor;
  Proxy* proxy = nullptr;
  std::unique_ptr<tw_queue> queue;
  uint64_t room = 0;
  Status status = TW_OK;
  std::string why;
};

Status DeviceArea::open(Measuring* out) {
  if (Status s = Proxy::of(group_->worker.context, &out->proxy); is_error(s)) return s;
  std::unique_ptr<Queue> own;
  if (Status s = executor_.device()->make_queue(&own); is_error(s)) return s;
  out->queue = std::make_unique<tw_queue>(*out->proxy, executor_);
  out->queue->open(std::move(own), TW_WAITS_AUTO);
  register_queue(out->queue.get());
  return executor_.own().allocate(Measuring::kRoom, &out->room);
}

uint64_t DeviceArea::length_of(AreaLine line, size_t length) const {
  constexpr uint64_t kFewBytes = 8;
  const uint64_t of_ll[] = {kFewBytes, uint64_t{std::min(blocks_, device::kUnitBlocks)} * kThreads * device::kUnitBytes,
                            room()};
  const uint64_t others[] = {kFew, kMany, kMore};
  if (by_lines(line) && !lines_) return 0;  // areas have no rooms for lines of more ranks, nor a launch their addresses
  if (by_lines(line)) {  // of a block, or slice: of few threads, of all at once, and as many as there is room for
    const uint64_t most = (is_sliced(line) ? line_room() / 2 : line_room()) / 16 * 16;
    const uint64_t at_once = uint64_t{blocks_} * (kThreadsOfLines / device::kLineWords) * device::kLineData / 16 * 16;
    const uint64_t of_lines[] = {kFewInLines, at_once, most};
    return of_lines[length] * (is_sliced(line) ? size_ : 1);
  }
  const uint64_t bytes = (line == AreaLine::ll ? of_ll : others)[length];
  const bool slots_have_room = 2 * bytes + 256 <= uint64_t{blocks_} * kSlotsOfBlock;
  return !in_windows(line) || slots_have_room ? bytes : 0;
}

/// One kind of run, of one length. None begins before all ranks are ready for it.
Status DeviceArea::measure(AreaLine line, size_t length, Measuring& on, AreaCosts* out) {
  constexpr double kSlow = 1e6;  // ns: what takes longer than that is not measured at greater length
  constexpr int kShortRuns = 100, kRuns = 20, kLongRuns = 4;  // the shortest take little longer than a graph takes to begin
  const uint64_t bytes = length_of(line, length);
  if (bytes == 0) return TW_OK;
  double* const ns = (*out)[line] + length;
  PlanOptions options;
  options.place = executor_.name();
  options.timeout_ns = std::min(options.timeout_ns, group_->timeout_ns / 2);
  std::optional<tw_plan> plan;
  if (on.well()) {
    plan.emplace(*on.proxy, options);
    on.take(add_runs(line, bytes, on.room, &*plan));
  }
  const double before = length == 0 ? 0 : ns[-1], ready = on.well() ? before : -1;
  std::vector<double> others(size_);
  const Status met = exchange(on.call, &ready, sizeof ready, others.data());
  const bool go = !is_error(met) && std::ranges::none_of(others, [](double one) { return one < 0; });
  const bool slow = go && length == 2 && *std::ranges::max_element(others) > kSlow;
  if (go && !slow) on.take(time_plan(*plan, *on.queue, bytes > kMany ? kLongRuns : length == 0 ? kShortRuns : kRuns, ns));
  if (plan.has_value()) on.end(*plan);
  return go || is_error(met) ? met : impl::fail(TW_ERR_UNSUPPORTED, "another rank could not measure");
}

/// By runs of this rank and all others at once; a rank that fails in one lets the others wait for as long as a run may.
Status DeviceArea::measure(ExchangeCall& call, AreaCosts* out) {
  Measuring on(call, executor_);
  on.take(open(&on));
  bool go = true;
  const auto all_lengths = [&](AreaLine line) {
    for (size_t i = 0; i < AreaCosts::kLengths && go; ++i) {
      const Status measured = measure(line, i, on, out);
      on.take(measured);
      go = !is_error(measured);
    }
  };
  all_lengths(
      AreaLine::stores);  // for nothing: links that were idle may be slow at first, which the first line would be blamed for
  for (size_t line = 0; line < kAreaLines; ++line) all_lengths(static_cast<AreaLine>(line));
  return on.well() ? Status{TW_OK} : impl::fail(on.status, "%s", on.why.c_str());
}

/// From runs to what direct_cost.cpp predicts by.
KernelLine DeviceArea::line_of(AreaLine line) const {
  const double* const ns = costs_[line];
  const auto sent = [&](size_t length) { return moved(line, length_of(line, length), size_); };
  const auto slope = [&](size_t i) { return std::max(ns[i] - ns[i - 1], 1.0) / (sent(i) - sent(i - 1)); };
  KernelLine of{std::max(ns[0] - slope(1) * sent(0), 0.0), slope(1)};
  if (ns[2] == 0) return of;
  of.bend = static_cast<uint64_t>(sent(1));
  of.longer_byte_ns = slope(2);
  return of;
}
void DeviceArea::set_costs(CollectiveCosts* costs) const {
  const std::pair<AreaLine, KernelLine CollectiveCosts::*> lines[] = {{AreaLine::ll, &CollectiveCosts::ll},
                                                                      {AreaLine::lines, &CollectiveCosts::lines},
                                                                      {AreaLine::two_lines, &CollectiveCosts::two_lines},
                                                                      {AreaLine::two_phases, &CollectiveCosts::two_phases},
                                                                      {AreaLine::one_phase, &CollectiveCosts::one_phase},
                                                                      {AreaLine::symmetric, &CollectiveCosts::symmetric},
                                                                      {AreaLine::slots, &CollectiveCosts::slots},
                                                                      {AreaLine::loads, &CollectiveCosts::loads},
                                                                      {AreaLine::stores, &CollectiveCosts::stores}};
  for (const auto& [line, of] : lines) {
    if (costs_[line][1] != 0) costs->*of = line_of(line);
  }
}

void DeviceArea::watch(uint64_t* word) {
  if (window_ != nullptr) window_->board->add_word(word);
}
void DeviceArea::unwatch(uint64_t* word) {
  if (window_ != nullptr) window_->board->forget_word(word);
}

Status DeviceArea::check() {
  {
    const std::lock_guard lock(mutex_);
    if (is_error(failed_)) return impl::fail(failed_, "%s", why_.c_str());
  }
  return window_->board->check_rank();
}

void DeviceArea::fail(Status status, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (is_error(failed_)) return;
  failed_ = status;
  why_ = "the group's collectives on queues have failed: " + why;
}

void DeviceArea::set_areas(device::Exchange* what) const {
  what->rank = rank_;
  what->size = size_;
  what->room_blocks = blocks_;
  what->piece = piece_;
  for (uint32_t i = 0; i < std::min(size_, device::kFirstAreas); ++i)
    what->areas[i] = reinterpret_cast<uint64_t>(view_.first_bases[i]);
  what->more_areas = reinterpret_cast<const device::u64*>(view_.bases);
}

void DeviceArea::fill_counted(ExchangeStep* out) const {
  set_areas(&out->what);
  out->shares_device = shares_device_;
  out->blocks = blocks_;
  out->what.threads = kThreads;
}

void DeviceArea::fill(bool rooted, ExchangeStep* out) const {
  device::Exchange& what = out->what;
  const uint64_t bytes = what.slice != 0 ? what.slice : what.bytes;
  set_areas(&what);
  out->shares_device = shares_device_;
  if (what.lines != 0) return fill_lines(bytes, out);
  const uint64_t threads_bytes = what.low_latency != 0 ? device::kUnitBytes : sizeof(device::Word16);
  const uint32_t few = std::min(blocks_, device::kUnitBlocks);
  const bool one_each = bytes <= uint64_t{few} * kThreads * device::kUnitBytes;
  const uint64_t share =
      what.low_latency == 0 ? kBlockShare : (one_each ? kFewThreads : device::kUnitsOfBlock) * device::kUnitBytes;
  const bool sends_on = what.symmetric != 0 && what.slice != 0 && what.reduces == 0;
  const uint64_t many = sends_on ? kManySentOn : kManyBytes;
  const uint32_t most = what.low_latency == 0 && bytes >= many && (!rooted || what.slice != 0) ? blocks_ : few;
  out->blocks = static_cast<uint32_t>(std::clamp<uint64_t>(std::bit_ceil((bytes + share - 1) / share), 1, most));
  const uint64_t words = (bytes + threads_bytes - 1) / threads_bytes, words_of_block = (words + out->blocks - 1) / out->blocks;
  what.share = words_of_block * threads_bytes;
  what.threads = static_cast<uint32_t>(std::clamp<uint64_t>(std::bit_ceil(words_of_block), 32, kThreads));
  what.one_word =
      what.low_latency != 0 && what.any == 0 && size_ <= device::kFirstAreas && what.share <= what.threads * device::kUnitBytes;
  what.units = device::AreaLayout{blocks_, size_, piece_}.units(0, 0, 0);
  what.cut = kCut;
}

/// Eight threads for each line. Blocks have few threads, as long as there are blocks for more.
void DeviceArea::fill_lines(uint64_t bytes, ExchangeStep* out) const {
  device::Exchange& what = out->what;
  const auto rounded_up = [](uint64_t a, uint64_t b) { return (a + b - 1) / b; };
  const uint64_t lines = std::max<uint64_t>(rounded_up(bytes, device::kLineData), 1);
  out->blocks = static_cast<uint32_t>(
      std::clamp<uint64_t>(std::bit_ceil(rounded_up(lines, kFewThreads / device::kLineWords)), 1, blocks_));
  const uint64_t lines_of_block = rounded_up(lines, out->blocks);
  what.share = lines_of_block * device::kLineData;
  what.threads =
      static_cast<uint32_t>(std::clamp<uint64_t>(std::bit_ceil(lines_of_block * device::kLineWords), 32, kThreadsOfLines));
  what.lines = device::AreaLayout{blocks_, size_, piece_}.lines(0, 0, 0);
}

Status DeviceArea::order(Queue& queue, const tw_queue* of) {
  if (queue.capture_state() != CaptureState::none) return TW_OK;
  if (!stays_known(of) && event_ == nullptr) {
    if (Status s = device().make_event(&event_); is_error(s)) return s;
  }
  if (last_ == Last::event) return queue.wait_event(*event_);
  if (last_ == Last::queue && last_queue_ != number_of(of)) return come_behind(queue, last_queue_);
  return TW_OK;
}

/// Where an event cannot be recorded, all of the queue is waited for.
Status DeviceArea::note(Queue& queue, const tw_queue* of) {
  if (queue.capture_state() != CaptureState::none) return TW_OK;
  last_ = Last::queue;
  last_queue_ = number_of(of);
  if (stays_known(of)) return TW_OK;
  last_ = is_error(queue.record(*event_)) ? Last::nothing : Last::event;
  return last_ == Last::event ? Status{TW_OK} : queue.synchronize();
}

}  // namespace thalweg::impl
