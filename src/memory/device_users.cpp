// SPDX-License-Identifier: Apache-2.0
#include "memory/device_users.hpp"

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
  std::unordered_map<uint64_t, std::weak_ptr<DeviceUsers>> all;
  uint64_t last = 0;
};

}  // namespace

std::shared_ptr<DeviceUsers> DeviceUsers::make_named(uint64_t* name) {
  auto made = std::make_shared<DeviceUsers>();
  Named& named = state_of_process<Named>();
  const std::lock_guard lock(named.mutex);
  *name = made->name_ = ++named.last;
  named.all.emplace(*name, made);
  return made;
}

DeviceUsers::~DeviceUsers() {
  if (name_ == 0) return;
  Named& named = state_of_process<Named>();
  const std::lock_guard lock(named.mutex);
  named.all.erase(name_);
}

std::shared_ptr<DeviceUsers> DeviceUsers::find(uint64_t name) {
  Named& named = state_of_process<Named>();
  const std::lock_guard lock(named.mutex);
  const auto found = named.all.find(name);
  return found == named.all.end() ? nullptr : found->second.lock();
}

uint64_t DeviceUsers::enter() {
  const std::lock_guard lock(mutex_);
  if (closed_) return 0;
  inside_.push_back({++last_, nullptr, 0});
  return last_;
}

void DeviceUsers::enqueued(uint64_t number, const uint64_t* word, uint64_t value) {
  const std::lock_guard lock(mutex_);
  for (Inside& one : inside_) {
    if (one.number != number) continue;
    one.word = word;
    one.value = value;
  }
}

void DeviceUsers::leave(uint64_t number) {
  const std::lock_guard lock(mutex_);
  std::erase_if(inside_, [number](const Inside& one) { return one.number == number; });
}

bool DeviceUsers::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  // acquire: what the device wrote is there
  const auto over = [](const Inside& one) {
    return one.word != nullptr && __atomic_load_n(one.word, __ATOMIC_ACQUIRE) >= one.value;
  };
  std::erase_if(inside_, over);
  return inside_.empty();
}

bool DeviceUsers::close(const Deadline& deadline) {
  while (!close()) {
    if (deadline.passed()) return false;
    const timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

DeviceUse::DeviceUse(const DeviceUserLists& lists) {
  for (const auto& users : lists) lists_.push_back({users});
}

bool DeviceUse::enter() {
  for (Entry& entry : lists_) {
    entry.number = entry.users->enter();
    if (entry.number != 0) continue;
    leave();
    return false;
  }
  return true;
}

void DeviceUse::enqueued(const uint64_t* word, uint64_t value) {
  for (const Entry& entry : lists_) entry.users->enqueued(entry.number, word, value);
}

void DeviceUse::leave() {
  for (Entry& entry : lists_) {
    if (const uint64_t number = std::exchange(entry.number, 0); number != 0) entry.users->leave(number);
  }
}

}  // namespace thalweg::impl
