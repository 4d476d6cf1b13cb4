// SPDX-License-Identifier: Apache-2.0
// Frames that no peer may send: each closes its link with TW_ERR_PROTOCOL and hurts nobody else.
#include "support.hpp"

namespace thalweg::test {
namespace {

std::vector<std::byte> bytes_of(const void* from, size_t n) {
  const std::byte* b = static_cast<const std::byte*>(from);
  return {b, b + n};
}

void expect_closed(const char* what, FrameHeader header, const std::vector<std::byte>& body) {
  World w;
  w.connect();
  Buffer to(w.random, 8);
  tw_request restricted = 0;
  OpDesc op = receive_op(to.data(), 8, 12345, ~0ull);
  op.peer = &w.b;
  w.right->post_receive(op, {&restricted});
  w.settle(3);
  header.length = static_cast<uint32_t>(body.size());
  w.pb->inject(*w.lb, header, body);
  w.settle(5);
  EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL) << what;
  EXPECT_EQ(Engine::test(restricted), TW_ERR_PROTOCOL) << what;
  EXPECT_EQ(w.a.state, TW_ERR_PROTOCOL) << what;  // the peer is told
  Engine::release(restricted);
}

TEST(Hostile, BadFramesCloseTheLink) {
  expect_closed("unknown type", make_header(static_cast<Frame>(60), 0, 0, 0), {});
  expect_closed("short sync", make_header(Frame::tagged, 0, 0, 0, kFrameSync), bytes_of("abc", 3));
  expect_closed("short first", make_header(Frame::tagged_first, 0, 0, 0), bytes_of("abc", 3));
  FirstBody first{1, uint64_t{1} << 60};
  expect_closed("huge first", make_header(Frame::tagged_first, 0, 0, 0), bytes_of(&first, sizeof first));
  expect_closed("huge am", make_header(Frame::am_first, 0, 0, 0), bytes_of(&first, sizeof first));
  expect_closed("short rts", make_header(Frame::tagged_rts, 0, 0, 0), bytes_of("abc", 3));
  expect_closed("am header", make_header(Frame::am, 0, 300, 0), std::vector<std::byte>(400));
  expect_closed("am header too long", make_header(Frame::am, 0, 5, 0), std::vector<std::byte>(4));
  expect_closed("more of nothing", make_header(Frame::data, 0, 1, 0, kFrameMore), std::vector<std::byte>(4));
  expect_closed("credit", make_header(Frame::credit, 0, ~0ull, 0), {});
  expect_closed("short cts", make_header(Frame::cts, 0, 1, 0), bytes_of("abc", 3));
}

TEST(Hostile, BadFramesOfBlocksCloseTheLink) {
  const BlockName names[2] = {{1, 0, 100}, {1, 0, UINT64_MAX - 50}};
  std::vector<std::byte> body = bytes_of(names, sizeof names);
  body.resize(body.size() + 49);  // the sum of the lengths, past its end
  expect_closed("put of short blocks", make_header(Frame::put_blocks, 0, 2, 0), bytes_of(names, 30));
  expect_closed("put of too long blocks", make_header(Frame::put_blocks, 0, 1, 0), bytes_of(names, sizeof names));
  expect_closed("put of blocks past the end", make_header(Frame::put_blocks, 0, 2, 0), body);
  expect_closed("put of many blocks", make_header(Frame::put_blocks, 0, ~0ull / 3, 0), body);
  expect_closed("put of short acknowledgement", make_header(Frame::put_blocks, 0, 0, 0, kFrameAck), bytes_of("abc", 3));
  expect_closed("get of no blocks", make_header(Frame::get_blocks, 0, 1, 0), {});
  expect_closed("get of a cut name", make_header(Frame::get_blocks, 0, 1, 0), bytes_of(names, 30));
  expect_closed("get of more than a frame", make_header(Frame::get_blocks, 0, 1, 0), bytes_of(&names[1], sizeof names[1]));
  expect_closed("long notification", make_header(Frame::notify, 0, 0, 0, 0, UINT16_MAX), std::vector<std::byte>(65));
  World w;
  w.connect();
  for (int i = 0; i < 10'000; ++i) w.pb->inject(*w.lb, make_header(Frame::notify, 8, 0, 0, 0, UINT16_MAX), bytes_of(names, 8));
  w.settle(300);
  EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL);
}

TEST(Hostile, MoreThanGrantedClosesTheLink) {
  World w;
  w.connect();
  std::vector<std::byte> body(4096);
  for (int i = 0; i < 1000; ++i) w.pb->inject(*w.lb, make_header(Frame::tagged, body.size(), 1, 0), body);
  w.settle(50);
  EXPECT_EQ(w.b.state, TW_ERR_PROTOCOL);
  World v;
  v.connect();
  RtsBody rts{};
  for (int i = 0; i < 1000; ++i)
    v.pb->inject(*v.lb, make_header(Frame::tagged_rts, sizeof rts, 1, 0), bytes_of(&rts, sizeof rts));
  v.settle(50);
  EXPECT_EQ(v.b.state, TW_ERR_PROTOCOL);
  World u;
  u.connect();
  for (int i = 0; i < 1000; ++i) u.pb->inject(*u.lb, make_header(Frame::bytes, body.size(), 0, 0), body);
  u.settle(50);
  EXPECT_EQ(u.b.state, TW_ERR_PROTOCOL);
}

TEST(Hostile, UnknownWithoutTheMustUnderstandBitIsSkipped) {
  World w;
  w.connect();
  FrameHeader header = make_header(static_cast<Frame>(60), 0, 0, 0);
  header.type = 60;
  w.pb->inject(*w.lb, header, {});
  w.settle(3);
  EXPECT_EQ(w.b.state, TW_OK);
}

TEST(Hostile, AnotherEndpointsOperationCannotBeTouched) {
  World w;
  w.connect();
  Peer other;
  FakeLink *to_b = nullptr, *to_a = nullptr;
  FakePort::connect(*w.pa, *w.pb, &to_b, &to_a);
  w.right->attach(other, *to_a);
  Buffer large(w.random, 300000);
  tw_request send = 0;
  w.right->start(send_op(w.b, large, 1, 0), {&send});
  w.settle(3);
  w.pb->inject(*to_a, make_header(Frame::fin, 0, send, 0), {});
  CtsBody cts{1, 0, 100, 0, 0, 0};
  w.pb->inject(*to_a, make_header(Frame::cts, sizeof cts, send, 0), bytes_of(&cts, sizeof cts));
  w.pb->inject(*to_a, make_header(Frame::matched, 0, send, 0), {});
  w.settle(3);
  EXPECT_EQ(Engine::test(send), TW_IN_PROGRESS);
  w.right->remove(other);
  Engine::release(send);
}

TEST(Hostile, DataOutsideOfWhatWasAskedFor) {
  World w;
  w.connect();
  Buffer to(w.random, 1000);
  tw_request receive = 0;
  post(w, to, 1, ~0ull, &receive);
  RtsBody rts{77, 1000, 0, 0, 0};
  w.pb->inject(*w.lb, make_header(Frame::tagged_rts, sizeof rts, 1, 0), bytes_of(&rts, sizeof rts));
  w.settle(3);
  w.pb->inject(*w.lb, make_header(Frame::data, 600, receive, 500), std::vector<std::byte>(600));
  w.settle(3);
  EXPECT_EQ(Engine::test(receive), TW_ERR_PROTOCOL);
  EXPECT_TRUE(to.guarded());
  Engine::release(receive);
}

}  // namespace
}  // namespace thalweg::test
