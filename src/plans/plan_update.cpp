// SPDX-License-Identifier: Apache-2.0
// Changing addresses and values of a prepared plan. What graphs that were captured before name stays as it is: the program that
// a long plan reads from memory, tables of layouts, receive buffers. It is given back when the plan sees that they are gone, at its next
// update; of graphs that the program has captured from a stream, when it is prepared again.
#include <algorithm>
#include <utility>

#include "core/c_checks.hpp"
#include "plans/plan.hpp"

using namespace thalweg::impl;

void tw_plan::give_back(const Outdated& left) {
  executor_->own().free(left.placed.first, left.placed.second);
  executor_->own().free(left.table.first, left.table.second);
  if (left.channel == nullptr) return;
  channels_.owe(left.channel, left.recv_buffer);
  channels_.take_back();
}

Status tw_plan::given_back() const { return channels_.owed().empty() ? Status{TW_OK} : Status{TW_IN_PROGRESS}; }

Status tw_plan::update(uint32_t index, const void* address, const uint64_t* value) {
  if (index >= list_.size())
    return fail(TW_ERR_INVALID, "there is no step %u: the plan has %zu, numbered from 0", index, list_.size());
  if (!prepared_) return fail(TW_ERR_INVALID, "the plan is not prepared: prepare it before you update it");
  if (Status s = runs_.at_rest(); is_error(s)) return s;
  if (failure_.any()) return failure_.now();  // it is prepared again, and that may have got stuck half-way
  PlanStep& step = list_[index];
  if (!step.of.empty()) return fail(TW_ERR_INVALID, "step %u is a part of %s: make another plan", index, step.of.c_str());
  const bool has_value = step.op.signal != nullptr || step.op.verb == Verb::wait || step.op.verb == Verb::atomic;
  if (value != nullptr && !has_value) return fail(TW_ERR_INVALID, "step %u (%s) has no value", index, name_of(step.op.verb));
  if (value != nullptr && step.op.verb == Verb::atomic) {
    if (Status s = check_operand("operand", step.op.word, *value); is_error(s)) return s;
  }
  if (!channels_.owed().empty()) channels_.take_back();
  versions_.give_back_ended([this](const Outdated& one) { give_back(one); });
  if (address == nullptr && value == nullptr) return given_back();
  Outdated left;
  if (address != nullptr) {
    if (Status s = move_step(index, reinterpret_cast<uint64_t>(address), &left); is_error(s)) return s;
    pieces_.check_again();
  }
  if (value != nullptr) (step.op.verb == Verb::atomic ? step.op.operand : step.op.signal_value) = *value;
  if (versions_.captured()) {
    left.placed = program_.leave_placed();
    versions_.supersede(left);
  } else {
    give_back(left);
  }
  if (Status s = program_.compose(); is_error(s)) return s;
  runs_.use_program();
  if (Status s = program_.place(); is_error(s)) return s;
  return given_back();
}

/// The same layout around another address. Offsets of layouts that are contiguous are in the old address already.
Status tw_plan::move_step(uint32_t index, uint64_t address, Outdated* left) {
  PlanStep& step = list_[index];
  Resolved& how = resolved_[index];
  if (!step.moves_to_peer() && !step.moves_here() && step.op.verb != Verb::copy)
    return fail(TW_ERR_INVALID, "step %u (%s) has no buffer, or several", index, name_of(step.op.verb));
  if (step.op.length == 0) return TW_OK;  // nothing is read or written there
  std::byte* const before = step.op.address;
  step.op.address = reinterpret_cast<std::byte*>(address + step.start);
  if (how.proxied && how.bounce == 0) return TW_OK;  // the program tells the proxy
  if (how.proxied) {
    const Status status = resolved_.move_bounced(index, &left->table);
    if (is_error(status)) step.op.address = before;
    return status;
  }
  const int64_t first = step.op.layout != nullptr ? step.op.layout->first : 0;
  const int64_t last = step.op.layout != nullptr ? step.op.layout->last : static_cast<int64_t>(step.op.length);
  const Asks asks{.carriable = step.op.verb != Verb::copy};
  Reaching local;
  Status status =
      executor_->admit(step.address() + static_cast<uint64_t>(first), static_cast<uint64_t>(last - first), asks, &local);
  if (!is_error(status))
    status = step.op.verb == Verb::recv ? move_recv_buffer(index, left) : resolved_.move_side(index, &left->table);
  if (is_error(status)) {
    step.op.address = before;
  } else {
    how.local = std::move(local);
  }
  return status;
}

Status tw_plan::move_recv_buffer(uint32_t index, Outdated* left) {
  Resolved& how = resolved_[index];
  const int before = how.recv_buffer;
  uint16_t made = 0;
  {
    const std::lock_guard lock(proxy.mutex());
    const PlanStep& step = list_[index];
    if (Status s = how.channel->offer(step.address(), step.op.layout, step.op.length, &made); is_error(s)) return s;
    how.recv_buffer = made;
  }
  proxy.hurry();
  const Status status = channels_.await_recv_buffer(index, Deadline(10 * kSecond));
  if (is_error(status)) {
    how.recv_buffer = before;
    channels_.owe(how.channel, made);
    channels_.take_back();
    return status;
  }
  left->channel = how.channel;
  left->recv_buffer = static_cast<uint16_t>(before);
  return TW_OK;
}
