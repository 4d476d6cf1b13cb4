// SPDX-License-Identifier: Apache-2.0
#include "routes/accesses.hpp"

namespace thalweg::impl {
namespace {

constexpr double kTarget = 2000;  // until a target that polls looks, nanoseconds: how long that takes is not ours to know
constexpr char kFenced[] = "operations before a fence still travel as frames";
constexpr char kForced[] = "another way is forced (THALWEG_WAY)";

bool choice(const Access& access) { return access.verb == AccessVerb::put || access.verb == AccessVerb::get; }
Way by_device(const Access& access) { return access.verb == AccessVerb::get ? Way::pull : Way::push; }

/// Null: this way is possible.
const char* why_not(const Access& access, AccessRoute route) {
  const bool host = !access.devices;
  switch (route) {
    case AccessRoute::mapped:
      if (choice(access) && !allowed(access.forced, Way::mapped)) return kForced;
      if (access.notifies) return "a notification travels as a frame, and the signal with it";
      return access.why_not_mapped != nullptr ? access.why_not_mapped : access.fenced ? kFenced : nullptr;
    case AccessRoute::kernel:
      if (!allowed(access.forced, Way::kernel)) return kForced;
      return access.why_not_kernel != nullptr ? access.why_not_kernel : access.fenced ? kFenced : nullptr;
    case AccessRoute::direct:
      if (choice(access) && !allowed(access.forced, by_device(access))) return kForced;
      if (access.why_not_reached != nullptr) return access.why_not_reached;
      return access.local || !choice(access) ? nullptr : "the local side is pageable memory, which no device copies";
    case AccessRoute::window:
      if (!allowed(access.forced, by_device(access))) return kForced;
      return access.why_not_reached;
    case AccessRoute::relay:
      return access.staged ? nullptr : "the local side is host memory";
    default:
      return host || !access.staged || !choice(access) ? nullptr : "the local side is memory of a device";
  }
}

/// The verb's routes, in the order of preference.
struct Order {
  AccessRoute routes[4];
  size_t count;
};
Order order_of(const Access& access) {
  if (!choice(access)) return {{access.devices ? AccessRoute::direct : AccessRoute::mapped, AccessRoute::frames}, 2};
  if (!access.devices) return {{AccessRoute::mapped, AccessRoute::kernel, AccessRoute::frames}, 3};
  return {{AccessRoute::direct, AccessRoute::window, AccessRoute::relay, AccessRoute::frames}, 4};
}

const char* name_of(const Access& access, AccessRoute route) {
  static constexpr const char* kHost[][3] = {{"put_mapped", "put_single_copy", "put_frames"},
                                             {"get_mapped", "get_single_copy", "get_frames"},
                                             {"atomic_mapped", "", "atomic_frames"},
                                             {"signal_mapped", "", "signal_frames"}};
  const auto& host = kHost[static_cast<size_t>(access.verb)];
  switch (route) {
    case AccessRoute::mapped:
      return host[0];
    case AccessRoute::kernel:
      return host[1];
    case AccessRoute::direct:
      return access.verb == AccessVerb::atomic ? "atomic_device"
             : access.persistent               ? "direct, by the persistent kernel while it runs"
                                               : "direct";
    case AccessRoute::window:
      return "window";
    case AccessRoute::relay:
      return "relay";
    default:
      return access.devices && choice(access) ? "frames" : host[2];
  }
}

double predicted(const Access& access, AccessRoute route, const LinkCosts& costs) {
  const bool get = access.verb == AccessVerb::get, data = choice(access);
  switch (route) {
    case AccessRoute::mapped:
      return (get ? 60 : data ? 25 : 30) + (data ? bytes_ns(costs.mapped, costs.mapped_large, access.length) : 0);
    case AccessRoute::kernel:  // two calls: the check of the key and the copy
      return 2 * costs.kernel_fixed + bytes_ns(costs.kernel, costs.kernel_large, access.length);
    case AccessRoute::direct:
    case AccessRoute::window:
      return access.device_ns;
    case AccessRoute::relay:
      return access.staged_ns;
    default:
      if (access.devices && data) return access.staged_ns;
      return kTarget + (access.verb == AccessVerb::put || access.verb == AccessVerb::signal ? 1 : 2) * costs.frame +
             (data ? bytes_ns(costs.copy, costs.copy_large, access.length) : 0);
  }
}

const char* note_of(AccessRoute route) {
  switch (route) {
    case AccessRoute::direct:
      return "by a device of this process";
    case AccessRoute::window:
      return "by a device of this process, through pinned memory here";
    case AccessRoute::relay:
      return "through pinned memory here, then as host memory";
    case AccessRoute::frames:
      return "applied by the target's progress";
    default:
      return "needs no CPU of the target";
  }
}

}  // namespace

AccessRoute access_route(const Access& access, uint32_t failed) {
  const Order order = order_of(access);
  for (size_t i = 0; i < order.count; ++i) {
    const AccessRoute route = order.routes[i];
    if ((failed & bit_of(route)) == 0 && why_not(access, route) == nullptr) return route;
  }
  return AccessRoute::frames;
}

Way way_of(const Access& access, AccessRoute route) {
  switch (route) {
    case AccessRoute::mapped:
      return Way::mapped;
    case AccessRoute::kernel:
      return Way::kernel;
    case AccessRoute::direct:
    case AccessRoute::window:
      return by_device(access);
    case AccessRoute::relay:
      return Way::staging;
    default:
      return access.devices ? Way::staging : Way::frames;
  }
}

std::array<Route, kAccessRoutes> access_routes(const Access& access, const LinkCosts& costs) {
  std::array<Route, kAccessRoutes> out{};
  const AccessRoute chosen = access_route(access);
  const Order order = order_of(access);
  for (size_t i = 0; i < order.count; ++i) {
    const AccessRoute route = order.routes[i];
    Route& line = out[i];
    line.name = name_of(access, route);
    line.why_not = why_not(access, route);
    line.predicted_ns = predicted(access, route, costs);
    line.chosen = route == chosen;
    const bool asks = route == AccessRoute::frames && !line.chosen;
    line.note = asks ? "needs the target's progress; the chosen one does not" : note_of(route);
  }
  return out;
}

}  // namespace thalweg::impl
