// SPDX-License-Identifier: Apache-2.0
// The devices of tw_context_info: memory of which kinds, whom they reach, and why others are not there.
#include <sstream>

#include "core/json.hpp"
#include "devices/place.hpp"
#include "devices/registry.hpp"

namespace thalweg::impl {
namespace {

std::string name_of(const Device& device) { return std::string(device.name()) + ":" + std::to_string(device.ordinal()); }

std::string hex(const Uuid& uuid) {
  std::string text;
  for (const uint8_t byte : uuid) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

/// "cuda:1 by nvlink, with atomics"
std::string reach(const Device& from, const Device& to) {
  static const char* const kLinks[] = {"none", "same", "nvlink", "pcie", "unknown"};
  const PeerAccess access = from.peer(to.uuid());
  if (!access.access) return name_of(to) + " not at all: copies between them go through the host";
  return name_of(to) + " by " + kLinks[static_cast<size_t>(access.link)] + (access.atomics ? ", with atomics" : "");
}

void describe_device(Json& json, const Device& device, const std::vector<Device*>& all) {
  json.open(nullptr, '{');
  json.add("name", name_of(device));
  json.flag("usable", true);
  json.add("uuid", hex(device.uuid()));
  json.open("memory", '[');
  for (const std::string& place : places_of(device)) json.add(nullptr, place);
  json.close(']');
  json.open("reaches", '[');
  for (const Device* other : all) {
    if (other != &device && std::string(other->name()) == device.name()) json.add(nullptr, reach(device, *other));
  }
  json.close(']');
  json.close('}');
}

}  // namespace

void describe_devices(Json& json) {
  std::string why_not;
  const std::vector<Device*> all = list_devices(&why_not);
  json.open("devices", '[');
  for (const Device* device : all) describe_device(json, *device, all);
  std::istringstream lines(why_not);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    json.open(nullptr, '{');
    json.add("name", line.substr(0, colon));
    json.flag("usable", false);
    json.add("why_not", line.substr(colon + 2));
    json.close('}');
  }
  json.close(']');
}

}  // namespace thalweg::impl
