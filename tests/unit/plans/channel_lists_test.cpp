// SPDX-License-Identifier: Apache-2.0
// Receives into lists of pieces: a sender is told 4,096 of them at most, and the host carries a channel whose receive has more.
#include "channel_ends.hpp"

namespace thalweg::tests {
namespace {

class ChannelLists : public ChannelEnds {
 protected:
  static constexpr size_t kTold = 4'096, kPiece = 12, kPitch = 20;
  static constexpr uint64_t kTag = 6;

  /// A list of so many pieces, with gaps between them, and the memory that it lies in.
  struct List {
    size_t pieces;
    tw_layout* layout = nullptr;
    unsigned char* at = nullptr;
    Bytes before;
  };
  List make_list(size_t pieces) {
    List made{pieces};
    std::vector<tw_piece> all;
    for (size_t i = 0; i < pieces; ++i) all.push_back({i * kPitch, kPiece});
    EXPECT_EQ(tw_layout_pieces(all.data(), all.size(), &made.layout), TW_OK) << tw_last_error();
    made.before = random_bytes(pieces * kPitch);
    made.at = memory(b, made.before.size());
    b.store(made.at, made.before);
    b.last.emplace_back([layout = made.layout] { tw_layout_destroy(layout); });
    return made;
  }
  static size_t bytes(const List& list) { return list.pieces * kPiece; }
  void expect(const List& list, const Bytes& data) {
    Bytes wanted = list.before;
    for (size_t i = 0; i < list.pieces; ++i) std::copy_n(&data[i * kPiece], kPiece, &wanted[i * kPitch]);
    EXPECT_TRUE(b.load(list.at, wanted.size()) == wanted);
  }
  /// What a sends.
  unsigned char* source(const Bytes& data) {
    unsigned char* const from = memory(a, data.size());
    a.store(from, data);
    return from;
  }
  static tw_op_options into(const List& list) {
    tw_op_options made = TW_OP_OPTIONS_INIT;
    made.layout = list.layout;
    return made;
  }
  tw_plan* plan_into(const List& list) {
    tw_plan* const made = plan(b);
    const tw_op_options how = into(list);
    EXPECT_EQ(tw_plan_recv(made, b.endpoint, list.at, 0, kTag, &how, nullptr), TW_OK) << tw_last_error();
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, ChannelLists, testing::ValuesIn(kWays), [](const auto& info) { return info.param.name; });

TEST_P(ChannelLists, APlanReceivesIntoAnyNumberOfPieces) {
  for (const size_t pieces : {kTold, kTold + 1, 2 * kTold + 7}) {
    SCOPED_TRACE(pieces);
    const List list = make_list(pieces);
    const Bytes data = random_bytes(bytes(list));
    tw_plan *const sends = plan(a), *const receives = plan_into(list);
    ASSERT_EQ(tw_plan_send(sends, a.endpoint, source(data), data.size(), kTag, nullptr, nullptr), TW_OK) << tw_last_error();
    a.last.pop_back();
    b.last.pop_back();
    prepare_both(sends, receives);
    if (pieces > kTold && GetParam().mapped) {
      EXPECT_NE(explain(receives).find("by the host"), std::string::npos) << explain(receives);
      for (tw_plan* const one : {sends, receives})
        EXPECT_NE(explain(one).find("more than 4,096 pieces"), std::string::npos) << explain(one);
    }
    both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
         [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
    expect(list, data);
    EXPECT_EQ(tw_plan_destroy(sends), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_plan_destroy(receives), TW_OK) << tw_last_error();
  }
}

TEST_P(ChannelLists, AQueueReceivesIntoAnyNumberOfPieces) {
  const List list = make_list(kTold + 1);
  const Bytes data = random_bytes(bytes(list));
  tw_queue *const qa = queue(a), *const qb = queue(b);
  const tw_op_options how = into(list);
  unsigned char* const from = source(data);
  both([&] { ASSERT_EQ(tw_send_on(qa, a.endpoint, from, data.size(), kTag, nullptr), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_recv_on(qb, b.endpoint, list.at, 0, kTag, &how), TW_OK) << tw_last_error(); });
  both([&] { ASSERT_EQ(tw_queue_synchronize(qa), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_queue_synchronize(qb), TW_OK) << tw_last_error(); });
  expect(list, data);
}

TEST_P(ChannelLists, AKernelReceivesIntoAnyNumberOfPieces) {
  const List list = make_list(kTold + 1);
  const Bytes data = random_bytes(bytes(list));
  unsigned char* const from = source(data);
  Bound send, recv;
  bind_both(kTag, {{list.at, 0, list.layout}}, &send, &recv);
  bool sent = false, taken = false;
  {
    const Running receiver(GetParam().place, [&](auto machine) {
      device::Receiver<decltype(machine)> in(recv.recv_end(), recv.guard, machine);
      taken = in.post(device::Block(), recv.recv_buffers[0]) && in.take(device::Block());
    });
    const Running sender(GetParam().place, [&](auto machine) {
      device::Sender<decltype(machine)> out(send.send_end(), send.guard, machine);
      sent = out.send(device::Block(), from, data.size());
    });
  }
  EXPECT_TRUE(sent && taken);
  expect(list, data);
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
}

/// The plans that use it are there: the channel stays mapped.
TEST_P(ChannelLists, OnAMappedChannelThatIsUsedMorePiecesAreRefused) {
  constexpr size_t kSize = 100'001;
  if (!GetParam().mapped) GTEST_SKIP() << "the host carries it";
  tw_plan *const sends = plan(a), *const receives = plan(b);
  const Bytes data = random_bytes(kSize);
  unsigned char* const to = memory(b, kSize);
  ASSERT_EQ(tw_plan_send(sends, a.endpoint, source(data), kSize, kTag, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_recv(receives, b.endpoint, to, kSize, kTag, nullptr, nullptr), TW_OK) << tw_last_error();
  prepare_both(sends, receives);
  EXPECT_EQ(explain(receives).find("by the host"), std::string::npos) << explain(receives);
  const List list = make_list(kTold + 1);
  EXPECT_EQ(tw_plan_prepare(plan_into(list), kLong), TW_ERR_UNSUPPORTED);
  expect_text({"more than 4,096 pieces", "another channel"});
  const tw_op_options how = into(list);
  EXPECT_EQ(tw_recv_on(queue(b), b.endpoint, list.at, 0, kTag, &how), TW_ERR_UNSUPPORTED);
  expect_text({"more than 4,096 pieces", "another channel"});
  both([&] { ASSERT_EQ(tw_plan_run(sends, kLong), TW_OK) << tw_last_error(); },
       [&] { ASSERT_EQ(tw_plan_run(receives, kLong), TW_OK) << tw_last_error(); });
  EXPECT_TRUE(b.load(to, kSize) == data);
}

}  // namespace
}  // namespace thalweg::tests
