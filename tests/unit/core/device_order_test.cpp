// SPDX-License-Identifier: Apache-2.0
// Operations that name a stream: their bytes are touched only behind its earlier work, while the caller goes on.
#include "device_order.hpp"
#include "../../fixtures/rooms.hpp"

namespace thalweg::impl {
namespace {

TEST_F(DeviceOrder, ASendSendsWhatTheStreamWillHaveWritten) {
  hold_up(source_, fresh_);
  const tw_op_options options = after_stream();
  tw_request send = TW_REQUEST_NONE, receive = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker_, tw_memory_address(target_), kBytes, 7, ~0ull, nullptr, &receive), TW_IN_PROGRESS);
  ASSERT_EQ(tw_send(endpoint_, tw_memory_address(source_), kBytes, 7, &options, &send), TW_IN_PROGRESS) << tw_last_error();
  let_pass();
  EXPECT_EQ(tw_request_test(send), TW_IN_PROGRESS);
  EXPECT_EQ(load(target_), old_);
  release();
  EXPECT_EQ(tw_request_finish(send), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_request_finish(receive), TW_OK) << tw_last_error();
  EXPECT_EQ(load(target_), new_);
}

/// Small enough for eager, and large enough for rendezvous.
TEST_F(DeviceOrder, AReceiveDoesNotOverwriteWhatTheStreamStillReads) {
  for (const size_t length : {size_t{40}, kBytes}) {
    hold_up(fresh_, target_);  // reads the target
    const tw_op_options options = after_stream();
    const std::vector<unsigned char> sent = random_bytes();
    tw_request receive = TW_REQUEST_NONE, send = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(worker_, tw_memory_address(target_), kBytes, 7, ~0ull, &options, &receive), TW_IN_PROGRESS);
    ASSERT_GE(tw_send(endpoint_, sent.data(), length, 7, nullptr, &send), TW_OK) << tw_last_error();
    let_pass();
    EXPECT_EQ(tw_request_test(receive), TW_IN_PROGRESS);
    const std::vector<unsigned char> before = load(target_);
    release();
    EXPECT_EQ(tw_request_finish(receive), TW_OK) << tw_last_error();
    EXPECT_EQ(send == TW_REQUEST_NONE ? TW_OK : tw_request_finish(send), TW_OK);
    ASSERT_EQ(stream_->synchronize(), TW_OK);
    EXPECT_EQ(load(fresh_), before) << "the stream read what had been received already";
    EXPECT_EQ(std::memcmp(load(target_).data(), sent.data(), length), 0);
    __atomic_store_n(reinterpret_cast<uint64_t*>(word_), 0, __ATOMIC_RELEASE);
  }
}

TEST_F(DeviceOrder, APutWaitsAndAFlushWaitsForIt) {
  unsigned char key[kKeyRoom];
  size_t length = sizeof key;
  ASSERT_EQ(tw_memory_export(target_, key, &length), TW_OK);
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint_, key, length, &remote), TW_OK) << tw_last_error();
  hold_up(source_, fresh_);
  const tw_op_options options = after_stream();
  tw_request put = TW_REQUEST_NONE, flush = TW_REQUEST_NONE;
  ASSERT_EQ(tw_put(endpoint_, tw_memory_address(source_), kBytes, remote, 0, &options, &put), TW_IN_PROGRESS);
  ASSERT_EQ(tw_endpoint_flush(endpoint_, &flush), TW_IN_PROGRESS);
  let_pass();
  EXPECT_EQ(tw_request_test(put), TW_IN_PROGRESS);
  EXPECT_EQ(tw_request_test(flush), TW_IN_PROGRESS);
  EXPECT_EQ(load(target_), old_);
  release();
  EXPECT_EQ(tw_request_finish(flush), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_request_test(put), TW_OK);
  EXPECT_EQ(tw_request_finish(put), TW_OK);
  EXPECT_EQ(load(target_), new_);
  tw_remote_memory_release(remote);
}

