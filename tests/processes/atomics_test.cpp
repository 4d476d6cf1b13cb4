// SPDX-License-Identifier: Apache-2.0
// One word, several processes at once: over shm its atomics are the initiators' own instructions on the mapped word (of device
// memory: kernels that they start on an import), over tcp the target's progress applies them, and the target adds by itself
// meanwhile. No update may be lost in either width.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <tuple>
#include <vector>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=1", 0);

constexpr size_t kCounter = 0, kLock = 64, kPlain = 128, kArea = 256;  // words, each on a line of its own

struct Word {
  tw_endpoint* endpoint;
  tw_remote_memory* remote;
  size_t width;
  /// The old value; UINT64_MAX: failed.
  uint64_t apply(uint32_t code, size_t offset, uint64_t operand, uint64_t compare = 0) const {
    uint64_t old = 0;
    tw_request request = TW_REQUEST_NONE;
    const tw_status status = tw_atomic(endpoint, code, remote, offset, width, operand, compare, &old, nullptr, &request);
    if (status == TW_OK || (status == TW_IN_PROGRESS && tw_request_finish(request) == TW_OK)) return old;
    fprintf(stderr, "atomic: %s\n", tw_last_error());
    return UINT64_MAX;
  }
};

/// Fetched tickets, all different in the end; and a sum behind a lock of compare-and-swap, which has no atomic of its own.
bool work(const Word& word, unsigned rounds, std::vector<uint64_t>* tickets, uint64_t* added) {
  for (unsigned i = 0; i < rounds; ++i) {
    const uint64_t ticket = word.apply(TW_ATOMIC_ADD, kCounter, 1);
    if (ticket == UINT64_MAX) return false;
    tickets->push_back(ticket);
    if (i % 8 != 0) continue;
    uint64_t old;
    while ((old = word.apply(TW_ATOMIC_CSWAP, kLock, 1, 0)) != 0) {
      if (old == UINT64_MAX) return false;
    }
    const uint64_t value = ticket * 2654435761u % 1000003;
    const uint64_t read = word.apply(TW_ATOMIC_OR, kPlain, 0);
    if (read == UINT64_MAX || word.apply(TW_ATOMIC_SWAP, kPlain, read + value) != read) return false;
    *added += value;
    if (word.apply(TW_ATOMIC_SWAP, kLock, 0) != 1) return false;
  }
  return true;
}

