// SPDX-License-Identifier: Apache-2.0
// Operations that are prepared once and triggered by the host, a queue or a captured graph: channels, puts with a signal and a
// waiter, gets. Each row runs its plan several times with fresh data.
#include <cstring>
#include <memory>
#include <utility>

#include <thalweg/device/channel.hpp>

#include "side.hpp"

namespace conformance {
namespace {

enum class Trigger : uint8_t { host, queue, graph };

constexpr unsigned kRuns = 3;
constexpr uint64_t kLong = 20'000'000'000;

/// Who runs plans on memory of this place.
const char* executor_of(unsigned place) { return place < kFirstDevice ? "host" : place_name(place); }
bool on_device(unsigned place) { return place >= kFirstDevice && std::strstr(place_name(place), "managed") == nullptr; }

/// A plan of one side, with its queue and its graph.
class Plan {
 public:
  Plan(Side& side, const Row& r, Trigger trigger) : side_(side), trigger_(trigger) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = executor_of(r.place[side.rank]);
    options.timeout_ns = kLong;
    must(tw_plan_create(side.context, &options, &plan), "tw_plan_create");
    if (trigger != Trigger::host) must(tw_queue_create(side.context, options.place, &queue_), "tw_queue_create");
  }
  ~Plan() {
    if (graph_ != nullptr) tw_graph_destroy(graph_);
    if (plan != nullptr && tw_plan_destroy(plan) != TW_OK) std::fprintf(stderr, "a plan stays: %s\n", tw_last_error());
    if (queue_ != nullptr) tw_queue_destroy(queue_);
  }
  void prepare() {
    must(tw_plan_prepare(plan, kLong), "tw_plan_prepare");
    if (trigger_ != Trigger::graph) return;
    must(tw_capture_begin(queue_), "tw_capture_begin");
    must(tw_plan_trigger(plan, queue_), "tw_plan_trigger into a capture");
    must(tw_capture_end(queue_, &graph_), "tw_capture_end");
  }
  void run() {
    switch (trigger_) {
      case Trigger::host:
        must(tw_plan_trigger(plan, nullptr), "tw_plan_trigger");
        return must(tw_plan_finish(plan, kLong), "tw_plan_finish");
      case Trigger::queue:
        must(tw_plan_trigger(plan, queue_), "tw_plan_trigger");
        break;
      case Trigger::graph:
        must(tw_graph_launch(graph_, queue_), "tw_graph_launch");
    }
    must(tw_queue_synchronize(queue_), "tw_queue_synchronize");
  }
  void close() {
    must(tw_plan_destroy(plan), "tw_plan_destroy");
    plan = nullptr;
  }
  tw_plan* plan = nullptr;

 private:
  Side& side_;
  const Trigger trigger_;
  tw_queue* queue_ = nullptr;
  tw_graph* graph_ = nullptr;
};

/// A channel keeps its executor and its way, so each pair of places has its own, and so has nothing, which is everywhere.
uint64_t tag_of(const Row& r, unsigned i) { return i + 16u * r.place[0] + 256u * r.place[1] + (r.size == 0 ? 4096u : 0u); }

void channel(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  Payload fits(side, r.remote, size, kPlain, r.seed);
  if (fits.bytes() != size) return side.barrier();
  const bool sends = side.rank == 0;
  Payloads data(side, r, sends ? r.local : r.remote, sends ? r.size : size);
  Plan plan(side, r, trigger);
  for (unsigned i = 0; i < many(r); ++i) {
    tw_step_options o = TW_STEP_OPTIONS_INIT;
    o.layout = data[i].layout();
    if (sends) {
      must(tw_plan_send(plan.plan, side.endpoint, data[i].address(), size, tag_of(r, i), &o, nullptr), "tw_plan_send");
    } else {
      must(tw_plan_recv(plan.plan, side.endpoint, data[i].address(), size, tag_of(r, i), &o, nullptr), "tw_plan_recv");
    }
  }
  plan.prepare();
  for (unsigned run = 0; run < kRuns; ++run) {
    for (unsigned i = 0; i < many(r); ++i) {
      if (sends) {
        data[i].fill(r.seed + run * kMany + i);
      } else {
        data[i].poison();
      }
    }
    plan.run();
    for (unsigned i = 0; i < many(r); ++i) data[i].verify(r.seed + run * kMany + i, size);
  }
  side.barrier();
  plan.close();
}

/// Does a plan reach the other side by loads and stores?
bool is_mapped(Side& side, const Row& r, Payload& data, uint64_t tag) {
  Plan plan(side, r, Trigger::host);
  must(side.rank == 0 ? tw_plan_send(plan.plan, side.endpoint, data.address(), data.bytes(), tag, nullptr, nullptr)
                      : tw_plan_recv(plan.plan, side.endpoint, data.address(), data.bytes(), tag, nullptr, nullptr),
       "a plan's step");
  plan.prepare();
  std::string text(4096, '\0');
  size_t size = text.size();
  must(tw_plan_explain(plan.plan, text.data(), &size), "tw_plan_explain");
  side.barrier();
  plan.close();
  return text.find("by the host") == std::string::npos;
}

/// An end of a channel for code of this program.
class BoundEnd {
 public:
  BoundEnd(Side& side, uint64_t tag, Payloads& data, unsigned count) {
    tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
    options.timeout_ns = kLong;
    std::vector<tw_channel_buffer> buffers;
    for (unsigned i = 0; i < count; ++i) buffers.push_back({data[i].address(), data[i].bytes(), nullptr});
    status = side.rank == 0 ? tw_channel_bind_send(side.endpoint, tag, &options, &end_)
                            : tw_channel_bind_recv(side.endpoint, tag, buffers.data(), count, &options, &end_);
    if (status != TW_OK) return;
    tw_device_guard words;
    must(tw_channel_end_address(end_, &address), "tw_channel_end_address");
    must(tw_channel_end_guard(end_, &words), "tw_channel_end_guard");
    std::memcpy(&guard, &words, sizeof guard);
  }
  ~BoundEnd() { tw_channel_end_release(end_); }
  uint32_t landing(unsigned i) const {
    uint32_t number = 0;
    must(tw_channel_end_landing(end_, i, &number), "tw_channel_end_landing");
    return number;
  }
  void verify() const { must(tw_channel_end_check(end_), "tw_channel_end_check"); }
  void close() { must(tw_channel_end_release(std::exchange(end_, nullptr)), "tw_channel_end_release"); }
  tw_status status = TW_OK;
  void* address = nullptr;
  thalweg::device::Guard guard{};

