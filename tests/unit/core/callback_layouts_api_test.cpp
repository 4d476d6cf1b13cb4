// SPDX-License-Identifier: Apache-2.0
// Layouts of callbacks at the C interface and in the C++ view: what is refused and named, lengths, buffers that are no addresses, what
// users' functions throw; over self and over tcp within the process.
#include <gtest/gtest.h>
#include <thalweg/thalweg.hpp>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "fixtures/called_pieces.hpp"

namespace {

using thalweg::test::CalledPieces;
using thalweg::test::Seen;

constexpr char kKey[] = "a secret of more than sixteen bytes";

thalweg::ContextOptions with_key() {
  thalweg::ContextOptions options;
  options.job_key = kKey;
  options.job_key_length = sizeof kKey;
  return options;
}

class CallbackLayoutsApi : public testing::Test {
 protected:
  CallbackLayoutsApi() {
    const tw_layout_callbacks_options functions = CalledPieces::options(seen);
    EXPECT_EQ(tw_layout_callbacks(&functions, &layout), TW_OK);
    options.layout = layout;
  }
  void TearDown() override {
    tw_layout_destroy(layout);
    EXPECT_EQ(seen.starts, seen.finishes);
    EXPECT_EQ(seen.destroyed, 1);
    EXPECT_FALSE(seen.wrong);
  }
  tw_status outcome(tw_status started, const tw_request& request) {
    return started == TW_IN_PROGRESS ? tw_request_finish(request) : started;
  }
  std::mt19937_64 random{std::random_device{}()};
  thalweg::Context context{with_key()};
  thalweg::Worker worker{context};
  Seen seen;
  tw_layout* layout = nullptr;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  tw_request request = TW_REQUEST_NONE;
};

TEST_F(CallbackLayoutsApi, WhatIsMissingIsRefused) {
  tw_layout* made = nullptr;
  EXPECT_EQ(tw_layout_callbacks(nullptr, &made), TW_ERR_INVALID);
  tw_layout_callbacks_options functions = CalledPieces::options(seen);
  EXPECT_EQ(tw_layout_callbacks(&functions, nullptr), TW_ERR_INVALID);
  functions.finish = nullptr;
  EXPECT_EQ(tw_layout_callbacks(&functions, &made), TW_ERR_INVALID);
  EXPECT_EQ(made, nullptr);
  functions = CalledPieces::options(seen);
  functions.size = offsetof(tw_layout_callbacks_options, destroy);  // of an older caller
  functions.unpack = nullptr;
  ASSERT_EQ(tw_layout_callbacks(&functions, &made), TW_OK);
  tw_op_options only_sends = TW_OP_OPTIONS_INIT;
  only_sends.layout = made;
  CalledPieces pieces(random, 10);
  EXPECT_EQ(tw_recv(worker.get(), &pieces, 0, 1, ~0ull, &only_sends, &request), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::strstr(tw_last_error(), "no unpack"), nullptr) << tw_last_error();
  tw_layout_destroy(made);
  EXPECT_EQ(seen.destroyed, 0);
  EXPECT_EQ(tw_layout_bytes(layout), 0u);
}

TEST_F(CallbackLayoutsApi, TheLengthIsNoneOrThePackedSize) {
  auto endpoint = worker.connect(worker.address());
  CalledPieces pieces(random, 100), into(random, 100);
  EXPECT_EQ(tw_send(endpoint.get(), &pieces, 99, 1, &options, &request), TW_ERR_INVALID);
  EXPECT_NE(std::strstr(tw_last_error(), "100 bytes"), nullptr) << tw_last_error();
  EXPECT_EQ(tw_send(endpoint.get(), nullptr, 0, 1, &options, &request), TW_ERR_OUT_OF_BOUNDS) << "start's own";
  EXPECT_NE(std::strstr(tw_last_error(), "start of the layout"), nullptr) << tw_last_error();
  const tw_status sent = tw_send(endpoint.get(), &pieces, 100, 1, &options, &request);
  tw_request received = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker.get(), &into, 0, 1, ~0ull, &options, &received), TW_IN_PROGRESS);
  EXPECT_EQ(tw_request_finish(received), TW_OK);
  EXPECT_EQ(outcome(sent, request), TW_OK);
  EXPECT_EQ(into.packed(), pieces.packed());
  EXPECT_EQ(seen.starts, 3);  // that of a wrong length, too
}

