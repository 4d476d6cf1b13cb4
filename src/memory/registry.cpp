// SPDX-License-Identifier: Apache-2.0
// The registry: regions by address, keys by rkey, segments by identifier. Names of device memory: registry_devices.cpp.
#include "memory/registry.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/log.hpp"
#include "memory/place.hpp"
#include "memory/registry_state.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kMaxLength = size_t{1} << 62;

/// The registries of this process, one per context.
struct AllRegistries {
  std::mutex mutex;
  std::vector<const Registry*> list;
};

}  // namespace

/// Non-zero and unguessable.
Status random_identifier(uint64_t* out) {
  do {
    const ssize_t n = getrandom(out, sizeof *out, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n != static_cast<ssize_t>(sizeof *out)) return fail_errno(n < 0 ? errno : EIO, "getrandom");
  } while (*out == 0);
  return TW_OK;
}

namespace {

#ifdef NDEBUG
void note_reading(bool) {}
#else
/// A section inside another one of the same thread would wait for a writer that waits for the outer one.
void note_reading(bool inside) {
  thread_local bool reading = false;
  if (reading == inside) {
    std::fputs("thalweg: a reader section of the registry inside another one of its thread\n", stderr);
    std::abort();
  }
  reading = inside;
}
#endif

}  // namespace

namespace {

/// What a stopped peer or a device still works on when its owner ends: their work still finds it, and no thread waits for ever.
void keep_for_ever(tw_memory* memory) {
  static auto* const kept = new std::vector<tw_memory*>;  // leaked, as is what it holds
  static std::mutex mutex;
  warn_once("registry.busy", std::string("memory is not given back at the end of its context: ") + last_error());
  const std::lock_guard lock(mutex);
  kept->push_back(memory);
}

}  // namespace

Registry::Reading::Reading(const Registry& registry) : registry_(registry) {
  note_reading(true);
  std::atomic<uint32_t>& readers = registry_.state_->readers;
  while (readers.fetch_add(1, std::memory_order_acquire) & kRegistryWriter) {
    readers.fetch_sub(1, std::memory_order_release);
    while (readers.load(std::memory_order_relaxed) & kRegistryWriter) sched_yield();
  }
}

void Registry::Reading::end() {
  ended_ = true;
  registry_.state_->readers.fetch_sub(1, std::memory_order_release);
  note_reading(false);
}

Registry::Registry(uint64_t incarnation) : state_(std::make_unique<State>()), incarnation_(incarnation) {
  AllRegistries& all = state_of_process<AllRegistries>();
  const std::lock_guard lock(all.mutex);
  all.list.push_back(this);
}

Registry::~Registry() {
  {
    AllRegistries& all = state_of_process<AllRegistries>();
    const std::lock_guard lock(all.mutex);
    std::erase(all.list, this);
  }
  while (!state_->memories.empty()) {
    tw_memory* const memory = *state_->memories.begin();
    if (!is_error(release(memory))) continue;
    keep_for_ever(memory);
    const Writing writing(*state_);
    state_->memories.erase(memory);
  }
}

Status Registry::register_memory(void* address, size_t length, uint32_t access, tw_memory** out, const MemoryOrigin& origin) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  if (length == 0 || length > kMaxLength || start == 0 || start + length < start) {
    return fail(TW_ERR_INVALID, "cannot register %zu bytes at %p; give the start and size of an existing buffer", length,
                address);
  }
  if (access & ~(uint32_t{TW_MEMORY_ALL} | kAccessSignal)) return fail(TW_ERR_INVALID, "access takes TW_MEMORY_* bits only");
  auto memory = std::make_unique<tw_memory>();
  memory->registry = this;
  memory->address = static_cast<std::byte*>(address);
  memory->length = length;
  memory->access = access == 0 ? uint32_t{TW_MEMORY_ALL} : access;
  memory->origin = origin;
  if (!by_cpu(origin.kind)) memory->users = std::make_shared<DeviceUsers>();
  if (origin.buffer.exportable != ExportForm::none) {
    const Status s = make_name(origin.buffer, start, length, memory.get(), &memory->segment_id, &memory->segment_offset);
    if (is_error(s) && s != TW_ERR_UNSUPPORTED) return s;
  }
  const Writing writing(*state_);
  state_->memories.insert(memory.get());
  *out = memory.release();
  return TW_OK;
}

