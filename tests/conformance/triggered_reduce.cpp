// SPDX-License-Identifier: Apache-2.0
// Reductions of plans: of this side's memory and the other side's, by the host, a queue or a captured graph. An exclusive or of a, b and b
// is a, so that payload is verified as everywhere; types and operations are for tests/unit.
#include "prepared.hpp"

namespace conformance {
namespace {

/// Rank 0 reduces a of its own, b of the peer's, b of its own into one more buffer, and into b of its own.
void reduce(Side& side, const Row& r, Trigger trigger) {
  const uint64_t size = agreed_size(side, r);
  const bool reduces = side.rank == 0;
  Payloads b(side, r, Shape::contiguous, size);
  std::unique_ptr<Payloads> a, to;
  std::unique_ptr<Imports> peer;
  if (reduces) {
    a = std::make_unique<Payloads>(side, r, Shape::contiguous, size);
    to = std::make_unique<Payloads>(side, r, Shape::contiguous, size);
    peer = std::make_unique<Imports>(side, many(r), 0);
  } else {
    Keys keys;
    for (unsigned i = 0; i < many(r); ++i) keys.add(b[i]);
    keys.send(side);
  }
  Plan plan(side, r, trigger);
  bool goes = true;
  if (reduces) {
    for (unsigned i = 0; i < many(r); ++i) {
      const tw_source sources[] = {
          {(*a)[i].address(), nullptr, 0}, {nullptr, peer->memory[i], peer->offset[i]}, {b[i].address(), nullptr, 0}};
      std::vector<uint32_t> first(1);
      must(tw_plan_reduce(plan.plan, (*to)[i].address(), sources, 3, size, TW_TYPE_UINT8, TW_REDUCE_XOR, nullptr, &first[0]),
           "tw_plan_reduce");
      const tw_op_options o = after(first);
      must(tw_plan_reduce(plan.plan, b[i].address(), sources, 3, size, TW_TYPE_INT8, TW_REDUCE_XOR, &o, nullptr),
           "tw_plan_reduce");
    }
    const Reach reach = size == 0 ? Reach::mapped : reach_of(side, r.place[0], r.place[1], peer->one_process);
    const tw_status status = tw_plan_prepare(plan.plan, kLong);
    if (reach == Reach::carried || (reach == Reach::either && status != TW_OK)) {
      must_refuse(status, status == TW_ERR_UNSUPPORTED ? TW_ERR_UNSUPPORTED : TW_ERR_UNREACHABLE, "source 1",
                  "tw_plan_prepare");
      goes = false;
    } else {
      must(status, "tw_plan_prepare");
      plan.prepare();
    }
  }
  side.barrier();
  for (unsigned run = 0; run < kRuns; ++run) {
    for (unsigned i = 0; i < many(r); ++i) {
      b[i].fill(r.seed + 100 + run * kMany + i);
      if (!reduces) continue;
      (*a)[i].fill(r.seed + run * kMany + i);
      (*to)[i].poison();
    }
    side.barrier();
    if (reduces && goes) {
      plan.run();
      for (unsigned i = 0; i < many(r); ++i) {
        (*to)[i].verify(r.seed + run * kMany + i, size);
        (*a)[i].verify(r.seed + run * kMany + i, size);
        b[i].verify(r.seed + run * kMany + i, size);  // the second one's destination is its last source
      }
    }
    side.barrier();
    if (!reduces) {
      for (unsigned i = 0; i < many(r); ++i) b[i].verify(r.seed + 100 + run * kMany + i, size);
    }
  }
  plan.close();
  side.barrier();
}

}  // namespace

void add_triggered_reductions(std::vector<Operation>& all) {
  add_by_each<reduce>(all, {"plan_reduce_host", "plan_reduce_queue", "plan_reduce_graph"}, false);
}

}  // namespace conformance
