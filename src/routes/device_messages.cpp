// SPDX-License-Identifier: Apache-2.0
#include "routes/device_messages.hpp"

#include "transports/transport.hpp"

namespace thalweg::impl {
namespace {

constexpr char kForced[] = "another way is forced (THALWEG_WAY)";
constexpr char kPageable[] = "it is pageable memory, which no device copies";

bool same_process(const DeviceMessage& m) { return (m.features & kLinkSameProcess) != 0; }

/// Memory of one process at a device of the other one.
const char* why_not_imported(const DeviceMessage& m) {
  if ((m.features & kLinkMaps) == 0) return "this link shares no device memory";
  return m.imports ? nullptr : "a plan's queue may wait for this: nothing is imported then";
}

const char* why_not_told(const DeviceMessage& m) {
  if (m.from.named) return nullptr;
  return m.why_not_named != nullptr ? m.why_not_named
                                    : "the sender's buffer is strided, waits for a stream, or cannot be shared";
}

const char* why_not_in_process(const DeviceMessage& m) {
  if (!same_process(m)) return "the receiver is another process";
  if (!by_devices(m.from.kind) || !by_devices(m.to.kind)) return kPageable;
  if (!m.from.on_device() && !m.to.on_device()) return "no end is memory of a device";
  if (const char* const why = why_not_told(m); why != nullptr) return why;
  return allowed(m.forced, Way::push) ? nullptr : kForced;
}

/// Into library-allocated host memory of the receiver, which is pinned for the sender's device.
const char* why_not_pushed_to_host(const DeviceMessage& m) {
  if (!m.to.library) return "it is host memory that is not from tw_memory_allocate";
  if (same_process(m)) return "within a process nothing is mapped";
  if (!m.from.on_device()) return "no device holds the message";
  return m.length >= m.named_from ? nullptr : "to map and pin it costs more than it saves at this size";
}

const char* why_not_push(const DeviceMessage& m) {
  if (!m.to.on_device()) {
    if (const char* const why = why_not_pushed_to_host(m); why != nullptr) return why;
  }
  if (!m.to.named) return "this memory cannot be shared";
  if (!by_devices(m.from.kind)) return kPageable;
  if (!m.from.on_device() && m.length < m.eager) return "a device gains nothing at this size";
  if (!same_process(m)) {
    if (const char* const why = why_not_imported(m); why != nullptr) return why;
  }
  return allowed(m.forced, Way::push) ? nullptr : kForced;
}

/// One GPU's processes have it in turns: a second copy within it waits longer than one over the bus.
const char* why_not_push_bounce(const DeviceMessage& m) {
  if (!m.from.on_device() || !m.to.on_device()) return "an end is host memory";
  if (same_process(m)) return "within a process the memory itself is reached";
  if (!m.to.bounced) return "larger than a bounce buffer, or the devices do not reach each other";
  if (m.same_device) return "both processes share the device, which would copy within it in turns";
  if (const char* const why = why_not_imported(m); why != nullptr) return why;
  return allowed(m.forced, Way::staging) ? nullptr : kForced;
}

const char* why_not_pull(const DeviceMessage& m) {
  if (same_process(m)) return "within a process nothing is imported";
  if (!by_devices(m.to.kind)) return "no device of the receiver writes to pageable memory";
  if (m.from.on_device()) {
    if (const char* const why = why_not_told(m); why != nullptr) return why;
  } else if (!m.from.library || !m.to.on_device()) {
    return "the sender's buffer is host memory that no device of the receiver reaches";
  } else if (m.length < m.named_from) {
    return "to map and pin it costs more than it saves at this size";
  }
  if (m.from.late) return "it waits for a stream: only its sender knows when it may be read";
  if (const char* const why = why_not_imported(m); why != nullptr) return why;
  return allowed(m.forced, Way::pull) ? nullptr : kForced;
}

/// Does the sender's CPU put it into a bounce buffer for the receiver's device in less time than the kernel takes to read
/// it, at one end?
bool bounced(const DeviceMessage& m) {
  const bool shares = (m.features & kLinkMaps) != 0 && m.imports && allowed(m.forced, Way::staging);
  if (!m.by_kernel || !m.to.on_device() || !shares || m.length < m.named_from || m.costs == nullptr) return false;
  return 2 * kernel_ns(*m.costs, m.length) > mapped_ns(*m.costs, m.length);
}

const char* why_not_copy(const DeviceMessage& m) {
  if (m.from.on_device()) return "the sender's buffer is memory of a device";
  if (m.from.late || !m.from.readable) return "its CPU cannot read the sender's buffer";
  return bounced(m) ? "a bounce buffer costs less on this machine" : nullptr;
}

/// Null: possible.
const char* why_not(const DeviceMessage& m, DeviceRoute route) {
  switch (route) {
    case DeviceRoute::in_process:
      return why_not_in_process(m);
    case DeviceRoute::push:
      return why_not_push(m);
    case DeviceRoute::push_bounce:
      return why_not_push_bounce(m);
    case DeviceRoute::pull:
      return why_not_pull(m);
    case DeviceRoute::copy:
      return why_not_copy(m);
    default:
      return nullptr;
  }
}

}  // namespace

DeviceRoute device_route(const DeviceMessage& m, uint32_t failed) {
  const bool hides = m.second && m.to.on_device() && worth_hiding(m.length, m.hidden_from);
  const bool near = (m.same_device || hides) && !m.from.late;
  const DeviceRoute first = near ? DeviceRoute::pull : DeviceRoute::push, second = near ? DeviceRoute::push : DeviceRoute::pull;
  for (const DeviceRoute route : {DeviceRoute::in_process, first, second, DeviceRoute::push_bounce, DeviceRoute::copy}) {
    if ((failed & bit_of(route)) == 0 && why_not(m, route) == nullptr) return route;
  }
  return DeviceRoute::frames;
}

bool pushes_unasked(const DeviceMessage& m) {
  const bool shares = (m.features & kLinkMaps) != 0 && !same_process(m);
  return shares && !m.active && m.from.on_device() && m.to.on_device() && !m.from.late && why_not_push(m) == nullptr;
}

namespace {

/// Of a message that a CPU copies, by this way.
const char* who_copies(const Limits& limits, const DeviceMessage& m, Way way) {
  const MessageRoute route = way == Way::kernel ? MessageRoute::kernel : MessageRoute::direct;
  const uint64_t part = receivers_part(limits, m.features, route, m.length, {true, m.to.library});
  return part == m.length ? "the receiver, which copies" : "both sides, which copy a half each";
}

}  // namespace

const char* progress_of(const Limits& limits, const DeviceMessage& m, Way way) {
  DeviceMessage second = m;
  second.second = true;
  const bool first_free = pushes_unasked(m);
  const bool second_free =
      !m.active && worth_hiding(m.length, m.hidden_from) && m.to.on_device() && device_route(second) == DeviceRoute::pull;
  if (first_free && second_free) return "nobody, once both sides have posted and imported";
  if (first_free) return "nobody where the receive is posted first, else both sides";
  if (second_free) return "nobody where the receive is posted second, else both sides";
  switch (way) {
    case Way::eager:
      return "the receiver; the sender, too, while the link has no room";
    case Way::mapped:
    case Way::kernel:
      return who_copies(limits, m, way);
    default:
      return (m.features & kLinkSameProcess) != 0 && way == Way::push ? "the receiver" : "both sides";
  }
}

bool may_name(uint32_t features, Way forced) {
  return (features & kLinkMaps) != 0 && (features & kLinkSameProcess) == 0 && allowed(forced, Way::staging);
}

PieceRoute piece_route(const Pieces& pieces, uint32_t failed) {
  if (!pieces.to_device && !pieces.from_device) return PieceRoute::in_frames;
  if (!may_name(pieces.features, pieces.forced) || pieces.length < pieces.named_from) return PieceRoute::in_frames;
  if (pieces.to_device && !pieces.imports) return PieceRoute::in_frames;
  if (pieces.put && (pieces.to_device || pieces.strided || pieces.reached)) return PieceRoute::in_frames;
  const bool turns = pieces.same_device && pieces.length < pieces.shared_from && !pieces.managed;
  const bool device = pieces.to_device && pieces.from_device && pieces.reaches && !turns;
  if (device && (failed & bit_of(PieceRoute::in_device)) == 0) return PieceRoute::in_device;
  return (failed & bit_of(PieceRoute::in_host)) == 0 ? PieceRoute::in_host : PieceRoute::in_frames;
}

PieceRoute piece_route_meanwhile(const Pieces& pieces, bool host_ready) {
  return piece_route(pieces, bit_of(PieceRoute::in_device) | (host_ready ? 0 : bit_of(PieceRoute::in_host)));
}

Way received_way(const Limits& limits, Message message, const DeviceMessage& m, bool cold) {
  const MessageRoute sent = sending_route(limits, message);
  if (sent != MessageRoute::frames) return way_of(sent);
  if (m.from.late) message.contiguous = message.library = false;  // its address is not sent
  const uint32_t unmapped = cold && !same_process(m) ? bit_of(MessageRoute::direct) : 0;
  const MessageRoute by_host = rts_route(limits, message, unmapped);
  const bool staged = m.to.on_device() || m.from.on_device();
  if (!m.to.on_device() && !by_devices(m.from.kind)) return way_of(by_host);
  const uint32_t unpinned =
      (cold && m.to.library ? bit_of(DeviceRoute::push) : 0) | (cold && m.from.library ? bit_of(DeviceRoute::pull) : 0);
  const DeviceRoute route = device_route(m, unpinned | (by_host == MessageRoute::frames ? bit_of(DeviceRoute::copy) : 0));
  if (route == DeviceRoute::frames) return staged ? Way::staging : Way::frames;
  return route == DeviceRoute::copy && !m.to.on_device() ? way_of(by_host) : way_of(route);
}

namespace {

const char* name_of(const DeviceMessage& m, DeviceRoute route, PieceRoute through) {
  const bool devices = m.from.on_device() && m.to.on_device();
  switch (route) {
    case DeviceRoute::in_process:
      return !same_process(m) ? ""
             : m.persistent   ? "push by this device, by the persistent kernel while it runs"
                              : "push by this device";
    case DeviceRoute::push:
      if (same_process(m) && (!m.to.on_device() || why_not_in_process(m) == nullptr)) return "";
      return m.persistent ? "push by this device, by the persistent kernel while it runs" : "push by this device";
    case DeviceRoute::pull:
      return same_process(m) ? "" : m.to.on_device() ? "pull by its device" : "pull by this device";
    case DeviceRoute::push_bounce:
      return devices && !same_process(m) ? "staging, pushed" : "";
    case DeviceRoute::copy:
      return m.from.on_device() ? "" : m.to.on_device() ? "staging, by its CPU" : "copy by its CPU";
    default:
      if (!m.from.on_device() && !m.to.on_device()) return "frames";
      return through == PieceRoute::in_frames ? "staging, in frames" : "staging";
  }
}

const char* note_of(const DeviceMessage& m, DeviceRoute route, PieceRoute through) {
  switch (route) {
    case DeviceRoute::in_process:
      return "from the address itself";
    case DeviceRoute::push:
      return m.to.on_device() ? "written over the devices' link" : "once it is mapped and pinned here";
    case DeviceRoute::pull:
      return m.to.on_device() ? "read over the devices' link" : "by a queue of the peer";
    case DeviceRoute::push_bounce:
      return "into a bounce buffer of its device, and on by that";
    case DeviceRoute::copy:
      return "from the sender's buffer";
    default:
      if (through == PieceRoute::in_device) return "through a bounce buffer of this device that its device reaches";
      if (through == PieceRoute::in_host) return "through a bounce buffer that both processes reach";
      return m.from.on_device() && m.to.on_device() ? "through pinned memory of both ends" : "through the link";
  }
}

}  // namespace

std::array<Route, kDeviceRoutes> device_message_routes(const DeviceMessage& m,
                                                       const std::array<double, kDeviceRoutes>& predicted_ns,
                                                       PieceRoute through) {
  std::array<Route, kDeviceRoutes> lines{};
  const DeviceRoute chosen = device_route(m);
  for (size_t i = 0; i < kDeviceRoutes; ++i) {
    const auto route = static_cast<DeviceRoute>(i);
    lines[i] = {name_of(m, route, through), predicted_ns[i], why_not(m, route), note_of(m, route, through), route == chosen};
  }
  return lines;
}

}  // namespace thalweg::impl
