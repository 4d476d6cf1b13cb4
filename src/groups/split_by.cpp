// SPDX-License-Identifier: Apache-2.0
// What ranks have in common: the machine, a NUMA node of it, devices that are joined by NVLink.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "devices/registry.hpp"
#include "groups/exchange.hpp"
#include "groups/parts.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kMostDevices = 16;  // of one machine

struct Island {
  uint64_t host;
  uint32_t count, reserved;
  Uuid devices[kMostDevices];  // of this process, joined with its first
};

bool joined(const Device& one, const Uuid& other) {
  const DeviceLink link = one.peer(other).link;
  return link == DeviceLink::nvlink || link == DeviceLink::same;
}

/// The first device of this process and those that NVLink joins with it, directly or by others.
Island own_island(uint64_t host) {
  Island island{host, 0, 0, {}};
  std::vector<Device*> left = list_devices(nullptr), found;
  if (left.empty()) return island;
  found.push_back(left.front());
  left.erase(left.begin());
  for (size_t i = 0; i < found.size(); ++i) {
    std::erase_if(left, [&](Device* other) {
      if (!joined(*found[i], other->uuid())) return false;
      found.push_back(other);
      return true;
    });
  }
  for (Device* one : found) {
    if (island.count < kMostDevices) island.devices[island.count++] = one->uuid();
  }
  return island;
}

bool has(const Island& island, const Uuid& uuid) {
  return std::find(island.devices, island.devices + island.count, uuid) != island.devices + island.count;
}

/// Do all ranks of this machine have devices, and does this process see what joins them? Else the machine stays together.
bool is_known(const std::vector<Island>& all, const Island& mine) {
  const std::vector<Device*> here = list_devices(nullptr);
  for (const Island& other : all) {
    if (other.host != mine.host) continue;
    if (other.count == 0 || here.empty()) return false;
    for (uint32_t i = 0; i < other.count; ++i) {
      if (here.front()->peer(other.devices[i]).link == DeviceLink::unknown) return false;
    }
  }
  return true;
}

/// Islands of several ranks that have a device in common are one: it has the least number of a device in them.
uint64_t color_of(std::vector<Island> all, const Island& mine) {
  std::vector<Uuid> together(mine.devices, mine.devices + mine.count);
  for (size_t i = 0; i < together.size(); ++i) {
    for (Island& other : all) {
      if (other.host != mine.host || !has(other, together[i])) continue;
      for (uint32_t k = 0; k < other.count; ++k) {
        if (std::find(together.begin(), together.end(), other.devices[k]) == together.end())
          together.push_back(other.devices[k]);
      }
      other.count = 0;
    }
  }
  const Uuid least = *std::min_element(together.begin(), together.end());
  uint64_t words[2] = {0, 0};
  static_assert(sizeof least >= sizeof words);
  std::memcpy(words, &least, sizeof words);
  return mixed(mixed(mine.host, words[0]), words[1]);
}

Status color_by_devices(ExchangeCall& call, uint64_t host, uint64_t* color) {
  const tw_group& group = call.group;
  const Island mine = own_island(host);
  std::vector<Island> all(group.size);
  if (Status s = exchange(call, &mine, sizeof mine, all.data()); is_error(s)) return s;
  for (Island& one : all) one.count = std::min<uint32_t>(one.count, kMostDevices);
  const uint8_t known = is_known(all, mine);
  std::vector<uint8_t> knows(group.size);
  if (Status s = exchange(call, &known, sizeof known, knows.data()); is_error(s)) return s;
  bool of_all = true;
  for (uint32_t i = 0; i < group.size; ++i) of_all = of_all && (all[i].host != host || knows[i] != 0);
  *color = of_all ? color_of(std::move(all), mine) : host;
  return TW_OK;
}

}  // namespace

Status color_by(ExchangeCall& call, uint32_t kind, uint64_t* color) {
  const uint64_t host = call.group.worker.address.host;
  unsigned cpu = 0, node = 0;
  switch (kind) {
    case TW_SPLIT_HOST:
      *color = host;
      return TW_OK;
    case TW_SPLIT_NUMA:
      if (::syscall(SYS_getcpu, &cpu, &node, nullptr) != 0) node = 0;
      *color = mixed(host, node);
      return TW_OK;
    default:
      return color_by_devices(call, host, color);
  }
}

}  // namespace thalweg::impl
