// SPDX-License-Identifier: Apache-2.0
// Who works on the problems of `collaborate`: threads of the host, and a GPU, or where there is none further threads in its place.
#pragma once
#include <memory>

#include "gpu.hpp"
#include "kernels/arguments.hpp"
#include "machine/stream_team.hpp"

namespace perf {

class Workers {
 public:
  /// gpu null: half of the threads, at least one, are the device.
  Workers(Gpu* gpu, unsigned threads);
  /// Both parts at the same time, until both are over; null: that side has none. Seconds.
  double together(const Collaboration* host, const Collaboration* device);
  unsigned host_threads() const { return host_; }
  unsigned device_threads() const { return team_.threads() - host_; }  // 0: a GPU
  /// Are a GPU's operations on the host's memory atomic for the host, too?
  bool native_atomics() const;
  std::string device() const { return gpu_ == nullptr ? "threads" : gpu_->place(); }

 private:
  Gpu* gpu_;
  unsigned host_;
  StreamTeam team_;
};

}  // namespace perf
