// SPDX-License-Identifier: Apache-2.0
// An emulated queue; also the host queue, which has no device and takes any host memory.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "devices/emulated/stream.hpp"

namespace thalweg::impl::emulated {

class EmulatedDevice;
struct Place;

class EmulatedQueue final : public Queue {
 public:
  EmulatedQueue(EmulatedDevice* device, std::shared_ptr<EmulatedStream> stream) : device_(device), stream_(std::move(stream)) {}
  Device* device() override;
  void* native() override { return stream_.get(); }
  Status admit(Use use, uint64_t address, uint64_t length) override;
  Status copy(const Copy* copies, size_t count) override;
  Status write_value(uint64_t address, uint64_t value, bool add) override;
  Status wait_geq(uint64_t address, uint64_t value) override;
  Status launch(const Kernel& kernel) override;
  Status run(const ProgramRun& program) override;
  Status call(void (*function)(void* argument), void* argument) override;
  Status record(Event& event) override;
  Status wait_event(Event& event) override;
  Status begin_capture() override { return stream_->begin_capture(); }
  Status end_capture(std::unique_ptr<Graph>* out) override;
  CaptureState capture_state() override { return stream_->capture_state(); }
  Status query() override { return stream_->query(); }
  Status synchronize() override { return stream_->synchronize(); }

  /// The twin of a user's kernel: takes a slot like any other. It reaches device memory through EmulatedDevice::translate().
  Status launch_twin(std::function<void()> kernel);

 private:
  Status enqueue(Task task);
  Status check_launch();
  Status word_at(uint64_t address, Place* out);
  friend class EmulatedGraph;

  EmulatedDevice* const device_;  // null: a host queue
  const std::shared_ptr<EmulatedStream> stream_;
};

/// Tasks with their arguments baked in.
class EmulatedGraph final : public Graph {
 public:
  EmulatedGraph(const EmulatedDevice* device, std::vector<Task> tasks) : device_(device), tasks_(std::move(tasks)) {}
  Status launch(Queue& queue) override;

 private:
  const EmulatedDevice* const device_;
  const std::vector<Task> tasks_;
};

}  // namespace thalweg::impl::emulated
