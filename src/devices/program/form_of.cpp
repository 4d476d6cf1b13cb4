// SPDX-License-Identifier: Apache-2.0
// Which programs need less than an Executor.
#include "devices/program/form_of.hpp"

#include "thalweg/device/side.hpp"

namespace thalweg::impl {
namespace {

using device::Form;
using device::kNoStep;
using device::Look;
using device::Move;
using device::Step;
using device::StepKind;

bool looks(const Step& step) { return step.kind == StepKind::wait || step.kind == StepKind::take; }
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
bool count(std::span<const Step> steps, Form* form, uint32_t* moving) {
  bool sends = false;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    if (looks(steps[i]) && form->look_step == kNoStep) {
      form->look_step = i;
      form->look = steps[i].kind == StepKind::wait ? Look::wait : Look::take;
    } else if (steps[i].kind == StepKind::post && form->post_step == kNoStep) {
      form->post_step = i;
    } else if (moves(steps[i])) {
      sends = sends || steps[i].kind == StepKind::send;
      form->move_step = i;
      ++*moving;
    } else {
      return false;
    }
  }
  if (sends && *moving > 1) return false;
  if (*moving > 0) {
    const Step& last = steps[form->move_step];
    form->move = sends ? Move::send : *moving > 1 ? Move::list : way_of(last);
  }
  return true;
}

/// Does each step come after what its form does before it, and nothing else?
bool in_order(std::span<const Step> steps, std::span<const uint32_t> after, Form* form) {
  bool first = true;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    bool behind_look = false, behind_move = false;
    for (const uint32_t earlier : after.subspan(step.first_after, step.after_count)) {
      behind_look = behind_look || earlier == form->look_step;
      behind_move = behind_move || moves(steps[earlier]);
    }
    if (step.kind == StepKind::post && step.after_count != 0) return false;
    if (!moves(step)) continue;
    // Signals at the end of a list wait for all of its copies anyway, and with them for what these waited for.
    const bool ends = step.kind == StepKind::signal && behind_move;
    if (step.kind != StepKind::signal && behind_move) return false;
    if (!first && !ends && behind_look != (form->behind != 0)) return false;
    if (first) form->behind = behind_look ? 1 : 0;
    if (ends && behind_look && form->behind == 0) return false;
    first = false;
  }
  return true;
}

}  // namespace

Form form_of(std::span<const Step> steps, std::span<const uint32_t> after) {
  Form form;
  uint32_t moving = 0;
  if (!count(steps, &form, &moving) || !in_order(steps, after, &form)) return {};
  if (form.post_step != kNoStep && (form.look != Look::take || steps[form.post_step].end != steps[form.look_step].end))
    return {};
  while (form.first_signal < steps.size() && steps[form.first_signal].signal.word == nullptr) ++form.first_signal;
  return form;
}

}  // namespace thalweg::impl
