// SPDX-License-Identifier: Apache-2.0
// Payloads of devices that no device of the receiver reaches where they are: they go through bounce buffers that both processes reach.
// Messages to and fro between every kind of memory that needs it, puts into ordinary memory, what a bounce buffer's end does, and peers
// that are killed in the middle.
#include <gtest/gtest.h>
#include <thalweg/places.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

// For this process and those that it starts.
[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=3,peers=110/110/001", 1);
constexpr size_t kArea = (27u << 20) + 301, kGuard = 7, kThirds = 3, kThird = kArea / kThirds;
constexpr uint64_t kLimit = 20'000'000'000;

tw_memory* memory_at(tw_context* context, const std::string& place, size_t length) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = place.c_str();
  tw_memory* memory = nullptr;
  EXPECT_EQ(tw_memory_allocate(context, length, &options, &memory), TW_OK) << place << ": " << tw_last_error();
  return memory;
}

std::byte* bytes_of(tw_memory* memory) { return static_cast<std::byte*>(tw_memory_address(memory)); }

/// Posts an operation, which takes the place for its request last, and waits for its end.
template <class Post, class... Arguments>
tw_status done(Post post, Arguments... arguments) {
  tw_request request = 0;
  const tw_status started = post(arguments..., &request);
  return finish(started, request);
}

/// Bytes of this context's payloads that went by names.
uint64_t named(tw_context* context) {
  char text[1 << 16];
  size_t size = sizeof text;
  EXPECT_EQ(tw_context_counters(context, text, &size), TW_OK) << tw_last_error();
  const char* at = strstr(text, "\"named\": ");
  return at == nullptr ? UINT64_MAX : strtoull(at + strlen("\"named\": "), nullptr, 10);
}

