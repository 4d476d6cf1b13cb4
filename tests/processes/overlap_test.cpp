// SPDX-License-Identifier: Apache-2.0
// Large messages between devices of two processes while neither of them progresses: once both sides have posted, in either order, the
// payload comes. What came is looked at by queues of the device, which is no progress of a worker.
#include <gtest/gtest.h>
#include <thalweg/places.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "process.hpp"

using namespace thalweg::test;

namespace {

// For this process and those that it starts.
[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2", 1);
constexpr size_t kArea = (2u << 20) + 333, kGuard = 5, kLength = kArea - 2 * kGuard;
constexpr uint64_t kTag = 77, kLimit = 20'000'000'000;

/// Device memory of a context, and bytes of the host to and from it.
struct Area {
  Area(tw_context* of, const std::string& place) : context(of) {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place.c_str();
    EXPECT_EQ(tw_memory_allocate(context, kArea, &options, &memory), TW_OK) << place << ": " << tw_last_error();
    at = static_cast<std::byte*>(tw_memory_address(memory));
  }
  ~Area() { EXPECT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error(); }
  void write(const std::string& bytes) { EXPECT_EQ(tw_memory_copy(context, at, bytes.data(), kArea), TW_OK); }
  std::string read() const {
    std::string bytes(kArea, '\0');
    EXPECT_EQ(tw_memory_copy(context, bytes.data(), at, kArea), TW_OK);
    return bytes;
  }
  tw_context* context;
  tw_memory* memory = nullptr;
  std::byte* at = nullptr;
};

std::string payload(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(kArea, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

/// Is told a place; listens; says its port. Then "send SEED": writes and sends, without progress, and says "posted"; "finish": progresses
/// until the send is over, and says so.
const Role kSender("sender that computes", [](Pipe& pipe) {
  Side side;
  tw_listener* listener = nullptr;
  if (tw_listen(side.worker, "127.0.0.1:0", nullptr, &listener) != TW_OK) return 1;
  Area area(side.context, pipe.receive());
  pipe.send(std::to_string(tw_listener_port(listener)));
  tw_connection_request* incoming = nullptr;
  if (!progress_until(side.worker, [&] { return tw_listener_next(listener, &incoming) == TW_OK; })) return 2;
  tw_endpoint* endpoint = nullptr;
  if (tw_accept(incoming, nullptr, &endpoint) != TW_OK) return 3;
  if (tw_endpoint_wait(endpoint, kLimit) != TW_OK) return 4;
  tw_request request = 0;
  tw_status posted = TW_OK;
  for (std::string command = pipe.receive(); command != "end"; command = pipe.receive()) {
    if (command.rfind("send ", 0) == 0) {
      area.write(payload(std::stoull(command.substr(5))));
      posted = tw_send(endpoint, area.at + kGuard, kLength, kTag, nullptr, &request);
      pipe.send("posted");
    } else if (command == "finish") {
      if (finish(posted, request) != TW_OK) return 5;
      pipe.send("over");
    } else {
      return 6;
    }
  }
  (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
  return 0;
});

struct Places {
  const char *from, *to;
};

class NobodyProgresses : public testing::TestWithParam<Places> {
 protected:
  NobodyProgresses() : child("sender that computes"), area(side.context, GetParam().to) {
    child.send(GetParam().from);
    const std::string at = "127.0.0.1:" + child.receive();
    EXPECT_EQ(tw_connect_to(side.worker, at.c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK) << tw_last_error();
  }
  ~NobodyProgresses() override {
    (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
    child.send("end");
    EXPECT_EQ(child.join(), 0);
  }
  void begin() {
    seed = std::random_device{}();
    before = random_bytes(kArea);
    area.write(before);
  }
  void send() {
    child.send("send " + std::to_string(seed));
    EXPECT_EQ(child.receive(), "posted");
  }
  void receive(tw_endpoint* source) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.source = source;
    ASSERT_EQ(tw_recv(side.worker, area.at + kGuard, kLength, kTag, ~uint64_t{0}, &options, &request), TW_IN_PROGRESS);
  }
  /// The payload is there, and what is around it has not changed.
  bool here() const {
    std::string expected = before;
    expected.replace(kGuard, kLength, payload(seed), kGuard, kLength);
    return area.read() == expected;
  }
  bool comes() const {
    const uint64_t limit = now_ns() + kLimit;
    while (now_ns() < limit) {
      if (here()) return true;
    }
    return false;
  }
  void finish_both() {
    child.send("finish");
    EXPECT_EQ(finish(TW_IN_PROGRESS, request), TW_OK) << tw_last_error();
    EXPECT_TRUE(progress_until(side.worker, [&] { return child.readable(); })) << "it waits for our word";
    EXPECT_EQ(child.receive(), "over");
    EXPECT_TRUE(here());
  }

  Side side;
  Child child;
  Area area;
  tw_endpoint* endpoint = nullptr;
  tw_request request = 0;
  uint64_t seed = 0;
  std::string before;
};

/// The first of each row imports the other side's memory, which takes progress.
TEST_P(NobodyProgresses, TheReceiveIsPostedFirst) {
  for (unsigned round = 0; round < 4; ++round) {
    begin();
    receive(round % 2 == 0 ? nullptr : endpoint);
    send();
    if (round != 0) {
      EXPECT_TRUE(comes()) << "round " << round;
    }
    finish_both();
  }
}

TEST_P(NobodyProgresses, TheSendIsPostedFirst) {
  for (unsigned round = 0; round < 4; ++round) {
    begin();
    send();
    receive(round % 2 == 0 ? nullptr : endpoint);
    if (round != 0) {
      EXPECT_TRUE(comes()) << "round " << round;
    }
    finish_both();
  }
}

TEST_P(NobodyProgresses, AReceiveThatIsFilledIsTooLateToCancel) {
  begin();
  receive(nullptr);
  send();
  finish_both();
  begin();
  receive(nullptr);
  ASSERT_EQ(tw_request_cancel(request), TW_OK) << "nobody has sent";
  ASSERT_EQ(tw_request_release(request), TW_OK);
  receive(nullptr);
  send();
  EXPECT_TRUE(comes());
  EXPECT_EQ(tw_request_cancel(request), TW_ERR_BUSY);
  finish_both();
}

INSTANTIATE_TEST_SUITE_P(Between, NobodyProgresses,
                         testing::Values(Places{"emulated:0", "emulated:1"}, Places{"emulated-vmm:1", "emulated:0"},
                                         Places{"emulated:0", "emulated-vmm:0"}),
                         [](const auto& info) {
                           std::string name = std::string(info.param.from) + "_to_" + info.param.to;
                           for (char& c : name) {
                             if (c == ':' || c == '-') c = '_';
                           }
                           return name;
                         });

/// What is offered to a peer that is killed: the receive from it ends, the one from anyone stays.
TEST(NobodyProgressesFor, APeerThatIsKilled) {
  Side side;
  Child child("sender that computes");
  child.send("emulated:0");
  tw_endpoint* endpoint = nullptr;
  ASSERT_EQ(tw_connect_to(side.worker, ("127.0.0.1:" + child.receive()).c_str(), nullptr, &endpoint), TW_OK);
  ASSERT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK);
  Area area(side.context, "emulated:1");
  const auto post = [&](tw_endpoint* source) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.source = source;
    tw_request request = 0;
    EXPECT_EQ(tw_recv(side.worker, area.at, kArea, kTag, ~uint64_t{0}, &options, &request), TW_IN_PROGRESS);
    return request;
  };
  const tw_request from_anyone = post(nullptr), from_it = post(endpoint);
  child.kill();
  EXPECT_EQ(finish(TW_IN_PROGRESS, from_it), TW_ERR_PEER_LOST);
  EXPECT_EQ(tw_request_test(from_anyone), TW_IN_PROGRESS);
  EXPECT_EQ(tw_request_cancel(from_anyone), TW_OK);
  EXPECT_EQ(tw_request_release(from_anyone), TW_OK);
  (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
}

}  // namespace
