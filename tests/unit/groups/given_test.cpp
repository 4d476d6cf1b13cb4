// SPDX-License-Identifier: Apache-2.0
// Groups of endpoints that were given.
#include "../plans/window_ranks.hpp"

#include "base/told_status.hpp"
#include "compare_parts.hpp"
#include "groups/exchange.hpp"
#include "groups/mailbox.hpp"
#include "groups/parts.hpp"

namespace thalweg::test {
namespace {

TEST(Given, SplitsOfGivenEndpoints) {
  run_ranks(4, [](Rank& rank) {
    {
      const Group group(*rank.worker, rank.handles, rank.number, Rank::exchange, &rank);
      ASSERT_EQ(group.rank(), rank.number);
      split_and_compare(group);
    }
    rank.barrier();
  });
}

TEST(Given, ALostRankIsNamedAndLeftBehind) {
  run_ranks(4, [](Rank& rank) {
    {
      const Group group(*rank.worker, rank.handles, rank.number, Rank::exchange, &rank);
      group.barrier();
      if (rank.number == 3) {
        for (Endpoint& endpoint : rank.endpoints) endpoint = Endpoint();  // by force
      } else {
        try {
          group.barrier();
          ADD_FAILURE() << "a barrier without rank 3";
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), TW_ERR_PEER_LOST);
          EXPECT_NE(std::string(error.what()).find("rank 3:"), std::string::npos) << error.what();
        }
        const Group left = group.shrink();
        EXPECT_EQ(left.size(), 3u);
        left.barrier();
      }
    }
    rank.barrier();
  });
}

TEST(Given, RanksThatDifferAreRefused) {
  run_ranks(3, [](Rank& rank) {
    tw_group* group = nullptr;
    std::vector<tw_endpoint*> handles = rank.handles;
    if (rank.number == 2) handles[0] = nullptr;
    EXPECT_EQ(tw_group_create(rank.worker->get(), handles.data(), 3, rank.number, Rank::exchange, &rank, nullptr, &group),
              TW_ERR_INVALID);
    EXPECT_EQ(group, nullptr);
    rank.barrier();
  });
}

/// At the rank itself with both numbers, and at all others with its own.
TEST(Given, OneEndpointForTwoRanksIsRefused) {
  run_ranks(3, [](Rank& rank) {
    tw_group* group = nullptr;
    std::vector<tw_endpoint*> handles = rank.handles;
    if (rank.number == 1) handles[2] = handles[0];
    EXPECT_EQ(tw_group_create(rank.worker->get(), handles.data(), 3, rank.number, Rank::exchange, &rank, nullptr, &group),
              TW_ERR_INVALID);
    const std::string text = tw_last_error();
    const char* const wanted = rank.number == 1 ? "ranks 0 and 2 have the same endpoint" : "rank 1 cannot take part";
    EXPECT_NE(text.find(wanted), std::string::npos) << text;
    EXPECT_EQ(group, nullptr);
    EXPECT_EQ(tw_group_destroy(group), TW_OK);
    rank.barrier();
  });
}

tw_group* group_within(Rank& rank, uint64_t timeout_ns) {
  tw_group_options options = TW_GROUP_OPTIONS_INIT;
  options.timeout_ns = timeout_ns;
  tw_group* made = nullptr;
  EXPECT_EQ(
      tw_group_create(rank.worker->get(), rank.handles.data(), rank.size, rank.number, Rank::exchange, &rank, &options, &made),
      TW_OK)
      << tw_last_error();
  return made;
}

/// They are in step: each gets what the others gave in this call. Where the group's time is short, in one of a few.
void expect_in_step(Rank& rank, tw_group* group) {
  const std::string mine = random_bytes(16);
  std::string here(rank.size * mine.size(), '-'), there = here;
  ASSERT_EQ(rank.meeting.exchange(rank.number, mine.data(), mine.size(), there.data()), TW_OK);
  std::vector<tw_status> ended(rank.size, TW_IN_PROGRESS);
  for (int tries = 0; tries < 5 && std::ranges::count(ended, TW_OK) != rank.size; ++tries) {
    const tw_status status = tw_group_exchange(group, mine.data(), mine.size(), here.data());
    EXPECT_TRUE(status == TW_OK || status == TW_ERR_TIMED_OUT) << tw_last_error();
    ASSERT_EQ(rank.meeting.exchange(rank.number, &status, sizeof status, ended.data()), TW_OK);
  }
  EXPECT_EQ(std::ranges::count(ended, TW_OK), rank.size);
  EXPECT_EQ(here, there);
}

