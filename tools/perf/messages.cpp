// SPDX-License-Identifier: Apache-2.0
// Tagged messages and byte streams: ping-pong, window with acknowledgement, both directions.
#include "rounds.hpp"
#include "tests.hpp"

namespace perf {
namespace {

tw_op_options layout_option(const Buffers& buffers) {
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.layout = buffers.layout();
  return o;
}

struct Window {
  std::vector<tw_request> requests;
  explicit Window(size_t n) : requests(n, TW_REQUEST_NONE) {}
  void wait(Pair& pair) {
    for (tw_request& r : requests) {
      pair.wait(r);
      r = TW_REQUEST_NONE;
    }
  }
};

}  // namespace

Sample tag_latency(Pair& p, const Order& order) {
  Sample s;
  Buffers out(p.context, order, 1, p.rank), in(p.context, order, 1, p.rank);
  s.route = p.route("send", order, out.at(0));
  s.fresh = out.renews();
  tw_op_options o_out = layout_option(out), o_in = layout_option(in);
  const tw_op_options* oo = out.layout() ? &o_out : nullptr;
  const tw_op_options* oi = in.layout() ? &o_in : nullptr;
  const size_t n = order.size;
  Rounds rounds(order, p.rank, &out, all_right(in, 1));
  auto send = [&] {
    rounds.before_send();
    out.renew(0);
    if (oo == nullptr && !p.sleep) return must(tw_send_blocking(p.endpoint, out.at(0), n, kDataTag), "tw_send_blocking");
    tw_request r = TW_REQUEST_NONE;
    must(tw_send(p.endpoint, out.at(0), n, kDataTag, oo, &r), "tw_send");
    p.wait(r);
  };
  auto receive = [&] {
    if (oi == nullptr && !p.sleep) {
      must(tw_recv_blocking(p.worker, in.at(0), n, kDataTag, ~0ull, nullptr), "tw_recv_blocking");
    } else {
      tw_request r = TW_REQUEST_NONE;
      must(tw_recv(p.worker, in.at(0), n, kDataTag, ~0ull, oi, &r), "tw_recv");
      p.wait(r);
    }
    rounds.behind_receive();
  };
  p.sync();
  if (p.rank == 0)
    time_batches(order, &s.latency_us, [&] {
      send();
      receive();
    });
  else
    time_batches(order, nullptr, [&] {
      receive();
      send();
    });
  s.verified = rounds.verified();
  return s;
}

Sample tag_window(Pair& p, const Order& order) {
  Sample s;
  Buffers buffers(p.context, order, order.window, p.rank);
  s.route = p.route("send", order, buffers.at(0));
  s.fresh = buffers.renews();
  tw_op_options options = layout_option(buffers);
  const tw_op_options* o = buffers.layout() ? &options : nullptr;
  const size_t n = order.size;
  Window window(order.window);
  char ack[4] = {};
  Rounds rounds = one_way(order, p.rank, buffers, order.window);
  p.sync();
  double seconds = time_windows(order, [&] {
    rounds.before_send();
    for (size_t i = 0; i < order.window; ++i) {
      if (p.rank == 0) {
        buffers.renew(i);
        must(tw_send(p.endpoint, buffers.at(i), n, kDataTag, o, &window.requests[i]), "tw_send");
      } else {
        must(tw_recv(p.worker, buffers.at(i), n, kDataTag, ~0ull, o, &window.requests[i]), "tw_recv");
      }
    }
    window.wait(p);
    rounds.behind_receive();
    if (p.rank == 0)
      p.receive(ack, sizeof ack, kAckTag);
    else
      p.send(ack, sizeof ack, kAckTag);
  });
  s.seconds = seconds;
  s.messages = order.window;
  s.verified = rounds.verified();
  return s;
}

Sample tag_both(Pair& p, const Order& order) {
  Sample s;
  Buffers out(p.context, order, order.window, p.rank), in(p.context, order, order.window, p.rank);
  s.route = p.route("send", order, out.at(0));
  s.fresh = out.renews();
  tw_op_options o_out = layout_option(out), o_in = layout_option(in);
  const tw_op_options* oo = out.layout() ? &o_out : nullptr;
  const tw_op_options* oi = in.layout() ? &o_in : nullptr;
  const size_t n = order.size;
  Window sends(order.window), receives(order.window);
  Rounds rounds(order, p.rank, &out, all_right(in, order.window));
  p.sync();
  s.seconds = time_windows(order, [&] {
    rounds.before_send();
    for (size_t i = 0; i < order.window; ++i) {
      must(tw_recv(p.worker, in.at(i), n, kDataTag, ~0ull, oi, &receives.requests[i]), "tw_recv");
      out.renew(i);
      must(tw_send(p.endpoint, out.at(i), n, kDataTag, oo, &sends.requests[i]), "tw_send");
    }
    receives.wait(p);
    rounds.behind_receive();
    sends.wait(p);
    p.sync();
  });
  s.messages = 2 * order.window;
  s.verified = rounds.verified();
  return s;
}

namespace {
void bytes_send(Pair& p, Buffers& from, size_t n) {
  from.renew(0);
  tw_request r = TW_REQUEST_NONE;
  must(tw_bytes_send(p.endpoint, from.at(0), n, nullptr, &r), "tw_bytes_send");
  p.wait(r);
}
void bytes_receive(Pair& p, void* data, size_t n) {
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.flags = TW_OP_WAIT_ALL;
  tw_request r = TW_REQUEST_NONE;
  must(tw_bytes_recv(p.endpoint, data, n, &o, &r), "tw_bytes_recv");
  p.wait(r);
}
}  // namespace

Sample bytes_latency(Pair& p, const Order& order) {
  Sample s;
  Buffers out(p.context, order, 1, p.rank), in(p.context, order, 1, p.rank);
  s.route = p.route("bytes", order, out.at(0));
  s.fresh = out.renews();
  Rounds rounds(order, p.rank, &out, all_right(in, 1));
  auto send = [&] {
    rounds.before_send();
    bytes_send(p, out, order.size);
  };
  auto receive = [&] {
    bytes_receive(p, in.at(0), order.size);
    rounds.behind_receive();
  };
  p.sync();
  if (p.rank == 0) {
    time_batches(order, &s.latency_us, [&] {
      send();
      receive();
    });
  } else {
    time_batches(order, nullptr, [&] {
      receive();
      send();
    });
  }
  s.verified = rounds.verified();
  return s;
}

Sample bytes_window(Pair& p, const Order& order) {
  Sample s;
  Buffers buffers(p.context, order, order.window, p.rank);
  s.route = p.route("bytes", order, buffers.at(0));
  s.fresh = buffers.renews();
  Window window(order.window);
  char ack[4] = {};
  Rounds rounds = one_way(order, p.rank, buffers, order.window);
  p.sync();
  s.seconds = time_windows(order, [&] {
    tw_op_options all = TW_OP_OPTIONS_INIT;
    all.flags = TW_OP_WAIT_ALL;
    rounds.before_send();
    for (size_t i = 0; i < order.window; ++i) {
      if (p.rank == 0) {
        buffers.renew(i);
        must(tw_bytes_send(p.endpoint, buffers.at(i), order.size, nullptr, &window.requests[i]), "tw_bytes_send");
      } else {
        must(tw_bytes_recv(p.endpoint, buffers.at(i), order.size, &all, &window.requests[i]), "tw_bytes_recv");
      }
    }
    window.wait(p);
    rounds.behind_receive();
    if (p.rank == 0)
      p.receive(ack, sizeof ack, kAckTag);
    else
      p.send(ack, sizeof ack, kAckTag);
  });
  s.messages = order.window;
  s.verified = rounds.verified();
  return s;
}

}  // namespace perf
