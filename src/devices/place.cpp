// SPDX-License-Identifier: Apache-2.0
// One table of names; parsing and printing read it in opposite directions.
#include "devices/place.hpp"

#include <charconv>
#include <string_view>

#include "devices/registry.hpp"

namespace thalweg::impl {
namespace {

constexpr struct {
  std::string_view name, backend;
  MemoryKind kind;
} kPlaces[] = {
    {"cuda", "cuda", MemoryKind::device},
    {"managed", "cuda", MemoryKind::managed},
    {"vmm", "cuda", MemoryKind::vmm},
    {"pool", "cuda", MemoryKind::pool},
    {"emulated", "emulated", MemoryKind::emulated},
    {"emulated-managed", "emulated", MemoryKind::managed},
    {"emulated-vmm", "emulated", MemoryKind::vmm},
    {"emulated-pool", "emulated", MemoryKind::pool},
};

std::string name_on(std::string_view place, const Device& device) {
  return std::string(place) + ":" + std::to_string(device.ordinal());
}

Status refuse_name(const char* text) {
  return fail(TW_ERR_INVALID, "no memory is called \"%s\"; write %s", text, place_names());
}

/// Why there is no device of that back end ("" for any), in one line with the remedy.
Status refuse_absent(const char* text, const std::string& backend, const std::string& why_not) {
  std::string reason = why_not;
  const std::string head = backend + ": ";
  if (const size_t at = why_not.find(head); !backend.empty() && at != std::string::npos) {
    reason = why_not.substr(at + head.size(), why_not.find('\n', at) - at - head.size());
  } else if (backend == "emulated") {
    reason = "no emulated device is open; set THALWEG_EMULATED=devices=1";
  }
  while (!reason.empty() && reason.back() == '\n') reason.pop_back();
  for (char& c : reason) c = c == '\n' ? ';' : c;
  return fail(TW_ERR_DEVICE, "\"%s\" needs a device, and there is none here: %s", text, reason.c_str());
}

Status find(const char* text, std::string_view backend, unsigned ordinal, Device** out) {
  std::string why_not;
  unsigned count = 0;
  for (Device* device : list_devices(&why_not)) {
    if (!backend.empty() && backend != device->name()) continue;
    ++count;
    if (backend.empty() || device->ordinal() == ordinal) {
      *out = device;
      return TW_OK;
    }
  }
  if (count == 0) return refuse_absent(text, std::string(backend), why_not);
  return fail(TW_ERR_INVALID, "there is no \"%s\": this process sees %u such devices, numbered from 0", text, count);
}

}  // namespace

const char* place_names() {
  return "host, pinned, cuda[:N], managed[:N], vmm[:N], pool[:N] or emulated[:N] (emulated-managed, -vmm, -pool)";
}

Status parse_place(const char* text, MemoryPlace* out) {
  *out = {};
  const std::string_view whole = text == nullptr ? "host" : text;
  if (whole == "host") return TW_OK;
  if (whole == "pinned") {
    out->kind = MemoryKind::pinned;
    return find(text, "", 0, &out->device);
  }
  const size_t colon = whole.find(':');
  unsigned ordinal = 0;
  if (colon != std::string_view::npos) {
    const std::string_view number = whole.substr(colon + 1);
    const char* const last = number.data() + number.size();
    const auto [end, error] = std::from_chars(number.data(), last, ordinal);
    if (error != std::errc() || end != last) return refuse_name(text);
  }
  for (const auto& place : kPlaces) {
    if (place.name != whole.substr(0, colon)) continue;
    out->kind = place.kind;
    return find(text, place.backend, ordinal, &out->device);
  }
  return refuse_name(text);
}

std::string place_name(const BufferInfo& info) {
  if (info.kind == MemoryKind::pinned) return "pinned";
  for (const auto& place : kPlaces) {
    if (info.device != nullptr && place.kind == info.kind && place.backend == info.device->name())
      return name_on(place.name, *info.device);
  }
  return "host";
}

std::vector<std::string> places_of(const Device& device) {
  std::vector<std::string> names;
  for (const auto& place : kPlaces) {
    if (place.backend == device.name()) names.push_back(name_on(place.name, device));
  }
  return names;
}

}  // namespace thalweg::impl