/// A status that is neither TW_OK nor an error is no success.
TEST(Given, AStatusThatNoRankMayTellMakesNoGroup) {
  for (const int32_t told : {1, 2, 77, -1, -999}) {
    EXPECT_EQ(impl::told_status(told), TW_ERR_PROTOCOL);
    run_ranks(3, [&](Rank& rank) {
      struct Liar {
        Rank& rank;
        int32_t told;
      } liar{rank, told};
      const auto exchange = [](void* arg, const void* mine, size_t length, void* values) {
        const auto& self = *static_cast<Liar*>(arg);
        std::string bytes(static_cast<const char*>(mine), length);
        if (self.rank.number == 1) std::memcpy(bytes.data() + 24, &self.told, sizeof self.told);  // its status
        return Rank::exchange(&self.rank, bytes.data(), length, values);
      };
      tw_group* group = nullptr;
      EXPECT_EQ(tw_group_create(rank.worker->get(), rank.handles.data(), 3, rank.number, exchange, &liar, nullptr, &group),
                TW_ERR_PROTOCOL);
      EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
      EXPECT_EQ(group, nullptr);
      rank.barrier();
    });
  }
}

TEST(Given, AStatusThatNoRankMayTellMakesNoWindow) {
  for (const size_t lies : {1u, 2u}) {  // in which exchange
    run_ranks(2, [&](Rank& rank) {
      tw_group* const group = group_within(rank, 20 * kSecond);
      const Memory memory = rank.context.allocate(4096);
      tw_window* window = nullptr;
      tw_status status = TW_OK;
      if (rank.number == 0) {
        status = tw_group_window(group, memory.get(), nullptr, &window);
      } else {
        struct Liar {
          impl::ExchangeCall call;
          const size_t lies;
          size_t exchanges = 0;
        } liar{{*group, impl::ExchangeKind::window}, lies};
        const auto exchange = [](void* arg, const void* mine, size_t length, void* values) {
          auto& self = *static_cast<Liar*>(arg);
          std::string bytes(static_cast<const char*>(mine), length);
          const int32_t told = 1;
          if (++self.exchanges == self.lies) std::memcpy(bytes.data() + (self.lies == 1 ? 24 : 8), &told, sizeof told);
          return impl::exchange(self.call, bytes.data(), length, values);
        };
        status =
            tw_window_create(rank.worker->get(), rank.handles.data(), 2, 1, memory.get(), exchange, &liar, nullptr, &window);
      }
      EXPECT_EQ(status, TW_ERR_PROTOCOL) << tw_last_error();
      EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
      EXPECT_EQ(window, nullptr);
      expect_in_step(rank, group);
      EXPECT_EQ(tw_group_destroy(group), TW_OK);
      rank.barrier();
    });
  }
}

/// A rank comes when the others' time is over, whose values have come all the same: it gets what they got, which is nothing.
void expect_nothing_late(uint32_t size, const std::function<void(tw_group* group, tw_status* got)>& call) {
  run_ranks(size, [&](Rank& rank) {
    tw_group* const group = group_within(rank, kSecond);
    expect_in_step(rank, group);  // all are connected
    const bool late = rank.number + 1 == rank.size;
    if (late) rank.barrier();
    tw_status got = TW_OK;
    call(group, &got);
    const std::string text = tw_last_error();
    EXPECT_EQ(got, TW_ERR_TIMED_OUT) << text;
    EXPECT_NE(text.find("rank " + std::to_string(size - 1) + ":"), std::string::npos) << text;
    if (late) {
      EXPECT_NE(text.find("another one's time was over"), std::string::npos) << text;
    } else {
      rank.barrier();
    }
    rank.barrier();
    expect_in_step(rank, group);
    EXPECT_EQ(tw_group_destroy(group), TW_OK) << tw_last_error();
    rank.barrier();
  });
}

void split_late(tw_group* group, tw_status* got) {
  tw_group* part = nullptr;
  *got = tw_group_split(group, 0, 0, &part);
  EXPECT_EQ(part, nullptr);
}
TEST(Given, ALateRankGetsNoPart) { expect_nothing_late(2, split_late); }
TEST(Given, TheLastOfThreeGetsNoPart) { expect_nothing_late(3, split_late); }
/// It has no part in any case, and says so no earlier.
TEST(Given, ALateRankWithoutAColourIsToldToo) {
  expect_nothing_late(2, [](tw_group* group, tw_status* got) {
    tw_group* part = nullptr;
    *got = tw_group_split(group, TW_UNDEFINED, 0, &part);
  });
}
TEST(Given, ALateRankGetsNoPartByWhatTheyHaveInCommon) {
  expect_nothing_late(2, [](tw_group* group, tw_status* got) {
    tw_group* part = nullptr;
    *got = tw_group_split_by(group, TW_SPLIT_DEVICES, 0, &part);
    EXPECT_EQ(part, nullptr);
  });
}
TEST(Given, ALateRankGetsNoWindow) {
  expect_nothing_late(2, [](tw_group* group, tw_status* got) {
    tw_memory* memory = nullptr;
    ASSERT_EQ(tw_memory_allocate(tw_group_context(group), 4096, nullptr, &memory), TW_OK) << tw_last_error();
    tw_window* window = nullptr;
    *got = tw_group_window(group, memory, nullptr, &window);
    const std::string text = tw_last_error();
    EXPECT_EQ(window, nullptr);
    EXPECT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error();
    impl::set_last_error(text);
  });
}

