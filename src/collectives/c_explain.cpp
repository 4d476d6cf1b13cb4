// SPDX-License-Identifier: Apache-2.0
// C interface: which algorithm a collective takes, and why.
#include <thalweg/device/reduce.hpp>

#include <cstring>

#include "collectives/call.hpp"
#include "collectives/collectives.hpp"
#include "collectives/elements.hpp"
#include "collectives/explain.hpp"
#include "collectives/planned.hpp"
#include "core/c_checks.hpp"
#include "groups/c_checks.hpp"
#include "plans/queue.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_collective_options kDefaults = TW_COLLECTIVE_OPTIONS_INIT;

Status find_kind(const char* name, CollectiveKind* out) {
  std::string known;
  for (size_t i = 0; i < static_cast<size_t>(CollectiveKind::count_); ++i) {
    *out = static_cast<CollectiveKind>(i);
    if (name != nullptr && std::strcmp(name, kind_name(*out)) == 0) return TW_OK;
    known.append(known.empty() ? "" : ", ").append(kind_name(*out));
  }
  return fail(TW_ERR_INVALID, "collective \"%s\" is none of %s", name == nullptr ? "" : name, known.c_str());
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::reduce || kind == CollectiveKind::allreduce || kind == CollectiveKind::reduce_scatter ||
         kind == CollectiveKind::scan || kind == CollectiveKind::exclusive_scan;
}

Status describe(const tw_group& group, const char* name, size_t count, uint32_t type, const tw_collective_options& options,
                Collective* out) {
  if (Status s = find_kind(name, &out->kind); is_error(s)) return s;
  out->element = element_size(type);
  out->rare = reduces(out->kind) && type >= static_cast<uint32_t>(thalweg::device::ElementType::count_);
  if (out->element == 0) return fail(TW_ERR_INVALID, "type %u is not one of TW_TYPE_*", type);
  if ((options.flags & ~uint32_t{TW_COLLECTIVE_REPEATABLE}) != 0)
    return fail(TW_ERR_INVALID, "the options have unknown flags: initialise them by TW_COLLECTIVE_OPTIONS_INIT");
  if (count > UINT64_MAX / 16 / group.size) return fail(TW_ERR_INVALID, "more elements than there can be");
  out->rank = group.rank;
  out->size = group.size;
  out->count = out->kind == CollectiveKind::barrier ? 0 : count;
  out->commutative = options.commutative != 0;
  out->repeatable = (options.flags & TW_COLLECTIVE_REPEATABLE) != 0;
  return TW_OK;
}

std::string heading(const char* collective, const Collective& what) {
  return std::string(collective) + ": " + std::to_string(what.count) + " elements of " + std::to_string(what.element) +
         " bytes, " + std::to_string(what.size) + " ranks";
}

/// add(all, what, text): what the form of the call lets it take.
template <class Add>
Status explain(tw_group* group, const char* collective, size_t count, uint32_t type, const tw_collective_options* given,
               char* buffer, size_t* size, Add add) {
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_collective_options> options(given, kDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  Collective what;
  if (Status s = describe(*group, collective, count, type, *options, &what); is_error(s)) return s;
  std::string text = heading(collective, what);
  {
    const Engine::Guard guard(*group->worker.engine);
    Collectives* all = nullptr;
    if (Status s = Collectives::of(*group, &all); is_error(s)) return s;
    what.ranks_per_host = all->ranks_per_host();
    if (Status s = add(*all, what, *options, &text); is_error(s)) return s;
  }
  return copy_out(text.c_str(), text.size() + 1, buffer, size);
}

Status explain_in_steps(Collectives& all, Collective what, const tw_collective_options& options, std::string* text) {
  what.chunk = planned_chunk(what);
  return all.schedules().explain(what, options.algorithm, text);
}

/// As call_on() and add_call() of planned.cpp decide: by kernels where the group has them, and they can do this one.
Status explain_kernels(Collectives& all, Collective what, const tw_collective_options& options, std::string* text) {
  if (all.device() == nullptr) {
    text->append("no kernels: ")
        .append(all.device_tried() ? all.why_no_device()
                                   : "the group's first collective on a queue finds out whether devices reach each other")
        .append("\n");
    return explain_in_steps(all, what, options, text);
  }
  what.kernel_room = all.device()->room();
  what.line_room = all.device()->line_room();
  Kernels kernels = Kernels::none;
  if (Status s = all.schedules().choose_kernels(what, options.algorithm, &kernels); is_error(s)) return s;
  if (kernels != Kernels::none) return all.schedules().explain(what, options.algorithm, text);
  what.kernel_room = what.line_room = 0;
  return explain_in_steps(all, what, options, text);
}

Status explain_planned(Collectives& all, Collective what, const tw_collective_options& options, std::string* text) {
  text->append(", in a plan\n");
  if (names_kernels(what.kind, options)) return explain_kernels(all, what, without_any(options), text);
  return explain_in_steps(all, what, options, text);
}

}  // namespace

extern "C" {

tw_status tw_group_explain(tw_group* group, const char* collective, size_t count, uint32_t type,
                           const tw_collective_options* given, char* buffer, size_t* size) {
  if (Status s = check(group); is_error(s)) return s;
  return explain(group, collective, count, type, given, buffer, size,
                 [](Collectives& all, Collective& what, const tw_collective_options& options, std::string* text) {
                   text->append("\n");
                   what.direct = all.direct() != nullptr;
                   return all.schedules().explain(what, without_any(options).algorithm, text);
                 });
}

tw_status tw_group_explain_on(tw_queue* queue, tw_group* group, const char* collective, size_t count, uint32_t type,
                              const tw_collective_options* given, char* buffer, size_t* size) {
  if (Status s = queue != nullptr ? check(queue) : Status{TW_OK}; is_error(s)) return s;
  if (Status s = check(group); is_error(s)) return s;
  return explain(group, collective, count, type, given, buffer, size,
                 [queue](Collectives& all, Collective& what, const tw_collective_options& options, std::string* text) {
                   if (queue == nullptr) return explain_planned(all, what, options, text);
                   text->append(", on a queue of ").append(queue->executor.name()).append("\n");
                   return explain_kernels(all, what, without_any(options), text);
                 });
}

}  // extern "C"
