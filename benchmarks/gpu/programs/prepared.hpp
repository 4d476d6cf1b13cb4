// SPDX-License-Identifier: Apache-2.0
// Programs on GPUs for measuring: steps, their state, channels.
#pragma once
#include <deque>
#include <functional>
#include <optional>

#include "../floor/bench.hpp"
#include "devices/program.hpp"

namespace thalweg::floors {

using device::Side;
using device::Step;
using device::StepKind;

/// Bytes of the host to the device.
void upload(Device& device, uint64_t to, const void* from, size_t length);

/// Zeroed.
class DeviceMemory : public Memory {
 public:
  DeviceMemory(Device& device, size_t length);
};

Side at(uint64_t address);
Side rows(uint64_t address, uint64_t block, int64_t pitch);

Step copy_step(const Side& to, const Side& from, uint64_t bytes, uint64_t signal = 0);  // the signal says 1, 2, ...
Step wait_step(uint64_t word);                                                          // for 1, 2, ...
Step signal_step(uint64_t word);
Step channel_step(StepKind kind, uint64_t end, const Side& from = {}, uint64_t bytes = 0);

class Prepared {
 public:
  /// after[i]: what step i comes after.
  Prepared(Device& device, std::vector<Step> steps, const std::vector<std::vector<uint32_t>>& after = {}, uint32_t blocks = 0);
  void enqueue(Queue& queue) const { must(queue.run(run_), "running a program"); }
  /// Ends the section when a run failed.
  void check() const;

 private:
  std::vector<Step> steps_;
  std::vector<uint32_t> numbers_;
  DeviceMemory state_;
  std::optional<DeviceMemory> placed_;
  Memory pinned_;
  ProgramRun run_;
};

/// From one device to the other, into one buffer.
class Channel {
 public:
  Channel(Device& from, Device& to, const Side& recv_buffer, uint64_t capacity);
  uint64_t send() const { return send_.at(); }
  uint64_t recv() const { return recv_.at(); }

 private:
  DeviceMemory send_, recv_, credits_, flags_, recv_buffers_;
};

/// A kernel of floors.fatbin, which lies beside the program.
class FloorKernel {
 public:
  FloorKernel(Bench& bench, Device& device, const char* name);
  void launch(Queue& queue, unsigned blocks, unsigned threads, void** parameters) const;

 private:
  const cuda::DriverApi& driver_;
  const cuda::CuContext context_;
  cuda::CuKernel kernel_ = nullptr;
};

/// One side's work of one round.
using Round = std::function<void(Queue&)>;
/// Microseconds a hop, from graphs of `rounds` rounds on both sides that run together.
double captured(Bench& bench, const Round& near, const Round& far, unsigned rounds, unsigned hops);
/// The same enqueued by two threads; *call: microseconds of host time of `calls` calls in a round, the nearer side's median.
double uncaptured(Bench& bench, const Round& near, const Round& far, unsigned rounds, unsigned hops, unsigned calls,
                  double* call);
/// Microseconds for each of `times` in one graph on one device.
double repeated(Bench& bench, const Round& work, unsigned times);

// ---- sections
void hops(Bench& bench);
void channels(Bench& bench);
void calls(Bench& bench);
void faces(Bench& bench);
void chains(Bench& bench);

}  // namespace thalweg::floors