/// It comes to the window's last exchange with values when the other has waited long enough there.
TEST(Given, ARankThatIsLateWithItsOutcomeGetsNoWindow) {
  run_ranks(2, [](Rank& rank) {
    tw_group* const group = group_within(rank, kSecond);
    expect_in_step(rank, group);
    const Memory memory = rank.context.allocate(4096);
    tw_window* window = nullptr;
    tw_window_options options = TW_WINDOW_OPTIONS_INIT;
    options.timeout_ns = kSecond;  // where the other's progress is needed
    if (rank.number == 0) {
      EXPECT_EQ(tw_group_window(group, memory.get(), &options, &window), TW_ERR_TIMED_OUT) << tw_last_error();
      rank.barrier();
    } else {
      struct Late {
        Rank& rank;
        impl::ExchangeCall call;
        int exchanges = 0;
      } late{rank, {*group, impl::ExchangeKind::window}};
      const auto exchange = [](void* arg, const void* mine, size_t length, void* values) {
        auto& self = *static_cast<Late*>(arg);
        if (++self.exchanges == 2) self.rank.barrier();
        return impl::exchange(self.call, mine, length, values);
      };
      EXPECT_EQ(
          tw_window_create(rank.worker->get(), rank.handles.data(), 2, 1, memory.get(), exchange, &late, &options, &window),
          TW_OK)
          << "what the other gave in time is there: " << tw_last_error();
      EXPECT_EQ(impl::agree(late.call, TW_OK), TW_ERR_TIMED_OUT) << tw_last_error();
      tw_window_drop(std::exchange(window, nullptr));
    }
    EXPECT_EQ(window, nullptr);
    rank.barrier();
    expect_in_step(rank, group);
    EXPECT_EQ(tw_group_destroy(group), TW_OK) << tw_last_error();
    rank.barrier();
  });
}

/// What one rank lacks when the values are there already.
TEST(Given, ARankThatCannotMakeItsPartEndsTheCallOnAll) {
  run_ranks(3, [](Rank& rank) {
    tw_group* const group = group_within(rank, 20 * kSecond);
    {
      impl::ExchangeCall call(*group, impl::ExchangeKind::split);
      const bool lacks = rank.number == 1;
      EXPECT_EQ(impl::agree(call, lacks ? impl::fail(TW_ERR_NO_MEMORY, "no room") : impl::Status{TW_OK}), TW_ERR_NO_MEMORY);
      const std::string text = tw_last_error();
      EXPECT_NE(text.find(lacks ? "no room" : "rank 1:"), std::string::npos) << text;
    }
    expect_in_step(rank, group);
    EXPECT_EQ(tw_group_destroy(group), TW_OK) << tw_last_error();
    rank.barrier();
  });
}

/// Its call of several exchanges ends early at one rank, and late at another.
TEST(Given, RanksThatAreLateAreInStepAgainInTheNextCall) {
  run_ranks(2, [](Rank& rank) {
    tw_group* const group = group_within(rank, kSecond / 2);
    {
      const Memory memory = rank.context.allocate(4096);
      tw_window* window = nullptr;
      if (rank.number == 1) rank.barrier();  // when the other's time is over
      EXPECT_EQ(tw_group_window(group, memory.get(), nullptr, &window), TW_ERR_TIMED_OUT) << tw_last_error();
      if (rank.number == 0) rank.barrier();
      tw_group* part = nullptr;
      const tw_status split = tw_group_split(group, 0, 0, &part);
      EXPECT_TRUE(split == TW_OK || split == TW_ERR_TIMED_OUT) << tw_last_error();
      EXPECT_EQ(part != nullptr, split == TW_OK);
      if (split == TW_OK) EXPECT_EQ(tw_group_size(part), 2u) << "what the other sent for the window is no colour";
      EXPECT_EQ(tw_group_destroy(part), TW_OK);
      rank.barrier();
    }
    expect_in_step(rank, group);
    EXPECT_EQ(tw_group_destroy(group), TW_OK);
    rank.barrier();
  });
}

