// SPDX-License-Identifier: Apache-2.0
// Windows between processes over shm: host memory and emulated devices, two to four ranks, with a store as the exchange; and a
// rank that is killed while another one's code waits in the window.
#include <gtest/gtest.h>
#include <unistd.h>
#include <thalweg/device/window.hpp>
#include <thalweg/thalweg.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

namespace device = thalweg::device;

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2,vmm_piece=65536", 1);
constexpr size_t kLength = 200'003, kPart = 4'099;
constexpr char kKey[] = "a secret of 27 bytes for tests";
constexpr uint64_t kLimit = 20'000'000'000;

/// Environment of a rank: its number, how many there are, where its memory lives, the store.
std::vector<std::string> environment(uint32_t rank, uint32_t size, const std::string& place, const std::string& store,
                                     const std::string& transport = "shm") {
  return {"WINDOW_RANK=" + std::to_string(rank), "WINDOW_SIZE=" + std::to_string(size), "WINDOW_PLACE=" + place,
          "WINDOW_STORE=" + store, "WINDOW_TRANSPORT=" + transport};
}

/// A store of its own in a fresh directory.
struct StoreFile {
  StoreFile() {
    char name[] = "/tmp/thalweg-window-XXXXXX";
    if (mkdtemp(name) == nullptr) abort();
    directory = name;
  }
  ~StoreFile() { std::filesystem::remove_all(directory); }
  std::string address() const { return "file:" + directory + "/store"; }
  std::string directory;
};

/// An exchange of a program's own, by the store.
struct OwnExchange {
  tw_store* store = nullptr;
  std::function<void()> before;
  static tw_status run(void* arg, const void* mine, size_t length, void* values) {
    auto& self = *static_cast<OwnExchange*>(arg);
    if (self.before) self.before();
    return tw_store_exchange(self.store, mine, length, values);
  }
};

/// One rank: a window over all of them.
struct Rank {
  uint32_t rank, size;
  Side side;
  thalweg::Store store;
  std::vector<tw_endpoint*> endpoints;
  std::string place;
  tw_memory* memory = nullptr;
  tw_window* window = nullptr;

  static tw_store_options store_options(uint32_t rank, uint32_t size) {
    tw_store_options options = TW_STORE_OPTIONS_INIT;
    options.job_key = kKey;
    options.job_key_length = strlen(kKey);
    options.rank = rank;
    options.count = size;
    return options;
  }
  Rank(uint32_t number, uint32_t ranks, const std::string& where, const std::string& address, const char* transport = "shm",
       OwnExchange* own = nullptr)
      : rank(number),
        size(ranks),
        side(SideOptions{.transports = transport}),
        store([&] {
          const tw_store_options options = store_options(number, ranks);
          return thalweg::Store(address.c_str(), &options);
        }()),
        place(where) {
    for (const std::string& peer : gather(side.address())) {
      endpoints.push_back(endpoints.size() == rank ? nullptr : side.connect(peer, transport));
    }
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place.c_str();
    EXPECT_EQ(tw_memory_allocate(side.context, kLength, &options, &memory), TW_OK) << tw_last_error();
    if (own != nullptr) own->store = store.get();
    void* const arg = own != nullptr ? static_cast<void*>(own) : store.get();
    EXPECT_EQ(tw_window_create(side.worker, endpoints.data(), size, rank, memory, own != nullptr ? OwnExchange::run : nullptr,
                               arg, nullptr, &window),
              TW_OK)
        << tw_last_error();
  }
  ~Rank() { (void)tw_memory_release(memory); }
  std::vector<std::string> gather(std::string mine) {
    const size_t length = mine.size();
    std::string all(size * kAddressRoom, '\0');
    mine.resize(kAddressRoom);
    EXPECT_EQ(tw_store_exchange(store.get(), mine.data(), mine.size(), all.data()), TW_OK) << tw_last_error();
    std::vector<std::string> texts;
    for (uint32_t i = 0; i < size; ++i) texts.push_back(all.substr(i * kAddressRoom, length));
    return texts;
  }
  /// Everybody's `length` random bytes, known to all.
  std::vector<std::string> share_bytes(size_t length) {
    const std::string mine = random_bytes(length);
    std::string all(size * length, '\0');
    EXPECT_EQ(tw_store_exchange(store.get(), mine.data(), length, all.data()), TW_OK);
    std::vector<std::string> texts;
    for (uint32_t i = 0; i < size; ++i) texts.push_back(all.substr(i * length, length));
    return texts;
  }
  /// The device, or "host", whose code uses the window.
  std::string executor() const {
    const size_t at = place.find(':');
    return at == std::string::npos ? "host" : "emulated" + place.substr(at);
  }
  void copy(void* to, const void* from, size_t length) {
    EXPECT_EQ(tw_memory_copy(side.context, to, from, length), TW_OK) << tw_last_error();
  }
};

