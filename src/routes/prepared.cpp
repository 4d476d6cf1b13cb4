// SPDX-License-Identifier: Apache-2.0
#include "routes/prepared.hpp"

namespace thalweg::impl {
namespace {

constexpr char kWhyPacked[] = "the receiver's rows, or all its bytes, are shorter than a cache line, and a message packs them";
constexpr char kNoPeerAccess[] = "there is no peer access between the two devices";

/// What the runner does there beside plain loads and stores.
const char* why_not_words(const Prepared& m) {
  const bool alone = m.by_device ? m.place.atomics == AtomicDomain::device && m.atomics : m.place.atomics == AtomicDomain::cpu;
  if (m.changes && !alone) {
    if (!m.by_device) return "the word's domain is a device, with which the CPU's atomics do not agree";
    return m.place.on_device() ? "the device has no atomics to the word's device" : "the device has no atomics on host memory";
  }
  if (m.waits && m.place.kind == MemoryKind::managed)
    return "the signal's word is in managed memory; put it into device memory";
  return nullptr;
}

const char* why_not_own(const Prepared& m) {
  if (!m.mine) return "it is memory of another process";
  if (!m.by_device) {
    return m.place.reached(kByCpu | kByCpuBehind)
               ? nullptr
               : "it is device memory, which the host cannot touch: let a queue of that device run this";
  }
  if (!m.place.reached(kByKernel))
    return "devices cannot reach pageable host memory: allocate it with the place \"pinned\", or register it with the device";
  return m.access ? nullptr : kNoPeerAccess;
}

const char* why_not_mapped(const Prepared& m) {
  if (m.by_device) return "kernels run this, which reach no mapping as it is";
  if (m.mine) return "it is memory of this process";
  if (m.place.on_device()) return "it is device memory, and the host runs this: run it on a queue of that device";
  return m.place.reached(kByPort) ? nullptr : "it is not mapped here: another machine, or not memory of tw_memory_allocate";
}

const char* why_not_pinned(const Prepared& m) {
  if (!m.by_device) return "the CPU needs nothing pinned";
  if (m.place.on_device()) return "it is device memory";
  if (m.mine && m.place.reached(kByKernel)) return "it is pinned already";
  if (m.place.reached(kPinnable))
    return m.waits ? "a word in host memory is waited for by a device only where it was made with the place \"pinned\""
                   : nullptr;
  return m.mine ? why_not_own(m)
                : "it is host memory that cannot be mapped here: another machine, or not memory of tw_memory_allocate";
}

const char* why_not_imported(const Prepared& m) {
  if (!m.by_device) return "the host runs this";
  if (m.mine) return "it is memory of this process";
  if (!m.place.on_device()) return "it is host memory";
  if (!m.place.reached(kByPort))
    return "it is not shared between the processes: pool or managed memory, or another machine. Allocate it with cudaMalloc or "
           "as exportable pieces";
  return m.access ? nullptr : kNoPeerAccess;
}

constexpr PreparedRoute route_at(size_t i) { return static_cast<PreparedRoute>(i); }

}  // namespace

const char* why_not(const Prepared& m, PreparedRoute route) {
  if (route == PreparedRoute::carried) return m.carriable ? nullptr : "nobody does this for its runner";
  if (m.along) return "another memory of the step, or another buffer of the channel, is carried";
  const char* const place = route == PreparedRoute::own      ? why_not_own(m)
                            : route == PreparedRoute::mapped ? why_not_mapped(m)
                            : route == PreparedRoute::pinned ? why_not_pinned(m)
                                                             : why_not_imported(m);
  return place != nullptr ? place : why_not_words(m);
}

PreparedRoute prepared_route(const Prepared& memory, uint32_t failed) {
  if (memory.packed() && (failed & bit_of(PreparedRoute::carried)) == 0) return PreparedRoute::carried;
  for (size_t i = 0; i < kPreparedRoutes; ++i) {
    const PreparedRoute route = route_at(i);
    if ((failed & bit_of(route)) == 0 && why_not(memory, route) == nullptr) return route;
  }
  return PreparedRoute::none;
}

const char* why_not_reached(const Prepared& m) {
  const PreparedRoute usual = !m.by_device          ? (m.mine ? PreparedRoute::own : PreparedRoute::mapped)
                              : m.place.on_device() ? (m.mine ? PreparedRoute::own : PreparedRoute::imported)
                                                    : PreparedRoute::pinned;
  const char* const why = why_not(m, usual);
  if (why == nullptr && m.packed()) return kWhyPacked;
  return why != nullptr ? why : "it was tried in vain";
}

std::string prepared_table(const Prepared& memory, uint32_t failed, const std::string& why) {
  constexpr const char* kNames[kPreparedRoutes] = {"at its own address", "where it is mapped here",
                                                   "pinned here for the device", "imported for the device", "carried"};
  const PreparedRoute chosen = prepared_route(memory, failed);
  uint32_t last = 0;
  for (size_t i = 0; i < kPreparedRoutes; ++i) last = (failed & bit_of(route_at(i))) != 0 ? bit_of(route_at(i)) : last;
  std::string text;
  for (size_t i = 0; i < kPreparedRoutes; ++i) {
    const PreparedRoute route = route_at(i);
    const char* const impossible = why_not(memory, route);
    text += std::string("      ") + (route == chosen ? "* " : "  ") + kNames[i];
    if (impossible != nullptr) {
      text += std::string(": impossible: ") + impossible;
    } else if ((failed & bit_of(route)) != 0) {
      text += ": impossible: " + (bit_of(route) == last && !why.empty() ? why : std::string("it was tried in vain"));
    } else if (route != chosen) {
      text += ": another way needs less";
    }
    text += "\n";
  }
  return text;
}

const char* why_not_paired(bool by_device_here, bool by_device_there) {
  return by_device_here == by_device_there ? nullptr : "one end is run by a device, the other by the host";
}

const char* why_not_mapped_channel(bool prefers_packing, bool kernel_there) {
  return prefers_packing && !kernel_there ? kWhyPacked : nullptr;
}

}  // namespace thalweg::impl
