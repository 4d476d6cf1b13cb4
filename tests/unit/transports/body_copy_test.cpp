// SPDX-License-Identifier: Apache-2.0
// Which routine copies a body, and that every byte arrives by each.
#include "transports/body_copy.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace thalweg::impl::test {
namespace {

constexpr size_t kBody = 16 * 1024;
constexpr double kEach = 0.1;  // ns a byte
constexpr auto kTransfer = static_cast<uint64_t>(kEach * kBody);

BodyCopy begun(bool streamed) {
  BodyCopy copy;
  copy.choose(streamed, kEach);
  return copy;
}

TEST(BodyCopy, StreamsOncePlainStoresAreSlowerThanAWholeTransfer) {
  BodyCopy copy = begun(false);
  for (unsigned i = 0; i < BodyCopy::kAgree; ++i) {
    EXPECT_FALSE(copy.streamed());
    copy.judge(2 * kTransfer, kBody);
  }
  EXPECT_TRUE(copy.streamed());
}

TEST(BodyCopy, StoresPlainlyAgainOnceThatIsFast) {
  BodyCopy copy = begun(true);
  for (unsigned i = 0; i < BodyCopy::kAgree; ++i) {
    EXPECT_TRUE(copy.streamed());
    copy.judge(kTransfer / 2, kBody);
  }
  EXPECT_FALSE(copy.streamed());
}

/// A producer whose processor was taken away for a while.
TEST(BodyCopy, OneSlowCopyChangesNothing) {
  BodyCopy copy = begun(false);
  for (unsigned i = 0; i < 20 * BodyCopy::kAgree; ++i)
    copy.judge(i % BodyCopy::kAgree == 0 ? kTransfer / 2 : 100 * kTransfer, kBody);
  EXPECT_FALSE(copy.streamed());
}

TEST(BodyCopy, WithoutACostStaysAsItBegan) {
  std::vector<std::byte> from(kBody), to(kBody);
  for (const bool streamed : {false, true}) {
    BodyCopy copy;
    copy.choose(streamed, 0);
    for (unsigned i = 0; i < 3 * BodyCopy::kStreamedEvery; ++i) copy.copy(to.data(), from.data(), kBody);
    EXPECT_EQ(copy.streamed(), streamed);
  }
}

TEST(BodyCopy, EveryByteArrivesWhicheverIsTimed) {
  std::mt19937 random{std::random_device{}()};
  constexpr std::byte kGuard{0xa5};
  for (const double each : {0.0, 1e-9, 1e9}) {  // never, always and never too slow
    for (const bool streamed : {false, true}) {
      BodyCopy copy;
      copy.choose(streamed, each);
      for (unsigned i = 0; i < 2 * BodyCopy::kStreamedEvery; ++i) {
        const size_t n = i % 3 == 0 ? kStreamedFrom - 2 + random() % 5 : random() % kBody;
        const size_t skew = random() % 64;
        std::vector<std::byte> from(n + 64), to(n + 128, kGuard);
        for (std::byte& each_byte : from) each_byte = static_cast<std::byte>(random());
        copy.copy(to.data() + skew, from.data() + skew / 2, n);
        ASSERT_TRUE(std::equal(to.begin() + skew, to.begin() + skew + n, from.begin() + skew / 2)) << n;
        for (size_t at = 0; at < skew; ++at) ASSERT_EQ(to[at], kGuard);
        for (size_t at = skew + n; at < to.size(); ++at) ASSERT_EQ(to[at], kGuard);
      }
    }
  }
}

}  // namespace
}  // namespace thalweg::impl::test
