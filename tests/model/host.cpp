// SPDX-License-Identifier: Apache-2.0
#include "model/host.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "memory/placement.hpp"

namespace thalweg::model {
namespace {

constexpr size_t kBuffers = 4u << 20;
constexpr size_t kLengths[kMemories] = {16u << 10, 16u << 10, 256, 16u << 10};

void require(Status status) {
  if (status != TW_OK) std::abort();
}

}  // namespace

Host::Host(uint64_t incarnation) : registry(incarnation), pool_(registry) {
  registry.add_listener(this);
  registry.set_patience(0);  // the device is not stepped while a release waits
  require(registry.allocate(kBuffers, 0, false, &buffers_));
}

Host::~Host() {
  for (auto& [worker, exports] : exports_) {
    for (Exports::Memory& one : exports.memories) release(one);
    for (tw_signal* signal : exports.signals) pool_.destroy(signal);
  }
  require(registry.release(buffers_));
  registry.remove_listener(this);
  for (const auto& [segment, view] : views_) drop(view);
  for (const View& view : old_) drop(view);
}

Exports& Host::exports(unsigned worker) {
  Exports& all = exports_[worker];
  for (unsigned i = 0; i < kMemories; ++i) {
    Exports::Memory& one = all.memories[i];
    if (one.revoked) require(release(one));
    if (one.memory != nullptr) continue;
    one.length = kLengths[i] - kWords;
    if (i == 1) {
      one.plain.reset(new std::byte[kLengths[i]]);
      require(registry.register_memory(one.plain.get(), kLengths[i], 0, &one.memory));
    } else if (i == 3) {
      require(allocate_at(registry, {MemoryKind::emulated, &device()}, kLengths[i], 0, false, &one.memory));
    } else {
      require(registry.allocate(kLengths[i], 0, false, &one.memory));
    }
    one.pointer = one.memory->address;
    if (one.of_device()) one.pointer = device().translate(reinterpret_cast<uint64_t>(one.memory->address), kLengths[i]);
    one.revoked = false;
    require(registry.export_range(one.memory, 0, kLengths[i], 0, &one.key));
  }
  for (unsigned i = 0; i < kSignals; ++i) {
    if (all.signals[i] != nullptr) continue;
    require(pool_.create(TW_SIGNAL_ADD, 0, &all.signals[i]));
    require(pool_.export_signal(all.signals[i], &all.signal_keys[i]));
  }
  return all;
}

Status Host::release(Exports::Memory& memory) {
  if (memory.memory == nullptr) return TW_OK;
  const Status status = registry.release(memory.memory);
  if (status == TW_OK) memory.memory = nullptr;
  memory.revoked = status == TW_ERR_BUSY;
  return status;
}

std::byte* Host::view(uint64_t segment, size_t* length) {
  const std::lock_guard lock(viewing_);
  if (const auto found = views_.find(segment); found != views_.end()) {
    *length = found->second.length;
    return found->second.address;
  }
  int fd = -1;
  if (registry.segment_fd(segment, &fd, length) != TW_OK) return nullptr;
  void* address = mmap(nullptr, *length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (address == MAP_FAILED) std::abort();
  views_[segment] = {static_cast<std::byte*>(address), *length};
  return static_cast<std::byte*>(address);
}

std::byte* Host::room(size_t length) {
  if (used_ + length > kBuffers) return nullptr;
  std::byte* at = buffers_->address + used_;
  used_ += length;
  return at;
}

void Host::rewind() {
  used_ = 0;
  for (const View& view : old_) drop(view);  // of programs that are over
  old_.clear();
}

void Host::drop(const View& view) { munmap(view.address, view.length); }

void Host::on_segment_released(uint64_t segment) {
  {
    const std::lock_guard lock(viewing_);
    if (const auto found = views_.find(segment); found != views_.end()) {
      old_.push_back(found->second);
      views_.erase(found);
    }
  }
  if (on_release) on_release(segment);
}

Host& host_of(unsigned worker, bool one_process) {
  thread_local std::unique_ptr<Host> hosts[kWorkers + 1];
  std::unique_ptr<Host>& host = hosts[one_process ? kWorkers : worker];
  if (host == nullptr) host = std::make_unique<Host>(100 + (one_process ? kWorkers : worker));
  return *host;
}

}  // namespace thalweg::model
