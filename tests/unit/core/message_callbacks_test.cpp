// SPDX-License-Identifier: Apache-2.0
// Messages whose end is told by a callback, with and without a request: what takes the short forms and what does not.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../../fixtures/rooms.hpp"
#include "thalweg/thalweg.h"

namespace {

constexpr uint64_t kLong = 20'000'000'000;
constexpr size_t kRoom = (1u << 20) + 64;
constexpr size_t kSizes[] = {0, 1, 8, 63, 4099, 65537, (128u << 10) - 1, 128u << 10, (1u << 20) + 3};

/// What a callback was called with.
struct Call {
  int count = 0;
  tw_request request = TW_REQUEST_NONE;
  tw_status status = TW_IN_PROGRESS;
  tw_recv_info info{};
  std::string message;
  int* clock = nullptr;  // of calls in their order
  int turn = 0;
};
void note(void* arg, tw_request request, tw_status status, const tw_recv_info* info) {
  Call& call = *static_cast<Call*>(arg);
  ++call.count;
  call.request = request;
  call.status = status;
  call.info = *info;
  call.message = tw_request_message(request);
  if (call.clock != nullptr) call.turn = ++*call.clock;
}
tw_op_options told(Call& call) {
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.callback = note;
  options.arg = &call;
  return options;
}

/// Two workers of one thread behind this transport; over self one.
class MessageCallbacks : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ::setenv("THALWEG_EMULATED", "devices=2", 0);
    ASSERT_EQ(tw_context_create(nullptr, &context_), TW_OK);
    ASSERT_EQ(tw_worker_create(context_, nullptr, &from_), TW_OK) << tw_last_error();
    to_ = from_;
    if (std::string(GetParam()) != "self") ASSERT_EQ(tw_worker_create(context_, nullptr, &to_), TW_OK) << tw_last_error();
    unsigned char address[kAddressRoom];
    size_t length = sizeof address;
    ASSERT_EQ(tw_worker_address(to_, address, &length), TW_OK);
    tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
    options.transport = GetParam();
    ASSERT_EQ(tw_connect(from_, address, length, &options, &there_), TW_OK) << tw_last_error();
    ASSERT_TRUE(until([this] { return tw_endpoint_state(there_) == TW_OK; }));
    source_.resize(kRoom);
    for (unsigned char& byte : source_) byte = static_cast<unsigned char>(random_());
  }
  void TearDown() override {
    end_receiver();
    if (from_ != nullptr) tw_worker_destroy(from_);
    tw_context_destroy(context_);
  }
  void end_receiver() {
    if (to_ != nullptr) tw_worker_destroy(to_);
    if (from_ == to_) from_ = nullptr;
    to_ = nullptr;
  }
  void progress() const {
    tw_worker_progress(from_);
    tw_worker_progress(to_);
  }
  template <class Done>
  bool until(const Done& done) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLong);
    while (!done() && std::chrono::steady_clock::now() < end) progress();
    return done();
  }
  void settle() const {
    for (int i = 0; i < 50; ++i) progress();
  }
  /// Posts a send with a callback and waits for its end. A complete one calls nothing, now or later.
  void send(const unsigned char* bytes, size_t length, uint64_t tag, bool with_request) {
    Call sent;
    const tw_op_options options = told(sent);
    tw_request request = ~TW_REQUEST_NONE;
    const tw_status status = tw_send(there_, bytes, length, tag, &options, with_request ? &request : nullptr);
    ASSERT_GE(status, TW_OK) << tw_last_error();
    ASSERT_EQ(sent.count, 0) << "within the call";
    if (status == TW_OK) {
      if (with_request) EXPECT_EQ(request, TW_REQUEST_NONE);
      settle();
      EXPECT_EQ(sent.count, 0) << "complete already";
      return;
    }
    ASSERT_TRUE(until([&] { return sent.count != 0; })) << length;
    settle();
    EXPECT_EQ(sent.count, 1);
    EXPECT_EQ(sent.status, TW_OK);
    EXPECT_EQ(sent.info.length, length);
    EXPECT_EQ(sent.info.tag, tag);
    if (with_request) EXPECT_EQ(sent.request, request);
    EXPECT_EQ(tw_request_test(sent.request), TW_ERR_HANDLE) << "released behind the callback";
  }
  void expect_received(Call& call, tw_request request, uint64_t tag, size_t length) const {
    ASSERT_TRUE(until([&] { return call.count != 0; })) << length;
    settle();
    EXPECT_EQ(call.count, 1);
    EXPECT_EQ(call.status, TW_OK);
    EXPECT_EQ(call.info.tag, tag);
    EXPECT_EQ(call.info.length, length);
    EXPECT_EQ(call.info.immediate, 0u);
    if (request != TW_REQUEST_NONE) EXPECT_EQ(call.request, request);
    EXPECT_EQ(tw_request_test(call.request), TW_ERR_HANDLE);
  }

  tw_context* context_ = nullptr;
  tw_worker *from_ = nullptr, *to_ = nullptr;
  tw_endpoint* there_ = nullptr;
  std::vector<unsigned char> source_;
  std::mt19937_64 random_{std::random_device{}()};
};
INSTANTIATE_TEST_SUITE_P(Over, MessageCallbacks, testing::Values("self", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(MessageCallbacks, EverySizeIsToldOnceInEitherOrder) {
  uint64_t tag = 0;
  for (const size_t length : kSizes) {
    for (const bool with_request : {false, true}) {
      for (const bool posted_first : {false, true}) {
        std::vector<unsigned char> to(length + 2, 0xA5);
        Call got;
        const tw_op_options options = told(got);
        tw_request request = TW_REQUEST_NONE;
        const unsigned char* const bytes = &source_[++tag];
        const auto receive = [&] {
          const tw_status status = tw_recv(to_, to.data() + 1, length, tag, ~0ull, &options, with_request ? &request : nullptr);
          ASSERT_EQ(status, TW_IN_PROGRESS) << tw_last_error();
          ASSERT_EQ(got.count, 0) << "within the call";
        };
        Call late;  // a rendezvous ends behind the receive
        const tw_op_options sent = told(late);
        if (posted_first) {
          receive();
          send(bytes, length, tag, with_request);
        } else {
          ASSERT_GE(tw_send(there_, bytes, length, tag, &sent, nullptr), TW_OK) << tw_last_error();
          settle();
          receive();
        }
        expect_received(got, request, tag, length);
        ASSERT_EQ(std::memcmp(to.data() + 1, bytes, length), 0) << length;
        EXPECT_EQ(to.front(), 0xA5);
        EXPECT_EQ(to.back(), 0xA5);
        settle();
        EXPECT_LE(late.count, 1);
      }
    }
  }
}

TEST_P(MessageCallbacks, TruncationIsToldWithItsText) {
  for (const size_t length : {size_t{9}, size_t{5000}, kRoom - 1}) {
    for (const bool posted_first : {false, true}) {
      unsigned char to[10];
      std::memset(to, 0xA5, sizeof to);
      Call got, sent;
      const tw_op_options options = told(got), sending = told(sent);
      const auto receive = [&] { ASSERT_EQ(tw_recv(to_, to + 1, 8, 7, ~0ull, &options, nullptr), TW_IN_PROGRESS); };
      if (posted_first) receive();
      ASSERT_GE(tw_send(there_, source_.data(), length, 7, &sending, nullptr), TW_OK) << tw_last_error();
      settle();
      if (!posted_first) receive();
      ASSERT_TRUE(until([&] { return got.count != 0; }));
      settle();
      EXPECT_EQ(got.count, 1);
      EXPECT_EQ(got.status, TW_ERR_TRUNCATED);
      EXPECT_EQ(got.info.length, length);
      EXPECT_NE(got.message.find(std::to_string(length)), std::string::npos) << got.message;
      EXPECT_EQ(std::memcmp(to + 1, source_.data(), 8), 0);
      EXPECT_EQ(to[0], 0xA5);
      EXPECT_EQ(to[9], 0xA5);
    }
  }
}

TEST_P(MessageCallbacks, ComeInTheOrderOfTheEndsAndMixWithRequests) {
  constexpr int kCount = 300;
  std::vector<Call> calls(kCount);
  std::vector<uint64_t> to(kCount);
  std::vector<tw_request> requests(kCount, TW_REQUEST_NONE);
  int clock = 0;
  for (size_t i = 0; i < kCount; ++i) {
    calls[i].clock = &clock;
    const tw_op_options options = told(calls[i]);
    // Every third one has only a request; all match the same messages.
    const bool plain = i % 3 == 2;
    const uint64_t mask = i % 2 == 0 ? ~0ull : 0xFF;
    ASSERT_EQ(tw_recv(to_, &to[i], 8, 5, mask, plain ? nullptr : &options, plain ? &requests[i] : nullptr), TW_IN_PROGRESS);
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    Call sent;
    const tw_op_options options = told(sent);
    const tw_status status = tw_send(there_, &i, 8, 5, &options, nullptr);
    ASSERT_GE(status, TW_OK) << tw_last_error();
    ASSERT_TRUE(until([&] { return status == TW_OK || sent.count == 1; }));
  }
  ASSERT_TRUE(until([&] { return clock == kCount - kCount / 3; }));
  int turn = 0;
  for (size_t i = 0; i < kCount; ++i) {
    if (requests[i] != TW_REQUEST_NONE) {
      ASSERT_EQ(tw_request_finish(requests[i]), TW_OK);
    } else {
      EXPECT_EQ(calls[i].turn, ++turn) << i;
    }
    EXPECT_EQ(to[i], i);
  }
}

TEST_P(MessageCallbacks, MayPostTheNextReceive) {
  struct Chain {
    tw_worker* worker;
    uint64_t got = 0;
    std::vector<uint64_t> all;
    static void next(void* arg, tw_request, tw_status status, const tw_recv_info*) {
      Chain& chain = *static_cast<Chain*>(arg);
      EXPECT_EQ(status, TW_OK);
      chain.all.push_back(chain.got);
      chain.post();
    }
    void post() {
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.callback = next;
      options.arg = this;
      if (all.size() < 100) EXPECT_EQ(tw_recv(worker, &got, 8, 5, ~0ull, &options, nullptr), TW_IN_PROGRESS);
    }
  };
  Chain chain{to_};
  chain.post();
  std::vector<uint64_t> values(100);
  for (uint64_t i = 0; i < values.size(); ++i) {
    values[i] = i;
    tw_request request = TW_REQUEST_NONE;
    ASSERT_GE(tw_send(there_, &values[i], 8, 5, nullptr, &request), TW_OK);
    if (request != TW_REQUEST_NONE) ASSERT_EQ(tw_request_release(request), TW_OK);
  }
  ASSERT_TRUE(until([&] { return chain.all.size() == 100; }));
  EXPECT_EQ(chain.all, values);
}

/// A window of receives: a message that comes when all of them have theirs waits for the next ones where it is, uncopied.
TEST_P(MessageCallbacks, MessagesBehindTheLastPostedReceiveWaitForTheNext) {
  constexpr size_t kWindow = 3, kCount = 24;
  const bool frames_at_hand = std::string(GetParam()) != "tcp";
  for (const size_t length : {size_t{8}, size_t{33}, size_t{900}}) {
    for (size_t i = 0; i < kCount; ++i) {
      tw_request sent = TW_REQUEST_NONE;
      ASSERT_EQ(tw_send(there_, &source_[i], length, 5, nullptr, &sent), TW_OK) << tw_last_error();
    }
    for (size_t first = 0; first + kWindow < kCount; first += kWindow) {
      std::vector<std::vector<unsigned char>> to(kWindow, std::vector<unsigned char>(length));
      std::vector<Call> calls(kWindow);
      for (size_t i = 0; i < kWindow; ++i) {
        const tw_op_options options = told(calls[i]);
        ASSERT_EQ(tw_recv(to_, to[i].data(), length, 5, ~0ull, &options, nullptr), TW_IN_PROGRESS);
      }
      for (int turns = 0; calls.back().count == 0 && turns < 1'000'000; ++turns) {
        if (from_ != to_) tw_worker_progress(from_);
        tw_worker_progress(to_);
      }
      ASSERT_EQ(calls.back().count, 1);
      tw_recv_info info{};
      if (frames_at_hand) EXPECT_EQ(tw_probe(to_, 5, ~0ull, nullptr, &info, nullptr), TW_ERR_NO_MATCH) << length;
      for (size_t i = 0; i < kWindow; ++i) EXPECT_EQ(std::memcmp(to[i].data(), &source_[first + i], length), 0) << first + i;
    }
    // Nothing waits for a receive that is never posted.
    settle();
    for (size_t i = kCount - kWindow; i < kCount; ++i) {
      std::vector<unsigned char> to(length);
      tw_recv_info info{};
      ASSERT_EQ(tw_probe(to_, 5, ~0ull, nullptr, &info, nullptr), TW_OK);
      ASSERT_EQ(tw_recv_blocking(to_, to.data(), length, 5, ~0ull, nullptr), TW_OK);
      EXPECT_EQ(std::memcmp(to.data(), &source_[i], length), 0) << i;
    }
  }
}

TEST_P(MessageCallbacks, RefusalsCallNothingAndNameWhatIsWrong) {
  Call call;
  uint64_t word = 0;
  tw_request request = TW_REQUEST_NONE;
  const tw_op_options plain = told(call);
  const auto recv = [&](const tw_op_options& options) { return tw_recv(to_, &word, 8, 5, ~0ull, &options, &request); };
  const auto send = [&](const tw_op_options& options) { return tw_send(there_, &word, 8, 5, &options, &request); };
  EXPECT_EQ(tw_recv(to_, nullptr, 8, 5, ~0ull, &plain, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_send(there_, nullptr, 8, 5, &plain, nullptr), TW_ERR_INVALID);
  tw_op_options none = TW_OP_OPTIONS_INIT;
  EXPECT_EQ(tw_recv(to_, &word, 8, 5, ~0ull, &none, nullptr), TW_ERR_INVALID) << "nothing would tell its end";
  EXPECT_EQ(tw_recv(to_, &word, 8, 5, ~0ull, nullptr, nullptr), TW_ERR_INVALID);
  tw_completion record{};
  tw_op_options two = plain;
  two.record = &record;
  EXPECT_EQ(recv(two), TW_ERR_INVALID);
  EXPECT_EQ(send(two), TW_ERR_INVALID);
  // One field beside the callback that the call does not take: never ignored.
  const auto refused = [&](auto set, const char* name) {
    tw_op_options options = plain;
    set(options);
    EXPECT_EQ(recv(options), TW_ERR_INVALID) << name;
    EXPECT_NE(std::string(tw_last_error()).find(name), std::string::npos) << tw_last_error();
    EXPECT_EQ(send(options), TW_ERR_INVALID) << name;
    EXPECT_NE(std::string(tw_last_error()).find(name), std::string::npos) << tw_last_error();
  };
  refused([](tw_op_options& o) { o.flags = TW_OP_REMOTE; }, "TW_OP_REMOTE");
  refused([](tw_op_options& o) { o.signal_value = 1; }, "signal_value");
  refused([](tw_op_options& o) { o.signal_op = 1; }, "signal_op");
  refused([](tw_op_options& o) { o.after = &o; }, "after");
  refused([](tw_op_options& o) { o.reserved = 1; }, "reserved");
  refused([](tw_op_options& o) { o.handler = 1; }, "handler");
  refused([](tw_op_options& o) { o.notify = TW_NOTIFY_QUEUE; }, "notify");
  refused([](tw_op_options& o) { o.increment = 1; }, "increment");
  refused([](tw_op_options& o) { o.after_count = 1; }, "after_steps");
  refused([](tw_op_options& o) { o.signal = reinterpret_cast<tw_remote_signal*>(&o); }, "signal");
  refused([](tw_op_options& o) { o.remote_layout = reinterpret_cast<tw_layout*>(&o); }, "remote_layout");
  settle();
  EXPECT_EQ(call.count, 0);
  EXPECT_EQ(request, TW_REQUEST_NONE);
}

TEST_P(MessageCallbacks, OptionsOfOlderCallersAndOtherOptionsTakeTheLongForm) {
  Call got;
  uint64_t word = 0, value = random_();
  tw_op_options older = told(got);
  older.size = offsetof(tw_op_options, notify);
  std::memset(reinterpret_cast<unsigned char*>(&older) + older.size, 0xFF, sizeof older - older.size);  // not theirs
  ASSERT_EQ(tw_recv(to_, &word, 8, 5, ~0ull, &older, nullptr), TW_IN_PROGRESS) << tw_last_error();
  Call sent;
  tw_op_options with_immediate = told(sent);
  with_immediate.immediate = 77;
  const tw_status status = tw_send(there_, &value, 8, 5, &with_immediate, nullptr);
  ASSERT_GE(status, TW_OK) << tw_last_error();
  ASSERT_TRUE(until([&] { return got.count == 1 && (status == TW_OK || sent.count == 1); }));
  EXPECT_EQ(got.info.immediate, 77u);
  EXPECT_EQ(word, value);

  Call synchronous;
  tw_op_options sync = told(synchronous);
  sync.flags = TW_OP_SYNC;
  ASSERT_EQ(tw_send(there_, &value, 8, 6, &sync, nullptr), TW_IN_PROGRESS);
  settle();
  EXPECT_EQ(synchronous.count, 0) << "its receive is not posted";
  Call late;
  const tw_op_options plain = told(late);
  ASSERT_EQ(tw_recv(to_, &word, 8, 6, ~0ull, &plain, nullptr), TW_IN_PROGRESS);
  ASSERT_TRUE(until([&] { return late.count == 1 && synchronous.count == 1; }));
}

TEST_P(MessageCallbacks, CancellingAndClosingCallWhatIsPosted) {
  std::vector<Call> calls(20);
  uint64_t word = 0;
  tw_request request = TW_REQUEST_NONE;
  for (size_t i = 0; i < calls.size(); ++i) {
    const tw_op_options options = told(calls[i]);
    ASSERT_EQ(tw_recv(to_, &word, 8, 5 + i, i % 2 == 0 ? ~0ull : 0xFFFF, &options, i == 0 ? &request : nullptr),
              TW_IN_PROGRESS);
  }
  ASSERT_EQ(tw_request_cancel(request), TW_OK);
  EXPECT_EQ(calls[0].count, 0) << "callbacks come from progress";
  settle();
  EXPECT_EQ(calls[0].count, 1);
  EXPECT_EQ(calls[0].status, TW_ERR_CANCELED);
  // One that is complete, and whose callback has not been called.
  ASSERT_GE(tw_send(there_, source_.data(), 8, 1000, nullptr, &request), TW_OK);
  if (request != TW_REQUEST_NONE) ASSERT_EQ(tw_request_release(request), TW_OK);
  ASSERT_TRUE(until([&] { return tw_probe(to_, 1000, ~0ull, nullptr, nullptr, nullptr) == TW_OK; }));
  Call complete;
  const tw_op_options options = told(complete);
  ASSERT_EQ(tw_recv(to_, &word, 8, 1000, ~0ull, &options, nullptr), TW_IN_PROGRESS);
  EXPECT_EQ(complete.count, 0);
  end_receiver();
  EXPECT_EQ(complete.count, 1);
  EXPECT_EQ(complete.status, TW_OK);
  for (size_t i = 1; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].count, 1) << i;
    EXPECT_EQ(calls[i].status, TW_ERR_CLOSED) << i;
  }
}

TEST_P(MessageCallbacks, DeviceMemoryIsFoundBehindACallback) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.place = "emulated:0";
  tw_memory* memories[2] = {};
  for (tw_memory*& memory : memories)
    ASSERT_EQ(tw_memory_allocate(context_, kRoom, &options, &memory), TW_OK) << tw_last_error();
  std::vector<unsigned char> host(kRoom);
  uint64_t tag = 0;
  for (const size_t length : {size_t{8}, size_t{5000}, kRoom - 64}) {
    const auto move = [&](const void* bytes, void* to) {
      Call got, sent;
      const tw_op_options receiving = told(got), sending = told(sent);
      ASSERT_EQ(tw_recv(to_, to, length, ++tag, ~0ull, &receiving, nullptr), TW_IN_PROGRESS) << tw_last_error();
      const tw_status status = tw_send(there_, bytes, length, tag, &sending, nullptr);
      ASSERT_GE(status, TW_OK) << tw_last_error();
      ASSERT_TRUE(until([&] { return got.count == 1 && (status == TW_OK || sent.count == 1); }));
      EXPECT_EQ(got.status, TW_OK) << got.message;
      EXPECT_EQ(got.info.length, length);
    };
    move(&source_[tag], tw_memory_address(memories[0]));  // from host memory while there are devices
    move(tw_memory_address(memories[0]), tw_memory_address(memories[1]));
    move(tw_memory_address(memories[1]), host.data());
    EXPECT_EQ(std::memcmp(host.data(), &source_[tag - 3], length), 0) << length;
    // Beyond the allocation: found out before anything moves.
    Call never;
    const tw_op_options refused = told(never);
    unsigned char* const end = static_cast<unsigned char*>(tw_memory_address(memories[0])) + kRoom - 4;
    EXPECT_EQ(tw_recv(to_, end, 1u << 21, 9999, ~0ull, &refused, nullptr), TW_ERR_OUT_OF_BOUNDS);
    EXPECT_EQ(never.count, 0);
  }
  for (tw_memory* memory : memories) EXPECT_EQ(tw_memory_release(memory), TW_OK);
}

}  // namespace
