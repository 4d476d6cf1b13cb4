// SPDX-License-Identifier: Apache-2.0
// Queues and events of emulated devices: made, and wrapped by their handles.
#include "devices/emulated/emulated.hpp"
#include "devices/emulated/event.hpp"

namespace thalweg::impl::emulated {

std::shared_ptr<EmulatedStream> EmulatedDevice::new_stream(bool order_only) {
  return std::make_shared<EmulatedStream>(engine_, order_only);
}

std::shared_ptr<EmulatedStream> EmulatedDevice::find_stream(void* native) {
  const std::lock_guard lock(mutex_);
  if (native == nullptr) {
    if (default_stream_ == nullptr) default_stream_ = new_stream(true);
    return default_stream_;
  }
  std::erase_if(streams_, [](const std::weak_ptr<EmulatedStream>& one) { return one.expired(); });
  for (const std::weak_ptr<EmulatedStream>& one : streams_) {
    if (std::shared_ptr<EmulatedStream> stream = one.lock(); stream.get() == native) return stream;
  }
  return nullptr;
}

bool EmulatedDevice::step(unsigned n) {
  std::vector<std::shared_ptr<EmulatedStream>> streams;
  {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<EmulatedStream>& one : streams_) {
      if (std::shared_ptr<EmulatedStream> stream = one.lock()) streams.push_back(std::move(stream));
    }
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[(n + i) % streams.size()]->step()) return true;
  }
  return false;
}

Status EmulatedDevice::load_kernels() {
  if (!has_kernels()) return fail(TW_ERR_UNSUPPORTED, "device %u behaves as in a build without kernels", index_);
  return born_.check("device");  // twins are part of the program
}

Status EmulatedDevice::make_queue(std::unique_ptr<Queue>* out, QueueUse) {
  if (Status s = born_.check("device"); is_error(s)) return s;
  if (Status s = engine_->faults.check(Operation::queue); is_error(s)) return s;
  std::shared_ptr<EmulatedStream> stream = new_stream(false);
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
  *out = std::make_unique<EmulatedQueue>(this, std::move(stream));
  return TW_OK;
}

Status EmulatedDevice::wrap_queue(void* native, std::unique_ptr<Queue>* out) {
  std::shared_ptr<EmulatedStream> stream = find_stream(native);
  if (stream == nullptr) return fail(TW_ERR_INVALID, "this is not a stream of device %u", index_);
  *out = std::make_unique<EmulatedQueue>(this, std::move(stream));
  return TW_OK;
}

Status EmulatedDevice::make_event(std::unique_ptr<Event>* out) {
  *out = std::make_unique<EmulatedEvent>(std::make_shared<EventState>());
  return TW_OK;
}

Status EmulatedDevice::wrap_event(void* native, std::unique_ptr<Event>* out) {
  if (native == nullptr) return fail(TW_ERR_INVALID, "there is no event");
  *out = std::make_unique<EmulatedEvent>(static_cast<EventState*>(native)->shared_from_this());
  return TW_OK;
}

}  // namespace thalweg::impl::emulated
