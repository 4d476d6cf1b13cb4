// SPDX-License-Identifier: Apache-2.0
// What a peer maps of a channel's end: its slots. Whatever it stores there chooses no address of ours.
#include <algorithm>

#include "channel_ends.hpp"
#include "memory/registry_state.hpp"
#include "plans/channel.hpp"

namespace thalweg::tests {
namespace {

class ChannelWords : public ChannelEnds {
 protected:
  impl::Executor& executor(Side& side) {
    impl::Proxy* proxy = nullptr;
    impl::Executor* found = nullptr;
    EXPECT_EQ(impl::Proxy::of(*side.context, &proxy), TW_OK) << tw_last_error();
    EXPECT_EQ(proxy->executor_at(GetParam().place, &found), TW_OK) << tw_last_error();
    return *found;
  }
  template <class End>
  End end_of(Side& side, const Bound& bound) {
    End end{};
    EXPECT_EQ(executor(side).load(&end, address_of(bound.address), sizeof end), TW_OK) << tw_last_error();
    return end;
  }
  static uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
  bool shared(Side& side, const void* pointer) { return executor(side).shared().holder(address_of(pointer)) != nullptr; }
  bool own(Side& side, const void* pointer) { return executor(side).own().holder(address_of(pointer)) != nullptr; }

  /// Stores `value` into every word of the block that has these slots, as the peer, which maps all of it, may.
  void fill_block(Side& side, const void* slots, uint64_t value) {
    const tw_memory* const block = executor(side).shared().holder(address_of(slots));
    ASSERT_NE(block, nullptr);
    const std::vector<uint64_t> words(block->length / sizeof value, value);
    ASSERT_EQ(tw_memory_copy(side.context, block->address, words.data(), words.size() * sizeof value), TW_OK);
  }
  /// Memory that no peer was given, whose address as a flag, or credit, has no info: the message is there, the buffer the first.
  unsigned char* decoy(Side& side, const Bytes& holds) {
    constexpr uint64_t kInfo = 1 << 16;
    const uint64_t room = address_of(memory(side, kInfo + holds.size()));
    auto* const at = reinterpret_cast<unsigned char*>((room + kInfo - 1) / kInfo * kInfo);
    side.store(at, holds);
    return at;
  }
};
INSTANTIATE_TEST_SUITE_P(Mapped, ChannelWords, testing::Values(kWays[0], kWays[1]),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChannelWords, AreSlotsOnly) {
  const RecvBuffers recv_buffers = make_recv_buffers(2);
  Bound send, recv;
  bind_both(1, recv_buffers.given, &send, &recv);
  const auto sender = end_of<device::SendEnd>(a, send);
  const auto receiver = end_of<device::RecvEnd>(b, recv);
  EXPECT_TRUE(shared(a, sender.credits));
  EXPECT_TRUE(shared(b, receiver.flags));
  for (const auto& [side, pointer] :
       {std::pair{&a, static_cast<const void*>(send.address)}, {&a, sender.recv_buffers}, {&b, recv.address}}) {
    EXPECT_TRUE(own(*side, pointer));
    EXPECT_FALSE(shared(*side, pointer));
  }
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
}

/// Each end's peer stores an address over all that it maps: messages go where they went, and nothing else changes.
TEST_P(ChannelWords, ChooseNoAddress) {
  constexpr size_t kDecoy = 70'001;
  const Bytes before = random_bytes(kDecoy);
  unsigned char *const of_a = decoy(a, before), *const of_b = decoy(b, before);
  const RecvBuffers recv_buffers = make_recv_buffers(1);
  Traffic traffic = make_traffic({kMost});
  Bound send, recv;
  bind_both(1, recv_buffers.given, &send, &recv);
  fill_block(a, end_of<device::SendEnd>(a, send).credits, address_of(of_a));
  fill_block(b, end_of<device::RecvEnd>(b, recv).flags, address_of(of_b));
  { const Running sender = start_send(send, traffic); }
  { const Running receiver = start_recv(recv, recv_buffers, traffic, 1); }
  expect_all(traffic);
  expect_guards(recv_buffers);
  EXPECT_TRUE(a.load(of_a, kDecoy) == before);
  EXPECT_TRUE(b.load(of_b, kDecoy) == before);
  EXPECT_EQ(send.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(recv.release(), TW_OK) << tw_last_error();
}

}  // namespace
}  // namespace thalweg::tests
