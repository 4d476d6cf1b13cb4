// SPDX-License-Identifier: Apache-2.0
// The devices of tw_context_info: their kinds of memory, the devices they reach, and why others are missing.
#include <cstdio>
#include <sstream>

#include "base/json.hpp"
#include "core/context.hpp"
#include "devices/place.hpp"
#include "devices/registry.hpp"
#include "devices/topology_reach.hpp"
#include "routes/device_cost_file.hpp"

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

/// "6700 ns + 0.0026 ns/byte, measured", of each sort of copy.
void describe_costs(Json& json, const DeviceTable::Said& said) {
  json.open("costs", '{');
  json.add("model", said.model);
  json.add("source", said.costs.measured != 0 ? "measured" : "defaults");
  if (!said.why.empty()) json.add("why", said.why);
  for (const DeviceCost& cost : device_costs()) {
    const CopyCosts& copy = said.costs.*cost.copy;
    const bool measured = (said.costs.measured & bit_of(cost.copy)) != 0;
    json.add(cost.name, number_text(copy.fixed, 4) + " ns + " + number_text(copy.byte, 4) + " ns/byte, " +
                            (measured ? "measured" : "default"));
  }
  json.close('}');
}

void describe_device(Json& json, Device& device, const std::vector<Device*>& all, DeviceTable& costs) {
  json.open(nullptr, '{');
  json.add("name", name_of(device));
  json.flag("usable", true);
  json.add("uuid", hex(device.uuid()));
  if (const std::string address = pci_address_of(device.uuid()); !address.empty()) json.add("pci", address);
  json.open("memory", '[');
  for (const std::string& place : places_of(device)) json.add(nullptr, place);
  json.close(']');
  json.open("reaches", '[');
  for (const Device* other : all) {
    if (other != &device && std::string(other->name()) == device.name()) json.add(nullptr, reach(device, *other));
  }
  json.close(']');
  describe_costs(json, costs.known(device));
  json.close('}');
}

}  // namespace

void describe_devices(Json& json, const tw_context& context) {
  std::string why_not;
  const std::vector<Device*> all = list_devices(&why_not);
  json.open("devices", '[');
  for (Device* device : all) describe_device(json, *device, all, context.device_costs);
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
