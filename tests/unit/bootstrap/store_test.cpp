// SPDX-License-Identifier: Apache-2.0
// The store as its users see it: the same cases over a file and over TCP, with threads and with processes; and strangers at
// the server.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thalweg/thalweg.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "../../fixtures/listening.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/sockets.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/store_server.hpp"
#include "bootstrap/store_wire.hpp"
#include "security/handshake.hpp"
#include "security/handshake_wire.hpp"

namespace thalweg::impl {
namespace {

constexpr char kSecret[] = "a secret for the store's tests";

tw_store_options options_of(uint32_t rank, uint32_t count, uint64_t timeout_ns = 30 * kSecond) {
  tw_store_options options = TW_STORE_OPTIONS_INIT;
  options.job_key = kSecret;
  options.job_key_length = sizeof kSecret;
  options.timeout_ns = timeout_ns;
  options.rank = rank;
  options.count = count;
  return options;
}

std::vector<std::byte> random_data(size_t n) {
  std::vector<std::byte> bytes(n);
  EXPECT_EQ(random_bytes(bytes.data(), n), TW_OK);
  return bytes;
}

struct OpenStore {
  tw_store* store = nullptr;
  Status status;
  OpenStore(const std::string& address, const tw_store_options& options) {
    status = tw_store_open(address.c_str(), &options, &store);
  }
  ~OpenStore() { tw_store_close(store); }
};

/// A place where a store is; for TCP the server lives as long as this.
class StorePlace : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      const tw_store_options options = options_of(0, 1);
      ASSERT_EQ(tw_store_open("serve:127.0.0.1:0", &options, &server_), TW_OK) << last_error();
      address_ = tw_store_address(server_);
      EXPECT_EQ(address_.rfind("tcp:127.0.0.1:", 0), 0u);
    } else {
      std::string pattern = (std::filesystem::temp_directory_path() / "thalweg_store_XXXXXX").string();
      ASSERT_NE(mkdtemp(pattern.data()), nullptr);
      folder_ = pattern;
      address_ = "file:" + folder_ + "/store";
    }
  }
  void TearDown() override {
    tw_store_close(server_);
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::string address_, folder_;
  tw_store* server_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Kind, StorePlace, ::testing::Bool(), [](const auto& info) { return info.param ? "Tcp" : "File"; });

TEST_P(StorePlace, PutGetOfManySizesAndTheLastPutWins) {
  OpenStore a(address_, options_of(0, 1));
  OpenStore b(address_, options_of(0, 1));
  ASSERT_EQ(a.status, TW_OK) << last_error();
  ASSERT_EQ(b.status, TW_OK) << last_error();
  for (const size_t size : {size_t(0), size_t(1), size_t(13), size_t(4097), size_t(1) << 20}) {
    const auto value = random_data(size);
    ASSERT_EQ(tw_store_put(a.store, "key", value.data(), size), TW_OK) << last_error();
    std::vector<std::byte> got(size + 8, std::byte{0x5a});
    size_t length = size + 8;
    ASSERT_EQ(tw_store_get(b.store, "key", got.data(), &length), TW_OK) << last_error();
    EXPECT_EQ(length, size);
    EXPECT_TRUE(size == 0 || std::memcmp(got.data(), value.data(), size) == 0);
    for (size_t i = size; i < got.size(); ++i) EXPECT_EQ(got[i], std::byte{0x5a});
  }
}

TEST_P(StorePlace, MistakesAreNamed) {
  OpenStore a(address_, options_of(0, 1, 100 * kMillisecond));
  size_t length = 0;
  EXPECT_EQ(tw_store_get(a.store, "nothing", nullptr, &length), TW_ERR_NO_MATCH);
  EXPECT_EQ(tw_store_put(a.store, "seven", "1234567", 7), TW_OK);
  EXPECT_EQ(tw_store_get(a.store, "seven", nullptr, &length), TW_ERR_TRUNCATED);
  EXPECT_EQ(length, 7u);
  char small[4] = {'a', 'b', 'c', 'd'};
  length = 3;
  EXPECT_EQ(tw_store_get(a.store, "seven", small, &length), TW_ERR_TRUNCATED);
  EXPECT_EQ(small[3], 'd');
  EXPECT_EQ(tw_store_put(a.store, "", "x", 1), TW_ERR_INVALID);
  EXPECT_EQ(tw_store_put(a.store, std::string(600, 'k').c_str(), "x", 1), TW_ERR_INVALID);
  EXPECT_EQ(tw_store_put(a.store, "big", small, (1u << 20) + 1), TW_ERR_LIMIT);
  EXPECT_EQ(tw_store_put(nullptr, "x", "x", 1), TW_ERR_HANDLE);
  EXPECT_EQ(tw_store_get(a.store, nullptr, nullptr, &length), TW_ERR_INVALID);
  EXPECT_EQ(tw_store_wait(a.store, "never put", nullptr, &length), TW_ERR_TIMED_OUT);
  EXPECT_NE(std::string(last_error()).find("never put"), std::string::npos);
  EXPECT_EQ(tw_store_put(a.store, "still", "alive", 5), TW_OK);
}

/// A variable of the environment for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

tw_store_options options_without_place(uint64_t timeout_ns) {
  return options_of(TW_STORE_ENVIRONMENT, TW_STORE_ENVIRONMENT, timeout_ns);
}

TEST_P(StorePlace, RankAndCountComeFromTheEnvironmentUnlessGiven) {
  const Variable size("THALWEG_SIZE", "2");
  const Variable rank("THALWEG_RANK", "1");
  const tw_store_options defaults = TW_STORE_OPTIONS_INIT;
  EXPECT_EQ(defaults.rank, TW_STORE_ENVIRONMENT);
  EXPECT_EQ(defaults.count, TW_STORE_ENVIRONMENT);
  OpenStore one(address_, options_without_place(30 * kSecond));
  ASSERT_EQ(one.status, TW_OK) << last_error();
  EXPECT_EQ(tw_store_rank(one.store), 1u);
  EXPECT_EQ(tw_store_count(one.store), 2u);
  OpenStore zero(address_, options_of(0, TW_STORE_ENVIRONMENT));
  ASSERT_EQ(zero.status, TW_OK) << last_error();
  EXPECT_EQ(tw_store_rank(zero.store), 0u);
  const uint32_t mine[2] = {7, 8};
  uint32_t of_zero[2] = {}, of_one[2] = {};
  std::thread other(
      [&] { EXPECT_EQ(tw_store_exchange(zero.store, &mine[0], sizeof mine[0], of_zero), TW_OK) << last_error(); });
  EXPECT_EQ(tw_store_exchange(one.store, &mine[1], sizeof mine[1], of_one), TW_OK) << last_error();
  other.join();
  for (const uint32_t* all : {of_zero, of_one}) {
    EXPECT_EQ(all[0], 7u);
    EXPECT_EQ(all[1], 8u);
  }
  // No other process calls it: a barrier of a single process would return.
  OpenStore alone(address_, options_without_place(50 * kMillisecond));
  EXPECT_EQ(tw_store_barrier(alone.store), TW_ERR_TIMED_OUT);
}

