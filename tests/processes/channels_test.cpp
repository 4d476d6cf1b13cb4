// SPDX-License-Identifier: Apache-2.0
// Channels whose ends are code of the user's in two processes: on the host and on emulated devices, mapped over shm and carried by the host
// over tcp; and a process that is killed while the other one's code waits for it.
#include <gtest/gtest.h>
#include <thalweg/plans.h>

#include <atomic>

#include "../unit/plans/kernel_twins.hpp"
#include "process.hpp"

using namespace thalweg::test;
using namespace thalweg::tests;

namespace {

namespace device = thalweg::device;

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2", 1);
constexpr size_t kLength = 2'501, kBuffers = 3, kMessages = 3 * device::kSlots + 1, kGuard = 64;
constexpr uint64_t kLimit = 20'000'000'000;

/// A process with both ends: it receives on tag 1 and sends on tag 2, or the other way round.
struct Ends {
  template <class Other>
  Ends(Other& pipe, const std::string& at, const char* transports, bool first) : side({.transports = transports}), place(at) {
    pipe.send(side.address());
    endpoint = side.connect(pipe.receive());
    tw_memory_options where = TW_MEMORY_OPTIONS_INIT;
    where.place = place.c_str();
    EXPECT_EQ(tw_memory_allocate(side.context, (kBuffers + 2 * kMessages) * kLength + kGuard, &where, &memory), TW_OK);
    auto* next = static_cast<unsigned char*>(tw_memory_address(memory));
    std::vector<tw_channel_buffer> given;
    for (size_t i = 0; i < kBuffers; ++i, next += kLength) {
      buffers.push_back(next);
      given.push_back({next, kLength, nullptr});
    }
    outgoing = next;
    incoming = next + kMessages * kLength;
    tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
    options.place = place.c_str();
    options.timeout_ns = kLimit;
    for (const bool sends : {first, !first}) {
      const tw_status status =
          sends ? tw_channel_bind_send(endpoint, first ? 1 : 2, &options, &send.handle)
                : tw_channel_bind_recv(endpoint, given.data(), kBuffers, first ? 2 : 1, &options, &recv.handle);
      EXPECT_EQ(status, TW_OK) << tw_last_error();
    }
    send.look(0);
    recv.look(kBuffers);
  }
  ~Ends() {
    if (recv.handle != nullptr) (void)tw_channel_end_release(recv.handle);
    if (send.handle != nullptr) (void)tw_channel_end_release(send.handle);
    (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
    (void)tw_memory_release(memory);
  }
  Side side;
  const std::string place;
  tw_endpoint* endpoint = nullptr;
  tw_memory* memory = nullptr;
  std::vector<unsigned char*> buffers;
  unsigned char *outgoing = nullptr, *incoming = nullptr;
  Bound send, recv;
  const std::vector<size_t> sizes = std::vector<size_t>(kMessages, kLength);
  size_t sent = 0, received = 0;
};

std::string place_of_child() { return std::getenv("CHANNEL_PLACE"); }
const char* transports_of_child() { return std::getenv("CHANNEL_TRANSPORTS"); }

/// Receives all messages, and sends them back from where they are then.
const Role kEcho("channel echo", [](Pipe& pipe) {
  Ends ends(pipe, place_of_child(), transports_of_child(), false);
  Running(ends.place, [&](auto machine) {
    receive_messages(machine, ends.recv, ends.buffers, ends.incoming, ends.sizes, kBuffers, &ends.received);
    send_messages(machine, ends.send, ends.incoming, ends.sizes, &ends.sent);
  }).wait();
  if (tw_channel_end_check(ends.send.handle) != TW_OK || tw_channel_end_check(ends.recv.handle) != TW_OK) return 1;
  pipe.receive();  // the test is done
  return ends.sent == kMessages && ends.recv.release() == TW_OK && ends.send.release() == TW_OK ? 0 : 2;
});

/// Binds its ends, and lets nothing run.
const Role kSilent("channel silent", [](Pipe& pipe) {
  Ends ends(pipe, place_of_child(), transports_of_child(), false);
  pipe.send("bound");
  pipe.receive();
  return 1;
});

/// A channel between emulated devices that was opened by a plan, which is gone.
struct OpenedOnce {
  template <class Other>
  OpenedOnce(Other& pipe, bool sends) {
    pipe.send(side.address());
    tw_endpoint* const endpoint = side.connect(pipe.receive());
    const char* const place = sends ? "emulated:0" : "emulated:1";
    tw_memory_options where = TW_MEMORY_OPTIONS_INIT;
    where.place = place;
    tw_memory* memory = nullptr;
    EXPECT_EQ(tw_memory_allocate(side.context, kLength, &where, &memory), TW_OK) << tw_last_error();
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.place = place;
    tw_plan* plan = nullptr;
    EXPECT_EQ(tw_plan_create(side.context, &options, &plan), TW_OK) << tw_last_error();
    void* const buffer = tw_memory_address(memory);
    EXPECT_EQ(sends ? tw_plan_send(plan, endpoint, buffer, kLength, 3, nullptr, nullptr)
                    : tw_plan_recv(plan, endpoint, buffer, kLength, 3, nullptr, nullptr),
              TW_OK)
        << tw_last_error();
    EXPECT_EQ(tw_plan_prepare(plan, kLimit), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error();
  }
  Side side;
};

/// Ends while the test lives. Its exit code counts what the library warns of.
const Role kLeaver("channel leaver", [](Pipe& pipe) {
  static std::atomic<int> warnings{0};
  {
    const OpenedOnce channel(pipe, true);
    pipe.receive();
    tw_set_log_handler([](void*, int level, const char*) { warnings += level >= TW_LOG_WARNING ? 1 : 0; }, nullptr);
  }
  return warnings.load();
});

TEST(ChannelsOpenedOnce, NobodyWaitsForAPeerThatUsedOneWhenItEnds) {
  Child other("channel leaver");
  const OpenedOnce channel(other, false);
  other.send("end");
  EXPECT_EQ(other.join(), 0);
}

struct How {
  const char *name, *place, *transports;
  bool mapped() const { return std::string(transports) == "shm"; }
};

class Channels : public testing::TestWithParam<How> {
 protected:
  static std::vector<std::string> environment() {
    return {std::string("CHANNEL_PLACE=") + GetParam().place, std::string("CHANNEL_TRANSPORTS=") + GetParam().transports};
  }
};
INSTANTIATE_TEST_SUITE_P(At, Channels,
                         testing::Values(How{"host", "host", "shm"}, How{"emul", "emulated:0", "shm"},
                                         How{"host_tcp", "host", "tcp"}, How{"emul_tcp", "emulated:0", "tcp"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Channels, KernelsOfTwoProcessesExchangeMessages) {
  Child other("channel echo", environment());
  Ends ends(other, GetParam().place, GetParam().transports, true);
  const std::string data = random_bytes(kMessages * kLength);
  std::string expected(data.size() + kGuard, '\x5a'), found(expected);
  ASSERT_EQ(tw_memory_copy(ends.side.context, ends.outgoing, data.data(), data.size()), TW_OK);
  ASSERT_EQ(tw_memory_copy(ends.side.context, ends.incoming, expected.data(), expected.size()), TW_OK);
  Running(ends.place, [&](auto machine) {
    send_messages(machine, ends.send, ends.outgoing, ends.sizes, &ends.sent);
    receive_messages(machine, ends.recv, ends.buffers, ends.incoming, ends.sizes, kBuffers, &ends.received);
  }).wait();
  EXPECT_EQ(tw_channel_end_check(ends.send.handle), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_channel_end_check(ends.recv.handle), TW_OK) << tw_last_error();
  EXPECT_EQ(ends.sent, kMessages);
  EXPECT_EQ(ends.received, kMessages);
  expected.replace(0, data.size(), data);
  ASSERT_EQ(tw_memory_copy(ends.side.context, found.data(), ends.incoming, found.size()), TW_OK);
  EXPECT_TRUE(found == expected);
  EXPECT_EQ(ends.send.release(), TW_OK) << tw_last_error();
  other.send("done");
  EXPECT_EQ(ends.recv.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(other.join(), 0);
}

TEST_P(Channels, TheLossOfThePeerEndsWaitsOfKernels) {
  Child other("channel silent", environment());
  Ends ends(other, GetParam().place, GetParam().transports, true);
  ASSERT_EQ(other.receive(), "bound");
  {
    const Running sender(ends.place,
                         [&](auto machine) { send_messages(machine, ends.send, ends.outgoing, ends.sizes, &ends.sent); });
    const Running receiver(ends.place, [&](auto machine) {
      receive_messages(machine, ends.recv, ends.buffers, ends.incoming, ends.sizes, kBuffers, &ends.received);
    });
    other.kill();
  }
  if (GetParam().mapped()) EXPECT_EQ(ends.sent, 0u);  // else bounce buffers took some
  EXPECT_EQ(ends.received, 0u);
  EXPECT_EQ(tw_channel_end_check(ends.send.handle), TW_ERR_PEER_LOST) << tw_last_error();
  EXPECT_EQ(tw_channel_end_check(ends.recv.handle), TW_ERR_PEER_LOST) << tw_last_error();
  EXPECT_EQ(ends.send.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(ends.recv.release(), TW_OK) << tw_last_error();
}

}  // namespace
