// SPDX-License-Identifier: Apache-2.0
// Bindings: every rank's part as one executor reaches it, and the words that stop its code.
#include <algorithm>
#include <cstring>
#include <iterator>

#include <thalweg/device/types.hpp>

#include "devices/place.hpp"
#include "devices/registry.hpp"
#include "plans/reach.hpp"
#include "plans/window.hpp"
#include "protocols/device_queues.hpp"
#include "routes/peer_places.hpp"

using namespace thalweg::impl;

namespace {

namespace shared = thalweg::device;
static_assert(sizeof(tw_device_window) == sizeof(shared::Window) && sizeof(tw_device_guard) == sizeof(shared::Guard));
static_assert(offsetof(tw_device_window, length) == offsetof(shared::Window, length));
static_assert(offsetof(tw_device_window, bases) == offsetof(shared::Window, bases));
static_assert(offsetof(tw_device_window, guard) == offsetof(shared::Window, guard));
static_assert(offsetof(tw_device_guard, failure) == offsetof(shared::Guard, failure));
static_assert(offsetof(tw_device_guard, abort) == offsetof(shared::Guard, abort));
static_assert(offsetof(tw_device_guard, limit_ns) == offsetof(shared::Guard, limit_ns));

/// Of the pinned block: a Failure, and on a line of its own, which its waiters poll, the abort word.
constexpr size_t kAbortWord = 16, kPinnedWords = 32;
static_assert(sizeof(shared::Failure) <= kAbortWord * sizeof(uint64_t));

/// "host", or the ordinary memory of a device.
Status parse_executor(const char* text, Device** out) {
  MemoryPlace place;
  if (Status s = parse_place(text, &place); is_error(s)) return s;
  *out = place.device;
  if (place.device == nullptr || place.kind == MemoryKind::device || place.kind == MemoryKind::emulated) return TW_OK;
  return fail(TW_ERR_INVALID, "\"%s\" is a kind of memory; a window is bound to \"host\" or to a device such as \"cuda:0\"",
              text);
}

MemoryKind ordinary_kind(const Device& device) {
  return std::string_view(device.name()) == "emulated" ? MemoryKind::emulated : MemoryKind::device;
}

std::string name_of(const Device* device) {
  return device == nullptr ? "the host" : std::string(device->name()) + ":" + std::to_string(device->ordinal());
}

/// The refusal of one rank's part, around the reason that was just given.
Status refuse(Status status, uint32_t rank, const Device* device, const std::string& why) {
  return fail(status, "the part of rank %u cannot be reached from %s: %s", rank, name_of(device).c_str(), why.c_str());
}

Status fail_released() { return fail(TW_ERR_STALE, "its owner has released it; create the window anew"); }

}  // namespace

Status tw_window::reach_host(uint32_t of, uint64_t* address) const {
  *address = reinterpret_cast<uint64_t>(ranks[of].host);
  return *address != 0 ? Status{TW_OK} : refuse(TW_ERR_UNSUPPORTED, of, nullptr, ranks[of].why_not);
}

Status tw_window::describe(uint32_t of, Device* device, Prepared* out, uint64_t* address) const {
  if (auto* const region = reinterpret_cast<RemoteRegion*>(ranks[of].remote); region != nullptr) {
    const Engine::Guard guard(*worker.engine);
    if (Status s = thalweg::impl::describe(*region, device, address, out); is_error(s)) return s;
  } else {
    *address = reinterpret_cast<uint64_t>(memory->address);
    out->mine = true;
    out->place = local_place(*address, memory->length);
    if (!out->place.on_device()) out->place.reach |= kPinnable;
    describe_runner(device, out);
  }
  // Who has pinned it may unpin it before the window ends.
  if (out->mine && !out->place.on_device()) out->place.reach &= ~uint32_t{kByKernel};
  return TW_OK;
}

/// For as long as the window is there.
Status tw_window::pin(Device& device, uint64_t address) {
  Pinning pinning;
  if (Status s = Pinning::make(device, address, memory->length, &pinning); is_error(s)) return s;
  pinnings_.push_back(std::move(pinning));
  return TW_OK;
}

/// Of memory of this process, `region` null: the own rank's. Host memory of another rank, who ends the window before it, is pinned as
/// the own one; a device's is held, as a rank may end alone where a group ends its windows.
Status tw_window::take_own(PreparedRoute route, const RemoteRegion* region, Device& device, uint64_t address) {
  if (route == PreparedRoute::pinned) return pin(device, address);
  std::shared_ptr<void> held;
  if (region != nullptr && is_error(Registry::hold_in_process(region->key.rkey, &held))) return fail_released();
  if (held != nullptr) held_here_.push_back(std::move(held));
  bool kernels = true;
  const Engine::Guard guard(*worker.engine);
  if (Status s = worker.engine->devices().admit(device, address, memory->length, &kernels); is_error(s)) return s;
  return kernels ? Status{TW_OK} : fail(TW_ERR_UNREACHABLE, "there is no peer access between the two devices");
}

/// Of another rank's memory, as long as that takes.
Status tw_window::take_remote(PreparedRoute route, RemoteRegion& region, Device& device, uint64_t* address) {
  Mapping* mapping = nullptr;
  Status status = TW_IN_PROGRESS;
  const Status waited = worker.wait_until(
      [&] {
        const Engine::Guard guard(*worker.engine);
        if (region.peer == nullptr || region.peer->link == nullptr) {
          status = fail(TW_ERR_PEER_LOST, "its endpoint has ended");
        } else {
          status = take_prepared(route, region, &device, address, &mapping);
          if (status == TW_OK && mapping != nullptr) hold(mapping);
        }
        return status != TW_IN_PROGRESS;
      },
      timeout_ns);
  if (is_error(waited)) {
    const bool pins = route == PreparedRoute::pinned;
    return fail(waited, pins ? "it has not been mapped and pinned in time" : "its owner has not answered the import in time");
  }
  // The port's own hold on what it found ends: from here on only the window's counts.
  if (status == TW_OK && mapping != nullptr) {
    worker.progress();
    worker.progressed();
  }
  return status == TW_ERR_STALE ? fail_released() : status;
}