TEST_P(StorePlace, WithoutAnEnvironmentOneProcessIsAlone) {
  const Variable size("THALWEG_SIZE", nullptr);
  const Variable rank("THALWEG_RANK", nullptr);
  OpenStore alone(address_, options_without_place(kSecond));
  ASSERT_EQ(alone.status, TW_OK) << last_error();
  EXPECT_EQ(tw_store_rank(alone.store), 0u);
  EXPECT_EQ(tw_store_count(alone.store), 1u);
  EXPECT_EQ(tw_store_barrier(alone.store), TW_OK) << last_error();
}

TEST_P(StorePlace, PlacesThatMakeNoSenseAreRefused) {
  const auto refused = [&](const tw_store_options& options, const char* said) {
    OpenStore opened(address_, options);
    EXPECT_EQ(opened.status, TW_ERR_INVALID) << options.rank << " of " << options.count;
    EXPECT_NE(std::string(last_error()).find(said), std::string::npos) << last_error();
  };
  refused(options_of(0, 0), "0 processes");
  refused(options_of(2, 2), "rank 2 of 2");
  for (const char* text : {"zero", "-1", "1x", "4294967295", "99999999999"}) {
    const Variable rank("THALWEG_RANK", text);
    refused(options_without_place(kSecond), "THALWEG_RANK");
  }
  const Variable size("THALWEG_SIZE", "0");
  refused(options_without_place(kSecond), "0 processes");
}

TEST_P(StorePlace, WaitIsWokenByALaterPutThroughTheSameStore) {
  OpenStore a(address_, options_of(0, 1));
  const auto value = random_data(99);
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    std::vector<std::byte> got(99);
    size_t length = 99;
    waiting = true;
    EXPECT_EQ(tw_store_wait(a.store, "later", got.data(), &length), TW_OK) << last_error();
    EXPECT_EQ(got, value);
  });
  while (!waiting) std::this_thread::yield();
  EXPECT_EQ(tw_store_put(a.store, "later", value.data(), value.size()), TW_OK);
  waiter.join();
}

void exchange_rounds(const std::string& address, uint32_t rank, uint32_t count, int* failures) {
  OpenStore mine(address, options_of(rank, count));
  if (mine.status != TW_OK) {
    ++*failures;
    return;
  }
  for (uint64_t round = 0; round < 20; ++round) {
    const size_t words = 1 + round * 7;
    std::vector<uint64_t> sent(words, (round << 32) | rank);
    std::vector<uint64_t> got(words * count, ~0ull);
    if (tw_store_exchange(mine.store, sent.data(), words * 8, got.data()) != TW_OK) ++*failures;
    for (uint32_t r = 0; r < count; ++r) {
      for (size_t i = 0; i < words; ++i) *failures += got[r * words + i] != ((round << 32) | r);
    }
    if (tw_store_barrier(mine.store) != TW_OK) ++*failures;
  }
}

TEST_P(StorePlace, EightThreadsExchange) {
  std::vector<std::thread> threads;
  int failures[8] = {};
  for (uint32_t rank = 0; rank < 8; ++rank) {
    threads.emplace_back([&, rank] { exchange_rounds(address_, rank, 8, &failures[rank]); });
  }
  for (auto& thread : threads) thread.join();
  for (const int f : failures) EXPECT_EQ(f, 0);
}

/// Children that were forked before the server's thread began: one of a fork beside it may inherit a lock of OpenSSL's, or
/// of a sanitizer's allocator, that no thread will open.
class StoreOfProcesses : public StorePlace {
 protected:
  static constexpr uint32_t kCount = 8;
  void SetUp() override {
    for (uint32_t rank = 0; rank < kCount; ++rank) {
      int ends[2];
      ASSERT_EQ(pipe(ends), 0);
      const pid_t child = fork();
      if (child == 0) run(rank, ends);
      close(ends[0]);
      children_.push_back({child, UniqueFd(ends[1])});
    }
    StorePlace::SetUp();
  }
  /// Tells all of them where the store is. True: every one has ended without a failure.
  bool exchanged() {
    for (const Child& child : children_) {
      const auto length = static_cast<ssize_t>(address_.size());
      EXPECT_EQ(write(child.pipe.get(), address_.data(), address_.size()), length);
    }
    bool well = true;
    for (Child& child : children_) {
      child.pipe.reset();
      int status = -1;
      EXPECT_EQ(waitpid(child.pid, &status, 0), child.pid);
      well = well && status == 0;
    }
    return well;
  }

