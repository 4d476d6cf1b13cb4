// SPDX-License-Identifier: Apache-2.0
#include "routes/device_table.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "devices/persistent.hpp"
#include "devices/registry.hpp"
#include "routes/cost_text.hpp"
#include "routes/device_cost_file.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kLimitNs = 20 * kMillisecond;    // of a device, and of a pair
constexpr uint64_t kOthersNs = 100 * kMillisecond;  // of another process that measures

/// What could not be kept: measured once in this process.
struct Unkept {
  std::mutex lock;
  std::map<std::string, DeviceCosts> costs;  // by path and model
};
Unkept& unkept() {
  static auto* const all = new Unkept;  // used until the process ends
  return *all;
}

uint32_t own_bits() { return bit_of(&DeviceCosts::out) | bit_of(&DeviceCosts::in) | bit_of(&DeviceCosts::local); }
uint32_t link_bits(DeviceLink link) {
  return link == DeviceLink::pcie ? bit_of(&DeviceCosts::pcie_write) | bit_of(&DeviceCosts::pcie_read)
                                  : bit_of(&DeviceCosts::nvlink_write) | bit_of(&DeviceCosts::nvlink_read);
}

/// What `from` has measured and *to has not.
void take_over(const DeviceCosts& from, DeviceCosts* to) {
  for (const DeviceCost& one : device_costs()) {
    const uint32_t bit = bit_of(one.copy);
    if ((from.measured & bit) == 0 || (to->measured & bit) != 0) continue;
    to->*one.copy = from.*one.copy;
    to->measured |= bit;
  }
}

struct Peer {
  const Device* device = nullptr;
  DeviceLink link = DeviceLink::none;
};
/// One for each sort of link.
std::vector<Peer> peers_of(const Device& device) {
  std::vector<Peer> found;
  for (const Device* other : list_devices(nullptr)) {
    if (other == &device || std::string(other->name()) != device.name()) continue;
    const PeerAccess access = device.peer(other->uuid());
    const bool known = std::any_of(found.begin(), found.end(), [&](const Peer& one) { return one.link == access.link; });
    if (access.access && !known) found.push_back({other, access.link});
  }
  return found;
}

}  // namespace

DeviceLink nearest_link(const Device& device, const DeviceCosts& costs) {
  DeviceLink nearest = DeviceLink::none;
  for (const Peer& peer : peers_of(device)) {
    if (nearest != DeviceLink::nvlink) nearest = peer.link;
  }
  if (nearest != DeviceLink::none) return nearest;
  for (const DeviceLink link : {DeviceLink::nvlink, DeviceLink::pcie}) {
    if ((costs.measured & link_bits(link)) != 0) return link;
  }
  return costs.measured != 0 ? DeviceLink::same : DeviceLink::unknown;
}

DeviceTable::~DeviceTable() = default;

void DeviceTable::open(const CostTable& costs) {
  const std::lock_guard guard(mutex_);
  path_ = costs.file.empty() ? "" : device_cost_path(costs.file);
  why_ = costs.file.empty() ? costs.why : "";
}

void DeviceTable::forbid() {
  const std::lock_guard guard(mutex_);
  forbidden_ = true;
}

DeviceTable::Entry& DeviceTable::entry(Device& device) {
  const auto [at, fresh] = entries_.try_emplace(&device);
  if (!fresh) return at->second;
  at->second.model = device.model().substr(0, kModelMax);
  look_up(at->second);
  return at->second;
}

/// What other processes have measured, or another context of this one.
void DeviceTable::look_up(Entry& entry) {
  if (path_.empty()) {
    entry.why = why_;
    return;
  }
  std::vector<ModelCosts> all;
  const Status status = load_device_costs(path_, &all);
  entry.why = "not measured yet";
  if (is_error(status) && status != TW_ERR_NO_MATCH) {
    entry.why = last_error();
    if (status != TW_ERR_STALE) {
      warn_once("costs.devices", "the measured costs in " + path_ + " are ignored: " + entry.why + ". Remedy: remove the file");
      entry.tried = entry.tried_persistent = true;  // it is the user's to say what becomes of it
    }
  }
  for (const ModelCosts& one : all)
    if (one.model == entry.model) take_over(one.costs, &entry.costs);
  const std::lock_guard guard(unkept().lock);
  if (const auto found = unkept().costs.find(path_ + "\n" + entry.model); found != unkept().costs.end())
    take_over(found->second, &entry.costs);
  if (entry.costs.measured != 0) entry.why.clear();
}

