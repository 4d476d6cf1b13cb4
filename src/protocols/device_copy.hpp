// SPDX-License-Identifier: Apache-2.0
// From layouts to a queue's copies, and runs that move their local side by them.
#pragma once
#include <vector>

#include "memory/layout.hpp"
#include "protocols/device_queues.hpp"
#include "protocols/engine.hpp"
#include "routes/device_copies.hpp"

namespace thalweg::impl {

/// One side of a copy between layouts; a null layout is contiguous.
struct CopySide {
  uint64_t address;
  const Layout* layout;  // never a contiguous one
  bool kernels = true;   // may kernels of the device that copies touch it?
  bool far = false;      // it is memory of another device
};
CopySide copy_side(uint64_t address, const Layout* layout, bool kernels = true);
/// Copies that move packed bytes [begin, end) of `to` and `from`, both of `length` packed bytes in all. Rows stay rows. At
/// most 65,536 copies: TW_ERR_LIMIT beyond.
Status plan_copies(const CopySide& to, const CopySide& from, uint64_t length, uint64_t begin, uint64_t end,
                   std::vector<Copy>* copies);

/// The input of routes/device_copies.hpp (at least one). kernels: those of the device reach both sides.
DeviceCopies facts_of(const std::vector<Copy>& copies, bool kernels);

/// Enqueues them on `device` by the route of routes/device_copies.hpp. As DeviceQueues::submit.
struct Submission {
  bool kernels = true;                                 // kernels reach both sides
  DeviceQueues::Flow flow = DeviceQueues::Flow::none;  // from and to other devices
  uint64_t much = 0;                                   // bytes, with a flow: EngineOptions::hidden_from
};
Status submit_copies(DeviceQueues& queues, Device& device, const std::vector<Copy>& copies, const Submission& how,
                     DeviceQueues::Done done, void* token, const DeviceUserLists& users = {});

/// The same, waited for, without kernels that stay. As DeviceQueues::run.
Status run_copies(DeviceQueues& queues, Device& device, const std::vector<Copy>& copies);

/// Moves the run's whole local side from (or to) `other`; `then` follows, or an error is returned and nothing was enqueued.
/// `hold` (may be null) is counted as used meanwhile; `users`: as DeviceQueues::submit.
Status device_move(Engine& engine, OpRun& run, Device& device, const CopySide& other, uint64_t length, bool to_local,
                   Mapping* hold, Then then, const DeviceUserLists& users = {});

}  // namespace thalweg::impl
