// SPDX-License-Identifier: Apache-2.0
// Streams of the caller that wait for requests (tw_request_before). A gate is a word in pinned memory, a queue of its own that
// waits for it, and an event behind that wait, for which the caller's stream waits: on a default stream nothing else may be
// enqueued. Whatever completes the run stores the word.
//
// A queue of its own: a wait in a queue that others use would hold up what the request itself needs. Words only grow, so an opened
// gate is used again at once, also while its queue has not looked yet.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "devices/deferred_release.hpp"
#include "devices/device.hpp"

namespace thalweg::impl {

class DeviceQueues;

struct Gate {
  ~Gate();  // opens it
  Device* device = nullptr;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Event> event;  // behind the queue's last wait
  uint64_t word = 0;             // address, pinned
  uint64_t generation = 0;       // the word has it when the gate is open
  bool closed = false;
  std::optional<KernelsWait> waits;  // while it is closed
  Gate* next = nullptr;              // of the same run, for streams of other devices
};
/// Lets through what waits at this gate and those after it. From any way in which a run ends.
void open(Gate* gate);

class Gates {
 public:
  static constexpr unsigned kMost = 8;  // closed at once, of a device

  Gates(DeviceQueues& queues, uint64_t first) : queues_(queues), first_(first) {}
  /// Later work of `stream` waits until open(*of_run); *of_run: the run's gates so far. TW_ERR_LIMIT: kMost are closed.
  Status hold(Device& device, Queue& stream, Gate** of_run);

 private:
  Status take(Device& device, Gate** out);
  Status make(Device& device, Gate** out);

  DeviceQueues& queues_;
  const uint64_t first_;  // generation of a gate
  std::vector<std::unique_ptr<Gate>> gates_;
};

}  // namespace thalweg::impl