Status Registry::allocate(size_t length, uint32_t access, bool huge, tw_memory** out) {
  if (length == 0 || length > kMaxLength) return fail(TW_ERR_INVALID, "cannot allocate %zu bytes", length);
  Segment segment;
  if (Status s = Segment::create("thalweg-memory", length, false, huge, &segment); is_error(s)) return s;
  uint64_t identifier = 0;
  if (Status s = random_identifier(&identifier); is_error(s)) return s;
  tw_memory* memory = nullptr;
  if (Status s = register_memory(segment.data(), length, access, &memory); is_error(s)) return s;
  const Writing writing(*state_);
  memory->segment = std::move(segment);
  memory->host_segment = HostSegment(memory->address, memory->length);
  memory->segment_id = identifier;
  state_->allocated[reinterpret_cast<uintptr_t>(memory->address)] = memory;
  state_->segments[identifier] = memory;
  state_->segment_count.fetch_add(1, std::memory_order_release);
  *out = memory;
  return TW_OK;
}

/// Afterwards no access by a key reaches the memory, and none is under way.
Status Registry::revoke_all(tw_memory* memory, bool waits) {
  {
    const Writing writing(*state_);
    if (!state_->memories.contains(memory)) {
      return fail(TW_ERR_HANDLE, "this memory is not registered (any more); release each registration once");
    }
    for (uint64_t rkey : memory->rkeys) {
      const auto found = state_->exports.find(rkey);
      state_->checks.give_back(found->second.check);
      state_->exports.erase(found);
    }
    memory->rkeys.clear();
    if (!memory->exported) return TW_OK;
  }
  const std::shared_lock lock(state_->listening);
  for (SegmentListener* listener : state_->listeners) {
    if (!listener->on_keys_revoked(waits)) {
      return fail(TW_ERR_BUSY, "a stopped peer is in the middle of a copy of this memory; release it again when it goes on");
    }
  }
  return TW_OK;
}

Status Registry::release(tw_memory* memory, bool waits) {
  if (Status s = revoke_all(memory, waits); is_error(s)) return s;
  if (const auto users = memory->users; users != nullptr && !users->close(Deadline(waits ? patience_ns_ : 0))) {
    return fail(TW_ERR_BUSY,
                "a device still works on this memory for a worker of this process; release it again when that has ended");
  }
  if (Status s = give_up_name(memory, waits); is_error(s)) return s;
  const bool shared = memory->segment.data() != nullptr;
  if (memory->pinning != nullptr) memory->pinning->settle();  // without keys no new one begins
  {
    const Writing writing(*state_);
    if (state_->memories.erase(memory) == 0) return fail(TW_ERR_HANDLE, "this memory is released by another thread");
    if (shared) {
      state_->allocated.erase(reinterpret_cast<uintptr_t>(memory->address));
      state_->segments.erase(memory->segment_id);
      state_->segment_count.fetch_sub(1, std::memory_order_release);
    }
  }
  memory->host_segment = {};
  if (shared) announce_release(memory->segment_id);
  if (shared && memory->pinning != nullptr) release_pinned(std::move(memory->segment), nullptr, std::move(memory->pinning));
  delete memory;
  return TW_OK;
}

void Registry::release_or_leave(tw_memory* memory) {
  {
    const std::lock_guard lock(state_->leaving);
    state_->left.push_back(memory);
    state_->left_count.store(state_->left.size(), std::memory_order_relaxed);
  }
  release_left();
}

/// A driver may block in it: under no lock.
void Registry::release_left() {
  if (state_->left_count.load(std::memory_order_relaxed) == 0) return;
  const std::string before = last_error();  // that something is still in use is no error of the caller's
  std::vector<tw_memory*> all;
  {
    const std::lock_guard lock(state_->leaving);
    all.swap(state_->left);
  }
  std::erase_if(all, [this](tw_memory* memory) { return release(memory, false) != TW_ERR_BUSY; });
  set_last_error(before);
  const std::lock_guard lock(state_->leaving);
  state_->left.insert(state_->left.end(), all.begin(), all.end());
  state_->left_count.store(state_->left.size(), std::memory_order_relaxed);
}

size_t Registry::left() const { return state_->left_count.load(std::memory_order_relaxed); }

