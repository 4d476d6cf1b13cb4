// SPDX-License-Identifier: Apache-2.0
// C interface: what is made of a group.
#include <thalweg/views.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/c_checks.hpp"
#include "groups/c_checks.hpp"
#include "groups/exchange.hpp"
#include "groups/parts.hpp"

using namespace thalweg::impl;

namespace {

enum class Waits : uint8_t { no, yes };  // for other ranks
/// Makes a group by make(&part). The number of the call is counted where it begins: some ranks' may fail, and others' not.
template <class Make>
Status make_by(tw_group* group, tw_group** out, Waits waits, Make make) {
  if (Status s = check(group, out); is_error(s)) return s;
  *out = nullptr;
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  if (Status s = waits == Waits::yes ? check_exchange(*group) : Status{TW_OK}; is_error(s)) return s;
  const Occupied here(*group);
  ++group->made;
  std::unique_ptr<tw_group> made;
  if (Status s = make(&made); is_error(s)) return s;
  *out = made.release();
  return TW_OK;
}

}  // namespace

extern "C" {

tw_status tw_group_duplicate(tw_group* group, tw_group** duplicate) {
  return make_by(group, duplicate, Waits::no, [&](auto* made) {
    std::vector<uint32_t> all(group->size);
    std::iota(all.begin(), all.end(), 0u);
    return make_part(*group, std::move(all), 0, made);
  });
}

tw_status tw_group_split(tw_group* group, uint32_t color, uint32_t key, tw_group** part) {
  return make_by(group, part, Waits::yes, [&](auto* made) {
    ExchangeCall call(*group, ExchangeKind::split);
    return split(call, color, key, color == TW_UNDEFINED, made);
  });
}

tw_status tw_group_split_by(tw_group* group, uint32_t what, uint32_t key, tw_group** part) {
  if (what > TW_SPLIT_DEVICES) return fail(TW_ERR_INVALID, "a split by %u, not one of TW_SPLIT_*", what);
  return make_by(group, part, Waits::yes, [&](auto* made) {
    uint64_t color = 0;
    ExchangeCall call(*group, ExchangeKind::split_by);
    const Status status = color_by(call, what, &color);
    return is_error(status) ? status : split(call, color, key, false, made);
  });
}

tw_status tw_group_lost(tw_group* group, uint32_t* ranks, uint32_t* count) {
  if (Status s = check(group, count); is_error(s)) return s;
  const uint32_t room = ranks != nullptr ? *count : 0;
  uint32_t lost = 0;
  for (uint32_t i = 0; i < group->size; ++i) {
    if (!group->is_lost(i)) continue;
    if (lost < room) ranks[lost] = i;
    ++lost;
  }
  *count = lost;
  if (ranks != nullptr && lost > room) return fail(TW_ERR_TRUNCATED, "%u ranks are lost, and there is room for %u", lost, room);
  return TW_OK;
}

tw_status tw_group_shrink(tw_group* group, tw_group** left) {
  return make_by(group, left, Waits::yes, [&](auto* made) { return shrink(*group, made); });
}

tw_status tw_group_exchange(void* arg, const void* mine, size_t length, void* values) {
  auto* group = static_cast<tw_group*>(arg);
  if (Status s = check(group); is_error(s)) return s;
  if (length != 0 && (mine == nullptr || values == nullptr)) return fail(TW_ERR_INVALID, "mine and values may not be NULL");
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  if (Status s = check_exchange(*group, length); is_error(s)) return s;
  ExchangeCall call(*group, ExchangeKind::values);
  return exchange(call, mine, length, values);
}

tw_status tw_group_window(tw_group* group, tw_memory* memory, const tw_window_options* options, tw_window** window) {
  if (Status s = check(group, window); is_error(s)) return s;
  *window = nullptr;
  const Enter enter(&group->worker);
  if (is_error(enter.status())) return enter.status();
  if (Status s = check_exchange(*group); is_error(s)) return s;
  const Occupied here(*group);
  const auto call = std::make_shared<ExchangeCall>(*group, ExchangeKind::window);
  if (Status s = make_window(call, memory, options, window); is_error(s)) return s;
  const Status agreed = agree(*call, TW_OK);
  if (!is_error(agreed)) return agreed;
  const std::string why = last_error();
  tw_window_drop(std::exchange(*window, nullptr));
  return fail(agreed, "%s", why.c_str());
}

}  // extern "C"
