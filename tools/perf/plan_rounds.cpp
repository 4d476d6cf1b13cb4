// SPDX-License-Identifier: Apache-2.0
#include "plan_rounds.hpp"

namespace perf {
namespace {

tw_op_options behind(const std::vector<uint32_t>& steps) {
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.after_steps = steps.data();
  o.after_count = steps.size();
  return o;
}

/// The pieces and the signal behind them, all after the steps in `first`. The signal's step is the last one in the answer.
std::vector<uint32_t> add_pieces(Exposed& x, tw_plan* plan, const std::vector<Piece>& pieces,
                                 const std::vector<uint32_t>& first) {
  std::vector<uint32_t> steps;
  for (const Piece& piece : pieces) {
    tw_op_options o = behind(first);
    o.layout = piece.layout;
    o.remote_layout = piece.remote_layout;
    if (pieces.size() == 1) {  // its own signal
      o.signal = x.remote_signal;
      o.signal_value = o.increment = 1;
    }
    steps.push_back(0);
    must(tw_plan_put(plan, x.pair.endpoint, x.source.at(0) + piece.from, piece.length, x.remote, piece.to, &o, &steps.back()),
         "tw_plan_put");
  }
  if (pieces.size() == 1) return steps;
  tw_op_options o = behind(pieces.empty() ? first : steps);
  o.increment = 1;
  uint32_t last = 0;
  must(tw_plan_signal(plan, x.remote_signal, 1, &o, &last), "tw_plan_signal");
  return {last};
}

uint32_t add_wait(Exposed& x, tw_plan* plan, const std::vector<uint32_t>& first) {
  tw_op_options o = behind(first);
  o.increment = 1;
  uint32_t step = 0;
  must(tw_plan_wait(plan, x.signal, 1, TW_COMPARE_GE, &o, &step), "tw_plan_wait");
  return step;
}

}  // namespace

std::vector<double> plan_rounds(Exposed& x, const Order& order, const std::vector<Piece>& pieces, Rounds::Right right,
                                bool* verified, std::string* ways) {
  Pair& p = x.pair;
  Rounds rounds(order, p.rank, pieces.empty() ? nullptr : &x.source, std::move(right));
  x.reset_signal();
  Starter starter(p, order);
  if (p.rank == 0) {
    add_wait(x, starter.plan(), add_pieces(x, starter.plan(), pieces, {}));
  } else {
    add_pieces(x, starter.plan(), pieces, {add_wait(x, starter.plan(), {})});
  }
  starter.prepare();
  if (ways != nullptr) *ways = starter.ways();
  p.sync();
  std::vector<double> one_way;
  const uint64_t warm = order.verify ? 0 : order.iterations / 10 + 1;
  for (uint64_t i = 0; i < warm + Starter::counted(order); ++i) {
    rounds.before_send();
    const uint64_t start = now_ns();
    starter.start();
    if (i >= warm) one_way.push_back(static_cast<double>(now_ns() - start) / 2e3 / starter.runs());
    if (order.verify == 0) continue;
    rounds.behind_receive();
    p.sync();  // rank 0's next put would be in the way of what rank 1 looks at
  }
  p.sync();
  *verified = rounds.verified() && *verified;
  return one_way;
}

}  // namespace perf
