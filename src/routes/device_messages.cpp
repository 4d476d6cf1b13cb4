// SPDX-License-Identifier: Apache-2.0
#include "routes/device_messages.hpp"

#include "transports/transport.hpp"

namespace thalweg::impl {
namespace {

bool in_process(const DeviceMessage& m) {
  const bool same = (m.features & kLinkSameProcess) != 0;
  const bool reached = by_devices(m.from.kind) && by_devices(m.to.kind);
  return same && reached && m.from.named && (m.from.on_device() || m.to.on_device()) && allowed(m.forced, Way::push);
}

bool push(const DeviceMessage& m) {
  const bool worth = m.from.on_device() || (by_devices(m.from.kind) && m.length >= m.eager);
  const bool same = (m.features & kLinkSameProcess) != 0, shares = same || ((m.features & kLinkMaps) != 0 && m.imports);
  const bool library = m.to.library && !m.to.on_device() && !same && m.from.on_device() && m.length >= m.named_from;
  return (m.to.on_device() || library) && m.to.named && worth && shares && allowed(m.forced, Way::push);
}

/// One GPU's processes have it in turns: a second copy within it waits longer than one over the bus.
bool push_bounce(const DeviceMessage& m) {
  const bool shares = (m.features & kLinkSameProcess) == 0 && (m.features & kLinkMaps) != 0 && m.imports;
  return m.from.on_device() && m.to.on_device() && m.to.bounced && !m.same_device && shares && allowed(m.forced, Way::staging);
}

bool pull(const DeviceMessage& m) {
  const bool shares = (m.features & kLinkSameProcess) == 0 && (m.features & kLinkMaps) != 0 && m.imports;
  const bool reaches = by_devices(m.to.kind);  // no device of the receiver's process writes to pageable memory
  const bool library = m.from.library && !m.from.on_device() && m.to.on_device() && m.length >= m.named_from;
  const bool named = m.from.on_device() && m.from.named;
  return (named || library) && !m.from.late && shares && reaches && allowed(m.forced, Way::pull);
}

/// Does the sender's CPU put it into a bounce buffer for the receiver's device in less time than the kernel takes to read it, at one end?
bool bounced(const DeviceMessage& m) {
  const bool shares = (m.features & kLinkMaps) != 0 && m.imports && allowed(m.forced, Way::staging);
  if (!m.by_kernel || !m.to.on_device() || !shares || m.length < m.named_from || m.costs == nullptr) return false;
  return 2 * kernel_ns(*m.costs, m.length) > mapped_ns(*m.costs, m.length);
}

bool copy(const DeviceMessage& m) { return !m.from.on_device() && !m.from.late && m.from.readable && !bounced(m); }

}  // namespace

DeviceRoute device_route(const DeviceMessage& m, uint32_t failed) {
  const bool near = (m.same_device || (m.second && worth_hiding(m.length, m.hidden_from))) && !m.from.late;
  const auto may = [&](DeviceRoute route, bool possible) { return possible && (failed & bit_of(route)) == 0; };
  if (may(DeviceRoute::in_process, in_process(m))) return DeviceRoute::in_process;
  if (!near && may(DeviceRoute::push, push(m))) return DeviceRoute::push;
  if (may(DeviceRoute::pull, pull(m))) return DeviceRoute::pull;
  if (may(DeviceRoute::push, push(m))) return DeviceRoute::push;
  if (may(DeviceRoute::push_bounce, push_bounce(m))) return DeviceRoute::push_bounce;
  return may(DeviceRoute::copy, copy(m)) ? DeviceRoute::copy : DeviceRoute::frames;
}

bool pushes_unasked(const DeviceMessage& m) {
  const bool shares = (m.features & kLinkMaps) != 0 && (m.features & kLinkSameProcess) == 0;
  return shares && m.from.on_device() && m.to.on_device() && !m.from.late && push(m);
}

const char* progress_of(const DeviceMessage& m, Way way) {
  DeviceMessage second = m;
  second.second = true;
  const bool first_free = pushes_unasked(m);
  const bool second_free =
      worth_hiding(m.length, m.hidden_from) && m.to.on_device() && device_route(second) == DeviceRoute::pull;
  if (first_free && second_free) return "nobody, once both sides have posted and imported";
  if (first_free) return "nobody where the receive is posted first, else both sides";
  if (second_free) return "nobody where the receive is posted second, else both sides";
  switch (way) {
    case Way::eager:
      return "the receiver; the sender, too, while the link has no room";
    case Way::mapped:
    case Way::kernel:
      return "the receiver, which copies";
    default:
      return (m.features & kLinkSameProcess) != 0 && way == Way::push ? "the receiver" : "both sides";
  }
}

PieceRoute piece_route(const Pieces& pieces, bool device_failed) {
  if (!pieces.named || pieces.length < pieces.named_from) return PieceRoute::in_frames;
  const bool turns = pieces.same_device && pieces.length < pieces.shared_from && !pieces.managed;
  const bool device = pieces.to_device && pieces.from_device && pieces.reaches && !turns;
  return device && !device_failed ? PieceRoute::in_device : PieceRoute::in_host;
}

}  // namespace thalweg::impl
