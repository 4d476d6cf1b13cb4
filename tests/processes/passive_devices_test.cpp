// SPDX-License-Identifier: Apache-2.0
// Puts from two devices end in any order. A flush behind them is over when both are, and asks nothing of a target on the same machine:
// after it is connected, that makes no call of the library until the flush has said that everything is there.
#include <gtest/gtest.h>
#include <thalweg/places.h>

#include <cstdlib>

#include "process.hpp"

using namespace thalweg::test;

namespace {

// For this process and those that it starts.
[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2", 1);
constexpr size_t kLong = 3'000'001, kShort = 9, kArea = kLong + kShort + 5;
constexpr uint64_t kLimit = 20'000'000'000;

tw_memory* memory_at(tw_context* context, const std::string& place, size_t length) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = place.c_str();
  tw_memory* memory = nullptr;
  EXPECT_EQ(tw_memory_allocate(context, length, &options, &memory), TW_OK) << tw_last_error();
  return memory;
}

void store(tw_context* context, tw_memory* memory, const std::string& bytes) {
  EXPECT_EQ(tw_memory_copy(context, tw_memory_address(memory), bytes.data(), bytes.size()), TW_OK) << tw_last_error();
}

/// Is told a place; listens; says its port and the key of memory there. Connected, it waits for a message on its pipe, and says what the
/// memory holds.
const Role kTarget("passive target of devices", [](Pipe& pipe) {
  Side side;
  tw_listener* listener = nullptr;
  if (tw_listen(side.worker, "127.0.0.1:0", nullptr, &listener) != TW_OK) return 1;
  tw_memory* memory = memory_at(side.context, pipe.receive(), kArea);
  store(side.context, memory, std::string(kArea, '\x5a'));
  char key[TW_KEY_MAX];
  size_t length = sizeof key;
  if (tw_memory_export(memory, key, &length) != TW_OK) return 2;
  pipe.send(std::to_string(tw_listener_port(listener)));
  pipe.send({key, length});
  tw_connection_request* request = nullptr;
  if (!progress_until(side.worker, [&] { return tw_listener_next(listener, &request) == TW_OK; })) return 3;
  tw_endpoint* endpoint = nullptr;
  if (tw_accept(request, nullptr, &endpoint) != TW_OK) return 4;
  if (!progress_until(side.worker, [&] { return tw_endpoint_state(endpoint) == TW_OK; })) return 5;
  pipe.send("passive");
  std::string bytes(kArea, '\0');
  while (pipe.receive() == "show") {
    if (tw_memory_copy(side.context, bytes.data(), tw_memory_address(memory), kArea) != TW_OK) return 6;
    for (size_t at = 0; at < kArea; at += 8000) pipe.send(bytes.substr(at, 8000));
  }
  return tw_memory_release(memory) == TW_OK ? 0 : 7;
});

class PassiveDevices : public testing::TestWithParam<const char*> {
 protected:
  static std::string shown(Child& child) {
    child.send("show");
    std::string bytes;
    while (bytes.size() < kArea) {
      const std::string piece = child.receive();
      if (piece.empty()) return bytes;
      bytes += piece;
    }
    return bytes;
  }
};

TEST_P(PassiveDevices, AFlushNeedsNoCallWhateverEndsFirst) {
  Child child("passive target of devices");
  child.send(GetParam());
  Side side;
  const std::string at = "127.0.0.1:" + child.receive(), key = child.receive();
  tw_endpoint* endpoint = nullptr;
  ASSERT_EQ(tw_connect_to(side.worker, at.c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK) << tw_last_error();
  ASSERT_EQ(child.receive(), "passive");
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK);
  tw_memory *first = memory_at(side.context, "emulated:0", kLong), *second = memory_at(side.context, "emulated:1", kShort);
  for (int round = 0; round < 8; ++round) {
    const std::string long_bytes = random_bytes(kLong), short_bytes = random_bytes(kShort);
    store(side.context, first, long_bytes);
    store(side.context, second, short_bytes);
    tw_request requests[3] = {};
    const tw_status started[3] = {
        tw_put(endpoint, tw_memory_address(first), kLong, remote, 2, nullptr, &requests[0]),
        tw_put(endpoint, tw_memory_address(second), kShort, remote, kLong + 3, nullptr, &requests[1]),
        tw_endpoint_flush(endpoint, &requests[2]),
    };
    for (int i = 2; i >= 0; --i) ASSERT_EQ(finish(started[i], requests[i]), TW_OK) << i << ": " << tw_last_error();
    ASSERT_TRUE(shown(child) == "\x5a\x5a" + long_bytes + "\x5a" + short_bytes + "\x5a\x5a");
  }
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  tw_remote_memory_release(remote);
  EXPECT_EQ(tw_memory_release(first), TW_OK);
  EXPECT_EQ(tw_memory_release(second), TW_OK);
}

INSTANTIATE_TEST_SUITE_P(Target, PassiveDevices, testing::Values("host", "emulated:0", "emulated:1"),
                         [](const auto& info) { return std::string(info.param).substr(0, 4) + std::to_string(info.index); });

}  // namespace