/// Is told a place, "ordinary" among them; listens; says its port and the key of memory there. Then, by commands: "echo N": receives N
/// bytes there and sends them back from there; "take": receives thirds of its memory, all at a time; "tell": sends all of its memory; "named": says how many bytes it has named.
const Role kPeer("peer of bounce buffers", [](Pipe& pipe) {
  Side side;
  tw_listener* listener = nullptr;
  if (tw_listen(side.worker, "127.0.0.1:0", nullptr, &listener) != TW_OK) return 1;
  const std::string place = pipe.receive();
  std::vector<std::byte> ordinary;
  tw_memory* memory = nullptr;
  if (place == "ordinary") {
    ordinary.resize(kArea);
    if (tw_memory_register(side.context, ordinary.data(), kArea, nullptr, &memory) != TW_OK) return 2;
  } else {
    memory = memory_at(side.context, place, kArea);
  }
  const std::string blank(kArea, '\x5a');
  if (tw_memory_copy(side.context, bytes_of(memory), blank.data(), kArea) != TW_OK) return 3;
  char key[kKeyRoom];
  size_t length = sizeof key;
  if (tw_memory_export(memory, key, &length) != TW_OK) return 4;
  pipe.send(std::to_string(tw_listener_port(listener)));
  pipe.send({key, length});
  tw_connection_request* request = nullptr;
  if (!progress_until(side.worker, [&] { return tw_listener_next(listener, &request) == TW_OK; })) return 5;
  tw_endpoint* endpoint = nullptr;
  if (tw_accept(request, nullptr, &endpoint) != TW_OK) return 6;
  if (tw_endpoint_wait(endpoint, kLimit) != TW_OK) return 7;
  std::string command;
  for (;;) {
    if (!progress_until(side.worker, [&] { return pipe.readable(); }, 60'000'000'000)) return 8;
    command = pipe.receive();
    if (command.rfind("echo ", 0) == 0) {
      const size_t n = std::stoul(command.substr(5));
      if (done(tw_recv, side.worker, bytes_of(memory) + 3, n, 1, ~uint64_t{0}, nullptr) != TW_OK) return 9;
      if (done(tw_send, endpoint, bytes_of(memory) + 3, n, 2, nullptr) != TW_OK) return 10;
    } else if (command == "take") {
      tw_request receives[kThirds] = {};
      tw_status status[kThirds];
      for (size_t i = 0; i < kThirds; ++i) {
        status[i] = tw_recv(side.worker, bytes_of(memory) + i * kThird, kThird, 10 + i, ~uint64_t{0}, nullptr, &receives[i]);
      }
      pipe.send("posted");
      for (size_t i = 0; i < kThirds; ++i) {
        if (finish(status[i], receives[i]) != TW_OK) return 13;
      }
    } else if (command == "tell") {
      if (done(tw_send, endpoint, bytes_of(memory), kArea, 3, nullptr) != TW_OK) return 11;
    } else if (command == "named") {
      pipe.send(std::to_string(named(side.context)));
    } else {
      break;
    }
  }
  tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
  return tw_memory_release(memory) == TW_OK ? 0 : 12;
});

/// A worker beside such a peer.
struct Pair {
  explicit Pair(const std::string& there) : child("peer of bounce buffers") {
    child.send(there);
    const std::string at = "127.0.0.1:" + child.receive(), key = child.receive();
    EXPECT_EQ(tw_connect_to(side.worker, at.c_str(), nullptr, &endpoint), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_endpoint_wait(endpoint, kLimit), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK) << tw_last_error();
  }
  ~Pair() { tw_remote_memory_release(remote); }
  void end() {
    child.send("end");
    EXPECT_EQ(child.join(), 0);
  }
  /// The peer's bytes, as a message into host memory.
  std::string told() {
    std::string bytes(kArea, '\0');
    child.send("tell");
    EXPECT_EQ(done(tw_recv, side.worker, bytes.data(), kArea, 3, ~uint64_t{0}, nullptr), TW_OK) << tw_last_error();
    return bytes;
  }
  uint64_t named_there() {
    child.send("named");
    return std::stoull(child.receive());
  }
  Child child;
  Side side;
  tw_endpoint* endpoint = nullptr;
  tw_remote_memory* remote = nullptr;
};

/// Does what an end sends go by names? Where the kernel can read the sender's memory, costs of this machine say.
/// at_first: until as many bytes as the receiver's memory has were named; then devices write there.
enum Names { no, yes, at_first, by_costs };
struct Kinds {
  const char *here, *there;
  Names names_here, names_there;
};
void expect(uint64_t bytes, Names names) {
  if (names != by_costs) {
    EXPECT_EQ(bytes != 0, names != no) << bytes;
  }
}

class BouncedMessages : public testing::TestWithParam<Kinds> {};

TEST_P(BouncedMessages, ArriveWhole) {
  Pair pair(GetParam().there);
  tw_memory* here = memory_at(pair.side.context, GetParam().here, kArea);
  const std::string blank(kArea, '\x33');
  size_t sizes[] = {65'535, 65'536, 262'143, 262'144, 262'145, 1'048'577, 4'194'303, 4'194'304, 4'194'305, 17u << 20, 70'001};
  for (const size_t n : sizes) {
    for (int round = 0; round < 2; ++round) {
      SCOPED_TRACE(std::to_string(n) + " bytes, round " + std::to_string(round));
      const std::string bytes = random_bytes(n);
      ASSERT_EQ(tw_memory_copy(pair.side.context, bytes_of(here) + kGuard, bytes.data(), n), TW_OK) << tw_last_error();
      pair.child.send("echo " + std::to_string(n));
      ASSERT_EQ(done(tw_send, pair.endpoint, bytes_of(here) + kGuard, n, 1, nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(tw_memory_copy(pair.side.context, bytes_of(here), blank.data(), n + 2 * kGuard), TW_OK);
      ASSERT_EQ(done(tw_recv, pair.side.worker, bytes_of(here) + kGuard, n, 2, ~uint64_t{0}, nullptr), TW_OK)
          << tw_last_error();
      std::string got(n + 2 * kGuard, '\0');
      ASSERT_EQ(tw_memory_copy(pair.side.context, got.data(), bytes_of(here), got.size()), TW_OK);
      const std::string expected = blank.substr(0, kGuard) + bytes + blank.substr(0, kGuard);
      const auto differs = std::mismatch(got.begin(), got.end(), expected.begin());
      ASSERT_TRUE(got == expected) << "from byte " << differs.first - got.begin();
    }
  }
  expect(named(pair.side.context), GetParam().names_here);
  expect(pair.named_there(), GetParam().names_there);
  pair.end();
  EXPECT_EQ(tw_memory_release(here), TW_OK);
}

TEST_P(BouncedMessages, ManyAtATimeWithLayouts) {
  Pair pair(GetParam().there);
  tw_memory* here = memory_at(pair.side.context, GetParam().here, kArea);
  constexpr size_t kBlock = 1021, kRows = 2053, kStride = 1500;
  const uint64_t count = kRows;
  const int64_t stride = kStride;
  tw_layout* layout = nullptr;
  ASSERT_EQ(tw_layout_strided(1, kBlock, &count, &stride, &layout), TW_OK) << tw_last_error();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.layout = layout;
  const std::string bytes = random_bytes(kArea);
  ASSERT_EQ(tw_memory_copy(pair.side.context, bytes_of(here), bytes.data(), kArea), TW_OK) << tw_last_error();
  constexpr int kMany = 6;
  for (int i = 0; i < kMany; ++i) pair.child.send("echo " + std::to_string(kBlock * kRows));
  tw_request sends[kMany] = {}, receives[kMany] = {};
  std::vector<std::string> back(kMany, std::string(kBlock * kRows, '\0'));
  tw_status received[kMany], sent[kMany];
  for (int i = 0; i < kMany; ++i) {
    received[i] = tw_recv(pair.side.worker, back[i].data(), back[i].size(), 2, ~uint64_t{0}, nullptr, &receives[i]);
  }
  for (int i = 0; i < kMany; ++i) {
    sent[i] = tw_send(pair.endpoint, bytes_of(here) + 11 * i, kBlock * kRows, 1, &options, &sends[i]);
  }
  for (int i = 0; i < kMany; ++i) {
    ASSERT_EQ(finish(sent[i], sends[i]), TW_OK) << i << ": " << tw_last_error();
    ASSERT_EQ(finish(received[i], receives[i]), TW_OK) << i << ": " << tw_last_error();
    for (size_t row = 0; row < kRows; ++row) {
      ASSERT_EQ(back[i].compare(row * kBlock, kBlock, bytes, 11 * i + row * kStride, kBlock), 0) << i << ", row " << row;
    }
  }
  pair.end();
  tw_layout_destroy(layout);
  EXPECT_EQ(tw_memory_release(here), TW_OK);
}

/// Two of them take all chunks: the third one waits for theirs.
TEST_P(BouncedMessages, LongOnesAtATimeWaitForChunks) {
  Pair pair(GetParam().there);
  tw_memory* here = memory_at(pair.side.context, GetParam().here, kArea);
  for (int round = 0; round < 3; ++round) {  // from the second one on all goes by names
    const std::string bytes = random_bytes(kArea);
    ASSERT_EQ(tw_memory_copy(pair.side.context, bytes_of(here), bytes.data(), kArea), TW_OK) << tw_last_error();
    const uint64_t before = named(pair.side.context);
    pair.child.send("take");
    ASSERT_EQ(pair.child.receive(), "posted");
    tw_request sends[kThirds] = {};
    tw_status sent[kThirds];
    for (size_t i = 0; i < kThirds; ++i)
      sent[i] = tw_send(pair.endpoint, bytes_of(here) + i * kThird, kThird, 10 + i, nullptr, &sends[i]);
    for (size_t i = 0; i < kThirds; ++i) ASSERT_EQ(finish(sent[i], sends[i]), TW_OK) << i << ": " << tw_last_error();
    if (round == 2 && GetParam().names_here != by_costs) {
      EXPECT_EQ(named(pair.side.context) - before, GetParam().names_here == yes ? kThirds * kThird : 0);
    }
    const std::string told = pair.told();
    const auto differs = std::mismatch(bytes.begin(), bytes.begin() + kThirds * kThird, told.begin());
    ASSERT_EQ(differs.first - bytes.begin(), static_cast<ptrdiff_t>(kThirds * kThird)) << "round " << round;
  }
  pair.end();
  EXPECT_EQ(tw_memory_release(here), TW_OK);
}

/// In pieces, and in one that the sender's device writes into a bounce buffer of the receiver's.
TEST_P(BouncedMessages, APeerIsKilledInTheMiddle) {
  for (const size_t n : {kArea - 9, size_t{5'000'003}}) {
    Pair pair(GetParam().there);
    tw_memory* here = memory_at(pair.side.context, GetParam().here, kArea);
    for (int round = 0; round < 3; ++round) {  // so that names are in use
      pair.child.send("echo 1000003");
      ASSERT_EQ(done(tw_send, pair.endpoint, bytes_of(here), 1'000'003, 1, nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(done(tw_recv, pair.side.worker, bytes_of(here), 1'000'003, 2, ~uint64_t{0}, nullptr), TW_OK) << tw_last_error();
    }
    tw_request sends[4] = {};
    tw_status sent[4];
    pair.child.send("echo " + std::to_string(n));
    for (int i = 0; i < 4; ++i) sent[i] = tw_send(pair.endpoint, bytes_of(here), n, 1, nullptr, &sends[i]);
    for (int i = 0; i < 200; ++i) tw_worker_progress(pair.side.worker);
    pair.child.kill();
    for (int i = 0; i < 4; ++i) {
      const tw_status status = finish(sent[i], sends[i]);
      EXPECT_TRUE(status == TW_OK || status == TW_ERR_PEER_LOST) << status;
    }
    EXPECT_EQ(tw_memory_release(here), TW_OK);
  }
}

/// ... and its device with it, while that writes into a bounce buffer here, or this side copies out of it.
TEST_P(BouncedMessages, ASenderIsKilledInTheMiddle) {
  Pair pair(GetParam().there);
  tw_memory* here = memory_at(pair.side.context, GetParam().here, kArea);
  for (int round = 0; round < 3; ++round) {
    pair.child.send("echo 5000003");
    ASSERT_EQ(done(tw_send, pair.endpoint, bytes_of(here), 5'000'003, 1, nullptr), TW_OK) << tw_last_error();
    ASSERT_EQ(done(tw_recv, pair.side.worker, bytes_of(here), 5'000'003, 2, ~uint64_t{0}, nullptr), TW_OK) << tw_last_error();
  }
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.source = pair.endpoint;
  tw_request receive = 0;
  pair.child.send("echo 5000003");
  ASSERT_EQ(done(tw_send, pair.endpoint, bytes_of(here), 5'000'003, 1, nullptr), TW_OK) << tw_last_error();
  const tw_status posted = tw_recv(pair.side.worker, bytes_of(here), 5'000'003, 2, ~uint64_t{0}, &options, &receive);
  for (int i = 0; i < 50; ++i) tw_worker_progress(pair.side.worker);
  pair.child.kill();
  const tw_status status = finish(posted, receive);
  EXPECT_TRUE(status == TW_OK || status == TW_ERR_PEER_LOST) << status;
  const std::string bytes = random_bytes(5'000'003);
  std::string seen(bytes.size(), '\0');
  ASSERT_EQ(tw_memory_copy(pair.side.context, bytes_of(here), bytes.data(), bytes.size()), TW_OK) << tw_last_error();
  for (int i = 0; i < 200; ++i) tw_worker_progress(pair.side.worker);
  ASSERT_EQ(tw_memory_copy(pair.side.context, seen.data(), bytes_of(here), seen.size()), TW_OK) << tw_last_error();
  EXPECT_TRUE(seen == bytes) << "this side's own device copied behind the request's end";
  EXPECT_EQ(tw_memory_release(here), TW_OK);
}

// emulated:2 is apart: no device reaches it, nor it them.
constexpr Kinds kKinds[] = {
    {"emulated-pool:0", "emulated-pool:1", yes, yes},   {"emulated-managed:0", "emulated-managed:1", yes, yes},
    {"emulated-pool:0", "emulated-pool:0", yes, yes},   {"emulated:0", "host", at_first, by_costs},
    {"emulated-pool:1", "ordinary", yes, by_costs},     {"emulated:1", "ordinary", yes, by_costs},
    {"emulated-managed:1", "host", at_first, by_costs}, {"emulated:0", "emulated:2", yes, yes},
};
INSTANTIATE_TEST_SUITE_P(Kinds, BouncedMessages, testing::ValuesIn(kKinds), [](const auto& info) {
  std::string name = std::string(info.param.here) + "_to_" + info.param.there;
  for (char& c : name) c = c == '-' || c == ':' ? '_' : c;
  return name;
});

/// Ordinary memory into a device's, where the kernel's copy is not permitted: this CPU fills the bounce buffer.
class BouncedFromHost : public testing::TestWithParam<const char*> {
 protected:
  BouncedFromHost() { setenv("THALWEG_WAY", "staging", 1); }
  ~BouncedFromHost() override { unsetenv("THALWEG_WAY"); }
};

TEST_P(BouncedFromHost, ArrivesWhole) {
  Pair pair(GetParam());
  constexpr size_t kBlock = 4097, kRows = 301, kStride = 5000;
  const uint64_t count = kRows;
  const int64_t stride = kStride;
  tw_layout* layout = nullptr;
  ASSERT_EQ(tw_layout_strided(1, kBlock, &count, &stride, &layout), TW_OK) << tw_last_error();
  tw_op_options strided = TW_OP_OPTIONS_INIT;
  strided.layout = layout;
  for (const size_t n : {65'536, 131'073, 262'145, 1'048'577, 5'000'011}) {
    for (int round = 0; round < 3; ++round) {
      SCOPED_TRACE(std::to_string(n) + " bytes, round " + std::to_string(round));
      const std::string bytes = random_bytes(n), rows = random_bytes(kRows * kStride);
      std::string back(n, '\0'), packed(kBlock * kRows, '\0');
      pair.child.send("echo " + std::to_string(n));
      ASSERT_EQ(done(tw_send, pair.endpoint, bytes.data(), n, 1, nullptr), TW_OK) << tw_last_error();
      ASSERT_EQ(done(tw_recv, pair.side.worker, back.data(), n, 2, ~uint64_t{0}, nullptr), TW_OK) << tw_last_error();
      ASSERT_TRUE(back == bytes);
      pair.child.send("echo " + std::to_string(packed.size()));
      ASSERT_EQ(done(tw_send, pair.endpoint, rows.data(), packed.size(), 1, &strided), TW_OK) << tw_last_error();
      ASSERT_EQ(done(tw_recv, pair.side.worker, packed.data(), packed.size(), 2, ~uint64_t{0}, nullptr), TW_OK)
          << tw_last_error();
      for (size_t row = 0; row < kRows; ++row)
        ASSERT_EQ(packed.compare(row * kBlock, kBlock, rows, row * kStride, kBlock), 0) << row;
    }
  }
  EXPECT_NE(named(pair.side.context), 0u);
  pair.end();
  tw_layout_destroy(layout);
}

INSTANTIATE_TEST_SUITE_P(Into, BouncedFromHost, testing::Values("emulated:0", "emulated-pool:1", "emulated-managed:0"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' || c == ':' ? '_' : c;
                           return name;
                         });

/// Not by the kernel's copy, which needs no bounce buffer of both where it is permitted.
class BouncedPuts : public testing::TestWithParam<const char*> {
 protected:
  BouncedPuts() { setenv("THALWEG_WAY", "staging", 1); }
  ~BouncedPuts() override { unsetenv("THALWEG_WAY"); }
};

TEST_P(BouncedPuts, ReachOrdinaryMemoryInOrder) {
  Pair pair("ordinary");
  tw_memory* here = memory_at(pair.side.context, GetParam(), kArea);
  std::string there = std::string(kArea, '\x5a');
  for (const size_t n : {65'536, 262'145, 3'000'001, 16'777'217, 65'535, 524'288}) {
    for (int round = 0; round < 3; ++round) {
      SCOPED_TRACE(std::to_string(n) + " bytes, round " + std::to_string(round));
      const std::string bytes = random_bytes(n);
      const size_t at = static_cast<size_t>(round) * 1001 + 5;
      ASSERT_EQ(tw_memory_copy(pair.side.context, bytes_of(here) + 1, bytes.data(), n), TW_OK) << tw_last_error();
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.flags = round == 1 ? TW_OP_REMOTE : 0;
      tw_request put = 0, behind = 0, flush = 0;
      const tw_status started = tw_put(pair.endpoint, bytes_of(here) + 1, n, pair.remote, at, &options, &put);
      // A fence and a short put into the same bytes behind it: applied later.
      const std::string word = random_bytes(16);
      ASSERT_EQ(tw_endpoint_fence(pair.endpoint), TW_OK);
      const tw_status after = tw_put(pair.endpoint, word.data(), word.size(), pair.remote, at + n / 2, nullptr, &behind);
      const tw_status flushed = tw_endpoint_flush(pair.endpoint, &flush);
      ASSERT_EQ(finish(started, put), TW_OK) << tw_last_error();
      ASSERT_EQ(finish(after, behind), TW_OK) << tw_last_error();
      ASSERT_EQ(finish(flushed, flush), TW_OK) << tw_last_error();
      there.replace(at, n, bytes);
      there.replace(at + n / 2, word.size(), word);
    }
    ASSERT_TRUE(pair.told() == there) << n;
  }
  EXPECT_NE(named(pair.side.context), 0u);
  pair.end();
  EXPECT_EQ(tw_memory_release(here), TW_OK);
}

TEST_P(BouncedPuts, APeerIsKilledInTheMiddle) {
  Pair pair("ordinary");
  tw_memory* here = memory_at(pair.side.context, GetParam(), kArea);
  tw_request puts[5] = {};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(done(tw_put, pair.endpoint, bytes_of(here), 1'000'003, pair.remote, 0, nullptr), TW_OK) << tw_last_error();
  }
  tw_status started[5];
  for (int i = 0; i < 5; ++i) started[i] = tw_put(pair.endpoint, bytes_of(here), kArea, pair.remote, 0, nullptr, &puts[i]);
  for (int i = 0; i < 100; ++i) tw_worker_progress(pair.side.worker);
  pair.child.kill();
  for (int i = 0; i < 5; ++i) {
    const tw_status status = finish(started[i], puts[i]);
    EXPECT_TRUE(status == TW_OK || status == TW_ERR_PEER_LOST) << status;
  }
  EXPECT_EQ(tw_memory_release(here), TW_OK);
}

INSTANTIATE_TEST_SUITE_P(From, BouncedPuts, testing::Values("emulated:0", "emulated-pool:1", "emulated-managed:0"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' || c == ':' ? '_' : c;
                           return name;
                         });

}  // namespace