 private:
  tw_channel_end* end_ = nullptr;
};

/// Both ends are run by the twins of kernels on the host. Where a plan is carried by the host, both are refused.
void kernel_channel(Side& side, const Row& r) {
  namespace device = thalweg::device;
  Payloads data(side, r, Shape::contiguous, r.size);
  const bool mapped = is_mapped(side, r, data[0], tag_of(r, kMany));
  BoundEnd end(side, tag_of(r, kMany + 1), data, many(r));
  if (!mapped && end.status == TW_ERR_UNSUPPORTED) return;
  must(end.status, "binding an end");
  check(mapped, "an end of a channel that is not mapped was bound");
  for (unsigned run = 0; run < kRuns; ++run) {
    bool ok = true;
    if (side.rank == 0) {
      device::Sender<> out(static_cast<device::SendEnd*>(end.address), end.guard);
      for (unsigned i = 0; i < many(r); ++i) data[i].fill(r.seed + run * kMany + i);
      for (unsigned i = 0; i < many(r); ++i) ok = ok && out.send(device::Thread(), data[i].address(), r.size);
    } else {
      device::Receiver<> in(static_cast<device::RecvEnd*>(end.address), end.guard);
      for (unsigned i = 0; i < many(r); ++i) data[i].poison();
      for (unsigned i = 0; i < many(r); ++i) ok = ok && in.post(device::Thread(), end.landing(i));
      for (unsigned i = 0; i < many(r); ++i) ok = ok && in.take(device::Thread());
    }
    end.verify();
    check(ok, "the code gave up, and nothing says why");
    for (unsigned i = 0; i < many(r); ++i) data[i].verify(r.seed + run * kMany + i, r.size);
  }
  end.close();
}

/// Keys of rank 1's payloads and of a signal near them, for rank 0.
class Target {
 public:
  Target(Side& side, const Row& r, Payloads* targets) : side_(side) {
    struct Card {
      uint64_t length[kMany + 1], offset[kMany];
      unsigned char key[kMany + 1][TW_KEY_MAX];
    } card{};
    if (side.rank == 1) {
      make_signal(r.place[1]);
      for (unsigned i = 0; i <= many(r); ++i) {
        const bool last = i == many(r);
        size_t length = TW_KEY_MAX;
        unsigned char* const key = card.key[last ? kMany : i];
        must(last ? tw_signal_export(signal, key, &length) : tw_memory_export((*targets)[i].memory(), key, &length), "export");
        card.length[last ? kMany : i] = length;
        if (!last) card.offset[i] = (*targets)[i].offset();
      }
      side.send_control(&card, sizeof card);
      return;
    }
    side.receive_control(&card, sizeof card);
    for (unsigned i = 0; i < many(r); ++i) {
      remote.push_back(nullptr);
      offset.push_back(card.offset[i]);
      must(tw_memory_import(side.endpoint, card.key[i], card.length[i], &remote.back()), "tw_memory_import");
    }
    must(tw_signal_import(side.endpoint, card.key[kMany], card.length[kMany], &remote_signal), "tw_signal_import");
  }
  ~Target() {
    for (tw_remote_memory* one : remote) tw_remote_memory_release(one);
    if (remote_signal != nullptr) tw_remote_signal_release(remote_signal);
    if (signal != nullptr) tw_signal_destroy(signal);
    if (words_ != nullptr) tw_memory_release(words_);
  }
  tw_signal* signal = nullptr;
  tw_remote_signal* remote_signal = nullptr;
  std::vector<tw_remote_memory*> remote;
  std::vector<uint64_t> offset;

