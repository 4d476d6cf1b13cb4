// SPDX-License-Identifier: Apache-2.0
// Active messages with headers of any length between processes: each comes back as it was, in order; losses end what is under way.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>

#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr uint16_t kId = 9;

/// What came, and its payload on its way.
struct Message {
  tw_endpoint* endpoint;
  std::string header, payload;
  tw_request request = TW_REQUEST_NONE;
};

/// Takes every message of a worker, in order.
struct Taker {
  explicit Taker(tw_worker* worker) { EXPECT_EQ(tw_am_register(worker, kId, take, this), TW_OK); }
  static tw_status take(void* arg, const tw_am_message* m) {
    auto& came = static_cast<Taker*>(arg)->came;
    came.push_back(std::make_unique<Message>());
    Message& message = *came.back();
    message.endpoint = m->endpoint;
    message.header.assign(static_cast<const char*>(m->header), m->header_length);
    message.payload.resize(m->length);
    EXPECT_GE(tw_am_recv(m->descriptor, message.payload.data(), m->length, nullptr, &message.request), TW_OK);
    return TW_IN_PROGRESS;
  }
  /// The earliest, when all of it is here; or null.
  std::unique_ptr<Message> next() {
    if (came.empty() || tw_request_test(came.front()->request) == TW_IN_PROGRESS) return nullptr;
    std::unique_ptr<Message> message = std::move(came.front());
    came.pop_front();
    EXPECT_EQ(tw_request_finish(message->request), TW_OK);
    return message;
  }
  std::deque<std::unique_ptr<Message>> came;
};

/// Sends everything back until a message without header and payload comes.
const Role kMirror("header_mirror", [](Pipe& pipe) {
  Side side;
  pipe.send(side.address());
  Taker taker(side.worker);
  std::deque<std::unique_ptr<Message>> sent;
  for (;;) {
    (void)tw_worker_wait(side.worker, 10'000'000);
    while (std::unique_ptr<Message> message = taker.next()) {
      if (message->header.empty() && message->payload.empty())
        return tw_endpoint_close(message->endpoint, 0, nullptr) == TW_OK ? 0 : 1;
      sent.push_back(std::move(message));
      Message& back = *sent.back();
      if (tw_am_send(back.endpoint, kId, back.header.data(), back.header.size(), back.payload.data(), back.payload.size(),
                     nullptr, &back.request) < 0)
        return 2;
    }
    while (!sent.empty() && tw_request_test(sent.front()->request) != TW_IN_PROGRESS) {
      if (sent.front()->request != TW_REQUEST_NONE && tw_request_finish(sent.front()->request) != TW_OK) return 3;
      sent.pop_front();
    }
  }
});

const Role kSilent("header_silent", [](Pipe& pipe) {
  Side side;
  pipe.send(side.address());
  (void)pipe.receive();
  (void)progress_until(side.worker, [&] { return pipe.readable(); });
  return 0;
});

class LongHeaders : public testing::TestWithParam<const char*> {};

TEST_P(LongHeaders, ComeBackAsTheyWereInOrder) {
  Child child("header_mirror");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  ASSERT_NE(endpoint, nullptr);
  ASSERT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_OK) << tw_last_error();
  Taker taker(side.worker);
  std::deque<Message> sent;
  for (size_t length : {1, 256, 257, 4000, 65280, 65281, 65536, 262145, 1 << 20}) {
    for (size_t size : {0, 1, 5000, 65536, 65537, 300001}) {
      Message& message = sent.emplace_back(Message{endpoint, random_bytes(length), random_bytes(size)});
      std::string header = message.header;
      ASSERT_GE(tw_am_send(endpoint, kId, header.data(), length, message.payload.data(), size, nullptr, &message.request),
                TW_OK)
          << tw_last_error();
      std::fill(header.begin(), header.end(), '\0');  // it was copied
    }
  }
  std::deque<std::unique_ptr<Message>> back;
  ASSERT_TRUE(progress_until(side.worker,
                             [&] {
                               while (std::unique_ptr<Message> message = taker.next()) back.push_back(std::move(message));
                               return back.size() == sent.size();
                             }))
      << back.size() << " of " << sent.size() << ": " << tw_last_error();
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_TRUE(back[i]->header == sent[i].header && back[i]->payload == sent[i].payload)
        << sent[i].header.size() << " and " << sent[i].payload.size();
    if (sent[i].request != TW_REQUEST_NONE) {
      EXPECT_EQ(tw_request_finish(sent[i].request), TW_OK);
    }
  }
  EXPECT_EQ(finish(tw_am_send(endpoint, kId, nullptr, 0, nullptr, 0, nullptr, &sent[0].request), sent[0].request), TW_OK);
  EXPECT_EQ(child.join(), 0);
}

TEST_P(LongHeaders, OneBeyondTheBudgetIsRefusedByName) {
  Child child("header_mirror");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  ASSERT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_OK) << tw_last_error();
  const std::string header = random_bytes(60u << 20);
  tw_request request = TW_REQUEST_NONE;
  const tw_status status = tw_am_send(endpoint, kId, header.data(), header.size(), "abc", 3, nullptr, &request);
  EXPECT_EQ(finish(status, request), TW_ERR_LIMIT) << tw_last_error();
  EXPECT_EQ(finish(tw_am_send(endpoint, kId, nullptr, 0, nullptr, 0, nullptr, &request), request), TW_OK);
  EXPECT_EQ(child.join(), 0);
}

TEST_P(LongHeaders, ALossEndsWhatIsUnderWay) {
  Child child("header_silent");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  ASSERT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_OK) << tw_last_error();
  const std::string header = random_bytes(3u << 20), payload = random_bytes(1000);
  std::array<tw_request, 10> requests{};
  std::array<tw_status, 10> started{};
  for (size_t i = 0; i < requests.size(); ++i) {
    started[i] = tw_am_send(endpoint, kId, header.data(), i % 2 == 0 ? header.size() : 50000, payload.data(), payload.size(),
                            nullptr, &requests[i]);
    ASSERT_GE(started[i], TW_OK);
  }
  child.kill();
  for (size_t i = 0; i < requests.size(); ++i) {
    const tw_status status = finish(started[i], requests[i]);
    EXPECT_TRUE(status == TW_ERR_PEER_LOST || (status == TW_OK && i % 2 != 0)) << i << ": " << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, LongHeaders, testing::Values("shm", "tcp"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
