// SPDX-License-Identifier: Apache-2.0
#include "model/job_call.hpp"

#include <tuple>

namespace thalweg::model {
namespace {

/// The three forms of one function.
template <class AtOnce, class InPlan, class OnQueue, class... What>
tw_status call_one(const Target& target, AtOnce at_once, InPlan in_plan, OnQueue on_queue, What... what) {
  if (target.plan != nullptr) return in_plan(target.plan, target.group, what..., &target.options, nullptr);
  if (target.queue != nullptr) return on_queue(target.queue, target.group, what..., &target.options);
  return at_once(target.group, what..., &target.options, target.request);
}
#define THALWEG_FORMS(name) tw_##name, tw_plan_##name, tw_##name##_on

tw_status combine(const Target& to, const Job& job, const Share& share, const void* send, void* recv) {
  const size_t n = share.count;
  const auto& [type, op, root] = std::tie(job.type, job.op, job.root);
  switch (job.verb) {
    case Together::reduce:
      return call_one(to, tw_reduce, tw_plan_reduce_to_root, tw_reduce_to_root_on, send, recv, n, type, op, root);
    case Together::allreduce:
      return call_one(to, THALWEG_FORMS(allreduce), send, recv, n, type, op);
    case Together::reduce_scatter:
      return call_one(to, THALWEG_FORMS(reduce_scatter), send, recv, n, type, op);
    case Together::reduce_scatterv:
      return call_one(to, THALWEG_FORMS(reduce_scatterv), send, recv, share.received.data(), type, op);
    case Together::scan:
      return call_one(to, THALWEG_FORMS(scan), send, recv, n, type, op);
    default:
      return call_one(to, THALWEG_FORMS(exclusive_scan), send, recv, n, type, op);
  }
}

}  // namespace

tw_status call(const Target& to, const Job& job, uint32_t rank, const void* send, void* recv) {
  const Share& share = job.shares[rank];
  if (combines(job.verb)) return combine(to, job, share, send, recv);
  const size_t n = share.count;
  const size_t *sent = share.sent.data(), *received = share.received.data();
  const size_t* const sent_at = share.offset ? share.sent_at.data() : nullptr;
  const size_t* const received_at = share.offset ? share.received_at.data() : nullptr;
  const auto& [type, root] = std::tie(job.type, job.root);
  switch (job.verb) {
    case Together::broadcast:
      return call_one(to, THALWEG_FORMS(broadcast), recv, n, type, root);
    case Together::allgather:
      return call_one(to, THALWEG_FORMS(allgather), send, recv, n, type);
    case Together::allgatherv:
      return call_one(to, THALWEG_FORMS(allgatherv), send, recv, received, received_at, type);
    case Together::gather:
      return call_one(to, THALWEG_FORMS(gather), send, recv, n, type, root);
    case Together::gatherv:
      return call_one(to, THALWEG_FORMS(gatherv), send, n, recv, received, received_at, type, root);
    case Together::scatter:
      return call_one(to, THALWEG_FORMS(scatter), send, recv, n, type, root);
    case Together::scatterv:
      return call_one(to, THALWEG_FORMS(scatterv), send, sent, sent_at, recv, n, type, root);
    case Together::alltoall:
      return call_one(to, THALWEG_FORMS(alltoall), send, recv, n, type);
    case Together::alltoallv:
      return call_one(to, THALWEG_FORMS(alltoallv), send, sent, sent_at, recv, received, received_at, type);
    default:
      return call_one(to, THALWEG_FORMS(barrier));
  }
}

}  // namespace thalweg::model
