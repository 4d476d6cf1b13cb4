// SPDX-License-Identifier: Apache-2.0
// What a peer with the job key can make a proxy hold: its messages wait at the peer, not here, and its channels have a limit of
// their own.
#include <algorithm>
#include <utility>

#include "core/context.hpp"
#include "pair.hpp"
#include "plans/channel.hpp"
#include "plans/control_wire.hpp"
#include "plans/proxy.hpp"

namespace thalweg::tests {
namespace {

using impl::Control;
using impl::ControlMessage;
using impl::Proxy;

constexpr uint16_t kControlId = 1;
constexpr uint64_t kLong = 120'000'000'000;  // beside everything else on a busy machine
constexpr size_t kEarlyMax = 8192;

/// A proxy, and workers that speak to it as other proxies do.
class ProxyLimits : public testing::Test {
 protected:
  struct Speaker {
    Side side;
    std::vector<ControlMessage> heard;
    std::vector<std::vector<std::byte>> said;  // until it is sent
    void open(const std::vector<std::byte>& proxy) {
      side.open("tcp");
      ASSERT_EQ(tw_am_register(side.worker, kControlId, on_message, this), TW_OK);
      ASSERT_EQ(tw_connect(side.worker, proxy.data(), proxy.size(), nullptr, &side.endpoint), TW_OK);
      ASSERT_EQ(tw_endpoint_wait(side.endpoint, kLong), TW_OK) << tw_last_error();
    }
    static tw_status on_message(void* arg, const tw_am_message* message) {
      ControlMessage one;
      if (message->data != nullptr &&
          impl::parse_control(static_cast<const std::byte*>(message->data), message->length, &one) == TW_OK)
        static_cast<Speaker*>(arg)->heard.push_back(std::move(one));
      return TW_OK;
    }
    void say(std::vector<std::byte> bytes, uint32_t flags = 0) {
      said.push_back(std::move(bytes));
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.flags = flags;
      const tw_status status =
          tw_am_send(side.endpoint, kControlId, nullptr, 0, said.back().data(), said.back().size(), &options, nullptr);
      ASSERT_FALSE(impl::is_error(status)) << tw_last_error();
    }
    void open_channel(uint64_t tag) {
      ControlMessage message;
      message.type = Control::open;
      message.name = {1, 2, tag};
      message.from_sender = true;
      message.epoch = 7;
      say(impl::write_control(message));
    }
    /// Progresses until `done`; the proxy has a thread of its own.
    template <class Done>
    void until(Done done) {
      const impl::Deadline deadline(kLong);
      while (!done() && !deadline.passed()) tw_worker_progress(side.worker);
      EXPECT_TRUE(done());
    }
  };

  void SetUp() override {
    victim_.open("tcp");
    ASSERT_EQ(Proxy::of(*victim_.context, &proxy_), TW_OK) << tw_last_error();
    for (Speaker* one : {&one_, &other_}) one->open(proxy_->address());
  }
  void TearDown() override {
    one_.side.close();
    other_.side.close();
    victim_.close();
  }

  Side victim_;
  Proxy* proxy_ = nullptr;
  Speaker one_, other_;
};

/// One announces much and lets nothing be fetched; another is served meanwhile, and so is the one once it lets.
TEST_F(ProxyLimits, WhatIsAnnouncedIsFetchedAFewAtATime) {
  constexpr size_t kMany = 400;
  ControlMessage end;  // of a channel that is not there
  end.type = Control::failed;
  end.layout.resize(60'000);
  const std::vector<std::byte> long_one = impl::write_control(end);
  for (size_t i = 0; i < kMany; ++i) one_.say(long_one, TW_OP_RENDEZVOUS);
  one_.open_channel(1);  // behind all of them
  for (uint64_t tag = 0; tag <= kEarlyMax; ++tag) other_.open_channel(tag);
  size_t most = 0;
  other_.until([&] {
    most = std::max(most, proxy_->inbox().held());
    return !other_.heard.empty();  // the last one is refused: all before it were taken
  });
  EXPECT_GT(most, 0u);
  EXPECT_LE(most, 8 * impl::kControlMax);
  EXPECT_TRUE(one_.heard.empty());
  for (uint64_t tag = 2; tag <= kEarlyMax + 1; ++tag) one_.open_channel(tag);
  one_.until([&] { return !one_.heard.empty(); });
}

/// Channels that nobody names are kept: their messages have no room for more than a name and a key.
TEST_F(ProxyLimits, AnOpenHasNoTextAndNoLayout) {
  ControlMessage open, read;
  open.type = Control::open;
  open.name = {1, 2, 3};
  open.epoch = 7;
  const auto parse = [&read](const ControlMessage& message) {
    const std::vector<std::byte> bytes = impl::write_control(message);
    return impl::parse_control(bytes.data(), bytes.size(), &read);
  };
  EXPECT_EQ(parse(open), TW_OK) << tw_last_error();
  EXPECT_EQ(read.name.tag, 3u);
  open.text = "x";
  EXPECT_EQ(parse(open), TW_ERR_PROTOCOL);
  open.text.clear();
  open.layout.resize(60'000);
  EXPECT_EQ(parse(open), TW_ERR_PROTOCOL);
  open.type = Control::recv_buffer;
  EXPECT_EQ(parse(open), TW_OK) << tw_last_error();
}

/// A channel that is over the limit is refused by name, and the next peer's are not.
TEST_F(ProxyLimits, ChannelsThatNobodyNamesAreCountedByPeer) {
  for (uint64_t tag = 0; tag <= kEarlyMax; ++tag) one_.open_channel(tag);
  one_.until([&] { return !one_.heard.empty(); });
  ASSERT_EQ(one_.heard.size(), 1u);
  const ControlMessage& answer = one_.heard.front();
  EXPECT_EQ(answer.type, Control::refused);
  EXPECT_EQ(answer.name.tag, kEarlyMax);
  EXPECT_EQ(answer.partner, 7u);
  EXPECT_EQ(answer.status, TW_ERR_LIMIT);
  EXPECT_NE(answer.text.find("fewer channels"), std::string::npos) << answer.text;
  for (uint64_t tag = 0; tag <= kEarlyMax; ++tag) other_.open_channel(tag);
  other_.until([&] { return !other_.heard.empty(); });
  EXPECT_EQ(other_.heard.front().name.tag, kEarlyMax);
}

}  // namespace
}  // namespace thalweg::tests
