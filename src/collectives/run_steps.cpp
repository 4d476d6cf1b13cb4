// SPDX-License-Identifier: Apache-2.0
// The steps of a run as operations of the engine, and what their ends lead to.
#include <cstring>

#include "collectives/called_text.hpp"
#include "collectives/collectives.hpp"
#include "collectives/run.hpp"
#include "core/c_checks.hpp"
#include "groups/mailbox.hpp"
#include "protocols/local_device.hpp"
#include "protocols/match.hpp"

namespace thalweg::impl {

Status CollectiveRun::start_step(uint32_t number) {
  const CollectiveStep& step = task_.schedule->steps()[number];
  StepRun& state = states_[number];
  const Bound& bound = task_.bound;
  switch (step.verb) {
    case StepVerb::send:
      return start_send(step, state);
    case StepVerb::recv:
      return start_recv(step, state);
    case StepVerb::copy:
      return copy(bound.address(step.to), bound.of(step.to.where), bound.address(step.from), bound.of(step.from.where),
                  step.to.length, state);
    case StepVerb::reduce:
      return start_reduce(step, state);
  }
  return TW_OK;
}

/// Its record, but for the verb and the peer.
OpDesc CollectiveRun::message(const Part& part, uint32_t number) const {
  OpDesc op;
  const Buffer& buffer = task_.bound.of(part.where);
  op.tag = group_tag(owner_.group().id, number_, task_.schedule->message_of(number));
  op.mask = ~uint64_t{0};
  op.address = task_.bound.address(part);
  op.length = part.length;
  op.flags = kOpGroup;
  if (part.length != 0 && buffer.on_device) set_device(op, buffer.info);
  return op;
}

Status CollectiveRun::reach(uint32_t rank, Peer** peer) {
  tw_group& group = owner_.group();
  tw_endpoint* endpoint = nullptr;
  Status status = group.endpoint(rank, &endpoint);
  if (status == TW_IN_PROGRESS && endpoint == nullptr) status = group.await_endpoint(rank, &endpoint);
  if (is_error(status)) return status_of_loss(status);
  *peer = &*endpoint->peer;
  return TW_OK;
}

/// A message that came before its sender was lost counts, as a letter does (mailbox.hpp): also by a connection for which this rank had
/// not asked. Null: none did.
Peer* CollectiveRun::lost_sender(uint32_t rank, const OpDesc& op) const {
  const tw_group& group = owner_.group();
  const auto from_rank = [&](const Peer& peer) {
    return is_error(peer.state) && sender_of(*peer.endpoint) == group.peers->sender(group.member(rank));
  };
  const tw_message* const found = owner_.engine().receives().matcher(op).find_from(op.tag, from_rank);
  return found != nullptr ? found->peer : nullptr;
}

Status CollectiveRun::start_send(const CollectiveStep& step, StepRun& state) {
  OpDesc op = message(step.from, state.step);
  if (Status s = reach(step.peer, &op.peer); is_error(s)) return s;
  op.verb = Verb::send;
  op.immediate = task_.called;
  Completion completion = calls(on_message, &state);
  completion.request = &state.request;
  const Status status = owner_.engine().start(op, completion);
  if (status == TW_IN_PROGRESS) {
    state.under_way = true;
    ++under_way_;
  }
  return status;
}

Status CollectiveRun::start_recv(const CollectiveStep& step, StepRun& state) {
  OpDesc op = message(step.to, state.step);
  op.peer = lost_sender(step.peer, op);
  if (Status s = op.peer != nullptr ? Status{TW_OK} : reach(step.peer, &op.peer); is_error(s)) return s;
  op.verb = Verb::recv;
  Completion completion = calls(on_message, &state);
  completion.request = &state.request;
  const Status status = owner_.engine().post_receive(op, completion);
  if (status == TW_IN_PROGRESS) {
    state.under_way = true;
    ++under_way_;
  }
  return status;
}

Status CollectiveRun::copy(std::byte* to, const Buffer& to_buffer, std::byte* from, const Buffer& from_buffer, uint64_t length,
                           StepRun& state) {
  if (length == 0 || to == from) return TW_OK;
  if (!to_buffer.on_device && !from_buffer.on_device) {
    std::memcpy(to, from, length);
    return TW_OK;
  }
  const auto target = reinterpret_cast<uint64_t>(to), source = reinterpret_cast<uint64_t>(from);
  if (!to_buffer.on_device || !from_buffer.on_device || to_buffer.info.device != from_buffer.info.device)
    return owner_.group().worker.context.copier.copy(target, source, length);
  const Copy one{target, source, length};
  const Status status = owner_.engine().devices().submit(*to_buffer.info.device, std::span(&one, 1), on_device, &state);
  if (is_error(status)) return status;
  state.under_way = true;
  ++under_way_;
  return TW_IN_PROGRESS;
}

Status CollectiveRun::start_reduce(const CollectiveStep& step, StepRun& state) {
  sources_.clear();
  for (const Part& part : task_.schedule->sources_of(step))
    sources_.push_back(reinterpret_cast<uint64_t>(task_.bound.address(part)));
  std::byte* const to = task_.bound.address(step.to);
  if (step.to.length == 0) return TW_OK;
  if (task_.device == nullptr) {
    const Status done = reduce_host(task_.operation, to, sources_, step.to.length / task_.element, room_);
    if (!is_error(done)) return TW_OK;
    const std::string why = last_error();
    return fail(done, "rank %u: %s", owner_.group().rank, why.c_str());
  }
  const Status status = owner_.reducer(*task_.device)
                            .submit(owner_.engine(), task_.operation, reinterpret_cast<uint64_t>(to), sources_, step.to.length,
                                    on_reduced, &state);
  if (is_error(status)) return status;
  state.under_way = true;
  ++under_way_;
  return TW_IN_PROGRESS;
}

// ------------------------------------------------------------------------------------------------ ends

void CollectiveRun::check_received(const StepRun& state, const tw_recv_info& info) {
  const CollectiveStep& step = task_.schedule->steps()[state.step];
  if (info.immediate != task_.called) return step_failed(state, TW_ERR_INVALID, called_otherwise(info.immediate, task_.called));
  if (info.length == step.to.length) return;
  step_failed(state, TW_ERR_TRUNCATED,
              "it sent " + std::to_string(info.length) + " bytes where " + std::to_string(step.to.length) +
                  " were expected: its counts are others than this rank's");
}

void CollectiveRun::on_message(void* arg, tw_request request, Status status, const tw_recv_info* info) {
  StepRun& state = *static_cast<StepRun*>(arg);
  CollectiveRun& run = *state.run;
  if (run.owner_.ends_with_worker()) return;
  const Engine::Guard guard(run.owner_.engine());
  state.under_way = false;
  state.request = TW_REQUEST_NONE;
  --run.under_way_;
  if (!is_error(run.status_)) {
    const CollectiveStep& step = run.task_.schedule->steps()[state.step];
    const bool received = step.verb == StepVerb::recv;
    run.advancing_ = true;
    if (received && (status == TW_OK || status == TW_ERR_TRUNCATED)) {
      run.check_received(state, *info);
    } else if (is_error(status)) {
      const std::string why = Engine::message(request);
      run.step_failed(state, run.owner_.group().is_lost(step.peer) ? status_of_loss(status) : status, why);
    }
    run.advancing_ = false;
    if (!is_error(run.status_)) run.step_ended(state.step);
  }
  run.advance();
}

void CollectiveRun::device_step_over(StepRun& state, Status status) {
  if (owner_.ends_with_worker()) return;
  state.under_way = false;
  --under_way_;
  if (!is_error(status_) && is_error(status)) {
    advancing_ = true;
    step_failed(state, status, last_error());
    advancing_ = false;
  }
  if (!is_error(status_)) step_ended(state.step);
  advance();
}

void CollectiveRun::on_device(Engine&, void* token, Status status) {
  StepRun& state = *static_cast<StepRun*>(token);
  state.run->device_step_over(state, status);
}

void CollectiveRun::on_reduced(Engine&, void* token, Status status) {
  StepRun& state = *static_cast<StepRun*>(token);
  CollectiveRun& run = *state.run;
  run.owner_.reducer(*run.task_.device).ended();
  run.device_step_over(state, status);
}

}  // namespace thalweg::impl