/// Writes into everybody's part, then looks at its own; the end.
int write_to_all(Rank& rank) {
  tw_device_window bound{};
  if (tw_window_bind(rank.window, rank.executor().c_str(), &bound) != TW_OK) {
    fprintf(stderr, "rank %u: %s\n", rank.rank, tw_last_error());
    return 1;
  }
  auto* const own = static_cast<char*>(tw_memory_address(rank.memory));
  std::vector<char*> bases(rank.size);
  rank.copy(bases.data(), bound.bases, rank.size * sizeof bases[0]);
  std::string expected(kLength, '\x5a'), found(kLength, '\0');
  rank.copy(own, expected.data(), kLength);
  const std::vector<std::string> bytes = rank.share_bytes(kPart);
  for (uint32_t to = 0; to < rank.size; ++to) {
    rank.copy(bases[to] + 3 + rank.rank * (kPart + 64), bytes[rank.rank].data(), kPart);
  }
  rank.gather("written");
  for (uint32_t from = 0; from < rank.size; ++from) expected.replace(3 + from * (kPart + 64), kPart, bytes[from]);
  rank.copy(found.data(), own, kLength);
  if (found != expected) return 2;
  if (tw_window_check(rank.window) != TW_OK) return 3;
  return tw_window_destroy(rank.window) == TW_OK ? 0 : 4;
}

Rank from_environment() {
  const auto number = [](const char* name) { return static_cast<uint32_t>(std::atoi(std::getenv(name))); };
  return {number("WINDOW_RANK"), number("WINDOW_SIZE"), std::getenv("WINDOW_PLACE"), std::getenv("WINDOW_STORE"),
          std::getenv("WINDOW_TRANSPORT")};
}

const Role kWriter("window writer", [](Pipe&) {
  Rank rank = from_environment();
  return write_to_all(rank);
});

device::Window bind_host(Rank& rank) {
  tw_device_window bound{};
  EXPECT_EQ(tw_window_bind(rank.window, "host", &bound), TW_OK) << tw_last_error();
  device::Window window;
  std::memcpy(&window, &bound, sizeof window);
  return window;
}

constexpr uint64_t kData = 0, kTaken = 8, kSlot = 16, kWords = 1'001;  // signals: what has come, what the next one has taken

/// The words that `rank` sends in a round.
std::vector<uint64_t> words_of(const std::string& seed, uint64_t round) {
  uint64_t number;
  std::memcpy(&number, seed.data(), sizeof number);
  std::mt19937_64 generator(number + round);
  std::vector<uint64_t> words(kWords);
  for (uint64_t& word : words) word = generator();
  return words;
}

/// Device code's twins on the host: every rank hands each round's words to the next one, whose wait acquires them. Returns the rounds
/// that were right; fewer than `rounds` when a wait has failed.
uint64_t go_round(Rank& rank, const device::Window& window, uint64_t rounds) {
  using device::Compare;
  const uint32_t next = (rank.rank + 1) % rank.size, before = (rank.rank + rank.size - 1) % rank.size;
  const std::vector<std::string> seeds = rank.share_bytes(sizeof(uint64_t));
  for (uint64_t round = 0; round < rounds; ++round) {
    if (!device::wait(device::Thread(), window, kTaken, Compare::greater_equal, round, 2 * round)) return round;
    const std::vector<uint64_t> mine = words_of(seeds[rank.rank], round);
    if (!device::put_signal(device::Thread(), window, next, kSlot, mine.data(), mine.size(), kData, round + 1)) return round;
    if (!device::wait(device::Thread(), window, kData, Compare::greater_equal, round + 1, 2 * round + 1)) return round;
    std::vector<uint64_t> came(kWords);
    device::get(device::Thread(), window, rank.rank, kSlot, came.data(), came.size());
    if (came != words_of(seeds[before], round)) return round;
    device::signal(device::Thread(), window, before, kTaken, round + 1);
  }
  return rounds;
}

