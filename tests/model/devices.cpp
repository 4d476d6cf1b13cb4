// SPDX-License-Identifier: Apache-2.0
#include "model/devices.hpp"

#include <cstdlib>

#include "devices/registry.hpp"

namespace thalweg::model {
namespace {

void require(Status status) {
  if (is_error(status)) std::abort();
}

/// A stream and a word of it.
void make_stream(std::unique_ptr<Queue>* stream, uint64_t* word) {
  require(device().make_queue(stream));
  require(device().allocate(MemoryKind::pinned, sizeof(uint64_t), word));
  *reinterpret_cast<uint64_t*>(*word) = 0;
}

}  // namespace

emulated::EmulatedDevice& device() {
  static emulated::EmulatedDevice* const one = [] {
    emulated::Options options;
    options.stepped = true;
    std::unique_ptr<emulated::EmulatedDevice> made;
    require(emulated::EmulatedDevice::open(11, options, &made));
    return made.release();
  }();
  return *one;
}

std::byte* DevicePool::room(MemoryKind kind, size_t length, uint64_t* address, BufferInfo* info) {
  Part& part = parts_[static_cast<size_t>(kind)];
  if (part.base == 0) {
    require(device().allocate(kind, kLength, &part.base));
    require(find_device(part.base, &part.info));
    part.pointer = part.info.host_access ? reinterpret_cast<std::byte*>(part.base) : device().translate(part.base, kLength);
    if (part.pointer == nullptr) std::abort();
  }
  if (part.used + length > kLength) return nullptr;
  *address = part.base + part.used;
  *info = part.info;
  std::byte* const at = part.pointer + part.used;
  part.used += length;
  return at;
}

HeldStream::HeldStream() { make_stream(&stream_, &word_); }

HeldStream::~HeldStream() {
  open();
  stream_->synchronize();
  stream_.reset();
  device().free(word_);
}

void HeldStream::close() {
  ++closed_;
  require(stream_->wait_geq(word_, closed_));
}

Marks::Marks() { make_stream(&stream_, &word_); }

Marks::~Marks() {
  stream_->synchronize();
  stream_.reset();
  device().free(word_);
}

uint64_t Marks::mark() {
  require(stream_->write_value(word_, ++last_, false));
  return last_;
}

}  // namespace thalweg::model
