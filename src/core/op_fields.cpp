// SPDX-License-Identifier: Apache-2.0
// The texts of options that a call does not take.
#include "core/op_fields.hpp"

#include <bit>
#include <string>

namespace thalweg::impl {
namespace {

struct Named {
  uint32_t bit;
  const char* name;
  const char* of_operation;  // why, or what to use instead; null: nothing is to be said
  const char* of_step;
};

constexpr char kSink[] = "tw_plan_test, tw_plan_finish and tw_queue_check tell how a run ended";
constexpr Named kFields[] = {
    {fields::layout, "layout", nullptr, "it moves no buffer of its own"},
    {fields::remote_layout, "remote_layout", "only puts and gets have one", "only puts, gets and copies have one"},
    {fields::immediate, "immediate", "it goes with a send, and with `notify`", "send the bytes in the message"},
    {fields::signal, "signal", "it goes with a put; post it by tw_signal_post",
     "it goes with a put; use tw_plan_signal behind other steps"},
    {fields::source, "source", "it is for tw_recv and tw_probe", "a channel has one source"},
    {fields::callback, "callback", nullptr, kSink},
    {fields::queue, "queue", nullptr, kSink},
    {fields::counter, "counter", nullptr, kSink},
    {fields::record, "record", nullptr, kSink},
    {fields::done, "done", nullptr, kSink},
    {fields::after, "after", nullptr, "trigger the plan on the stream; `after_steps` names steps"},
    {fields::notify, "notify", "it goes with a put and a signal post", "use a signal"},
    {fields::increment, "increment", "it is for steps of plans", "it goes with the values of signals and waits in plans"},
    {fields::after_steps, "after_steps", "it is for steps of plans; `after` names a stream or event",
     "a queue keeps its order by itself"},
    {fields::no_kind, "after", "`after_kind` says what it is", "`after_steps` names steps, `after_kind` a stream's kind"},
    {fields::no_signal, "signal_op` or `signal_value", "`signal` is NULL", "`signal` is NULL"},
    {fields::no_handler, "handler", "`notify` is TW_NOTIFY_NONE", "use a signal"},
    {fields::reserved, "reserved", "it is 0: use TW_OP_OPTIONS_INIT", "it is 0: use TW_OP_OPTIONS_INIT"},
};
constexpr const char* kFlags[] = {"TW_OP_SYNC",     "TW_OP_NO_WAIT", "TW_OP_REMOTE",    "TW_OP_AFTER_ALL",
                                  "TW_OP_WAIT_ALL", "TW_OP_EAGER",   "TW_OP_RENDEZVOUS"};

std::string flag_name(uint32_t flags) {
  const auto at = static_cast<size_t>(std::countr_zero(flags));
  return at < std::size(kFlags) ? kFlags[at] : "bit " + std::to_string(at);
}

}  // namespace

Status refuse_options(const tw_op_options& options, const Takes& takes) {
  const uint32_t wrong = fields_of(options) & ~takes.fields;
  for (const Named& one : kFields) {
    if ((wrong & one.bit) == 0) continue;
    const char* const why = takes.step ? one.of_step : one.of_operation;
    return fail(TW_ERR_INVALID, "%s takes no option `%s`%s%s", takes.call, one.name, why != nullptr ? ": " : "",
                why != nullptr ? why : "");
  }
  return fail(TW_ERR_INVALID, "%s takes no %s in `flags`", takes.call, flag_name(options.flags & ~takes.flags).c_str());
}

}  // namespace thalweg::impl