const Role kTwin("window twin", [](Pipe&) {
  Rank rank = from_environment();
  constexpr uint64_t kRounds = 300;
  if (go_round(rank, bind_host(rank), kRounds) != kRounds) return 1;
  return tw_window_destroy(rank.window) == TW_OK ? 0 : 2;
});

/// Takes part in a few rounds, and then no more.
const Role kDropout("window dropout", [](Pipe& pipe) {
  Rank rank = from_environment();
  if (go_round(rank, bind_host(rank), 5) != 5) return 1;
  pipe.send("five");
  pipe.receive();
  return 2;
});

/// Sits in the window until it is killed.
const Role kVictim("window victim", [](Pipe& pipe) {
  Rank rank = from_environment();
  pipe.send("in");
  pipe.receive();
  return 1;
});

class WindowsBetween : public testing::TestWithParam<std::pair<uint32_t, const char*>> {};

TEST_P(WindowsBetween, ProcessesReachEveryPart) {
  const auto [size, place] = GetParam();
  const StoreFile store;
  // "emulated:N": every rank on another device; the last process count has them twice.
  const auto place_of = [place = std::string(place)](uint32_t rank) {
    return place.back() == ':' ? place + std::to_string(rank % 2) : place;
  };
  std::vector<std::unique_ptr<Child>> children;
  for (uint32_t i = 1; i < size; ++i) {
    children.push_back(std::make_unique<Child>("window writer", environment(i, size, place_of(i), store.address())));
  }
  Rank rank(0, size, place_of(0), store.address());
  EXPECT_EQ(write_to_all(rank), 0);
  for (auto& child : children) EXPECT_EQ(child->join(), 0);
}

INSTANTIATE_TEST_SUITE_P(Of, WindowsBetween,
                         testing::Values(std::pair{2u, "host"}, std::pair{3u, "host"}, std::pair{2u, "emulated:"},
                                         std::pair{4u, "emulated:"}, std::pair{2u, "emulated-vmm:"}),
                         [](const auto& info) {
                           const std::string place = info.param.second;
                           return std::to_string(info.param.first) + "_" + place.substr(0, place.find_first_of("-:")) +
                                  (place.find("vmm") == std::string::npos ? "" : "_vmm");
                         });

TEST(WindowBetween, APlainBufferOfAnotherProcessIsRefusedByName) {
  const StoreFile store;
  Child child("window pool", environment(1, 2, "emulated-pool:0", store.address()));
  Rank rank(0, 2, "emulated-pool:0", store.address());
  tw_device_window bound{};
  EXPECT_EQ(tw_window_bind(rank.window, "emulated:0", &bound), TW_ERR_UNSUPPORTED);
  const std::string text = tw_last_error();
  for (const char* part : {"rank 1", "emulated:0", "pool"}) EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(tw_window_destroy(rank.window), TW_OK);
  EXPECT_EQ(child.join(), 0);
}
const Role kPool("window pool", [](Pipe&) {
  Rank rank = from_environment();
  return tw_window_destroy(rank.window) == TW_OK ? 0 : 1;
});

TEST(WindowTwins, OfThreeProcessesPutSignalAndWait) {
  const StoreFile store;
  Child first("window twin", environment(1, 3, "host", store.address()));
  Child second("window twin", environment(2, 3, "host", store.address()));
  Rank rank(0, 3, "host", store.address());
  EXPECT_EQ(go_round(rank, bind_host(rank), 300), 300u);
  EXPECT_EQ(tw_window_check(rank.window), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_window_destroy(rank.window), TW_OK);
  EXPECT_EQ(first.join(), 0);
  EXPECT_EQ(second.join(), 0);
}