void Registry::announce_release(uint64_t segment) {
  const std::shared_lock lock(state_->listening);
  for (SegmentListener* listener : state_->listeners) listener->on_segment_released(segment);
}

Status Registry::release_address(void* address) {
  tw_memory* memory = nullptr;
  {
    const Reading reading(*this);
    const auto found = state_->allocated.find(reinterpret_cast<uintptr_t>(address));
    if (found != state_->allocated.end()) memory = found->second;
  }
  if (memory == nullptr) return fail(TW_ERR_HANDLE, "%p was not given out by tw_allocate of this context", address);
  return release(memory);
}

Status Registry::export_range(tw_memory* memory, size_t offset, size_t length, uint32_t access, KeyBody* out) {
  if (offset > memory->length || length > memory->length - offset) {
    return fail(TW_ERR_OUT_OF_BOUNDS, "the range starts at %zu and is %zu long, the memory only %zu", offset, length,
                memory->length);
  }
  if (length == 0) length = memory->length - offset;
  if (length == 0) return fail(TW_ERR_OUT_OF_BOUNDS, "the range is empty: it starts at the memory's end");
  uint64_t rkey = 0;
  if (Status s = random_identifier(&rkey); is_error(s)) return s;
  // Write access to a word includes signalling there.
  const uint32_t own = memory->access | ((memory->access & TW_MEMORY_WRITE) != 0 ? kAccessSignal : 0);
  const uint32_t granted = access == 0 ? memory->access : access & own;
  if (granted == 0) return fail(TW_ERR_PERMISSION, "the memory was registered without any of the access asked for");
  std::byte* address = memory->address + offset;
  uint64_t* check = nullptr;
  {
    const Writing writing(*state_);
    if (!state_->memories.contains(memory)) return fail(TW_ERR_HANDLE, "this memory is not registered (any more)");
    while (state_->exports.contains(rkey)) ++rkey;
    memory->rkeys.push_back(rkey);
    memory->exported = true;
    check = state_->checks.take(rkey);
    state_->exports.emplace(rkey,
                            Export{address, length, granted, memory->origin.kind, memory->origin.buffer.device, memory, check});
  }
  *out = KeyBody{};
  out->version = 1;
  out->kind = static_cast<uint8_t>(memory->origin.kind);
  out->access = static_cast<uint8_t>(granted);
  out->device = memory->origin.device;
  out->incarnation = incarnation_;
  out->rkey = rkey;
  out->base = reinterpret_cast<uintptr_t>(address);
  out->length = length;
  out->check = reinterpret_cast<uintptr_t>(check);
  out->segment = memory->segment_id;
  out->segment_offset = memory->segment_id ? memory->segment_offset + offset : 0;
  std::memcpy(out->device_uuid, memory->origin.device_uuid, sizeof out->device_uuid);
  return TW_OK;
}

Status Registry::revoke(uint64_t rkey) {
  std::shared_ptr<DeviceUsers> users;
  {
    const Writing writing(*state_);
    const auto found = state_->exports.find(rkey);
    if (found == state_->exports.end()) return fail(TW_ERR_STALE, "this key is not alive (any more)");
    users = found->second.memory->users;
    std::erase(found->second.memory->rkeys, rkey);
    state_->checks.give_back(found->second.check);
    state_->exports.erase(found);
  }
  if (users != nullptr) users->await_threads();
  return TW_OK;
}

Status Registry::resolve(const Reading&, uint64_t rkey, uint64_t offset, uint64_t length, uint32_t access, Target* out) const {
  const auto found = state_->exports.find(rkey);
  if (found == state_->exports.end()) return TW_ERR_STALE;
  const Export& region = found->second;
  if (offset > region.length || length > region.length - offset) return TW_ERR_OUT_OF_BOUNDS;
  if ((region.access & access) != access) return TW_ERR_PERMISSION;
  out->address = region.address + offset;
  out->kind = region.kind;
  out->device = region.device;
  return TW_OK;
}

std::shared_ptr<DeviceUsers> Registry::users(const Reading&, uint64_t rkey) const {
  const auto found = state_->exports.find(rkey);
  return found == state_->exports.end() ? nullptr : found->second.memory->users;
}