 private:
  struct Child {
    pid_t pid;
    UniqueFd pipe;
  };
  [[noreturn]] static void run(uint32_t rank, const int ends[2]) {
    close(ends[1]);
    char address[256];
    const ssize_t length = read(ends[0], address, sizeof address);
    if (length <= 0) _exit(2);
    int failures = 0;
    for (int opening = 0; opening < 2; ++opening)  // the second one does not read what the first one left
      exchange_rounds(std::string(address, static_cast<size_t>(length)), rank, kCount, &failures);
    _exit(failures == 0 ? 0 : 1);
  }
  std::vector<Child> children_;
};
INSTANTIATE_TEST_SUITE_P(Kind, StoreOfProcesses, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Tcp" : "File"; });

TEST_P(StoreOfProcesses, EightExchangeTwice) { EXPECT_TRUE(exchanged()); }

TEST_P(StorePlace, MissingRanksAreNamed) {
  OpenStore one(address_, options_of(1, 4, 2 * kSecond));
  std::thread other([&] {
    OpenStore three(address_, options_of(3, 4, 2 * kSecond));
    EXPECT_EQ(tw_store_barrier(three.store), TW_ERR_TIMED_OUT);
  });
  Status status = tw_store_barrier(one.store);
  EXPECT_EQ(status, TW_ERR_TIMED_OUT);
  const std::string text = last_error();
  EXPECT_NE(text.find("0, 2"), std::string::npos) << text;
  other.join();
}

/// Rank 1 was not there once: the ranks count their starts apart from then on, and are told so.
TEST_P(StorePlace, AStartInWhichNotAllCameIsNamed) {
  {
    OpenStore alone(address_, options_of(0, 2, 100 * kMillisecond));
    EXPECT_EQ(tw_store_barrier(alone.store), TW_ERR_TIMED_OUT);
  }
  OpenStore zero(address_, options_of(0, 2, kSecond));
  std::thread other([&] {
    OpenStore one(address_, options_of(1, 2, kSecond));
    EXPECT_EQ(tw_store_barrier(one.store), TW_ERR_TIMED_OUT);
    const std::string text = last_error();
    EXPECT_NE(text.find("rank 0 has opened this store more times (2) than rank 1 (1)"), std::string::npos) << text;
  });
  EXPECT_EQ(tw_store_barrier(zero.store), TW_ERR_TIMED_OUT);
  const std::string text = last_error();
  EXPECT_NE(text.find("rank 1 has opened this store fewer times (1) than rank 0 (2)"), std::string::npos) << text;
  EXPECT_NE(text.find("use a fresh path"), std::string::npos) << text;
  other.join();
}

/// Keeps what is put, until it answers nothing any more: then each question takes its time.
class FallingSilent : public Store {
 public:
  explicit FallingSilent(const StoreOptions& options) : Store(options) {}
  uint32_t asked = 0;  // in vain

 protected:
  Status do_put(const std::string&, const void*, size_t) override { return TW_OK; }
  Status do_get(const std::string& key, Bytes*) override {
    if (key.find("epoch") != std::string::npos) return TW_ERR_NO_MATCH;
    return silence();
  }
  Status do_wait(const std::string&, const Deadline& deadline, Bytes*) override {
    EXPECT_LE(deadline.left_ns(), options_.timeout_ns);
    return silence();
  }
  Status do_erase(const std::string&) override { return silence(); }

 private:
  Status silence() {
    ++asked;
    return fail(TW_ERR_TIMED_OUT, "no answer");
  }
};

TEST(Store, OneThatDoesNotAnswerIsNotAskedForEachRank) {
  for (const uint32_t rank : {0u, 5u}) {
    StoreOptions options;
    options.rank = rank;
    options.count = 500;
    FallingSilent store(options);
    EXPECT_EQ(store.barrier(), TW_ERR_TIMED_OUT);
    EXPECT_LE(store.asked, 2u) << "one for the barrier, one for who is missing";
    EXPECT_NE(std::string(last_error()).find("does not answer"), std::string::npos) << last_error();
  }
}

/// Rank 0 puts them together only where one value has room for all.
TEST_P(StorePlace, ValuesThatAreTooLongTogetherAreReadOneByOne) {
  constexpr size_t kLength = 600u << 10;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      OpenStore mine(address_, options_of(rank, 3));
      for (int round = 0; round < 2; ++round) {
        std::vector<char> sent(kLength, static_cast<char>(10 * round + rank)), got(3 * kLength);
        EXPECT_EQ(tw_store_exchange(mine.store, sent.data(), kLength, got.data()), TW_OK) << last_error();
        for (uint32_t i = 0; i < 3; ++i) {
          EXPECT_EQ(got[i * kLength], 10 * round + static_cast<int>(i));
          EXPECT_EQ(got[(i + 1) * kLength - 1], 10 * round + static_cast<int>(i));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_P(StorePlace, DifferentLengthsAreRefused) {
  OpenStore zero(address_, options_of(0, 2));
  std::thread other([&] {
    OpenStore one(address_, options_of(1, 2));
    char got[10];
    EXPECT_EQ(tw_store_exchange(one.store, "12345", 5, got), TW_ERR_INVALID);
  });
  char got[8];
  EXPECT_EQ(tw_store_exchange(zero.store, "1234", 4, got), TW_ERR_INVALID);
  other.join();
}

TEST_P(StorePlace, ForkedChildIsToldSo) {
  OpenStore a(address_, options_of(0, 1));
  ASSERT_EQ(tw_store_put(a.store, "x", "1", 1), TW_OK);
  const pid_t child = fork();
  if (child == 0) {
    const bool told = tw_store_put(a.store, "x", "2", 1) == TW_ERR_FORKED && tw_store_barrier(a.store) == TW_ERR_FORKED;
    tw_store_close(a.store);
    tw_store_close(server_);
    _exit(told ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  char got = 0;
  size_t length = 1;
  EXPECT_EQ(tw_store_get(a.store, "x", &got, &length), TW_OK) << last_error();
  EXPECT_EQ(got, '1');
}

TEST(FileStore, WriterKilledHalfWayLeavesNothing) {
  std::string pattern = (std::filesystem::temp_directory_path() / "thalweg_store_XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::string path = pattern + "/store";
  {
    OpenStore a("file:" + path, options_of(0, 1));
    ASSERT_EQ(tw_store_put(a.store, "one", "1", 1), TW_OK);
    const UniqueFd raw(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    ASSERT_EQ(write(raw.get(), "\x03\0\0\0half a record", 17), 17);  // behind `end`: does not count
    OpenStore b("file:" + path, options_of(0, 1));
    char got = 0;
    size_t length = 1;
    EXPECT_EQ(tw_store_get(b.store, "one", &got, &length), TW_OK) << last_error();
    ASSERT_EQ(tw_store_put(b.store, "two", "2", 1), TW_OK);
    EXPECT_EQ(tw_store_get(a.store, "two", &got, &length), TW_OK) << last_error();
    EXPECT_EQ(got, '2');
  }
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  OpenStore open_to_all("file:" + path, options_of(0, 1));
  EXPECT_EQ(open_to_all.status, TW_ERR_PERMISSION);
  std::filesystem::remove_all(pattern);
}

/// A process that keeps a file locked.
class Keeper {
 public:
  explicit Keeper(const std::string& path) {
    int ready[2], over[2];
    EXPECT_EQ(pipe(ready), 0);
    EXPECT_EQ(pipe(over), 0);
    process_ = fork();
    if (process_ == 0) {
      alarm(30);
      close(over[1]);
      const int fd = open(path.c_str(), O_RDONLY);
      char byte = flock(fd, LOCK_EX) == 0 ? 'y' : 'n';
      (void)!write(ready[1], &byte, 1);
      (void)!read(over[0], &byte, 1);
      _exit(0);
    }
    over_ = UniqueFd(over[1]);
    close(over[0]);
    close(ready[1]);
    char byte = 0;
    keeps = read(ready[0], &byte, 1) == 1 && byte == 'y';
    close(ready[0]);
  }
  ~Keeper() {
    over_.reset();
    waitpid(process_, nullptr, 0);
  }
  bool keeps = false;

 private:
  pid_t process_ = -1;
  UniqueFd over_;
};

/// Whoever may read the file may lock it, and keep that for as long as he likes.
TEST(FileStore, ALockThatIsKeptEndsNoLaterThanTheTime) {
  const std::string path = (std::filesystem::temp_directory_path() / ("thalweg_locked_" + std::to_string(getpid()))).string();
  OpenStore store("file:" + path, options_of(0, 1, 300 * kMillisecond));
  ASSERT_EQ(store.status, TW_OK) << last_error();
  ASSERT_EQ(tw_store_put(store.store, "key", "value", 5), TW_OK) << last_error();
  auto keeper = std::make_unique<Keeper>(path);
  ASSERT_TRUE(keeper->keeps);
  char value[8];
  size_t length = sizeof value;
  const uint64_t begin = monotonic_ns();
  EXPECT_EQ(tw_store_wait(store.store, "key", value, &length), TW_ERR_TIMED_OUT);
  EXPECT_NE(std::string(last_error()).find("locked"), std::string::npos) << last_error();
  EXPECT_EQ(tw_store_put(store.store, "key", "other", 5), TW_ERR_TIMED_OUT);
  OpenStore late("file:" + path, options_of(0, 1, 300 * kMillisecond));
  EXPECT_EQ(late.status, TW_ERR_TIMED_OUT);
  EXPECT_LT(monotonic_ns() - begin, 20 * kSecond);
  keeper.reset();
  EXPECT_EQ(tw_store_wait(store.store, "key", value, &length), TW_OK) << last_error();
  std::filesystem::remove(path);
}

/// Threads that wait at once do not wait one behind the other, each for the whole time.
TEST(FileStore, ALockThatIsKeptHoldsThreadsUpTogether) {
  constexpr size_t kThreads = 24;
  constexpr uint64_t kTime = 500 * kMillisecond;
  const std::string path = (std::filesystem::temp_directory_path() / ("thalweg_together_" + std::to_string(getpid()))).string();
  OpenStore store("file:" + path, options_of(0, 1, kTime));
  ASSERT_EQ(store.status, TW_OK) << last_error();
  {
    const Keeper keeper(path);
    ASSERT_TRUE(keeper.keeps);
    const uint64_t begin = monotonic_ns();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        char value[8];
        size_t length = sizeof value;
        const Status status =
            i % 2 == 0 ? tw_store_put(store.store, "key", "other", 5) : tw_store_get(store.store, "key", value, &length);
        EXPECT_EQ(status, TW_ERR_TIMED_OUT);
        EXPECT_NE(std::string(last_error()).find("locked"), std::string::npos) << last_error();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LT(monotonic_ns() - begin, kThreads / 3 * kTime);
  }
  EXPECT_EQ(tw_store_put(store.store, "key", "value", 5), TW_OK) << last_error();
  std::filesystem::remove(path);
}

TEST(Store, BadAddresses) {
  for (const char* address :
       {"", "nonsense", "tcp:nohost", "tcp:127.0.0.1:0", "serve:1.2.3.4", "file:/no/such/folder/at/all"}) {
    OpenStore a(address, options_of(0, 1, 200 * kMillisecond));
    EXPECT_TRUE(is_error(a.status)) << address;
    EXPECT_EQ(a.store, nullptr);
  }
  OpenStore nobody("tcp:127.0.0.1:1", options_of(0, 1, 200 * kMillisecond));
  EXPECT_EQ(nobody.status, TW_ERR_TIMED_OUT);
  EXPECT_NE(std::string(last_error()).find("127.0.0.1:1"), std::string::npos) << last_error();
  OpenStore absurd("tcp:127.0.0.1:1", options_of(4, 4));
  EXPECT_EQ(absurd.status, TW_ERR_INVALID);
}

// --- strangers at the server

class StoreStrangers : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(JobKey::load(kSecret, sizeof kSecret, nullptr, &key_), TW_OK);
    options_.handshake_timeout_ns = 300 * kMillisecond;
    options_.max_strangers = 20;
    options_.linger_ns = 50 * kMillisecond;
    ASSERT_EQ(StoreServer::start({.host = "127.0.0.1"}, key_, options_, &server_), TW_OK) << last_error();
    address_ = "tcp:127.0.0.1:" + std::to_string(server_->port());
  }
  UniqueFd connect_raw(bool surely = true) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(server_->port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int failed = connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to);
    EXPECT_TRUE(failed == 0 || !surely) << errno;
    return fd;
  }
  bool reaches(Refusal cause, uint64_t count) {
    const Deadline deadline(10 * kSecond);
    while (server_->refusals().value(cause) < count && !deadline.passed()) std::this_thread::yield();
    return server_->refusals().value(cause) == count;
  }
  void expect_service() {
    OpenStore a(address_, options_of(0, 1));
    ASSERT_EQ(a.status, TW_OK) << last_error();
    EXPECT_EQ(tw_store_put(a.store, "still", "here", 4), TW_OK) << last_error();
  }
  JobKey key_;
  StoreServerOptions options_;
  std::unique_ptr<StoreServer> server_;
  std::string address_;
};

TEST_F(StoreStrangers, WrongKeyIsNamedAtOnce) {
  tw_store_options options = options_of(0, 1);
  options.job_key = "quite another secret";
  options.job_key_length = 20;
  const uint64_t start = monotonic_ns();
  OpenStore a(address_, options);
  EXPECT_EQ(a.status, TW_ERR_AUTHENTICATION);
  EXPECT_LT(monotonic_ns() - start, 10 * kSecond);
  EXPECT_TRUE(reaches(Refusal::authentication, 1));
  expect_service();
}

TEST_F(StoreStrangers, ScannersNoiseAndSilenceAreCountedAndOthersServed) {
  for (int i = 0; i < 5; ++i) connect_raw();
  EXPECT_TRUE(reaches(Refusal::closed, 5));
  for (int i = 0; i < 5; ++i) {
    const UniqueFd noisy = connect_raw();
    const auto noise = random_data(300);
    EXPECT_EQ(send(noisy.get(), "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL), 16);
    send(noisy.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(reaches(Refusal::malformed, uint64_t(i) + 1));
  }
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(connect_raw());
  expect_service();
  EXPECT_TRUE(reaches(Refusal::timeout, 5));
  char byte;
  EXPECT_EQ(recv(silent[0].get(), &byte, 1, 0), 0);  // closed by the server
}

/// Only a lack of descriptors is helped by more of them.
TEST_F(StoreStrangers, ThatNobodyCanBeAcceptedIsToldWithItsOwnReason) {
  ASSERT_EQ(shutdown(listening_at(server_->port()), SHUT_RD), 0);  // accept4: EINVAL
  const Deadline deadline(10 * kSecond);
  while (warnings_so_far().find("cannot accept") == std::string::npos && !deadline.passed()) std::this_thread::yield();
  const std::string warnings = warnings_so_far();
  EXPECT_NE(warnings.find("the store cannot accept a client: accept4: Invalid argument\n"), std::string::npos) << warnings;
}

TEST_F(StoreStrangers, ALongFirstMessageOfTlsIsRefusedWhenItIsAnnounced) {
  const unsigned char announced[] = {0x16, 3, 1, 0x40, 0, 1, 0x01, 0x86, 0xa0};  // 100,000 bytes
  for (uint64_t i = 0; i < 5; ++i) {
    const UniqueFd stranger = connect_raw();
    ASSERT_EQ(send(stranger.get(), announced, sizeof announced, MSG_NOSIGNAL), ssize_t(sizeof announced));
    EXPECT_TRUE(reaches(Refusal::malformed, i + 1));
  }
  EXPECT_EQ(server_->refusals().value(Refusal::timeout), 0u);
  expect_service();
}

TEST(StoreServers, SmallValuesCostWhatKeepingThemCosts) {
  JobKey key;
  ASSERT_EQ(JobKey::load(kSecret, sizeof kSecret, nullptr, &key), TW_OK);
  StoreServerOptions limited;
  limited.max_bytes = 64 << 10;
  limited.linger_ns = 50 * kMillisecond;
  std::unique_ptr<StoreServer> server;
  ASSERT_EQ(StoreServer::start({.host = "127.0.0.1"}, key, limited, &server), TW_OK) << last_error();
  OpenStore store("tcp:127.0.0.1:" + std::to_string(server->port()), options_of(0, 1));
  ASSERT_EQ(store.status, TW_OK) << last_error();
  Status status = TW_OK;
  int kept = 0;
  for (; kept < 2000 && status == TW_OK; ++kept) status = tw_store_put(store.store, std::to_string(1000 + kept).c_str(), "", 0);
  EXPECT_EQ(status, TW_ERR_LIMIT);
  EXPECT_GT(kept, 400);
  EXPECT_EQ(tw_store_put(store.store, "1000", "", 0), TW_OK) << "one that is there costs no more: " << last_error();
}

TEST_F(StoreStrangers, SilenceKeepsNobodyFromLeaving) {
  const UniqueFd silent = connect_raw();
  OpenStore known(address_, options_of(0, 1));  // behind it: it was accepted
  ASSERT_EQ(known.status, TW_OK) << last_error();
  tw_store_close(std::exchange(known.store, nullptr));
  const uint64_t start = monotonic_ns();
  EXPECT_TRUE(server_->drain(250 * kMillisecond));  // less than a handshake may take
  EXPECT_LT(monotonic_ns() - start, 250 * kMillisecond);
}

TEST_F(StoreStrangers, AFloodOfSilenceIsOverloadAndPasses) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(connect_raw());
  EXPECT_TRUE(reaches(Refusal::overload, 10));
  EXPECT_TRUE(reaches(Refusal::timeout, 20));
  expect_service();
}

/// All places are taken for longer than a client waits: the oldest goes, not the newest.
TEST_F(StoreStrangers, AClientGetsThroughWhileAllPlacesAreTaken) {
  options_.handshake_timeout_ns = 600 * kSecond;
  ASSERT_EQ(StoreServer::start({.host = "127.0.0.1"}, key_, options_, &server_), TW_OK) << last_error();
  address_ = "tcp:127.0.0.1:" + std::to_string(server_->port());
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(connect_raw());
  EXPECT_TRUE(reaches(Refusal::overload, 10));
  expect_service();
}

TEST_F(StoreStrangers, AClientGetsThroughASustainedFlood) {
  std::atomic<bool> stop{false};
  std::thread flooding([&] {
    std::vector<UniqueFd> open(100);
    for (size_t i = 0; !stop; ++i) open[i % open.size()] = connect_raw(false);
  });
  for (int i = 0; i < 5; ++i) expect_service();
  stop = true;
  flooding.join();
}

/// Without a host in its address the store is where THALWEG_INTERFACES allows it, and nowhere else.
TEST(StoreInterfaces, AreObeyed) {
  ASSERT_EQ(setenv("THALWEG_INTERFACES", "127.0.0.1", 1), 0);
  {
    OpenStore server("serve::0", options_of(0, 1)), elsewhere("serve:127.0.0.2:0", options_of(0, 1));
    EXPECT_EQ(elsewhere.status, TW_ERR_INVALID);
    ASSERT_EQ(server.status, TW_OK) << last_error();
    const std::string address = tw_store_address(server.store), prefix = "tcp:127.0.0.1:";
    ASSERT_EQ(address.rfind(prefix, 0), 0u) << address;
    OpenStore client(address, options_of(0, 1)),
        misled("tcp:127.0.0.2:" + address.substr(prefix.size()), options_of(0, 1, kSecond / 5));
    EXPECT_EQ(client.status, TW_OK) << last_error();
    EXPECT_EQ(misled.status, TW_ERR_TIMED_OUT);
  }
  unsetenv("THALWEG_INTERFACES");
}

struct RawClient {
  std::unique_ptr<SetupChannel> channel;
  Status status = TW_OK;
  RawClient(UniqueFd fd, const JobKey& key, const DialTarget& target, bool tls = false) {
    Handshake handshake(key, 0, tls, target);
    for (auto want = handshake.advance(fd.get()); want != Handshake::Want::done; want = handshake.advance(fd.get())) {
      status = handshake.status();
      if (want == Handshake::Want::failed) return;
      pollfd one{fd.get(), POLLIN, 0};
      poll(&one, 1, 1000);
    }
    status = TW_OK;
    SSL* const ssl = handshake.take_tls();
    channel = std::make_unique<SetupChannel>(std::move(fd), ssl, handshake.session(), store_wire::kMaxMessage + 10);
  }
  bool closed() const {
    char byte;
    return recv(channel->fd(), &byte, 1, 0) <= 0;
  }
};

DialTarget dialled(int fd) { return DialTarget::dialled(Purpose::store, fd, internet_address({"\x7f\0\0\1", 4}, 1)); }

TEST_F(StoreStrangers, AuthenticatedClientWithBadMessagesLosesItsConnectionOnly) {
  struct Bad {
    uint16_t type;
    uint32_t key_length;
    size_t rest;
  };
  uint64_t refused = 0;
  const size_t large = Store::kMaxValue + 1;
  for (const Bad& bad : {Bad{1, 0, 0}, Bad{2, 513, 513}, Bad{2, 1, 2}, Bad{1, 1, 1 + large}, Bad{99, 1, 1}, Bad{5, 1, 1},
                         Bad{1, 2, 1}, Bad{1, UINT32_MAX, 3}}) {
    UniqueFd fd = connect_raw();
    const DialTarget target = dialled(fd.get());
    RawClient client(std::move(fd), key_, target);
    ASSERT_EQ(client.status, TW_OK) << last_error();
    std::vector<std::byte> bytes(sizeof bad.key_length + bad.rest);
    std::memcpy(bytes.data(), &bad.key_length, sizeof bad.key_length);
    ASSERT_EQ(client.channel->queue(bad.type, bytes.data(), bytes.size()), TW_OK) << last_error();
    Status status;
    while ((status = client.channel->flush()) == TW_IN_PROGRESS) std::this_thread::yield();
    EXPECT_TRUE(reaches(Refusal::malformed, ++refused)) << bad.type << " " << bad.key_length;
    EXPECT_TRUE(client.closed());
  }
  expect_service();
}

TEST_F(StoreStrangers, AMessageChangedOnItsWayEndsItsConnectionAndIsCounted) {
  UniqueFd fd = connect_raw();
  const DialTarget target = dialled(fd.get());
  RawClient client(std::move(fd), key_, target);
  ASSERT_EQ(client.status, TW_OK) << last_error();
  Session session = client.channel->session();
  const uint32_t key_length = 1;
  std::vector<std::byte> request(sizeof key_length + 1);
  std::memcpy(request.data(), &key_length, sizeof key_length);
  const handshake_wire::SetupHeader header{uint32_t(request.size()), 2, 0, session.sent};
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.insert(bytes.end(), request.begin(), request.end());
  const std::span<const std::byte> text(bytes);
  const Session::Key mac = authenticate(session.send, {&text, 1});
  bytes.back() ^= std::byte{1};
  bytes.insert(bytes.end(), mac.begin(), mac.end());
  ASSERT_EQ(send(client.channel->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  EXPECT_TRUE(reaches(Refusal::integrity, 1));
  EXPECT_TRUE(client.closed());
  expect_service();
}

TEST_F(StoreStrangers, AClientThatMeansAnotherIsRefused) {
  UniqueFd fd = connect_raw();
  DialTarget other = dialled(fd.get());
  other.purpose = Purpose::listener;
  EXPECT_EQ(RawClient(std::move(fd), key_, other).status, TW_ERR_AUTHENTICATION);
  EXPECT_TRUE(reaches(Refusal::target, 1));
  const DialTarget elsewhere = DialTarget::at(Purpose::store, internet_address({"\xc0\0\2\1", 4}, server_->port()));
  EXPECT_EQ(RawClient(connect_raw(), key_, elsewhere).status, TW_ERR_AUTHENTICATION);
  EXPECT_TRUE(reaches(Refusal::target, 2));
  expect_service();
}

TEST_F(StoreStrangers, WhereThePortIsForwardedTheOtherNameIsToldToTheServer) {
  setenv("THALWEG_KNOWN_AS", "192.0.2.1:5000", 1);
  server_.reset();
  const Status status = StoreServer::start({.host = "127.0.0.1"}, key_, options_, &server_);
  unsetenv("THALWEG_KNOWN_AS");
  ASSERT_EQ(status, TW_OK) << last_error();
  const DialTarget elsewhere = DialTarget::at(Purpose::store, internet_address({"\xc0\0\2\1", 4}, 5000));
  EXPECT_EQ(RawClient(connect_raw(), key_, elsewhere).status, TW_OK) << last_error();
}

TEST_F(StoreStrangers, TlsIsTakenAndWhereItIsDemandedNothingElse) {
  UniqueFd fd = connect_raw();
  DialTarget target = dialled(fd.get());
  EXPECT_EQ(RawClient(std::move(fd), key_, target, true).status, TW_OK) << last_error();
  server_.reset();
  options_.tls = true;
  ASSERT_EQ(StoreServer::start({.host = "127.0.0.1"}, key_, options_, &server_), TW_OK) << last_error();
  fd = connect_raw();
  target = dialled(fd.get());
  EXPECT_TRUE(is_error(RawClient(std::move(fd), key_, target).status));
  EXPECT_TRUE(reaches(Refusal::authentication, 1));
}

/// Sends a request and does not wait for the answer.
void ask(SetupChannel& channel, store_wire::Op op, const std::string& key, std::span<const std::byte> value = {}) {
  const store_wire::RequestHead head{uint32_t(key.size())};
  std::vector<std::byte> bytes(sizeof head + key.size() + value.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, key.data(), key.size());
  std::copy(value.begin(), value.end(), bytes.begin() + std::ptrdiff_t(sizeof head + key.size()));
  ASSERT_EQ(channel.queue(uint16_t(op), bytes.data(), bytes.size()), TW_OK) << last_error();
  Status status;
  while ((status = channel.flush()) == TW_IN_PROGRESS) std::this_thread::yield();
  ASSERT_EQ(status, TW_OK) << last_error();
}

/// The next answer's value.
std::vector<std::byte> answered(SetupChannel& channel) {
  SetupChannel::Message message;
  Status status;
  while ((status = channel.receive(&message)) == TW_IN_PROGRESS) {
    pollfd one{channel.fd(), POLLIN, 0};
    if (poll(&one, 1, 30'000) != 1) return {};
  }
  store_wire::AnswerHead head{TW_ERR_PROTOCOL};
  EXPECT_EQ(status, TW_OK) << last_error();
  if (status != TW_OK || message.bytes.size() < sizeof head) return {};
  std::memcpy(&head, message.bytes.data(), sizeof head);
  EXPECT_EQ(head.status, TW_OK);
  return {message.bytes.begin() + sizeof head, message.bytes.end()};
}

/// The server's kernel has all that this socket sent.
void arrived(int fd) {
  for (int unsent = 1; unsent != 0; std::this_thread::yield()) ASSERT_EQ(ioctl(fd, SIOCOUTQ, &unsent), 0);
}

/// A line of /proc/self/status, in bytes.
size_t of_status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    size_t kilobytes = 0;
    if (word == name + ":" && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

/// Answers as it is told to, whatever is asked.
class ForgedServer {
 public:
  explicit ForgedServer(const JobKey& key) : key_(key) {
    SocketAddress at, bound;
    EXPECT_TRUE(parse_numeric("127.0.0.1", 0, &at));
    EXPECT_EQ(listen_at(at, 4, &listener_), TW_OK) << last_error();
    EXPECT_EQ(local_address(listener_.get(), &bound), TW_OK);
    address = "tcp:" + bound.text();
    thread_ = std::thread([this] { serve(); });
  }
  ~ForgedServer() {
    stop_ = true;
    thread_.join();
  }
  std::string address;
  std::atomic<int32_t> status{TW_OK};
  std::atomic<size_t> length{0};

 private:
  bool readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    while (!stop_ && poll(&one, 1, 10) != 1) {
    }
    return !stop_;
  }
  void serve() {
    UniqueFd socket;
    while (readable(listener_.get())) {
      if (accept_from(listener_.get(), &socket) == TW_OK) serve_one(std::move(socket));
    }
  }
  void serve_one(UniqueFd socket) {
    const int fd = socket.get();
    Handshake handshake(key_, 0, false, [](const DialTarget&) { return true; });
    for (auto want = handshake.advance(fd); want != Handshake::Want::done; want = handshake.advance(fd)) {
      if (want == Handshake::Want::failed || !readable(fd)) return;
    }
    SetupChannel channel(std::move(socket), nullptr, handshake.session(), store_wire::kMaxMessage);
    while (readable(fd)) {
      SetupChannel::Message message;
      const Status got = channel.receive(&message);
      if (got == TW_IN_PROGRESS) continue;
      if (is_error(got)) return;
      std::vector<std::byte> answer(sizeof(store_wire::AnswerHead) + length);
      const store_wire::AnswerHead head{status};
      std::memcpy(answer.data(), &head, sizeof head);
      if (is_error(channel.queue(uint16_t(store_wire::Op::answer), answer.data(), answer.size()))) return;
      while (channel.flush() == TW_IN_PROGRESS && !stop_) std::this_thread::yield();
    }
  }
  JobKey key_;
  UniqueFd listener_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// What a server answers becomes what the caller's function returns: nothing but what that may return.
TEST_F(StoreStrangers, AnAnswerThatNoStoreGivesIsAnError) {
  ForgedServer server(key_);
  OpenStore store(server.address, options_of(0, 1));
  ASSERT_EQ(store.status, TW_OK) << last_error();
  char value[8];
  const auto put = [&] { return tw_store_put(store.store, "key", "value", 5); };
  const auto get = [&] {
    size_t length = sizeof value;
    return tw_store_get(store.store, "key", value, &length);
  };
  const auto wait = [&] {
    size_t length = sizeof value;
    return tw_store_wait(store.store, "key", value, &length);
  };
  for (const int32_t forged : {int32_t(TW_IN_PROGRESS), int32_t(TW_AGAIN), int32_t(TW_ERR_TIMED_OUT), int32_t(TW_ERR_TRUNCATED),
                               int32_t(TW_ERR_CANCELED), -12345, 12345, INT32_MIN, INT32_MAX}) {
    server.status = forged;
    for (const Status status : {put(), get(), wait()}) EXPECT_EQ(status, TW_ERR_PROTOCOL) << forged;
  }
  server.status = TW_ERR_NO_MATCH;
  EXPECT_EQ(put(), TW_ERR_PROTOCOL);
  EXPECT_EQ(wait(), TW_ERR_PROTOCOL);
  EXPECT_EQ(get(), TW_ERR_NO_MATCH);
  server.status = TW_ERR_LIMIT;
  EXPECT_EQ(get(), TW_ERR_PROTOCOL);
  EXPECT_EQ(wait(), TW_ERR_PROTOCOL);
  EXPECT_EQ(put(), TW_ERR_LIMIT);
  server.status = TW_OK;
  server.length = 5;
  EXPECT_EQ(put(), TW_ERR_PROTOCOL) << "a value that it did not ask for";
  EXPECT_EQ(get(), TW_OK) << last_error();
  EXPECT_EQ(wait(), TW_OK) << last_error();
}

TEST_F(StoreStrangers, ManyWaitersOfOneLongValueCostOneAtATime) {
  constexpr size_t kWaiters = 60;
  std::vector<std::unique_ptr<RawClient>> waiters;
  for (size_t i = 0; i < kWaiters; ++i) {
    UniqueFd fd = connect_raw();
    const DialTarget target = dialled(fd.get());
    waiters.push_back(std::make_unique<RawClient>(std::move(fd), key_, target));
    ASSERT_EQ(waiters.back()->status, TW_OK) << last_error();
    ask(*waiters.back()->channel, store_wire::Op::wait, "long");
    arrived(waiters.back()->channel->fd());
  }
  OpenStore putter(address_, options_of(0, 1));
  ASSERT_EQ(putter.status, TW_OK) << last_error();
  const auto value = random_data(Store::kMaxValue);
  std::ofstream("/proc/self/clear_refs") << 5;  // the highest is the present from here on
  const size_t before = of_status("VmHWM");
  ASSERT_NE(before, 0u);
  ASSERT_EQ(tw_store_put(putter.store, "long", value.data(), value.size()), TW_OK) << last_error();
  for (const auto& waiter : waiters) {
    pollfd one{waiter->channel->fd(), POLLIN, 0};
    ASSERT_EQ(poll(&one, 1, 30'000), 1);
  }
  EXPECT_LT(of_status("VmHWM") - before, kWaiters / 3 * Store::kMaxValue);
  for (const auto& waiter : waiters) EXPECT_EQ(answered(*waiter->channel), value);
}

TEST_F(StoreStrangers, AReplacedValueCountsUntilItsLastAnswerIsSent) {
  options_.max_bytes = 8 * Store::kMaxValue;
  server_.reset();
  ASSERT_EQ(StoreServer::start({.host = "127.0.0.1"}, key_, options_, &server_), TW_OK) << last_error();
  address_ = "tcp:127.0.0.1:" + std::to_string(server_->port());
  OpenStore putter(address_, options_of(0, 1));
  ASSERT_EQ(putter.status, TW_OK) << last_error();
  std::vector<std::unique_ptr<RawClient>> readers;  // none of which reads
  std::vector<std::vector<std::byte>> values;
  Status status = TW_OK;
  while (status == TW_OK && readers.size() < 32) {  // some sockets may take all
    values.push_back(random_data(Store::kMaxValue));
    status = tw_store_put(putter.store, "long", values.back().data(), values.back().size());
    if (status != TW_OK) break;
    UniqueFd fd = connect_raw();
    const int little = 4096;
    ASSERT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    const DialTarget target = dialled(fd.get());
    readers.push_back(std::make_unique<RawClient>(std::move(fd), key_, target));
    ASSERT_EQ(readers.back()->status, TW_OK) << last_error();
    for (int i = 0; i < 8; ++i) ask(*readers.back()->channel, store_wire::Op::get, "long");  // more than its socket takes
    pollfd one{readers.back()->channel->fd(), POLLIN, 0};
    ASSERT_EQ(poll(&one, 1, 30'000), 1);
    for (int i = 0; i < 12; ++i) expect_service();  // more turns than answers, of which its socket does not take all
  }
  EXPECT_EQ(status, TW_ERR_LIMIT);
  readers.clear();
  const Deadline limit(30 * kSecond);
  const auto put = [&] { return tw_store_put(putter.store, "long", values.back().data(), values.back().size()); };
  while ((status = put()) == TW_ERR_LIMIT && !limit.passed())
    std::this_thread::yield();  // until the server has seen them leave
  EXPECT_EQ(status, TW_OK) << last_error();
}

/// A's requests lie at the server while it waits. Its first put wakes B, which asks before A's last is served.
TEST_F(StoreStrangers, AClientThatSendsManyRequestsAtOnceLeavesTurnsToOthers) {
  const auto client = [&](bool tls) {
    UniqueFd fd = connect_raw();
    const DialTarget target = dialled(fd.get());
    return std::make_unique<RawClient>(std::move(fd), key_, target, tls);
  };
  for (const bool tls : {false, true}) {
    const auto a = client(tls), b = client(tls), c = client(tls);
    for (const auto* one : {&a, &b, &c}) ASSERT_EQ((*one)->status, TW_OK) << last_error();
    const std::string go = tls ? "go, tls" : "go", count = tls ? "count, tls" : "count";
    constexpr uint32_t kRequests = 400;
    ask(*a->channel, store_wire::Op::wait, go);
    for (uint32_t i = 0; i < kRequests; ++i) ask(*a->channel, store_wire::Op::put, count, std::as_bytes(std::span(&i, 1)));
    ask(*b->channel, store_wire::Op::wait, count);
    ask(*b->channel, store_wire::Op::get, count);
    for (const auto* one : {&a, &b}) arrived((*one)->channel->fd());
    ask(*c->channel, store_wire::Op::put, go);
    const auto seen = [&](uint32_t* out) {
      const std::vector<std::byte> bytes = answered(*b->channel);
      ASSERT_EQ(bytes.size(), sizeof *out);
      std::memcpy(out, bytes.data(), sizeof *out);
    };
    uint32_t first = ~0u, second = ~0u;
    seen(&first);
    seen(&second);
    EXPECT_EQ(first, 0u);
    EXPECT_LT(second, kRequests - 1);
    for (uint32_t i = 0; i < 1 + kRequests; ++i) EXPECT_TRUE(answered(*a->channel).empty());
    EXPECT_TRUE(answered(*c->channel).empty());
  }
}

TEST(Store, OverTlsEverythingIsAsWithout) {
  tw_store_options options = options_of(0, 1);
  options.tls = 1;
  OpenStore server("serve:127.0.0.1:0", options);
  ASSERT_EQ(server.status, TW_OK) << last_error();
  const std::string address = tw_store_address(server.store);
  OpenStore client(address, options);
  ASSERT_EQ(client.status, TW_OK) << last_error();
  const auto value = random_data(Store::kMaxValue);
  for (int i = 0; i < 2; ++i) {  // the same connection again
    ASSERT_EQ(tw_store_put(client.store, "large", value.data(), value.size()), TW_OK) << last_error();
    std::vector<std::byte> got(value.size());
    size_t length = got.size();
    ASSERT_EQ(tw_store_get(server.store, "large", got.data(), &length), TW_OK) << last_error();
    EXPECT_EQ(got, value);
  }
  std::thread later([&] { EXPECT_EQ(tw_store_put(server.store, "late", "x", 1), TW_OK) << last_error(); });
  char one = 0;
  size_t length = 1;
  EXPECT_EQ(tw_store_wait(client.store, "late", &one, &length), TW_OK) << last_error();
  later.join();
  OpenStore plain(address, options_of(0, 1, 300 * kMillisecond));
  EXPECT_TRUE(is_error(plain.status)) << "plain at a store with TLS";
}

}  // namespace
}  // namespace thalweg::impl
