// SPDX-License-Identifier: Apache-2.0
// tag_lat by kernels: a message over a channel whose ends are bound to device code, and one back over another. Without a device its twin
// on the CPU runs.
#include <thalweg/channels.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "gpu_rounds.hpp"
#include "kernels/rounds.hpp"

namespace perf {
namespace {

constexpr uint64_t kThere = 0x7a7, kBack = 0x7a8;  // tags: from rank 0, from rank 1
constexpr size_t kArrived = 0, kTook = 16;         // of DeviceWords

void check(tw_channel_end* end) { must(tw_channel_end_check(end), "device code"); }

/// Both ends of this side, in the order in which the other side binds its own.
class Ends {
 public:
  Ends(Pair& p, const std::string& place, const Buffers& in, size_t length) {
    tw_channel_options o = TW_CHANNEL_OPTIONS_INIT;
    o.place = place.c_str();
    o.timeout_ns = 20'000'000'000;
    o.message_bytes = length;
    const tw_channel_buffer buffer = {in.at(0), length, nullptr};
    for (const bool sends : {p.rank == 0, p.rank != 0}) {
      must(sends ? tw_channel_bind_send(p.endpoint, p.rank == 0 ? kThere : kBack, &o, &send)
                 : tw_channel_bind_recv(p.endpoint, &buffer, 1, p.rank == 0 ? kBack : kThere, &o, &receive),
           sends ? "tw_channel_bind_send" : "tw_channel_bind_recv");
    }
  }
  ~Ends() {
    must(tw_channel_end_release(send), "tw_channel_end_release");
    must(tw_channel_end_release(receive), "tw_channel_end_release");
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
  void describe(ChannelRounds* rounds) const {
    void* address = nullptr;
    must(tw_channel_end_address(send, &address), "tw_channel_end_address");
    rounds->send = static_cast<thalweg::device::SendEnd*>(address);
    must(tw_channel_end_address(receive, &address), "tw_channel_end_address");
    rounds->receive = static_cast<thalweg::device::RecvEnd*>(address);
    must(tw_channel_end_recv_buffer(receive, 0, &rounds->recv_buffer), "tw_channel_end_recv_buffer");
    rounds->send_guard = guard_of(send);
    rounds->receive_guard = guard_of(receive);
  }

  std::string way() const {
    char text[1000];
    size_t length = sizeof text;
    must(tw_channel_end_explain(send, text, &length), "tw_channel_end_explain");
    return std::strstr(text, ": mapped") != nullptr ? "mapped" : "by the host";
  }

  tw_channel_end *send = nullptr, *receive = nullptr;

 private:
  static thalweg::device::Guard guard_of(const tw_channel_end* end) {
    tw_device_guard guard{};
    must(tw_channel_end_guard(end, &guard), "tw_channel_end_guard");
    thalweg::device::Guard as_seen{};
    static_assert(sizeof as_seen == sizeof guard);
    std::memcpy(&as_seen, &guard, sizeof guard);
    return as_seen;
  }
};

}  // namespace

Sample channel_latency_kernel(Pair& p, const Order& order) {
  Sample s;
  Buffers out(p.context, order, 1, p.rank), in(p.context, order, 1, p.rank);
  out.fill(order.seed + static_cast<uint64_t>(p.rank));
  std::optional<Gpu> gpu;
  std::optional<DeviceWords> own;
  if (on_device(order.memory[p.rank])) {
    gpu.emplace(ordinal_of(order.memory[p.rank]));
    own.emplace(p.context, gpu->place());
  }
  const Shape shape = shape_for(order.size, "perf_channel_thread", "perf_channel_block", "perf_channel_blocks");
  std::string way;
  {
    const Ends ends(p, gpu ? gpu->place() : "host", in, order.size);
    ChannelRounds rounds{};
    ends.describe(&rounds);
    way = ends.way();
    rounds.from = reinterpret_cast<u64>(out.at(0));
    rounds.bytes = order.size;
    rounds.rounds = batch_of(order);
    rounds.warm = rounds.rounds / 50 + 1;
    rounds.leads = p.rank == 0;
    u64 took = 0;
    rounds.took = gpu ? own->at<u64>(kTook) : &took;
    rounds.arrived = gpu ? own->at<u32>(kArrived) : nullptr;
    p.sync();
    const uint64_t warm = order.verify ? 0 : order.iterations / 10 + 1;
    for (uint64_t i = 0; i < warm + order.iterations; ++i) {
      if (gpu) {
        gpu->launch(shape.kernel, std::min(shape.blocks, gpu->multiprocessors()), shape.threads, rounds);
        gpu->finish(p);
        took = own->read(kTook);
      } else {
        play(rounds, thalweg::device::Block());
      }
      check(ends.send);
      check(ends.receive);
      if (i >= warm) s.latency_us.push_back(static_cast<double>(took) / 2e3 / rounds.rounds);
    }
    p.sync();
  }
  s.verified = in.check(0, order.seed + static_cast<uint64_t>(!p.rank));
  s.route = std::string(tw_endpoint_transport(p.endpoint)) + " channel, " +
            (gpu ? "kernel of " + std::to_string(shape.blocks) + " x " + std::to_string(shape.threads) : "device code") + ", " +
            way;
  return s;
}

}  // namespace perf