/// Transport, width, place and rounds, then the target's address and the key in; when told, works; tickets and the sum out.
const Role kAdder("adder", [](Pipe& pipe) {
  Side side;
  std::istringstream how(pipe.receive());
  const std::string address = pipe.receive(), key = pipe.receive();
  std::string transport, place;
  size_t width = 0;
  unsigned rounds = 0;
  how >> transport >> width >> place >> rounds;
  tw_endpoint* endpoint = side.connect(address, transport.c_str());
  if (endpoint == nullptr || tw_endpoint_wait(endpoint, 20'000'000'000) != TW_OK) return 1;
  if (transport != tw_endpoint_transport(endpoint)) return 2;
  Word word{endpoint, nullptr, width};
  if (tw_memory_import(endpoint, key.data(), key.size(), &word.remote) != TW_OK) return 3;
  void* mapped = nullptr;
  if ((tw_remote_memory_map(word.remote, &mapped) == TW_OK) != (transport == "shm" && place == "host")) return 4;
  pipe.send("ready");
  if (pipe.receive() != "go") return 5;
  std::vector<uint64_t> tickets;
  uint64_t added = 0;
  if (!work(word, rounds, &tickets, &added)) return 6;
  pipe.send(std::string(reinterpret_cast<const char*>(tickets.data()), tickets.size() * sizeof tickets[0]));
  pipe.send(std::to_string(added));
  tw_remote_memory_release(word.remote);
  return tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr) == TW_OK ? 0 : 7;
});

class Atomics : public testing::TestWithParam<std::tuple<size_t, const char*>> {};

TEST_P(Atomics, OfSeveralProcessesLoseNoUpdate) {
  const auto [width, place] = GetParam();
  const unsigned rounds = std::strcmp(place, "host") == 0 ? 400 : 60;  // launches take their time
  Side side;
  tw_memory* memory = nullptr;
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = place;
  ASSERT_EQ(tw_memory_allocate(side.context, kArea, &options, &memory), TW_OK) << tw_last_error();
  unsigned char area[kArea];
  std::memset(area, 0xc3, kArea);
  for (size_t at : {kCounter, kLock, kPlain}) std::memset(area + at, 0, width);
  ASSERT_EQ(tw_memory_copy(side.context, tw_memory_address(memory), area, kArea), TW_OK) << tw_last_error();
  char key[kKeyRoom];
  size_t length = sizeof key;
  ASSERT_EQ(tw_memory_export(memory, key, &length), TW_OK);
  std::vector<std::unique_ptr<Child>> children;
  for (const char* transport : {"shm", "tcp", "shm", "tcp"}) {
    Child& child = *children.emplace_back(std::make_unique<Child>("adder"));
    child.send(transport + std::string(" ") + std::to_string(width) + " " + place + " " + std::to_string(rounds));
    child.send(side.address());
    child.send({key, length});
  }
  for (auto& child : children) {
    ASSERT_TRUE(progress_until(side.worker, [&] { return child->readable(); }));
    ASSERT_EQ(child->receive(), "ready");
  }
  Word own{side.connect(side.address()), nullptr, width};
  ASSERT_EQ(tw_memory_import(own.endpoint, key, length, &own.remote), TW_OK);
  for (auto& child : children) child->send("go");
  std::vector<uint64_t> tickets;
  uint64_t sum = 0;
  for (unsigned i = 0; i < rounds; ++i) {  // the target's own, between which it serves the others
    tickets.push_back(own.apply(TW_ATOMIC_ADD, kCounter, 1));
    tw_worker_progress(side.worker);
  }
  for (auto& child : children) {
    ASSERT_TRUE(progress_until(side.worker, [&] { return child->readable(); }));
    const std::string theirs = child->receive();
    ASSERT_EQ(theirs.size(), rounds * sizeof(uint64_t));
    const size_t had = tickets.size();
    tickets.resize(had + rounds);
    std::memcpy(tickets.data() + had, theirs.data(), theirs.size());
    sum += std::stoull(child->receive());
  }
  std::sort(tickets.begin(), tickets.end());
  for (size_t i = 0; i < tickets.size(); ++i) ASSERT_EQ(tickets[i], i);
  ASSERT_EQ(tw_memory_copy(side.context, area, tw_memory_address(memory), kArea), TW_OK) << tw_last_error();
  uint64_t counter = 0, locked = 0, plain = 0;
  std::memcpy(&counter, area + kCounter, width);
  std::memcpy(&locked, area + kLock, width);
  std::memcpy(&plain, area + kPlain, width);
  EXPECT_EQ(counter, tickets.size());
  EXPECT_EQ(locked, 0u);
  EXPECT_EQ(plain, sum);
  for (size_t i = 0; i < kArea; ++i) {
    const size_t within = i % 64;
    if (i >= 3 * 64 || within >= width) {
      ASSERT_EQ(area[i], 0xc3) << "byte " << i << " was touched";
    }
  }
  for (auto& child : children) {
    ASSERT_TRUE(progress_until(side.worker, [&] { return child->readable(); }));
    EXPECT_EQ(child->join(), 0);
  }
  tw_remote_memory_release(own.remote);
  EXPECT_EQ(tw_memory_release(memory), TW_OK);
}

INSTANTIATE_TEST_SUITE_P(Widths, Atomics, testing::Combine(testing::Values(4, 8), testing::Values("host", "emulated:0")),
                         [](const auto& info) {
                           const bool host = std::strcmp(std::get<1>(info.param), "host") == 0;
                           return "bytes" + std::to_string(std::get<0>(info.param)) + (host ? "" : "_of_a_device");
                         });

/// Offers a word of device memory, and makes no call of the library after it is connected.
const Role kSleeper("sleeping owner of a word", [](Pipe& pipe) {
  Side side;
  tw_memory* memory = nullptr;
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = "emulated:0";
  if (tw_memory_allocate(side.context, kArea, &options, &memory) != TW_OK) return 1;
  const std::string zeros(kArea, '\0');
  if (tw_memory_copy(side.context, tw_memory_address(memory), zeros.data(), kArea) != TW_OK) return 2;
  char key[kKeyRoom];
  size_t length = sizeof key;
  if (tw_memory_export(memory, key, &length) != TW_OK) return 3;
  pipe.send(side.address());
  pipe.send({key, length});
  char hello = 0;  // it comes when the connection stands here, too
  if (tw_recv_blocking(side.worker, &hello, 1, 1, ~0ull, nullptr) != TW_OK || hello != 'h') return 4;
  pipe.send("asleep");
  if (pipe.receive() != "wake") return 6;
  std::string now(kArea, '?');
  if (tw_memory_copy(side.context, now.data(), tw_memory_address(memory), kArea) != TW_OK) return 7;
  pipe.send(now);
  if (!progress_until(side.worker, [&] { return pipe.readable(); })) return 8;  // until the others' imports are dropped
  return tw_memory_release(memory) == TW_OK ? 0 : 9;
});

TEST(AtomicsOfADevice, NeedNothingOfTheTargetOverAnImport) {
  Child child("sleeping owner of a word");
  Side side;
  const std::string address = child.receive(), key = child.receive();
  tw_endpoint* endpoint = side.connect(address, "shm");
  ASSERT_EQ(tw_endpoint_wait(endpoint, 20'000'000'000), TW_OK);
  Word word{endpoint, nullptr, 8};
  ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &word.remote), TW_OK);
  ASSERT_EQ(tw_send_blocking(endpoint, "h", 1, 1), TW_OK) << tw_last_error();
  ASSERT_TRUE(progress_until(side.worker, [&] { return child.readable(); }));
  ASSERT_EQ(child.receive(), "asleep");
  const uint64_t added = now_ns();
  EXPECT_EQ(word.apply(TW_ATOMIC_ADD, kCounter, added), 0u);
  EXPECT_EQ(word.apply(TW_ATOMIC_CSWAP, kCounter, 7, added), added);
  EXPECT_EQ(word.apply(TW_ATOMIC_XOR, kCounter, 5), 7u);
  // Without an old value, many at a time, told by the flush.
  for (int i = 0; i < 100; ++i) {
    ASSERT_GE(tw_atomic(endpoint, TW_ATOMIC_ADD, word.remote, kLock, 8, 3, 0, nullptr, nullptr, nullptr), TW_OK);
  }
  tw_request flushed = TW_REQUEST_NONE;
  const tw_status status = tw_endpoint_flush(endpoint, &flushed);
  EXPECT_EQ(status == TW_IN_PROGRESS ? tw_request_finish(flushed) : status, TW_OK) << tw_last_error();
  child.send("wake");
  ASSERT_TRUE(progress_until(side.worker, [&] { return child.readable(); }));
  const std::string now = child.receive();
  ASSERT_EQ(now.size(), kArea);
  uint64_t counter = 0, sum = 0;
  std::memcpy(&counter, now.data() + kCounter, 8);
  std::memcpy(&sum, now.data() + kLock, 8);
  EXPECT_EQ(counter, 2u);
  EXPECT_EQ(sum, 300u);
  tw_remote_memory_release(word.remote);
  child.send("end");
  ASSERT_TRUE(progress_until(side.worker, [&] { return child.readable(); }));
  EXPECT_EQ(child.join(), 0);
}

}  // namespace
