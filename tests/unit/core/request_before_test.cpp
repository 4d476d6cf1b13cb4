// SPDX-License-Identifier: Apache-2.0
// Streams that wait for requests (tw_request_before): what they do next sees what the request brought, and no request that
// ends in another way leaves a stream waiting.
#include <thread>

#include "device_order.hpp"
#include "protocols/stream_waits.hpp"

namespace thalweg::impl {
namespace {

class RequestBefore : public DeviceOrder {
 protected:
  /// A receive into target_ whose message was not sent yet.
  tw_request post() {
    tw_request request = TW_REQUEST_NONE;
    EXPECT_EQ(tw_recv(worker_, tw_memory_address(target_), kBytes, 7, ~0ull, nullptr, &request), TW_IN_PROGRESS);
    return request;
  }
  void send(const std::vector<unsigned char>& bytes) {
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_send(endpoint_, bytes.data(), bytes.size(), 7, nullptr, &request), TW_OK) << tw_last_error();
    ASSERT_EQ(tw_request_finish(request), TW_OK);
  }
  /// The stream reads target_ into fresh_, as soon as it gets there.
  void read_target(Queue& stream) {
    const Copy copy{number(fresh_), number(target_), kBytes};
    ASSERT_EQ(stream.copy(&copy, 1), TW_OK) << last_error();
  }
  /// It does, within the time limit of the test, without anybody's progress.
  void expect_passes(Queue& stream) { EXPECT_EQ(stream.synchronize(), TW_OK); }
};

TEST_F(RequestBefore, TheStreamSeesWhatWasReceived) {
  for (int round = 0; round < 20; ++round) {  // more than there are stream waits: each is reused
    const std::vector<unsigned char> sent = random_bytes();
    const tw_request receive = post();
    ASSERT_EQ(tw_request_before(receive, stream_->native()), TW_OK) << tw_last_error();
    read_target(*stream_);
    let_pass();
    EXPECT_EQ(stream_->query(), TW_IN_PROGRESS);
    send(sent);
    EXPECT_EQ(tw_request_finish(receive), TW_OK);
    expect_passes(*stream_);
    EXPECT_EQ(load(fresh_), sent);
  }
}

TEST_F(RequestBefore, SeveralStreamsOfSeveralDevicesWaitForOne) {
  const std::vector<Device*> devices = list_devices(nullptr);
  ASSERT_GE(devices.size(), 2u);
  std::vector<unsigned char> got(300, 0);
  tw_request receive = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker_, got.data(), got.size(), 7, ~0ull, nullptr, &receive), TW_IN_PROGRESS);  // host memory: any device
  std::vector<std::unique_ptr<Queue>> streams(4);
  for (size_t i = 0; i < streams.size(); ++i) {
    ASSERT_EQ(devices[i % 2]->make_queue(&streams[i]), TW_OK);
    ASSERT_EQ(tw_request_before(receive, streams[i]->native()), TW_OK) << tw_last_error();
    ASSERT_EQ(streams[i]->write_value(word_, i + 1, false), TW_OK);
  }
  let_pass();
  for (auto& stream : streams) EXPECT_EQ(stream->query(), TW_IN_PROGRESS);
  EXPECT_EQ(*reinterpret_cast<volatile uint64_t*>(word_), 0u);
  const std::vector<unsigned char> sent(got.size(), 0x3c);
  send(sent);
  EXPECT_EQ(tw_request_finish(receive), TW_OK);
  EXPECT_EQ(got, sent);
  for (auto& stream : streams) expect_passes(*stream);
  EXPECT_NE(*reinterpret_cast<volatile uint64_t*>(word_), 0u);
}

