// SPDX-License-Identifier: Apache-2.0
// Layouts of callbacks between processes, over shm and tcp: messages of every size class both ways, puts and gets, and a peer that is
// killed in the middle of all of them.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "../fixtures/called_pieces.hpp"
#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr uint64_t kAll = UINT64_MAX, kMemory = 3u << 20;
constexpr size_t kSizes[] = {0, 1, 40, 41, 4096, 8191, 65'536, 65'537, 262'145, 1'048'577, 5'000'011};

/// A layout and what its calls have seen.
struct Called {
  Called() {
    const tw_layout_callbacks_options functions = CalledPieces::options(seen);
    if (tw_layout_callbacks(&functions, &layout) == TW_OK) options.layout = layout;
  }
  ~Called() { tw_layout_destroy(layout); }
  bool even() const { return seen.starts == seen.finishes && !seen.wrong; }
  Seen seen;
  tw_layout* layout = nullptr;
  tw_op_options options = TW_OP_OPTIONS_INIT;
};

/// How what was posted with a request that is filled in by then ended.
tw_status outcome(tw_status started, const tw_request& request) { return finish(started, request); }

/// Sends back what comes, both by callbacks; a message of one byte ends it. Exports memory first.
const Role kEcho("echo by callbacks", [](Pipe& pipe) {
  Side side;
  Called called;
  std::mt19937_64 random(std::random_device{}());
  pipe.send(side.address());
  tw_memory* memory = nullptr;
  if (tw_memory_allocate(side.context, kMemory, nullptr, &memory) != TW_OK) return 1;
  char key[kKeyRoom];
  size_t length = sizeof key;
  if (tw_memory_export(memory, key, &length) != TW_OK) return 2;
  pipe.send({key, length});
  for (size_t size : kSizes) {
    CalledPieces pieces(random, size);
    tw_request request = TW_REQUEST_NONE;
    if (tw_recv(side.worker, &pieces, 0, 1, kAll, &called.options, &request) != TW_IN_PROGRESS) return 3;
    if (tw_request_wait(request, 20'000'000'000) != TW_OK) return 4;
    tw_recv_info info{};
    if (tw_request_info(request, &info) != TW_OK || info.length != size) return 5;
    if (tw_request_release(request) != TW_OK) return 6;
    pieces.writes_less = size < 100'000;
    tw_request answer = TW_REQUEST_NONE;
    if (outcome(tw_send(info.endpoint, &pieces, 0, 2, &called.options, &answer), answer) != TW_OK) return 7;
  }
  progress_until(side.worker, [&] { return pipe.readable(); });
  return called.even() ? 0 : 8;
});

/// Takes part in nothing, but progresses.
const Role kIdle("idle", [](Pipe& pipe) {
  Side side;
  pipe.send(side.address());
  tw_memory* memory = nullptr;
  static char plain[kMemory];
  if (tw_memory_register(side.context, plain, sizeof plain, nullptr, &memory) != TW_OK) return 1;
  char key[kKeyRoom];
  size_t length = sizeof key;
  if (tw_memory_export(memory, key, &length) != TW_OK) return 2;
  pipe.send({key, length});
  progress_until(side.worker, [&] { return pipe.readable(); });
  return 0;
});

class CallbackLayoutsBetween : public testing::TestWithParam<const char*> {};

TEST_P(CallbackLayoutsBetween, ProcessesEveryByteArrives) {
  Child child("echo by callbacks");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  const std::string key = child.receive();
  std::mt19937_64 random(std::random_device{}());
  Called called;
  for (size_t size : kSizes) {
    CalledPieces from(random, size), back(random, size);
    from.writes_less = size < 100'000;
    tw_request sent = TW_REQUEST_NONE, received = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(side.worker, &back, 0, 2, kAll, &called.options, &received), TW_IN_PROGRESS);
    const tw_status status = tw_send(endpoint, &from, 0, 1, &called.options, &sent);
    EXPECT_EQ(finish(TW_IN_PROGRESS, received), TW_OK) << size << " " << tw_last_error();
    EXPECT_EQ(finish(status, sent), TW_OK) << size << " " << tw_last_error();
    EXPECT_EQ(from.packed(), back.packed()) << size;
  }
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK);
  for (size_t size : {9, 5000, 2'000'001}) {
    CalledPieces from(random, size), back(random, size);
    tw_request request = TW_REQUEST_NONE;
    tw_op_options visible = called.options;
    visible.flags = TW_OP_REMOTE;
    EXPECT_EQ(outcome(tw_put(endpoint, &from, 0, remote, 7, &visible, &request), request), TW_OK) << tw_last_error();
    EXPECT_EQ(outcome(tw_get(endpoint, &back, 0, remote, 7, &called.options, &request), request), TW_OK) << tw_last_error();
    EXPECT_EQ(from.packed(), back.packed()) << size;
  }
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  EXPECT_TRUE(called.even());
}

TEST_P(CallbackLayoutsBetween, ProcessesThatAreKilledFinishEveryStart) {
  Child child("idle");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  const std::string key = child.receive();
  ASSERT_EQ(tw_endpoint_wait(endpoint, 20'000'000'000), TW_OK);
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK);
  std::mt19937_64 random(std::random_device{}());
  Called called;
  std::deque<CalledPieces> pieces;
  std::vector<tw_request> requests;
  for (int round = 0; round < 40; ++round) {
    for (size_t size : {5, 60'000, 2'000'000}) {
      tw_op_options options = called.options;
      options.source = endpoint;
      for (int verb = 0; verb < 4; ++verb) {
        CalledPieces& one = pieces.emplace_back(random, size);
        tw_request request = TW_REQUEST_NONE;
        const tw_status status = verb == 0   ? tw_send(endpoint, &one, 0, 1, &called.options, &request)
                                 : verb == 1 ? tw_recv(side.worker, &one, 0, 1, kAll, &options, &request)
                                 : verb == 2 ? tw_put(endpoint, &one, 0, remote, 0, &called.options, &request)
                                             : tw_get(endpoint, &one, 0, remote, 0, &called.options, &request);
        if (status == TW_IN_PROGRESS) requests.push_back(request);
      }
    }
    if (round == 1) child.kill();
  }
  for (tw_request request : requests) {
    const tw_status status = finish(TW_IN_PROGRESS, request);
    EXPECT_TRUE(status == TW_OK || status == TW_ERR_PEER_LOST) << tw_status_name(status);
  }
  EXPECT_TRUE(called.even());
  EXPECT_GT(called.seen.starts, 0);
}

INSTANTIATE_TEST_SUITE_P(Transports, CallbackLayoutsBetween, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
