// SPDX-License-Identifier: Apache-2.0
// One word, several processes at once: over shm its atomics are the initiators' own instructions on the mapped word, over tcp
// the target's progress applies them, and the target adds by itself meanwhile. No update may be lost in either width.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr unsigned kRounds = 400;
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
    if (status == TW_OK || (status == TW_IN_PROGRESS && tw_wait(request) == TW_OK)) return old;
    fprintf(stderr, "atomic: %s\n", tw_last_error());
    return UINT64_MAX;
  }
};

/// Fetched tickets, all different in the end; and a sum behind a lock of compare-and-swap, which has no atomic of its own.
bool work(const Word& word, std::vector<uint64_t>* tickets, uint64_t* added) {
  for (unsigned i = 0; i < kRounds; ++i) {
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

/// "transport width", the target's address and the key in; when told, works; tickets and the sum out.
const Role kAdder("adder", [](Pipe& pipe) {
  Side side;
  const std::string how = pipe.receive(), address = pipe.receive(), key = pipe.receive();
  const std::string transport = how.substr(0, how.find(' '));
  tw_endpoint* endpoint = side.connect(address, transport.c_str());
  if (endpoint == nullptr || tw_endpoint_wait(endpoint, 20'000'000'000) != TW_OK) return 1;
  if (transport != tw_endpoint_transport(endpoint)) return 2;
  Word word{endpoint, nullptr, size_t(std::stoul(how.substr(how.find(' '))))};
  if (tw_memory_import(endpoint, key.data(), key.size(), &word.remote) != TW_OK) return 3;
  void* mapped = nullptr;
  if ((tw_remote_memory_map(word.remote, &mapped) == TW_OK) != (transport == "shm")) return 4;
  pipe.send("ready");
  if (pipe.receive() != "go") return 5;
  std::vector<uint64_t> tickets;
  uint64_t added = 0;
  if (!work(word, &tickets, &added)) return 6;
  pipe.send(std::string(reinterpret_cast<const char*>(tickets.data()), tickets.size() * sizeof tickets[0]));
  pipe.send(std::to_string(added));
  tw_remote_memory_release(word.remote);
  return tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr) == TW_OK ? 0 : 7;
});

class Atomics : public testing::TestWithParam<size_t> {};

TEST_P(Atomics, OfSeveralProcessesLoseNoUpdate) {
  const size_t width = GetParam();
  Side side;
  tw_memory* memory = nullptr;
  ASSERT_EQ(tw_memory_allocate(side.context, kArea, nullptr, &memory), TW_OK);
  unsigned char* area = static_cast<unsigned char*>(tw_memory_address(memory));
  std::memset(area, 0xc3, kArea);
  for (size_t at : {kCounter, kLock, kPlain}) std::memset(area + at, 0, width);
  char key[TW_KEY_MAX];
  size_t length = sizeof key;
  ASSERT_EQ(tw_memory_export(memory, key, &length), TW_OK);
  std::vector<std::unique_ptr<Child>> children;
  for (const char* transport : {"shm", "tcp", "shm", "tcp"}) {
    Child& child = *children.emplace_back(std::make_unique<Child>("adder"));
    child.send(transport + std::string(" ") + std::to_string(width));
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
  for (unsigned i = 0; i < kRounds; ++i) {  // the target's own, between which it serves the others
    tickets.push_back(own.apply(TW_ATOMIC_ADD, kCounter, 1));
    tw_progress(side.worker);
  }
  for (auto& child : children) {
    ASSERT_TRUE(progress_until(side.worker, [&] { return child->readable(); }));
    const std::string theirs = child->receive();
    ASSERT_EQ(theirs.size(), kRounds * sizeof(uint64_t));
    const size_t had = tickets.size();
    tickets.resize(had + kRounds);
    std::memcpy(tickets.data() + had, theirs.data(), theirs.size());
    sum += std::stoull(child->receive());
  }
  std::sort(tickets.begin(), tickets.end());
  for (size_t i = 0; i < tickets.size(); ++i) ASSERT_EQ(tickets[i], i);
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

INSTANTIATE_TEST_SUITE_P(Widths, Atomics, testing::Values(4, 8),
                         [](const auto& info) { return "bytes" + std::to_string(info.param); });

}  // namespace
