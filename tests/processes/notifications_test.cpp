// SPDX-License-Identifier: Apache-2.0
// Puts that notify another process: by every way between two processes, the data is there at the notification. The target
// looks at its memory only when it was notified; the immediate says which bytes must be there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <tuple>
#include <vector>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=1", 0);

constexpr size_t kRoom = (1u << 20) + 128;
constexpr uint64_t kLong = 20'000'000'000;

/// The bytes that belong to an immediate: its length is in the low bits.
size_t length_of(uint64_t immediate) { return immediate & 0xfffff; }
std::vector<unsigned char> bytes_of(uint64_t immediate) {
  std::mt19937_64 random(immediate);
  std::vector<unsigned char> bytes(length_of(immediate) + 8);
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[i], &word, 8);
  }
  bytes.resize(length_of(immediate));
  return bytes;
}
size_t offset_of(uint64_t immediate) { return 3 + immediate % 61; }

/// Place and rounds in; address and key out. Then, of each notification, whether its bytes are there.
const Role kTarget("notified", [](Pipe& pipe) {
  Side side;
  std::istringstream how(pipe.receive());
  std::string place;
  int rounds = 0;
  how >> place >> rounds;
  std::vector<unsigned char> ordinary(kRoom, 0x5a), got(kRoom);
  tw_memory* memory = nullptr;
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = place.c_str();
  const tw_status made = place == "ordinary" ? tw_memory_register(side.context, ordinary.data(), kRoom, nullptr, &memory)
                                             : tw_memory_allocate(side.context, kRoom, &options, &memory);
  if (made != TW_OK) return 1;
  char key[kKeyRoom];
  size_t length = sizeof key;
  if (tw_memory_export(memory, key, &length) != TW_OK) return 2;
  tw_completion_queue_options wanted = TW_COMPLETION_QUEUE_OPTIONS_INIT;
  wanted.notifications = 1;
  tw_completion_queue* queue = nullptr;
  if (tw_completion_queue_create(side.worker, &wanted, &queue) != TW_OK) return 3;
  pipe.send(side.address());
  pipe.send(std::string(key, length));
  int wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    tw_completion entry;
    size_t taken = 0;
    if (tw_completion_queue_wait(queue, &entry, 1, kLong, &taken) != TW_OK) return 4;
    if (entry.kind != TW_COMPLETION_NOTIFICATION || entry.info.endpoint == nullptr) return 5;
    const uint64_t immediate = entry.info.immediate;
    if (tw_memory_copy(side.context, got.data(), tw_memory_address(memory), kRoom) != TW_OK) return 6;
    const std::vector<unsigned char> expected = bytes_of(immediate);
    wrong += std::memcmp(&got[offset_of(immediate)], expected.data(), expected.size()) != 0;
    if (tw_send_blocking(entry.info.endpoint, &immediate, sizeof immediate, 1) != TW_OK) return 7;
  }
  pipe.send(std::to_string(wrong));
  while (!pipe.readable()) tw_worker_progress(side.worker);  // until the initiator has closed
  if (tw_completion_queue_destroy(queue) != TW_OK) return 8;
  return tw_memory_release(memory) == TW_OK ? 0 : 9;
});

/// Transport, the target's place, the source's.
class Notified : public testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Ways, Notified,
                         testing::Combine(testing::Values("shm", "tcp"), testing::Values("host", "ordinary", "emulated:0"),
                                          testing::Values("host", "emulated:0")),
                         [](const auto& info) {
                           std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param) + "_" +
                                              std::get<2>(info.param);
                           for (char& c : name) c = c == ':' ? '_' : c;
                           return name;
                         });

TEST_P(Notified, FindsTheBytesThatItWasToldOf) {
  const auto [transport, there, here] = GetParam();
  const std::vector<size_t> sizes{0, 1, 8, 4099, 8192, 65535, 65537, 1000003};
  const int rounds = static_cast<int>(3 * sizes.size());
  Side side;
  Child target("notified");
  target.send(std::string(there) + " " + std::to_string(rounds));
  const std::string address = target.receive(), key = target.receive();
  tw_endpoint* endpoint = side.connect(address, transport);
  ASSERT_NE(endpoint, nullptr) << tw_last_error();
  ASSERT_EQ(tw_endpoint_wait(endpoint, kLong), TW_OK) << tw_last_error();
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK) << tw_last_error();
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = here;
  tw_memory* memory = nullptr;
  ASSERT_EQ(tw_memory_allocate(side.context, kRoom, &options, &memory), TW_OK) << tw_last_error();
  auto* const source = static_cast<unsigned char*>(tw_memory_address(memory));
  tw_counter* counter = nullptr;
  ASSERT_EQ(tw_counter_create(side.worker, &counter), TW_OK);
  std::random_device random;
  for (int i = 0; i < rounds; ++i) {
    const uint64_t immediate = (uint64_t{random()} << 20) | sizes[static_cast<size_t>(i) % sizes.size()];
    const std::vector<unsigned char> bytes = bytes_of(immediate);
    ASSERT_EQ(tw_memory_copy(side.context, source + 5, bytes.data(), bytes.size()), TW_OK) << tw_last_error();
    tw_op_options put = TW_OP_OPTIONS_INIT;
    put.notify = TW_NOTIFY_QUEUE;
    put.immediate = immediate;
    put.counter = counter;
    ASSERT_GE(tw_put(endpoint, source + 5, bytes.size(), remote, offset_of(immediate), &put, nullptr), TW_OK)
        << tw_last_error();
    uint64_t heard = 0;
    ASSERT_EQ(tw_recv_blocking(side.worker, &heard, sizeof heard, 1, ~0ull, nullptr), TW_OK) << tw_last_error();
    EXPECT_EQ(heard, immediate);
    ASSERT_EQ(tw_counter_wait(counter, static_cast<uint64_t>(i) + 1, kLong), TW_OK) << tw_last_error();
  }
  EXPECT_EQ(target.receive(), "0") << "payloads were not there";
  EXPECT_EQ(tw_counter_destroy(counter), TW_OK) << tw_last_error();
  tw_remote_memory_release(remote);
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
  EXPECT_EQ(tw_memory_release(memory), TW_OK);
  target.send("closed");
  EXPECT_EQ(target.join(), 0);
}

}  // namespace