 private:
  void make_signal(unsigned place) {
    tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
    options.kind = TW_SIGNAL_ADD;
    if (on_device(place)) {
      tw_memory_options where = TW_MEMORY_OPTIONS_INIT;
      where.place = place_name(place);
      must(tw_memory_allocate(side_.context, 4096, &where, &words_), "tw_memory_allocate");
      options.memory = words_;
      options.offset = 64;
    }
    must(tw_signal_create(side_.worker, &options, &signal), "tw_signal_create");
  }
  Side& side_;
  tw_memory* words_ = nullptr;
};

void put(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  Payload fits(side, r.remote, size, kPlain, r.seed);
  if (fits.bytes() != size) return side.barrier();
  const bool puts = side.rank == 0;
  Payloads data(side, r, puts ? r.local : r.remote, puts ? r.size : size);
  Target target(side, r, &data);
  Plan plan(side, r, trigger);
  if (puts) {
    for (unsigned i = 0; i < many(r); ++i) {
      tw_step_options o = TW_STEP_OPTIONS_INIT;
      o.layout = data[i].layout();
      o.remote_layout = fits.layout();
      o.signal = target.remote_signal;
      o.signal_op = TW_SIGNAL_ADD;
      o.signal_value = 1;
      must(tw_plan_put(plan.plan, side.endpoint, data[i].address(), size, target.remote[i], target.offset[i], &o, nullptr),
           "tw_plan_put");
    }
    plan.prepare();
  }
  side.barrier();
  for (unsigned run = 0; run < kRuns; ++run) {
    if (puts) {
      for (unsigned i = 0; i < many(r); ++i) data[i].fill(r.seed + run * kMany + i);
      side.barrier();
      plan.run();
    } else {
      for (unsigned i = 0; i < many(r); ++i) data[i].poison();
      side.barrier();
      side.await(target.signal, TW_COMPARE_GE, (run + 1) * many(r));
      for (unsigned i = 0; i < many(r); ++i) data[i].verify(r.seed + run * kMany + i, size);
    }
    side.barrier();
  }
  plan.close();
  side.barrier();
}

void get(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  Payload fits(side, r.remote, size, kPlain, r.seed);
  if (fits.bytes() != size) return side.barrier();
  const bool gets = side.rank == 0;
  Payloads data(side, r, gets ? r.local : r.remote, gets ? r.size : size);
  Target target(side, r, &data);
  Plan plan(side, r, trigger);
  if (gets) {
    for (unsigned i = 0; i < many(r); ++i) {
      tw_step_options o = TW_STEP_OPTIONS_INIT;
      o.layout = data[i].layout();
      o.remote_layout = fits.layout();
      must(tw_plan_get(plan.plan, side.endpoint, data[i].address(), size, target.remote[i], target.offset[i], &o, nullptr),
           "tw_plan_get");
    }
    plan.prepare();
  }
  side.barrier();
  for (unsigned run = 0; run < kRuns; ++run) {
    for (unsigned i = 0; i < many(r); ++i) {
      if (gets) {
        data[i].poison();
      } else {
        data[i].fill(r.seed + run * kMany + i);
      }
    }
    side.barrier();
    if (gets) {
      plan.run();
      for (unsigned i = 0; i < many(r); ++i) data[i].verify(r.seed + run * kMany + i, size);
    }
    side.barrier();
  }
  plan.close();
  side.barrier();
}

template <void (*kRun)(Side&, const Row&, Trigger), Trigger kTrigger>
void by(Side& side, const Row& r) {
  kRun(side, r, kTrigger);
}

}  // namespace

void add_triggered(std::vector<Operation>& all) {
  constexpr size_t big = ~size_t{0};
  const Devices every = Devices::all;
  all.push_back({"channel_host", true, true, big, by<channel, Trigger::host>, every, true});
  all.push_back({"channel_queue", true, true, big, by<channel, Trigger::queue>, every, true});
  all.push_back({"channel_graph", true, true, big, by<channel, Trigger::graph>, every, true});
  all.push_back({"channel_kernel", false, false, big, kernel_channel, Devices::none, true});
  all.push_back({"plan_put_host", true, true, big, by<put, Trigger::host>, every, true});
  all.push_back({"plan_put_queue", true, true, big, by<put, Trigger::queue>, every, true});
  all.push_back({"plan_put_graph", true, true, big, by<put, Trigger::graph>, every, true});
  all.push_back({"plan_get_host", true, true, big, by<get, Trigger::host>, every, true});
  all.push_back({"plan_get_queue", true, true, big, by<get, Trigger::queue>, every, true});
  all.push_back({"plan_get_graph", true, true, big, by<get, Trigger::graph>, every, true});
}

}  // namespace conformance