TEST(WindowTwins, AWaitThatIsOverdueSaysWhatItWaitedFor) {
  const StoreFile store;
  Child child("window dropout", environment(1, 2, "host", store.address()));
  Rank rank(0, 2, "host", store.address());
  device::Window window = bind_host(rank);
  window.guard.limit_ns = 20'000'000'000;
  EXPECT_EQ(go_round(rank, window, 5), 5u);
  window.guard.limit_ns = 1'000'000;
  EXPECT_FALSE(device::wait(device::Thread(), window, kData, device::Compare::greater_equal, 6, 77));
  EXPECT_EQ(tw_window_check(rank.window), TW_ERR_TIMED_OUT);
  const std::string text = tw_last_error();
  for (const char* part : {"the host", "operation 77", "waited for 6", "found 5"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  EXPECT_FALSE(device::wait(device::Thread(), window, kData, device::Compare::greater_equal, 1)) << "the guard is poisoned";
  window = bind_host(rank);
  EXPECT_TRUE(device::wait(device::Thread(), window, kData, device::Compare::greater_equal, 5));
  EXPECT_EQ(tw_window_check(rank.window), TW_OK) << tw_last_error();
  child.kill();
  EXPECT_TRUE(progress_until(rank.side.worker, [&] { return tw_endpoint_state(rank.endpoints[1]) < 0; }));
  EXPECT_EQ(tw_window_destroy(rank.window), TW_ERR_PEER_LOST);
}

TEST(WindowTwins, AWaitForOneWhoIsKilledEnds) {
  const StoreFile store;
  Child child("window dropout", environment(1, 2, "host", store.address()));
  Rank rank(0, 2, "host", store.address());
  const device::Window window = bind_host(rank);
  std::thread twin([&] { EXPECT_EQ(go_round(rank, window, 300), 5u); });
  EXPECT_EQ(child.receive(), "five");
  child.kill();
  twin.join();
  EXPECT_EQ(tw_window_check(rank.window), TW_ERR_PEER_LOST);
  EXPECT_EQ(tw_window_destroy(rank.window), TW_ERR_PEER_LOST);
}

class WindowEnd : public testing::TestWithParam<const char*> {};

/// The peer dies when the end is under way and has looked for losses: what the exchange waits for never comes.
TEST_P(WindowEnd, NoticesAPeerThatIsKilledMeanwhile) {
  const StoreFile store;
  Child child("window victim", environment(1, 2, "host", store.address(), GetParam()));
  OwnExchange exchange;
  Rank rank(0, 2, "host", store.address(), GetParam(), &exchange);
  ASSERT_EQ(child.receive(), "in");
  exchange.before = [&] { child.kill(); };
  const uint64_t before = now_ns();
  EXPECT_EQ(tw_window_destroy(rank.window), TW_ERR_PEER_LOST);
  EXPECT_LT(now_ns() - before, kLimit) << "the store's time limit ended it";
  EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
}

INSTANTIATE_TEST_SUITE_P(Over, WindowEnd, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

class WindowOfTheDead : public testing::TestWithParam<const char*> {};

TEST_P(WindowOfTheDead, EndsWaitsWithoutProgressAndStaysMapped) {
  const StoreFile store;
  Child child("window victim", environment(1, 2, GetParam(), store.address()));
  Rank rank(0, 2, GetParam(), store.address());
  tw_device_window bound{};
  ASSERT_EQ(tw_window_bind(rank.window, rank.executor().c_str(), &bound), TW_OK) << tw_last_error();
  ASSERT_EQ(child.receive(), "in");
  char* bases[2];
  rank.copy(bases, bound.bases, sizeof bases);
  const std::string bytes = random_bytes(kPart);
  rank.copy(bases[1] + 5, bytes.data(), kPart);
  // A twin that waits for the victim's word; this thread makes no call of the library.
  child.kill();
  const uint64_t limit = now_ns() + kLimit;
  uint64_t abort = 0;
  while (abort == 0 && now_ns() < limit) abort = __atomic_load_n(bound.guard.abort, __ATOMIC_ACQUIRE);
  EXPECT_EQ(abort, static_cast<uint64_t>(int64_t{TW_ERR_PEER_LOST}));
  EXPECT_EQ(tw_window_check(rank.window), TW_ERR_PEER_LOST);
  EXPECT_NE(std::string(tw_last_error()).find("rank 1"), std::string::npos) << tw_last_error();
  progress_until(rank.side.worker, [&] { return tw_endpoint_state(rank.endpoints[1]) < 0; });
  for (int i = 0; i < 1000; ++i) tw_worker_progress(rank.side.worker);
  // What a late kernel still touches is there.
  std::string found(kPart, '\0');
  rank.copy(found.data(), bases[1] + 5, kPart);
  EXPECT_TRUE(found == bytes);
  EXPECT_EQ(tw_window_bind(rank.window, rank.executor().c_str(), &bound), TW_ERR_PEER_LOST);
  EXPECT_EQ(tw_window_destroy(rank.window), TW_ERR_PEER_LOST);
}

INSTANTIATE_TEST_SUITE_P(Of, WindowOfTheDead, testing::Values("host", "emulated:1"),
                         [](const auto& info) { return std::string(info.param).substr(0, 4); });

}  // namespace