Status tw_window::reach_device(uint32_t of, Device& device, uint64_t* address) {
  Reaching how;
  if (const Status s = describe(of, &device, &how.facts, address); is_error(s)) return s == TW_ERR_STALE ? fail_released() : s;
  auto* const region = reinterpret_cast<RemoteRegion*>(ranks[of].remote);
  const Status status = how.try_routes(how.facts.access ? TW_ERR_UNSUPPORTED : TW_ERR_UNREACHABLE, [&](PreparedRoute route) {
    return how.facts.mine ? take_own(route, region, device, *address) : take_remote(route, *region, device, address);
  });
  if (status != TW_ERR_UNREACHABLE && status != TW_ERR_UNSUPPORTED) return status;
  return fail(status, "%s", how.why_not().c_str());
}

/// The executor's words and the pinned ones, filled in.
Status tw_window::make_guard(WindowBinding& binding, const std::vector<uint64_t>& bases) {
  std::vector<uint64_t> table{0};  // the abort flag, then the addresses
  table.insert(table.end(), bases.begin(), bases.end());
  const size_t bytes = table.size() * sizeof(uint64_t);
  uint64_t executor = 0;
  uint64_t* pinned = nullptr;
  if (binding.device == nullptr) {
    binding.host_executor = table;
    binding.host_pinned.resize(kPinnedWords);
    executor = reinterpret_cast<uint64_t>(binding.host_executor.data());
    pinned = binding.host_pinned.data();
  } else {
    Device& device = *binding.device;
    Status status = DeviceAllocation::allocate(device, ordinary_kind(device), bytes, &binding.executor);
    if (status == TW_OK)
      status = DeviceAllocation::allocate(device, MemoryKind::pinned, kPinnedWords * sizeof *pinned, &binding.pinned);
    executor = binding.executor.address();
    pinned = reinterpret_cast<uint64_t*>(binding.pinned.address());
    if (status == TW_OK) status = worker.context.copier.copy(executor, reinterpret_cast<uint64_t>(table.data()), bytes);
    if (is_error(status)) return status;
    std::memset(pinned, 0, kPinnedWords * sizeof *pinned);
  }
  binding.view.rank = rank;
  binding.view.size = static_cast<uint32_t>(ranks.size());
  binding.view.length = memory->length;
  binding.view.bases = reinterpret_cast<char* const*>(executor + sizeof(uint64_t));
  for (size_t i = 0; i < std::min(bases.size(), std::size(binding.view.first_bases)); ++i)
    binding.view.first_bases[i] = reinterpret_cast<char*>(bases[i]);
  binding.view.guard = {reinterpret_cast<uint64_t*>(executor), pinned, pinned + kAbortWord, timeout_ns};
  board->add_word(pinned + kAbortWord);
  return TW_OK;
}

/// As new: nothing runs that uses it.
Status tw_window::clear(WindowBinding& binding) {
  const uint64_t zero = 0;
  std::memset(binding.view.guard.failure, 0, sizeof(shared::Failure));
  if (binding.device == nullptr) {
    binding.host_executor[0] = 0;
    return TW_OK;
  }
  return worker.context.copier.copy(binding.executor.address(), reinterpret_cast<uint64_t>(&zero), sizeof zero);
}

const tw_device_window* tw_window::bound(const Device& device) const {
  for (const auto& known : bindings_) {
    if (known->device == &device) return &known->view;
  }
  return nullptr;
}

Status tw_window::bind(const char* place, tw_device_window* out) {
  Device* device = nullptr;
  if (Status s = parse_executor(place, &device); is_error(s)) return s;
  if (Status s = board->check(); is_error(s)) return s;
  for (auto& known : bindings_) {
    if (known->device != device) continue;
    *out = known->view;
    return clear(*known);
  }
  std::vector<uint64_t> bases(ranks.size());
  for (uint32_t i = 0; i < ranks.size(); ++i) {
    const Status status = device == nullptr ? reach_host(i, &bases[i]) : reach_device(i, *device, &bases[i]);
    if (!is_error(status)) continue;
    if (Status lost = board->check(); is_error(lost)) return lost;
    const std::string why = last_error();
    return device == nullptr ? status : refuse(status, i, device, why);
  }
  auto binding = std::make_unique<WindowBinding>();
  binding->device = device;
  if (device != nullptr) binding->kernels_wait.emplace();
  if (Status s = make_guard(*binding, bases); is_error(s)) return s;
  *out = binding->view;
  const std::lock_guard lock(bindings_mutex_);
  bindings_.push_back(std::move(binding));
  return TW_OK;
}

Status tw_window::check() {
  if (Status s = board->check(); is_error(s)) return s;
  const std::lock_guard lock(bindings_mutex_);
  for (const auto& binding : bindings_) {
    const auto& failure = *static_cast<const shared::Failure*>(binding->view.guard.failure);
    const auto code = static_cast<Status>(__atomic_load_n(&failure.code, __ATOMIC_ACQUIRE));
    if (code == TW_OK) continue;
    return fail(code,
                "code on %s gave up (%s): its operation %llu waited for %llu and found %llu; bind the place again to go on",
                name_of(binding->device).c_str(), tw_status_name(code), failure.what, failure.expected, failure.found);
  }
  return TW_OK;
}