/// The copies of the request itself, and another request that ends first, do not queue behind it.
TEST_F(RequestBefore, AWaitHoldsUpNothingElse) {
  tw_request receives[StreamWaits::kMost];
  std::unique_ptr<Queue> streams[StreamWaits::kMost];
  for (unsigned i = 0; i < StreamWaits::kMost; ++i) {
    ASSERT_EQ(tw_recv(worker_, tw_memory_address(target_), kBytes, 100 + i, ~0ull, nullptr, &receives[i]), TW_IN_PROGRESS);
    ASSERT_EQ(device_->make_queue(&streams[i]), TW_OK);
    ASSERT_EQ(tw_request_before(receives[i], streams[i]->native()), TW_OK) << tw_last_error();
  }
  const tw_request one_more = post();
  EXPECT_EQ(tw_request_before(one_more, stream_->native()), TW_ERR_LIMIT);
  for (unsigned i = StreamWaits::kMost; i-- > 0;) {  // the last one first
    const std::vector<unsigned char> sent = random_bytes();
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_send(endpoint_, sent.data(), kBytes, 100 + i, nullptr, &request), TW_OK);
    EXPECT_EQ(tw_request_finish(request), TW_OK);
    EXPECT_EQ(tw_request_finish(receives[i]), TW_OK);
    expect_passes(*streams[i]);
    EXPECT_EQ(load(target_), sent);
    for (unsigned j = 0; j < i; ++j) EXPECT_EQ(streams[j]->query(), TW_IN_PROGRESS);
  }
  EXPECT_EQ(tw_request_before(one_more, stream_->native()), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_request_cancel(one_more), TW_OK);
  expect_passes(*stream_);
  EXPECT_EQ(tw_request_finish(one_more), TW_ERR_CANCELED);
}

TEST_F(RequestBefore, ALostPeerAndAReleasedRequestLeaveNoStreamWaiting) {
  tw_request request = TW_REQUEST_NONE;
  tw_op_options from_peer = TW_OP_OPTIONS_INIT;
  from_peer.source = endpoint_;
  ASSERT_EQ(tw_recv(worker_, tw_memory_address(target_), kBytes, 7, ~0ull, &from_peer, &request), TW_IN_PROGRESS);
  ASSERT_EQ(tw_request_before(request, stream_->native()), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_request_release(request), TW_OK);
  EXPECT_EQ(tw_request_before(request, stream_->native()), TW_OK) << "released, but under way";
  EXPECT_EQ(stream_->query(), TW_IN_PROGRESS);
  ASSERT_EQ(tw_endpoint_close(endpoint_, TW_CLOSE_FORCE, nullptr), TW_OK);
  endpoint_ = nullptr;
  let_pass();
  expect_passes(*stream_);
  EXPECT_EQ(tw_request_before(request, stream_->native()), TW_ERR_HANDLE);
}

TEST_F(RequestBefore, ADestroyedWorkerLeavesNoStreamWaiting) {
  const tw_request receive = post();
  ASSERT_EQ(tw_request_before(receive, stream_->native()), TW_OK) << tw_last_error();
  EXPECT_EQ(stream_->query(), TW_IN_PROGRESS);
  (void)tw_endpoint_close(endpoint_, TW_CLOSE_FORCE, nullptr);
  tw_worker_destroy(worker_);
  endpoint_ = nullptr;
  worker_ = nullptr;
  expect_passes(*stream_);
}

TEST_F(RequestBefore, WhatHasEndedIsNotWaitedForAndWhatMakesNoSenseIsRefused) {
  EXPECT_EQ(tw_request_before(TW_REQUEST_NONE, stream_->native()), TW_OK);
  const tw_request receive = post();
  EXPECT_EQ(tw_request_before(receive, &word_), TW_ERR_INVALID);
  EXPECT_EQ(stream_->query(), TW_OK);
  send(random_bytes());
  ASSERT_EQ(tw_request_wait(receive, TW_FOREVER), TW_OK);
  EXPECT_EQ(tw_request_before(receive, stream_->native()), TW_OK);
  EXPECT_EQ(stream_->query(), TW_OK);
  EXPECT_EQ(tw_request_release(receive), TW_OK);
  EXPECT_EQ(tw_request_before(receive, stream_->native()), TW_ERR_HANDLE);
}

TEST_F(RequestBefore, ACapturedStreamIsRefusedAndItsCaptureUnspoilt) {
  const tw_request receive = post();
  ASSERT_EQ(stream_->begin_capture(), TW_OK) << last_error();
  EXPECT_EQ(tw_request_before(receive, stream_->native()), TW_ERR_UNSUPPORTED);
  std::unique_ptr<Graph> graph;
  EXPECT_EQ(stream_->end_capture(&graph), TW_OK) << last_error();
  EXPECT_EQ(tw_request_cancel(receive), TW_OK);
  EXPECT_EQ(tw_request_finish(receive), TW_ERR_CANCELED);
}

}  // namespace
}  // namespace thalweg::impl
