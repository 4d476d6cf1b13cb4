// SPDX-License-Identifier: Apache-2.0
#include "ranks/plan.hpp"

namespace apps {

Queue::Queue(const thalweg::Context& context, const std::string& place, void* stream) {
  tw_queue* made = nullptr;
  must(stream == nullptr ? tw_queue_create(context.get(), place.c_str(), nullptr, &made)
                         : tw_queue_wrap(context.get(), stream, place.c_str(), nullptr, &made));
  queue_.reset(made);
}

Plan::Plan(Ranks& ranks, const Shape& shape, const Moves& moves, void* array, const std::string& place,
           uint64_t first_channel) {
  if (moves.sends.empty() && moves.receives.empty()) return;
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = place.c_str();
  tw_plan* made = nullptr;
  must(tw_plan_create(ranks.context.get(), &options, &made));
  plan_.reset(made);
  const auto add = [&](auto call, const Move& move) {
    layouts_.push_back(layout_of(shape, move.box));
    tw_op_options step = TW_OP_OPTIONS_INIT;
    step.layout = layouts_.back().get();
    must(call(made, ranks.peer(move.peer), array, layouts_.back().bytes(), first_channel + move.tag, &step, nullptr));
  };
  for (const Move& move : moves.receives) add(tw_plan_recv, move);
  for (const Move& move : moves.sends) add(tw_plan_send, move);
  must(tw_plan_prepare(made, std::chrono::nanoseconds(kPatience).count()));
}

}  // namespace apps
