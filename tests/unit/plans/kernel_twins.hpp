// SPDX-License-Identifier: Apache-2.0
// Kernels that send, post and take on bound ends of channels, as their twins run them: on the host, or on an emulated device,
// where they hold a kernel's slot, reach memory through the device and store in the worst order.
#pragma once
#include <gtest/gtest.h>
#include <sched.h>
#include <thalweg/thalweg.h>
#include <thalweg/device/channel.hpp>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "devices/emulated/emulated.hpp"
#include "devices/emulated/machine.hpp"
#include "devices/place.hpp"

namespace thalweg::tests {

/// The device's machine, whose stores come out while it waits.
class WaitingMachine : public impl::emulated::Machine {
 public:
  explicit WaitingMachine(impl::emulated::BlockMemory& memory) : Machine(memory), memory_(&memory) {}
  void pause(u32) const {
    memory_->stores.settle();
    sched_yield();
  }

 private:
  impl::emulated::BlockMemory* memory_;
};

/// body(machine) running at a place.
class Running {
 public:
  template <class Body>
  Running(const std::string& place, Body body) {
    impl::MemoryPlace where;
    EXPECT_EQ(impl::parse_place(place.c_str(), &where), TW_OK);
    if (where.device == nullptr) {
      thread_ = std::thread([body] { body(device::DirectMachine()); });
      return;
    }
    EXPECT_EQ(where.device->make_queue(&queue_), TW_OK);
    const auto* device = static_cast<impl::emulated::EmulatedDevice*>(where.device);
    const auto kernel = [device, body] {
      impl::emulated::BlockMemory memory(device, false);
      const WaitingMachine machine(memory);
      body(machine);
      machine.fence();
      EXPECT_EQ(memory.failed, TW_OK) << "the kernel used an address that is not its device's";
    };
    EXPECT_EQ(static_cast<impl::emulated::EmulatedQueue*>(queue_.get())->launch_twin(kernel), TW_OK);
  }
  ~Running() { wait(); }
  void wait() {
    if (thread_.joinable()) thread_.join();
    if (queue_ == nullptr) return;
    EXPECT_EQ(queue_->synchronize(), TW_OK);
  }

 private:
  std::thread thread_;
  std::unique_ptr<impl::Queue> queue_;
};

/// A bound end, as a kernel gets it.
struct Bound {
  tw_channel_end* handle = nullptr;
  void* address = nullptr;
  device::Guard guard{};
  std::vector<uint32_t> recv_buffers;

  void look(size_t buffers) {
    tw_device_guard given{};
    ASSERT_EQ(tw_channel_end_address(handle, &address), TW_OK);
    ASSERT_EQ(tw_channel_end_guard(handle, &given), TW_OK);
    std::memcpy(&guard, &given, sizeof guard);
    recv_buffers.resize(buffers);
    for (size_t i = 0; i < buffers; ++i) ASSERT_EQ(tw_channel_end_recv_buffer(handle, i, &recv_buffers[i]), TW_OK);
  }
  device::SendEnd* send_end() const { return static_cast<device::SendEnd*>(address); }
  device::RecvEnd* recv_end() const { return static_cast<device::RecvEnd*>(address); }
  tw_status release() { return tw_channel_end_release(std::exchange(handle, nullptr)); }
};

/// Sends message i: sizes[i] bytes, which lie behind each other at `from`. *sent: how many.
template <class M>
void send_messages(M machine, const Bound& end, const unsigned char* from, const std::vector<size_t>& sizes, size_t* sent) {
  device::Sender<M> out(end.send_end(), end.guard, machine);
  *sent = 0;
  for (const size_t size : sizes) {
    if (!out.send(device::Block(), from, size, 100 + *sent)) return;
    from += size;
    ++*sent;
  }
}

/// Receives messages of these sizes into the buffers in turn, with `ahead` receives posted; each message goes on to the next
/// bytes of `to`.
template <class M>
void receive_messages(M machine, const Bound& end, const std::vector<unsigned char*>& buffers, unsigned char* to,
                      const std::vector<size_t>& sizes, size_t ahead, size_t* received) {
  device::Receiver<M> in(end.recv_end(), end.guard, machine);
  size_t posted = 0;
  for (*received = 0; *received < sizes.size(); ++*received) {
    for (; posted < sizes.size() && posted < *received + ahead; ++posted) {
      if (!in.post(device::Block(), end.recv_buffers[posted % buffers.size()], 200 + posted)) return;
    }
    if (!in.take(device::Block(), 300 + *received)) return;
    device::copy(device::Block(), device::contiguous_at(to), device::contiguous_at(buffers[*received % buffers.size()]),
                 sizes[*received], machine);
    to += sizes[*received];
  }
}

}  // namespace thalweg::tests