Status Registry::resolve_in_process(uint64_t rkey, uint64_t offset, uint64_t length, uint32_t access, Target* out) {
  AllRegistries& all = state_of_process<AllRegistries>();
  const std::lock_guard lock(all.mutex);
  for (const Registry* registry : all.list) {
    const Reading reading(*registry);
    if (const Status s = registry->resolve(reading, rkey, offset, length, access, out); s != TW_ERR_STALE) return s;
  }
  return TW_ERR_STALE;
}

/// While the tables may be changed.
std::shared_ptr<PinningAhead> Registry::pinning_of(tw_memory& memory, Device& device) {
  if (memory.pinning == nullptr)
    memory.pinning = PinningAhead::start(device, reinterpret_cast<uintptr_t>(memory.address), memory.length);
  return memory.pinning;
}

namespace {

Status end_of(const PinningAhead& pinning) {
  const Status status = pinning.status();
  const std::string why = is_error(status) ? last_error() : "";
  return is_error(status) ? fail(TW_ERR_UNREACHABLE, "it could not be pinned: %s", why.c_str()) : status;
}

}  // namespace

Status Registry::pin_in_process(uint64_t rkey, Device& device) {
  std::shared_ptr<PinningAhead> pinning;
  {
    AllRegistries& all = state_of_process<AllRegistries>();
    const std::lock_guard lock(all.mutex);
    for (const Registry* registry : all.list) {
      const Writing writing(*registry->state_);
      const auto found = registry->state_->exports.find(rkey);
      if (found == registry->state_->exports.end()) continue;
      pinning = pinning_of(*found->second.memory, device);
      break;
    }
  }
  return pinning != nullptr ? end_of(*pinning) : fail(TW_ERR_STALE, "this memory was released; import a new key");
}

Status Registry::pin_allocated(uint64_t address, Device& device) {
  std::shared_ptr<PinningAhead> pinning;
  {
    const Writing writing(*state_);
    auto after = state_->allocated.upper_bound(address);
    if (after != state_->allocated.begin()) {
      tw_memory& memory = *std::prev(after)->second;
      const bool holds = address - reinterpret_cast<uintptr_t>(memory.address) < memory.length;
      if (holds) pinning = pinning_of(memory, device);
    }
  }
  return pinning != nullptr ? end_of(*pinning) : fail(TW_ERR_STALE, "this memory was released");
}

Status Registry::hold_in_process(uint64_t rkey, std::shared_ptr<void>* out) {
  AllRegistries& all = state_of_process<AllRegistries>();
  const std::lock_guard lock(all.mutex);
  for (const Registry* registry : all.list) {
    const Reading reading(*registry);
    const auto found = registry->state_->exports.find(rkey);
    if (found == registry->state_->exports.end()) continue;
    const tw_memory& memory = *found->second.memory;
    if (memory.segment.data() == nullptr) *out = memory.device;
    return TW_OK;
  }
  return fail(TW_ERR_STALE, "this memory was released; import a new key");
}

bool Registry::find_segment(const void* address, size_t length, uint64_t* segment, uint64_t* offset) const {
  if (state_->segment_count.load(std::memory_order_relaxed) == 0) return false;
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  const Reading reading(*this);
  auto after = state_->allocated.upper_bound(at);
  if (after == state_->allocated.begin()) return false;
  const tw_memory& memory = *std::prev(after)->second;
  const uint64_t within = at - reinterpret_cast<uintptr_t>(memory.address);
  if (within > memory.length || length > memory.length - within) return false;
  *segment = memory.segment_id;
  *offset = within;
  return true;
}

Status Registry::segment_fd(uint64_t segment, int* fd, size_t* length) const {
  const Reading reading(*this);
  const auto found = state_->segments.find(segment);
  if (found == state_->segments.end()) return fail(TW_ERR_STALE, "the peer asks for memory that is not allocated (any more)");
  const int copy = fcntl(found->second->segment.fd(), F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return fail_errno(errno, "duplicating the descriptor of library-allocated memory");
  *fd = copy;
  *length = found->second->segment.size();
  return TW_OK;
}

void Registry::add_listener(SegmentListener* listener) {
  const std::lock_guard lock(state_->listening);
  state_->listeners.push_back(listener);
}

void Registry::remove_listener(SegmentListener* listener) {
  const std::lock_guard lock(state_->listening);
  std::erase(state_->listeners, listener);
}

}  // namespace thalweg::impl