/// A function's error is an operation's. One that only calls have would be taken for that of tw_request_finish, whose request lived on.
TEST_F(CallbackLayoutsApi, FinishReleasesWhateverAFunctionReturned) {
  auto endpoint = worker.connect(worker.address());
  for (const tw_status failure : {int{TW_ERR_HANDLE}, int{TW_ERR_THREAD}, int{TW_ERR_FORKED}, int{TW_ERR_TIMED_OUT},
                                  int{TW_ERR_BUSY}, -7777, int{TW_ERR_IO}}) {
    CalledPieces pieces(random, 100), into(random, 100);
    into.fails_at = 0;
    into.failure = failure;
    tw_request received = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(worker.get(), &into, 0, 1, ~0ull, &options, &received), TW_IN_PROGRESS);
    EXPECT_EQ(outcome(tw_send(endpoint.get(), &pieces, 0, 1, &options, &request), request), TW_OK);
    EXPECT_EQ(tw_request_wait(received, TW_FOREVER), failure == TW_ERR_IO ? failure : tw_status{TW_ERR_INVALID}) << failure;
    EXPECT_EQ(tw_request_finish(received), failure == TW_ERR_IO ? failure : tw_status{TW_ERR_INVALID}) << failure;
    EXPECT_EQ(tw_request_release(received), TW_ERR_HANDLE) << failure << ": still alive";
  }
}

TEST_F(CallbackLayoutsApi, WhereNoneIsTakenTheTextSaysSo) {
  auto endpoint = worker.connect(worker.address());
  CalledPieces pieces(random, 100);
  char buffer[100] = {};
  EXPECT_EQ(tw_bytes_send(endpoint.get(), &pieces, 0, &options, &request), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(tw_bytes_recv(endpoint.get(), &pieces, 0, &options, &request), TW_ERR_UNSUPPORTED);
  tw_op_options late = options;
  late.after_kind = TW_AFTER_STREAM;
  EXPECT_EQ(tw_send(endpoint.get(), &pieces, 0, 1, &late, &request), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::strstr(tw_last_error(), "stream"), nullptr) << tw_last_error();
  thalweg::Memory memory = context.allocate(100);
  const std::string key = memory.key();
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint.get(), key.data(), key.size(), &remote), TW_OK);
  tw_op_options there = TW_OP_OPTIONS_INIT;
  there.remote_layout = layout;
  EXPECT_EQ(tw_put(endpoint.get(), buffer, 100, remote, 0, &there, &request), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::strstr(tw_last_error(), "names no bytes"), nullptr) << tw_last_error();
  EXPECT_EQ(tw_get(endpoint.get(), buffer, 100, remote, 0, &there, &request), TW_ERR_UNSUPPORTED);
  EXPECT_EQ(outcome(tw_put(endpoint.get(), &pieces, 0, remote, 0, &options, &request), request), TW_OK);
  EXPECT_EQ(std::memcmp(memory.data(), pieces.packed().data(), 100), 0);
  (void)tw_remote_memory_release(remote);
}

TEST_F(CallbackLayoutsApi, ExplainAsksForTheSizeAndSaysWhoPacks) {
  auto endpoint = worker.connect(worker.address());
  CalledPieces pieces(random, 900'000);
  char text[8192];
  size_t size = sizeof text;
  ASSERT_EQ(tw_endpoint_explain_buffer(endpoint.get(), "send", &pieces, 0, nullptr, &options, text, &size), TW_OK)
      << tw_last_error();
  EXPECT_NE(std::strstr(text, "900000 bytes"), nullptr) << text;
  EXPECT_NE(std::strstr(text, "packed by the user's functions"), nullptr) << text;
  EXPECT_EQ(seen.starts, 1);
  EXPECT_EQ(seen.finishes, 1);
}

TEST_F(CallbackLayoutsApi, ThatIsDestroyedBehindAnOperationEndsAfterIt) {
  CalledPieces pieces(random, 100);
  tw_request received = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker.get(), &pieces, 0, 1, ~0ull, &options, &received), TW_IN_PROGRESS);
  tw_layout_destroy(layout);
  EXPECT_EQ(seen.destroyed, 0);
  ASSERT_EQ(tw_request_cancel(received), TW_OK);
  EXPECT_EQ(seen.finishes, 1);
  ASSERT_EQ(tw_request_release(received), TW_OK);
  EXPECT_EQ(seen.destroyed, 1);
  const tw_layout_callbacks_options functions = CalledPieces::options(seen);
  seen.destroyed = 0;
  ASSERT_EQ(tw_layout_callbacks(&functions, &layout), TW_OK);  // for the end
}

