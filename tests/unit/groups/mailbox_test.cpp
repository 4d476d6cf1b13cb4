// SPDX-License-Identifier: Apache-2.0
// Ranks that send ahead of their receivers: those that send too much fail alone.
#include <random>

#include "groups/exchange.hpp"
#include "groups/group.hpp"
#include "groups/mailbox.hpp"
#include "protocols/active.hpp"
#include "worlds.hpp"

namespace thalweg::test {
namespace {

using impl::Letter;
using impl::Mailbox;

constexpr uint64_t kMiB = 1u << 20, kLimitNs = 60 * kSecond;

Letter random_letter(size_t length) {
  std::mt19937_64 random(std::random_device{}());
  Letter letter;
  letter.bytes.resize(length);
  for (std::byte& byte : letter.bytes) byte = static_cast<std::byte>(random());
  return letter;
}

/// One rank's box, and what others sent there.
struct Box {
  explicit Box(const Group& of) : group(*of.get()), worker(group.worker) {}
  uint64_t sender(uint32_t rank) const { return group.peers->sender(group.member(rank)); }
  tw_status take(uint32_t from, uint64_t step, Letter* letter) {
    return Mailbox::of(worker).take(worker, sender(from), group.id, step, letter);
  }
  /// When it has come, or does not.
  tw_status await(uint32_t from, uint64_t step, Letter* letter) {
    tw_status status = TW_IN_PROGRESS;
    const auto came = [&] {
      if (status == TW_IN_PROGRESS) status = take(from, step, letter);
      return status != TW_IN_PROGRESS;
    };
    EXPECT_EQ(worker.wait_until(came, kLimitNs), TW_OK);
    return status;
  }
  template <class Done>
  void progress_until(Done done) {
    EXPECT_EQ(worker.wait_until(done, kLimitNs), TW_OK);
  }
  tw_group& group;
  tw_worker& worker;
};

void send(const Group& group, uint32_t to, uint64_t step, const Letter& letter) {
  tw_endpoint* endpoint = nullptr;
  ASSERT_EQ(group.get()->await_endpoint(to, &endpoint), TW_OK) << tw_last_error();
  ASSERT_EQ(Mailbox::send(*endpoint, group.get()->id, step, letter), TW_OK) << tw_last_error();
  Mailbox::deliver(group.get()->worker, {endpoint}, kLimitNs);
}

constexpr uint64_t kAhead = 1000;  // steps that no exchange comes to

TEST(Mailboxes, ASenderTooFarAheadFailsAlone) {
  constexpr uint64_t kLetters = 9;  // of 8 MiB
  std::atomic<bool> flooded{false};
  std::vector<Letter> sent;
  for (uint64_t i = 0; i < kLetters; ++i) sent.push_back(random_letter(8 * kMiB));
  const Letter others = random_letter(10 * kMiB + 13);
  run_worlds(3, [&](Group& world) {
    const Group group = world.duplicate();
    Box box(group);
    if (world.rank() == 1) {
      for (uint64_t i = 0; i < kLetters; ++i) send(group, 0, kAhead + i, sent[i]);
    } else if (world.rank() == 2) {
      box.progress_until([&] { return flooded.load(); });
      send(group, 0, kAhead, others);
    } else {
      Letter letter;
      EXPECT_EQ(box.await(1, kAhead + kLetters - 1, &letter), TW_ERR_LIMIT);
      const std::string text = tw_last_error();
      EXPECT_NE(text.find("32 MiB"), std::string::npos) << text;
      EXPECT_NE(text.find("a barrier"), std::string::npos) << text;
      flooded = true;
      EXPECT_EQ(box.await(2, kAhead, &letter), TW_OK) << tw_last_error();
      EXPECT_EQ(letter.bytes, others.bytes);
      for (uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(box.await(1, kAhead + i, &letter), TW_OK) << "what had room is there";
        EXPECT_EQ(letter.bytes, sent[i].bytes);
      }
      EXPECT_EQ(box.take(1, kAhead + 3, &letter), TW_ERR_LIMIT) << "there is room again; the letter is lost all the same";
    }
    char all[3];
    std::string text;
    const tw_status status = tw_group_exchange(group.get(), "x", 1, all);
    if (world.rank() == 0) {
      EXPECT_EQ(status, TW_ERR_LIMIT);
      EXPECT_NE(std::string(tw_last_error()).find("rank 1:"), std::string::npos) << tw_last_error();
    }
    EXPECT_NE(status, TW_ERR_TIMED_OUT) << tw_last_error();
    EXPECT_EQ(tw_group_exchange(world.get(), "y", 1, all), TW_OK) << "another group: " << tw_last_error();
    world.barrier();
  });
}

/// Of a rank that is late: nobody asks for it any more, and it takes no room.
TEST(Mailboxes, LettersToACallThatIsOverCountNoMore) {
  constexpr uint64_t kBefore = 3, kBehind = 6;  // of 8 MiB, together more than there is
  const Letter letter = random_letter(8 * kMiB);
  std::atomic<bool> over{false};
  run_worlds(2, [&](Group& world) {
    world.barrier();  // sets up what later ones go by, without letters
    const Group group = world.duplicate();
    Box box(group);
    const Mailbox& mailbox = Mailbox::of(box.worker);
    const uint64_t before = mailbox.total(box.worker);
    world.barrier();
    for (uint64_t i = 0; i < kBefore + kBehind; ++i) {
      if (world.rank() == 1) {
        if (i == kBefore) box.progress_until([&] { return over.load(); });
        impl::ExchangeCall call(box.group, impl::ExchangeKind::values);
        send(group, 0, call.next_step(), letter);
      } else {
        if (i == 0) box.progress_until([&] { return mailbox.total(box.worker) >= before + kBefore * letter.bytes.size(); });
        const impl::ExchangeCall call(box.group, impl::ExchangeKind::values);
      }
    }
    if (world.rank() == 0) EXPECT_EQ(mailbox.total(box.worker), before) << "what had come";
    if (world.rank() == 0) over = true;
    char all[2];
    ASSERT_EQ(tw_group_exchange(group.get(), world.rank() == 0 ? "x" : "y", 1, all), TW_OK) << tw_last_error();
    EXPECT_EQ(std::string(all, 2), "xy");
    if (world.rank() == 0) EXPECT_EQ(mailbox.total(box.worker), before) << "what came later";
    world.barrier();
  });
}

/// Windows end by letters to the call that made them, which other calls have come behind.
TEST(Mailboxes, AWindowsCallIsOverWithTheWindow) {
  run_worlds(2, [](Group& world) {
    const Memory memory = world.context().allocate(64);
    Window window = world.window(memory);
    char all[2];
    for (int i = 0; i < 3; ++i) ASSERT_EQ(tw_group_exchange(world.get(), "x", 1, all), TW_OK) << tw_last_error();
    EXPECT_EQ(window.destroy(), TW_OK) << tw_last_error();
    world.barrier();
  });
}

/// The next call's letters have room again.
TEST(Mailboxes, ADroppedLetterFailsItsCallAlone) {
  const Letter letter = random_letter(8 * kMiB);
  run_worlds(2, [&](Group& world) {
    world.barrier();  // sets up what later ones go by, without letters
    const Group group = world.duplicate();
    Box box(group);
    if (world.rank() == 1) {
      for (uint64_t i = 0; i < 5; ++i) send(group, 0, kAhead + i, letter);
    } else {
      Letter none;
      EXPECT_EQ(box.await(1, kAhead + 4, &none), TW_ERR_LIMIT);
    }
    char all[2];
    EXPECT_EQ(tw_group_exchange(group.get(), "x", 1, all), world.rank() == 0 ? TW_ERR_LIMIT : TW_OK) << tw_last_error();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(tw_group_exchange(group.get(), "x", 1, all), TW_OK) << tw_last_error();
    world.barrier();
  });
}

/// It is there, though what it says of the shrink had no room: no rank may go on without the other.
TEST(Mailboxes, AShrinkThatHasNoRoomLeavesNobodyBehind) {
  WorldOptions how;
  how.timeout_ns = 3 * kSecond;
  const Letter letter = random_letter(8 * kMiB - 128);  // and what keeping it costs: four are all that there is
  std::atomic<uint32_t> over{0};
  run_worlds(
      2,
      [&](Group& world) {
        world.barrier();  // sets up what later ones go by, without letters
        const Group group = world.duplicate();
        Box box(group);
        if (world.rank() == 1) {
          for (uint64_t i = 0; i < 4; ++i) send(group, 0, kAhead + i, letter);
        } else {
          const Mailbox& mailbox = Mailbox::of(box.worker);
          box.progress_until([&] { return mailbox.total(box.worker) >= Mailbox::kMostOfOne; });
        }
        tw_group* left = nullptr;
        const tw_status status = tw_group_shrink(group.get(), &left);
        const std::string text = tw_last_error();
        EXPECT_EQ(status, world.rank() == 0 ? TW_ERR_LIMIT : TW_ERR_TIMED_OUT) << text;
        EXPECT_NE(text.find(world.rank() == 0 ? "rank 1: " : "rank 0 "), std::string::npos) << text;
        EXPECT_EQ(left, nullptr);
        EXPECT_EQ(tw_group_destroy(left), TW_OK);
        ++over;
        box.progress_until([&] { return over == 2; });  // rank 1 waits for all of its time
        world.barrier();
      },
      how);
}

/// Together they fill all that there is; one that has sent nothing still may.
TEST(Mailboxes, EverySenderKeepsSomeRoom) {
  constexpr uint32_t kFloods = 5, kLast = kFloods + 1;
  constexpr uint64_t kLetters = 27 * 16;  // of 64 KiB, by each
  static_assert(kFloods * kLetters * 65536 > Mailbox::kMost && kLetters * 65536 < Mailbox::kMostOfOne);
  static_assert(3 * 80 * 1024 + 1024 < Mailbox::kAlways && 4 * 80 * 1024 > Mailbox::kAlways);
  const Letter letter = random_letter(65536), few = random_letter(80 * 1024);
  std::atomic<bool> flooded{false};
  run_worlds(kLast + 1, [&](Group& world) {
    world.barrier();  // sets up what later ones go by, without letters
    const Group group = world.duplicate(), marks = world.duplicate();
    Box box(group), marked(marks);
    const uint32_t rank = world.rank();
    Letter came;
    if (rank == 0) {
      for (uint32_t from = 1; from <= kFloods; ++from) EXPECT_NE(marked.await(from, kAhead, &came), TW_IN_PROGRESS);
      flooded = true;
      EXPECT_EQ(box.await(kLast, kAhead + 3, &came), TW_ERR_LIMIT);
      for (uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(box.await(kLast, kAhead + i, &came), TW_OK) << tw_last_error();
        EXPECT_EQ(came.bytes, few.bytes);
      }
      EXPECT_EQ(box.take(1, kAhead, &came), TW_OK);
      EXPECT_EQ(came.bytes, letter.bytes);
    } else if (rank == kLast) {
      box.progress_until([&] { return flooded.load(); });
      for (uint64_t i = 0; i < 4; ++i) send(group, 0, kAhead + i, few);
    } else {
      for (uint64_t i = 0; i < kLetters; ++i) send(group, 0, kAhead + i, letter);
      send(marks, 0, kAhead, Letter{});
    }
    world.barrier();
  });
}

/// What a group that has ended did not ask for is nobody's any more.
TEST(Mailboxes, TheEndOfAGroupGivesRoomBack) {
  const Letter letter = random_letter(12 * kMiB);
  run_worlds(2, [&](Group& world) {
    for (int round = 0; round < 4; ++round) {
      const Group group = world.duplicate();
      Box box(group);
      Letter came;
      if (world.rank() == 1) {
        for (uint64_t i = 0; i < 2; ++i) send(group, 0, kAhead + i, letter);
      } else {
        EXPECT_EQ(box.await(1, kAhead + 1, &came), TW_OK) << tw_last_error();
        EXPECT_EQ(came.bytes, letter.bytes);
      }
      world.barrier();
    }
  });
}

/// Letters of workers that come and go, to groups that do not exist.
TEST(Mailboxes, StrangersLettersEndWithTheirConnections) {
  constexpr int kStrangers = 12;
  const Letter letter = random_letter(200 * 1024);
  run_worlds(1, [&](Group& world) {
    Box box(world);
    const Mailbox& mailbox = Mailbox::of(box.worker);
    const uint64_t before = mailbox.total(box.worker);
    for (int i = 0; i < kStrangers; ++i) {
      const Worker stranger(world.context());
      Endpoint endpoint = stranger.connect(world.worker().address());
      ASSERT_EQ(Mailbox::send(*endpoint.get(), 0x1234'5678'9abc'0000 + i, 0, letter), TW_OK) << tw_last_error();
      const auto progressed = [&](auto done) {
        for (int turns = 0; turns < 1'000'000 && !done(); ++turns) {
          stranger.get()->progress();
          box.worker.progress();
        }
        return done();
      };
      ASSERT_TRUE(progressed([&] { return mailbox.total(box.worker) >= before + letter.bytes.size(); }));
      endpoint = Endpoint();
      ASSERT_TRUE(progressed([&] { return mailbox.total(box.worker) == before; })) << mailbox.total(box.worker);
    }
  });
}

/// However many they are.
TEST(Mailboxes, StrangersFillNoMoreThanThereIs) {
  run_worlds(1, [&](Group& world) {
    Box box(world);
    Mailbox& mailbox = Mailbox::of(box.worker);
    const impl::ActiveTable::Entry handler = *box.worker.engine->active().find(impl::ActiveTable::kGroups);
    std::vector<std::unique_ptr<tw_endpoint>> strangers;
    const auto post = [&](tw_endpoint& from, uint64_t group, uint32_t total) {
      struct {
        uint64_t group, step = 0;
        int32_t status = 0;
        uint32_t rank = 0, at = 0, total, kind = 0, reserved = 0;
      } head{.group = group, .total = total};
      tw_am_message message{};
      message.endpoint = &from;
      message.header = &head;
      message.header_length = sizeof head;
      const impl::Engine::Guard guard(*box.worker.engine);
      EXPECT_EQ(handler.handler(handler.arg, &message), TW_OK);
    };
    for (uint64_t i = 0; i < 1000; ++i) {
      strangers.push_back(std::make_unique<tw_endpoint>());
      strangers.back()->remote = 1'000'000 + i;
      for (uint64_t k = 0; k < (i < 6 ? 40u : 1u); ++k)
        post(*strangers.back(), 1'000 * i + k, i < 6 ? kMiB : Mailbox::kAlways - 4096);
      ASSERT_LE(mailbox.total(box.worker), Mailbox::kMostAtAll);
    }
    const uint64_t full = mailbox.total(box.worker);
    EXPECT_GT(full, Mailbox::kMost);
    post(*strangers.back(), box.group.id, Mailbox::kAlways / 2);
    EXPECT_GT(mailbox.total(box.worker), full) << "a group that exists has room";
    for (const auto& one : strangers) {
      const impl::Engine::Guard guard(*box.worker.engine);
      for (const auto& watch : one->watches) {
        if (const auto alive = watch.lock()) alive->on_loss(TW_ERR_PEER_LOST, "");
      }
    }
    EXPECT_LE(mailbox.total(box.worker), Mailbox::kAlways) << "of the group that exists";
  });
}

}  // namespace
}  // namespace thalweg::test