bool DeviceTable::permitted(Entry& entry) const {
  if (path_.empty()) return false;
  if (!forbidden_) return true;
  if (entry.costs.measured == 0) entry.why = "plans of this process were made before the device's first use";
  return false;
}

void DeviceTable::measure_peers(Device& device, Entry& entry) {
  for (const Peer& peer : peers_of(device)) {
    if ((entry.costs.measured & link_bits(peer.link)) != 0) continue;
    if (is_error(entry.bench->measure_peer(peer.device->uuid(), peer.link, kLimitNs, &entry.costs)))
      log(LogLevel::debug, "costs of copies between devices stay defaults: %s", last_error());
  }
}

void DeviceTable::measure(Device& device, Entry& entry) {
  entry.tried = true;
  const std::vector<Peer> peers = peers_of(device);
  const auto known = [&] {
    const auto pair = [&](const Peer& peer) { return (entry.costs.measured & link_bits(peer.link)) != 0; };
    return (entry.costs.measured & own_bits()) == own_bits() && std::all_of(peers.begin(), peers.end(), pair);
  };
  if (known()) return;
  if (const Status status = make_place(path_); is_error(status)) log(LogLevel::debug, "costs: %s", last_error());
  const UniqueFd lock = lock_beside(path_, kOthersNs);
  if (lock) look_up(entry);  // another process may have measured meanwhile
  if (known()) return;
  if (entry.bench == nullptr) entry.bench = std::make_unique<DeviceBench>(device);
  const bool own = (entry.costs.measured & own_bits()) == own_bits();
  if (!own && is_error(entry.bench->measure(kLimitNs, &entry.costs))) {
    entry.why = last_error();
    return;
  }
  measure_peers(device, entry);
  keep(entry);
}

/// Into the file, beside what it says of other devices; where that cannot be, for this process.
void DeviceTable::keep(Entry& entry) {
  entry.why.clear();
  std::vector<ModelCosts> all;
  (void)load_device_costs(path_, &all);
  const auto mine = [&](const ModelCosts& one) { return one.model == entry.model; };
  if (const auto found = std::find_if(all.begin(), all.end(), mine); found != all.end()) {
    take_over(found->costs, &entry.costs);
    found->costs = entry.costs;
  } else {
    if (all.size() == kDeviceModels) all.erase(all.begin());
    all.push_back({entry.model, entry.costs});
  }
  if (save_device_costs(path_, all) == TW_OK) return;
  entry.why = std::string("measured by this process; not kept: ") + last_error();
  const std::lock_guard guard(unkept().lock);
  unkept().costs[path_ + "\n" + entry.model] = entry.costs;
}

DeviceTable::Said DeviceTable::known(Device& device) {
  const std::lock_guard guard(mutex_);
  const Entry& one = entry(device);
  return {one.model, one.why, one.costs};
}

DeviceCosts DeviceTable::of(Device& device) {
  const std::lock_guard guard(mutex_);
  Entry& one = entry(device);
  if (!one.tried && permitted(one)) measure(device, one);
  return one.costs;
}

DeviceCosts DeviceTable::of(Device& device, PersistentCopier& persistent) {
  (void)of(device);
  const std::lock_guard guard(mutex_);
  Entry& one = entry(device);
  const bool known = (one.costs.measured & bit_of(&DeviceCosts::persistent)) != 0;
  if (known || one.tried_persistent || !permitted(one)) return one.costs;
  one.tried_persistent = true;
  if (one.bench == nullptr) one.bench = std::make_unique<DeviceBench>(device);
  const UniqueFd lock = lock_beside(path_, kOthersNs);
  if (one.bench->measure_persistent(persistent, kLimitNs, &one.costs) == TW_OK) keep(one);
  return one.costs;
}

}  // namespace thalweg::impl
