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
  inside_.push_back({.number = ++last_});
  return last_;
}

DeviceUsers::Inside* DeviceUsers::find_inside(uint64_t number) {
  const auto found = std::find_if(inside_.begin(), inside_.end(), [number](const Inside& one) { return one.number == number; });
  return found == inside_.end() ? nullptr : &*found;
}

void DeviceUsers::enqueued(uint64_t number, const uint64_t* word, uint64_t value) {
  const std::lock_guard lock(mutex_);
  Inside* const one = find_inside(number);
  if (one == nullptr) return;
  one->word = word;
  one->value = value;
}

void DeviceUsers::enqueued(uint64_t number, PersistentCopier* persistent, PersistentCopier::Ticket* ticket) {
  const std::lock_guard lock(mutex_);
  Inside* const one = find_inside(number);
  if (one == nullptr) return;
  one->persistent = persistent;
  one->ticket = ticket;
}

void DeviceUsers::leave(uint64_t number) {
  const std::lock_guard lock(mutex_);
  std::erase_if(inside_, [number](const Inside& one) { return one.number == number; });
}

bool DeviceUsers::Inside::over() const {
  if (ticket != nullptr) return persistent->poll(*ticket) != TW_IN_PROGRESS;
  return word != nullptr && __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value;  // acquire: what the device wrote is there
}

bool DeviceUsers::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  std::erase_if(inside_, [](const Inside& one) { return one.over(); });
  return inside_.empty();
}

namespace {

void pause_a_little() {
  const timespec pause{0, 20'000};
  nanosleep(&pause, nullptr);
}

}  // namespace

bool DeviceUsers::close(const Deadline& deadline) {
  while (!close()) {
    if (deadline.passed()) return false;
    pause_a_little();
  }
  return true;
}

void DeviceUsers::await_threads() {
  std::unique_lock lock(mutex_);
  const uint64_t last = last_;
  const auto awaited = [last](const Inside& one) { return one.number <= last && one.by_thread(); };
  while (std::any_of(inside_.begin(), inside_.end(), awaited)) {
    lock.unlock();
    pause_a_little();
    lock.lock();
  }
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

void DeviceUse::enqueued(PersistentCopier& persistent, PersistentCopier::Ticket& ticket) {
  for (const Entry& entry : lists_) entry.users->enqueued(entry.number, &persistent, &ticket);
}

void DeviceUse::leave() {
  for (Entry& entry : lists_) {
    if (const uint64_t number = std::exchange(entry.number, 0); number != 0) entry.users->leave(number);
  }
}

}  // namespace thalweg::impl