/// Only the worker itself can detect the stream's progress: it must not sleep.
TEST_F(DeviceOrder, AWorkerWithAnOperationBehindAStreamDoesNotSleep) {
  unsigned char key[kKeyRoom];
  size_t length = sizeof key;
  ASSERT_EQ(tw_memory_export(target_, key, &length), TW_OK);
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint_, key, length, &remote), TW_OK) << tw_last_error();
  using Start = tw_status (*)(tw_endpoint*, tw_memory*, tw_remote_memory*, const tw_op_options*, tw_request*);
  const Start put = [](tw_endpoint* to, tw_memory* from, tw_remote_memory* there, const tw_op_options* options,
                       tw_request* out) { return tw_put(to, tw_memory_address(from), kBytes, there, 0, options, out); };
  const Start get = [](tw_endpoint* from, tw_memory* to, tw_remote_memory* there, const tw_op_options* options,
                       tw_request* out) { return tw_get(from, tw_memory_address(to), kBytes, there, 0, options, out); };
  for (const Start start : {put, get}) {
    hold_up(source_, fresh_);
    const tw_op_options options = after_stream();
    tw_request request = TW_REQUEST_NONE;
    ASSERT_EQ(start(endpoint_, source_, remote, &options, &request), TW_IN_PROGRESS) << tw_last_error();
    let_pass();
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(tw_worker_arm(worker_), TW_ERR_BUSY);
      tw_worker_progress(worker_);
    }
    EXPECT_EQ(tw_request_test(request), TW_IN_PROGRESS);
    release();
    EXPECT_EQ(tw_request_finish(request), TW_OK) << tw_last_error();
    tw_status armed = TW_ERR_BUSY;
    for (int i = 0; i < 1000 && armed == TW_ERR_BUSY; ++i, tw_worker_progress(worker_)) armed = tw_worker_arm(worker_);
    EXPECT_EQ(armed, TW_OK) << "it does not sleep any more";
    __atomic_store_n(reinterpret_cast<uint64_t*>(word_), 0, __ATOMIC_RELEASE);
  }
  tw_remote_memory_release(remote);
}

/// Host memory that a stream fills is ordered in the same way.
TEST_F(DeviceOrder, PinnedMemoryThatAStreamFills) {
  uint64_t pinned = 0;
  ASSERT_EQ(device_->allocate(MemoryKind::pinned, kBytes, &pinned), TW_OK);
  std::memcpy(reinterpret_cast<void*>(pinned), old_.data(), kBytes);
  ASSERT_EQ(stream_->wait_geq(word_, 1), TW_OK);
  const Copy copy{pinned, number(fresh_), kBytes};
  ASSERT_EQ(stream_->copy(&copy, 1), TW_OK);
  const tw_op_options options = after_stream();
  std::vector<unsigned char> got(kBytes, 0xC3);
  tw_request send = TW_REQUEST_NONE, receive = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker_, got.data(), kBytes, 7, ~0ull, nullptr, &receive), TW_IN_PROGRESS);
  ASSERT_EQ(tw_send(endpoint_, reinterpret_cast<void*>(pinned), 100, 7, &options, &send), TW_IN_PROGRESS) << tw_last_error();
  let_pass();
  EXPECT_EQ(tw_request_test(send), TW_IN_PROGRESS);
  release();
  EXPECT_EQ(tw_request_finish(send), TW_OK);
  EXPECT_EQ(tw_request_finish(receive), TW_OK);
  EXPECT_EQ(std::memcmp(got.data(), new_.data(), 100), 0);
  EXPECT_EQ(got[100], 0xC3);
  ASSERT_EQ(device_->free(pinned), TW_OK);
}

/// A device that runs another process's kernel would copy it in turns of a millisecond.
TEST_F(DeviceOrder, PinnedMemoryIsCopiedByTheCpuAlsoWhereItsPlaceIsKnown) {
  uint64_t pinned = 0;
  ASSERT_EQ(device_->allocate(MemoryKind::pinned, kBytes, &pinned), TW_OK);
  BufferInfo known;
  ASSERT_EQ(find_device(pinned, &known), TW_OK);
  ASSERT_NE(known.device, nullptr);
  OpDesc op;
  op.verb = Verb::recv;
  op.address = reinterpret_cast<std::byte*>(pinned);
  op.length = kBytes;
  ASSERT_EQ(set_device(op, kOpDefaults, &known), TW_OK);
  EXPECT_EQ(op.flags & kOpDevice, 0u);
  ASSERT_EQ(device_->free(pinned), TW_OK);
}

TEST_F(DeviceOrder, WhatCannotBeOrderedOrTouchedIsRefused) {
  tw_op_options options = after_stream();
  options.after_kind = 9;
  tw_request request = TW_REQUEST_NONE;
  void* const source = tw_memory_address(source_);
  EXPECT_EQ(tw_send(endpoint_, source, kBytes, 7, &options, &request), TW_ERR_INVALID);
  EXPECT_EQ(tw_send(endpoint_, source, kBytes + 1, 7, nullptr, &request), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(tw_bytes_send(endpoint_, source, kBytes, nullptr, &request), TW_ERR_UNSUPPORTED);
  options = TW_OP_OPTIONS_INIT;
  options.flags = TW_OP_EAGER;
  EXPECT_EQ(tw_am_send(endpoint_, 1, nullptr, 0, source, 8, &options, &request), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::strstr(tw_last_error(), "send device memory without it"), nullptr);
}

}  // namespace
}  // namespace thalweg::impl
