// SPDX-License-Identifier: Apache-2.0
// What a peer may say of its buffers and words, before kernels store to them.
#include <gtest/gtest.h>

#include "plans/channel.hpp"

namespace thalweg::impl {
namespace {

ControlMessage told(uint64_t capacity, bool key) {
  ControlMessage message;
  message.type = Control::recv_buffer;
  message.capacity = capacity;
  if (key) message.key.resize(8);
  return message;
}

TEST(ChannelTold, ABufferIsInTheMemoryThatItsKeyNames) {
  Layout layout;
  EXPECT_EQ(check_told(told(100, true), 100, &layout), TW_OK);
  EXPECT_EQ(check_told(told(0, false), 0, &layout), TW_OK);
  EXPECT_EQ(check_told(told(100, false), 0, &layout), TW_ERR_PROTOCOL);  // kernels would store to address 0
  EXPECT_EQ(check_told(told(101, true), 100, &layout), TW_ERR_PROTOCOL);
  EXPECT_EQ(check_told(told(~uint64_t{0}, true), 100, &layout), TW_ERR_PROTOCOL);
  ControlMessage moved = told(100, true);
  for (const uint64_t offset : {uint64_t{8}, uint64_t{1} << 63, ~uint64_t{0}}) {
    moved.offset = offset;
    EXPECT_EQ(check_told(moved, 200, &layout), TW_ERR_PROTOCOL) << offset;
  }
}

TEST(ChannelTold, ALayoutSaysNoMoreThanItself) {
  const uint64_t count = 4;
  const int64_t stride = -32;
  Layout* strided = nullptr;
  ASSERT_EQ(make_strided(1, 16, &count, &stride, &strided), TW_OK);
  ControlMessage message = told(64, true);
  message.offset = uint64_t{0} - static_cast<uint64_t>(strided->first);
  message.layout.resize(encode(*strided, nullptr, 0));
  encode(*strided, message.layout.data(), message.layout.size());
  release(strided);
  Layout one, other, third;
  EXPECT_EQ(check_told(message, 112, &one), TW_OK) << last_error();
  EXPECT_EQ(check_told(message, 111, &other), TW_ERR_PROTOCOL);
  message.layout.push_back(std::byte{0});
  EXPECT_EQ(check_told(message, 112, &third), TW_ERR_PROTOCOL);
}

TEST(ChannelTold, WordsAreAlignedAndWithinTheirMemory) {
  EXPECT_EQ(check_words(kWordsBytes, 4096, 0), TW_OK);
  EXPECT_EQ(check_words(kWordsBytes + 64, 4096, 64), TW_OK);
  EXPECT_EQ(check_words(kWordsBytes + 64, 4096, 4), TW_ERR_MISALIGNED);
  EXPECT_EQ(check_words(kWordsBytes + 64, 4097, 0), TW_ERR_MISALIGNED);
  EXPECT_EQ(check_words(kWordsBytes, 4096, 8), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(check_words(kWordsBytes - 1, 4096, 0), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(check_words(kWordsBytes, 4096, ~uint64_t{0}), TW_ERR_OUT_OF_BOUNDS);
}

}  // namespace
}  // namespace thalweg::impl
