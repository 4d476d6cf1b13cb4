// SPDX-License-Identifier: Apache-2.0
// C interface: which algorithm a collective takes, and why.
#include <cstring>

#include "collectives/collectives.hpp"
#include "collectives/elements.hpp"
#include "collectives/explain.hpp"
#include "core/c_checks.hpp"
#include "groups/c_checks.hpp"

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

Status describe(const tw_group& group, const char* name, size_t count, uint32_t type, const tw_collective_options& options,
                Collective* out) {
  if (Status s = find_kind(name, &out->kind); is_error(s)) return s;
  out->element = element_size(type);
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

}  // namespace

extern "C" tw_status tw_group_explain(tw_group* group, const char* collective, size_t count, uint32_t type,
                                      const tw_collective_options* given, char* buffer, size_t* size) {
  if (Status s = check(group); is_error(s)) return s;
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  const Options<tw_collective_options> options(given, kDefaults);
  Collective what;
  if (Status s = describe(*group, collective, count, type, *options, &what); is_error(s)) return s;
  std::string text = std::string(collective) + ": " + std::to_string(what.count) + " elements of " +
                     std::to_string(what.element) + " bytes, " + std::to_string(what.size) + " ranks\n";
  {
    const Engine::Guard guard(*group->worker.engine);
    Collectives* all = nullptr;
    if (Status s = Collectives::of(*group, &all); is_error(s)) return s;
    what.direct = all->direct() != nullptr;
    if (Status s = all->schedules().explain(what, options->algorithm, &text); is_error(s)) return s;
  }
  return copy_out(text.c_str(), text.size() + 1, buffer, size);
}