/// Of the same length, too.
TEST(Given, RanksThatCallDifferentThingsFindOut) {
  run_ranks(2, [](Rank& rank) {
    tw_group* const group = group_within(rank, 20 * kSecond);
    const std::string mine = random_bytes(16);
    std::string all(32, '-');
    tw_group* part = nullptr;
    EXPECT_EQ(
        rank.number == 0 ? tw_group_exchange(group, mine.data(), mine.size(), all.data()) : tw_group_split(group, 0, 0, &part),
        TW_ERR_INVALID);
    const std::string text = tw_last_error();
    EXPECT_NE(text.find("tw_group_split"), std::string::npos) << text;
    EXPECT_NE(text.find("tw_group_exchange"), std::string::npos) << text;
    EXPECT_EQ(part, nullptr);
    expect_in_step(rank, group);
    EXPECT_EQ(tw_group_destroy(group), TW_OK);
    rank.barrier();
  });
}

/// What a rank tells of its failure is not this rank's: not that it was interrupted, nor what makes no sense.
TEST(Given, WhatARankTellsOfAFailureIsChecked) {
  struct Lie {
    int32_t status;
    uint32_t rank;
    tw_status expected;
  };
  for (const Lie& lie :
       {Lie{TW_ERR_CANCELED, 0, TW_ERR_PROTOCOL}, Lie{TW_ERR_FORKED, 0, TW_ERR_PROTOCOL}, Lie{3, 0, TW_ERR_PROTOCOL},
        Lie{TW_ERR_PEER_LOST, 77, TW_ERR_PROTOCOL}, Lie{TW_ERR_PEER_LOST, 1, TW_ERR_PEER_LOST}}) {
    run_ranks(2, [&](Rank& rank) {
      tw_group* const group = group_within(rank, 20 * kSecond);
      if (rank.number == 1) {
        impl::ExchangeCall call(*group, impl::ExchangeKind::values);
        const impl::Letter letter{lie.status, lie.rank, static_cast<uint32_t>(impl::ExchangeKind::values), {}};
        EXPECT_EQ(impl::Mailbox::send(*rank.handles[0], group->id, call.next_step(), letter), TW_OK) << tw_last_error();
        impl::Mailbox::deliver(group->worker, {rank.handles[0]}, kSecond);
      } else {
        char all[2];
        EXPECT_EQ(tw_group_exchange(group, "x", 1, all), lie.expected) << tw_last_error();
        EXPECT_NE(std::string(tw_last_error()).find("rank 1:"), std::string::npos) << tw_last_error();
      }
      rank.barrier();
      expect_in_step(rank, group);
      EXPECT_EQ(tw_group_destroy(group), TW_OK);
      rank.barrier();
    });
  }
}

/// A rank that tells others different keys: the order of ranks would not be the same on all, and one's numbers mean another rank to
/// the next. It tells each that it has made what that one has.
TEST(Given, ARankThatTellsOthersDifferentKeysMakesNoPart) {
  struct Choice {
    uint64_t color;
    uint32_t key, none;
  };
  run_ranks(3, [](Rank& rank) {
    tw_group* const group = group_within(rank, 20 * kSecond);
    constexpr auto kSplit = static_cast<uint32_t>(impl::ExchangeKind::split);
    const auto tell = [&](uint32_t to, uint64_t step, const void* bytes, size_t length) {
      impl::Letter letter{TW_OK, 0, kSplit, {}};
      letter.bytes.assign(static_cast<const std::byte*>(bytes), static_cast<const std::byte*>(bytes) + length);
      EXPECT_EQ(impl::Mailbox::send(*rank.handles[to], group->id, step, letter), TW_OK) << tw_last_error();
      impl::Mailbox::deliver(group->worker, {rank.handles[to]}, kSecond);
    };
    if (rank.number == 1) {
      ++group->made;
      impl::ExchangeCall call(*group, impl::ExchangeKind::split);
      const uint64_t first = call.next_step(), last = call.next_step();
      const Choice before{7, 0, 0}, behind{7, 9, 0};
      tell(0, first, &before, sizeof before);      // to the rank ahead in the first round,
      tell(2, first + 1, &behind, sizeof behind);  // and to the other one in the second
      const auto id_of = [&](std::initializer_list<uint32_t> ranks) {
        uint64_t salt = 7;
        for (const uint32_t one : ranks) salt = impl::mixed(salt, one);
        return impl::mixed(impl::mixed(group->id, group->made), salt);
      };
      const uint64_t there[] = {id_of({1, 0, 2}), id_of({0, 2, 1})};
      tell(0, last, &there[0], sizeof there[0]);
      tell(2, last + 1, &there[1], sizeof there[1]);
    } else {
      tw_group* part = nullptr;
      EXPECT_EQ(tw_group_split(group, 7, 5 + rank.number, &part), TW_ERR_PROTOCOL) << tw_last_error();
      EXPECT_NE(std::string(tw_last_error()).find("different colours or keys"), std::string::npos) << tw_last_error();
      EXPECT_EQ(part, nullptr);
    }
    rank.barrier();
    expect_in_step(rank, group);
    EXPECT_EQ(tw_group_destroy(group), TW_OK);
    rank.barrier();
  });
}

}  // namespace
}  // namespace thalweg::test
