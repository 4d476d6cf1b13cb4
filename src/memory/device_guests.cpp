// SPDX-License-Identifier: Apache-2.0
#include "memory/device_guests.hpp"

#include <algorithm>
#include <ctime>
#include <unordered_map>
#include <utility>

#include "base/platform/fork.hpp"

namespace thalweg::impl {
namespace {

/// Those with a name, of all contexts of this process.
struct Named {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::weak_ptr<DeviceGuests>> all;
  uint64_t last = 0;
};

}  // namespace

std::shared_ptr<DeviceGuests> DeviceGuests::make_named(uint64_t* name) {
  auto made = std::make_shared<DeviceGuests>();
  Named& named = state_of_process<Named>();
  const std::lock_guard lock(named.mutex);
  *name = made->name_ = ++named.last;
  named.all.emplace(*name, made);
  return made;
}

DeviceGuests::~DeviceGuests() {
  if (name_ == 0) return;
  Named& named = state_of_process<Named>();
  const std::lock_guard lock(named.mutex);
  named.all.erase(name_);
}

std::shared_ptr<DeviceGuests> DeviceGuests::find(uint64_t name) {
  Named& named = state_of_process<Named>();
  const std::lock_guard lock(named.mutex);
  const auto found = named.all.find(name);
  return found == named.all.end() ? nullptr : found->second.lock();
}

uint64_t DeviceGuests::enter() {
  const std::lock_guard lock(mutex_);
  if (closed_) return 0;
  inside_.push_back({++last_, nullptr, 0});
  return last_;
}

void DeviceGuests::enqueued(uint64_t number, const uint64_t* word, uint64_t value) {
  const std::lock_guard lock(mutex_);
  for (Inside& one : inside_) {
    if (one.number != number) continue;
    one.word = word;
    one.value = value;
  }
}

void DeviceGuests::leave(uint64_t number) {
  const std::lock_guard lock(mutex_);
  std::erase_if(inside_, [number](const Inside& one) { return one.number == number; });
}

bool DeviceGuests::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  // acquire: what the device wrote is there
  const auto over = [](const Inside& one) {
    return one.word != nullptr && __atomic_load_n(one.word, __ATOMIC_ACQUIRE) >= one.value;
  };
  std::erase_if(inside_, over);
  return inside_.empty();
}

bool DeviceGuests::close(const Deadline& deadline) {
  while (!close()) {
    if (deadline.passed()) return false;
    const timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

DeviceVisit::DeviceVisit(const GuestLists& hosts) {
  for (const auto& guests : hosts) hosts_.push_back({guests});
}

bool DeviceVisit::enter() {
  for (Host& host : hosts_) {
    host.number = host.guests->enter();
    if (host.number != 0) continue;
    leave();
    return false;
  }
  return true;
}

void DeviceVisit::enqueued(const uint64_t* word, uint64_t value) {
  for (const Host& host : hosts_) host.guests->enqueued(host.number, word, value);
}

void DeviceVisit::leave() {
  for (Host& host : hosts_) {
    if (const uint64_t number = std::exchange(host.number, 0); number != 0) host.guests->leave(number);
  }
}

}  // namespace thalweg::impl
