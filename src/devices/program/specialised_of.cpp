// SPDX-License-Identifier: Apache-2.0
// Which programs need less than a ProgramExecutor.
#include "devices/program/specialised_of.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "thalweg/device/side.hpp"

namespace thalweg::impl {
namespace {

using device::kNoStep;
using device::Move;
using device::Poll;
using device::Specialised;
using device::Step;
using device::StepKind;

bool polls(const Step& step) { return step.kind == StepKind::wait || step.kind == StepKind::take; }
bool moves(const Step& step) {
  return step.kind == StepKind::copy || step.kind == StepKind::signal || step.kind == StepKind::send;
}

/// How one copy's bytes are moved.
Move way_of(const Step& step) {
  if (step.kind == StepKind::signal) return Move::aligned;
  if (device::contiguous(step.from) && device::contiguous(step.to)) {
    const uint64_t common = step.from.base | step.to.base | step.bytes;
    return common % 16 == 0 || (common % 8 == 0 && step.bytes == 8) ? Move::aligned : Move::sides;
  }
  switch (step.atomic_bytes) {
    case 16:
      return Move::rows16;
    case 8:
      return Move::rows8;
    case 4:
      return Move::rows4;
    default:
      return Move::sides;
  }
}

/// The steps by kind; false: too many of one.
bool count(std::span<const Step> steps, Specialised* specialised, uint32_t* moving) {
  bool sends = false;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    if (polls(steps[i]) && specialised->poll_step == kNoStep) {
      specialised->poll_step = i;
      specialised->poll = steps[i].kind == StepKind::wait ? Poll::wait : Poll::take;
    } else if (steps[i].kind == StepKind::post && specialised->post_step == kNoStep) {
      specialised->post_step = i;
    } else if (moves(steps[i])) {
      sends = sends || steps[i].kind == StepKind::send;
      specialised->move_step = i;
      ++*moving;
    } else {
      return false;
    }
  }
  if (sends && *moving > 1) return false;
  if (*moving > 0) {
    const Step& last = steps[specialised->move_step];
    specialised->move = sends ? Move::send : *moving > 1 ? Move::list : way_of(last);
  }
  return true;
}

/// Does each step come after what its kernel does before it, and nothing else?
bool in_order(std::span<const Step> steps, std::span<const uint32_t> after, Specialised* specialised) {
  bool first = true;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    bool behind_poll = false, behind_move = false;
    for (const uint32_t each : after.subspan(step.first_after, step.after_count)) {
      const uint32_t earlier = each & ~device::kOwnShare;
      behind_poll = behind_poll || earlier == specialised->poll_step;
      behind_move = behind_move || moves(steps[earlier]);
    }
    if (step.kind == StepKind::post && step.after_count != 0) return false;
    if (!moves(step)) continue;
    // Signals at the end of a list wait for all of its copies anyway, and with them for what these waited for.
    const bool ends = step.kind == StepKind::signal && behind_move;
    if (step.kind != StepKind::signal && behind_move) return false;
    if (!first && !ends && behind_poll != (specialised->behind != 0)) return false;
    if (first) specialised->behind = behind_poll ? 1 : 0;
    if (ends && behind_poll && specialised->behind == 0) return false;
    first = false;
  }
  return true;
}

/// Does a step wait for nothing but a word of its own, and no step of the list for it? A message that has arrived comes after its credit.
bool alone(std::span<const Step> steps, std::span<const uint32_t> after, const Step& step) {
  const auto behind = after.subspan(step.first_after, step.after_count);
  return std::all_of(behind.begin(), behind.end(), [&](uint32_t each) {
    const Step& earlier = steps[each & ~device::kOwnShare];
    return step.kind == StepKind::take && earlier.kind == StepKind::post && earlier.end == step.end;
  });
}

/// All of them, each of another end of a channel, and as many of a kind as a warp polls at once; more than one polled step or move.
Specialised independent(std::span<const Step> steps, std::span<const uint32_t> after) {
  Specialised specialised;
  std::set<std::pair<const void*, StepKind>> ends;
  for (const Step& step : steps) {
    if (!alone(steps, after, step)) return {};
    if (step.end != nullptr && !ends.emplace(step.end, step.kind).second) return {};
    if (step.kind == StepKind::post) {
      ++specialised.posts;
    } else if (polls(step)) {
      ++specialised.polls;
    } else if (moves(step) && (step.kind == StepKind::signal || step.word == nullptr)) {
      ++specialised.moves;
      specialised.copies += step.kind == StepKind::copy ? 1 : 0;
    } else {
      return {};
    }
  }
  const uint32_t most = std::max({specialised.moves, specialised.polls, specialised.posts});
  if (most > device::kMostIndependent || specialised.moves + specialised.polls < 2) return {};
  specialised.move = Move::independent;
  return specialised;
}

}  // namespace

Specialised specialised_of(std::span<const Step> steps, std::span<const uint32_t> after) {
  Specialised specialised;
  uint32_t moving = 0;
  if (!count(steps, &specialised, &moving) || !in_order(steps, after, &specialised)) return independent(steps, after);
  if (specialised.post_step != kNoStep &&
      (specialised.poll != Poll::take || steps[specialised.post_step].end != steps[specialised.poll_step].end))
    return {};
  while (specialised.first_signal < steps.size() && steps[specialised.first_signal].signal.word == nullptr)
    ++specialised.first_signal;
  return specialised;
}

std::vector<uint32_t> independent_order(std::span<const Step> steps) {
  std::vector<uint32_t> order;
  const auto add = [&](auto is) {
    for (uint32_t i = 0; i < steps.size(); ++i)
      if (is(steps[i])) order.push_back(i);
  };
  add(moves);
  add(polls);
  add([](const Step& step) { return step.kind == StepKind::post; });
  return order;
}

}  // namespace thalweg::impl
