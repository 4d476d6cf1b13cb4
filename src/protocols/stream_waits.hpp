// SPDX-License-Identifier: Apache-2.0
// The caller's streams that wait for requests (tw_request_before). A StreamWait is a word in pinned memory, a queue of its
// own that waits for the word, and an event behind that wait. The caller's stream waits for the event: nothing else may be
// enqueued on a default stream. Completing the run stores the word.
//
// Each has a queue of its own: a wait in a shared queue would block copies that the request itself needs. Words only grow,
// so a released StreamWait is reusable at once, even before its queue has polled the word.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "devices/deferred_release.hpp"
#include "devices/device.hpp"

namespace thalweg::impl {

class DeviceQueues;
class Engine;

struct StreamWait {
  ~StreamWait();  // releases it
  Device* device = nullptr;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Event> event;  // behind the queue's last wait
  uint64_t word = 0;             // address, pinned
  uint64_t generation = 0;       // the word's value once released
  bool pending = false;
  std::optional<KernelsWait> waits;  // while it is pending
  StreamWait* next = nullptr;        // of the same run, for streams of other devices
};
/// Releases this wait and those after it, however the run ends.
void release_all(StreamWait* wait);

class StreamWaits {
 public:
  static constexpr unsigned kMost = 8;  // pending at a time, per device

  StreamWaits(DeviceQueues& queues, uint64_t first) : queues_(queues), first_(first) {}
  /// Later work of `stream` waits until release_all(*of_run); *of_run: the run's waits so far. TW_ERR_LIMIT: kMost are
  /// pending.
  Status hold(Device& device, Queue& stream, StreamWait** of_run);

 private:
  Status take(Device& device, StreamWait** out);
  Status make(Device& device, StreamWait** out);

  DeviceQueues& queues_;
  const uint64_t first_;  // initial generation of a wait
  std::vector<std::unique_ptr<StreamWait>> stream_waits_;
};

/// tw_request_before: later work of this stream waits for the request's end. Takes the engine's lock.
Status hold_stream(Engine& engine, tw_request request, const void* native);

}  // namespace thalweg::impl
