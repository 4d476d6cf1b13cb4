// SPDX-License-Identifier: Apache-2.0
// Active messages: the handler takes small payloads at once and fetches rendezvous ones into the next buffer.
#include <string>

#include "rounds.hpp"
#include "tests.hpp"

namespace perf {
namespace {

constexpr uint16_t kId = 1;

struct Arrivals {
  Buffers* buffers;
  size_t window, size;  // bytes of each message, as ordered
  uint64_t started = 0, done = 0;
};

void fetched(void* arg, tw_request, tw_status status, const tw_recv_info*) {
  must(status, "tw_am_recv");
  ++static_cast<Arrivals*>(arg)->done;
}

tw_status on_message(void* arg, const tw_am_message* m) {
  auto* a = static_cast<Arrivals*>(arg);
  if (m->length != a->size) {
    end_with("the other process sends what was not ordered: " + std::to_string(m->length) + " bytes in place of " +
             std::to_string(a->size));
  }
  const size_t i = a->started++ % a->window;
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.layout = a->buffers->layout();
  if (m->data != nullptr && o.layout == nullptr) {
    a->buffers->write(i, m->data, m->length);
    ++a->done;
    return TW_OK;
  }
  o.callback = fetched;
  o.arg = a;
  must(tw_am_recv(m->descriptor, a->buffers->at(i), m->length, &o, nullptr), "tw_am_recv");
  return TW_IN_PROGRESS;
}

void send(Pair& p, Buffers& b, size_t i, size_t n, tw_request* r) {
  b.renew(i);
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.layout = b.layout();
  uint64_t header = i;
  must(tw_am_send(p.endpoint, kId, &header, sizeof header, b.at(i), n, b.layout() ? &o : nullptr, r), "tw_am_send");
}

}  // namespace

Sample am_latency(Pair& p, const Order& order) {
  Sample s;
  Buffers out(p.context, order, 1, p.rank), in(p.context, order, 1, p.rank);
  s.route = p.route("am", order, out.at(0));
  s.fresh = out.renews();
  Arrivals arrivals{&in, 1, order.size};
  must(tw_am_register(p.worker, kId, on_message, &arrivals), "tw_am_register");
  Rounds rounds(order, p.rank, &out, all_right(in, 1));
  uint64_t expected = 0;
  auto ping = [&] {
    tw_request r = TW_REQUEST_NONE;
    rounds.before_send();
    send(p, out, 0, order.size, &r);
    p.wait(r);
  };
  auto pong = [&] {
    for (++expected; arrivals.done < expected;) p.progress();
    rounds.behind_receive();
  };
  p.sync();
  if (p.rank == 0)
    time_batches(order, &s.latency_us, [&] {
      ping();
      pong();
    });
  else
    time_batches(order, nullptr, [&] {
      pong();
      ping();
    });
  s.verified = rounds.verified();
  p.sync();
  must(tw_am_register(p.worker, kId, nullptr, nullptr), "tw_am_register");
  return s;
}

Sample am_window(Pair& p, const Order& order) {
  Sample s;
  Buffers buffers(p.context, order, order.window, p.rank);
  s.route = p.route("am", order, buffers.at(0));
  s.fresh = buffers.renews();
  Arrivals arrivals{&buffers, order.window, order.size};
  must(tw_am_register(p.worker, kId, on_message, &arrivals), "tw_am_register");
  Rounds rounds = one_way(order, p.rank, buffers, order.window);
  std::vector<tw_request> requests(order.window, TW_REQUEST_NONE);
  char ack[4] = {};
  uint64_t expected = 0;
  p.sync();
  s.seconds = time_windows(order, [&] {
    if (p.rank == 0) {
      rounds.before_send();
      for (size_t i = 0; i < order.window; ++i) send(p, buffers, i, order.size, &requests[i]);
      for (tw_request& r : requests) p.wait(r);
      p.receive(ack, sizeof ack, kAckTag);
    } else {
      for (expected += order.window; arrivals.done < expected;) p.progress();
      rounds.behind_receive();
      p.send(ack, sizeof ack, kAckTag);
    }
  });
  s.messages = order.window;
  s.verified = rounds.verified();
  p.sync();
  must(tw_am_register(p.worker, kId, nullptr, nullptr), "tw_am_register");
  return s;
}

}  // namespace perf