/// The words of a text, sent without their blanks: the buffer is a std::string.
struct Words {
  int* alive;
  tw_status fails_with = TW_OK;  // unpack; TW_AGAIN: it throws an int
  struct State {
    State(int& alive, tw_status fails_with, std::string& text) : alive_now(alive), failure(fails_with), to(text) {
      ++alive_now;
    }
    State(const State&) = delete;
    ~State() { --alive_now; }
    size_t packed_size() const noexcept { return to.size(); }
    size_t pack(uint64_t offset, std::span<std::byte> out) {
      const size_t n = std::min<size_t>(out.size(), 3);
      for (size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(to[offset + i] ^ 1);
      return n;
    }
    void unpack(uint64_t offset, std::span<const std::byte> in) {
      if (failure == TW_AGAIN) throw 5;
      if (failure != TW_OK) throw thalweg::Error(failure, "these words do not fit");
      for (size_t i = 0; i < in.size(); ++i) to[offset + i] = static_cast<char>(in[i]) ^ 1;
    }
    int& alive_now;
    tw_status failure;
    std::string& to;
  };
  State start(const void* buffer, size_t, int direction) {
    auto* text = static_cast<std::string*>(const_cast<void*>(buffer));
    if (direction == TW_LAYOUT_UNPACK && text->empty()) throw thalweg::Error(TW_ERR_LIMIT, "no room");
    return State(*alive, fails_with, *text);
  }
};

TEST_F(CallbackLayoutsApi, TheViewTakesAUsersTypeAndWhatItThrows) {
  auto endpoint = worker.connect(worker.address());
  int alive = 0;
  for (tw_status failure : {TW_OK, TW_ERR_IO, TW_AGAIN}) {
    const thalweg::Layout words = thalweg::Layout::callbacks(Words{&alive, failure});
    tw_op_options use = TW_OP_OPTIONS_INIT;
    use.layout = words.get();
    std::string from = "words of a text", to(from.size(), '?'), none;
    EXPECT_EQ(tw_recv(worker.get(), &none, 0, 1, ~0ull, &use, &request), TW_ERR_LIMIT);
    ASSERT_EQ(tw_recv(worker.get(), &to, 0, 1, ~0ull, &use, &request), TW_IN_PROGRESS);
    tw_request sent = TW_REQUEST_NONE;
    EXPECT_EQ(outcome(tw_send(endpoint.get(), &from, 0, 1, &use, &sent), sent), TW_OK);
    const tw_status status = tw_request_finish(request);
    EXPECT_EQ(status, failure == TW_AGAIN ? TW_ERR_INVALID : failure);
    EXPECT_EQ(to == from, failure == TW_OK);
    EXPECT_EQ(alive, 0);
  }
}

TEST_F(CallbackLayoutsApi, OverTcpWithinTheProcess) {
  thalweg::Worker other(context);
  thalweg::EndpointOptions tcp;
  tcp.transport = "tcp";
  auto endpoint = worker.connect(other.address(), tcp);
  for (size_t size : {1, 100, 65'536, 300'001, 2'000'003}) {
    CalledPieces from(random, size), to(random, size);
    from.writes_less = size < 1'000'000;
    tw_request received = TW_REQUEST_NONE, sent = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(other.get(), &to, 0, 1, ~0ull, &options, &received), TW_IN_PROGRESS);
    tw_status status = tw_send(endpoint.get(), &from, 0, 1, &options, &sent);
    while (tw_request_test(received) == TW_IN_PROGRESS) {
      tw_worker_progress(worker.get());
      tw_worker_progress(other.get());
    }
    EXPECT_EQ(tw_request_finish(received), TW_OK) << tw_last_error();
    EXPECT_EQ(outcome(status, sent), TW_OK);
    EXPECT_EQ(from.packed(), to.packed());
  }
}

}  // namespace
