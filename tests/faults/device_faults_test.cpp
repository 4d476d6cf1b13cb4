// SPDX-License-Identifier: Apache-2.0
// What an operation does when a device fails in the middle of it. Every row is run once with sound devices, which counts the calls
// that each end makes of them; then once for each kind of call and end with the first, the second and the last of those calls
// refused (or, for `run`, the queue broken when its turn comes). Both ends must come to an end: with a named error, or with
// success and the right bytes; nothing around the payload is touched, the next operation of the same endpoint works, and all
// device memory is given back.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "device_end.hpp"

namespace thalweg::faults {
namespace {

using impl::emulated::Operation;

constexpr const char* kKindNames[] = {"allocate", "export", "import", "copy", "launch", "run", "queue", "word", "event"};
static_assert(std::size(kKindNames) == kKinds);

std::string bytes_of(const Row& row) { return {reinterpret_cast<const char*>(&row), sizeof row}; }

/// Rank 1: rows as they come, until the pipe ends or a row went wrong, for its ends are out of step then.
int answer(test::Pipe& pipe) {
  for (;;) {
    const std::string text = pipe.receive();
    if (text.size() != sizeof(Row)) return 0;
    Row row;
    std::memcpy(&row, text.data(), sizeof row);
    const Outcome outcome = run_row(row, 1, pipe);
    pipe.send(std::string(reinterpret_cast<const char*>(&outcome), sizeof outcome));
    if (outcome.wrong[0] != 0) return 1;
  }
}
const test::Role kAnswer("answer", answer);

/// Rank 1 in another process, or in a thread of this one.
class Partner {
 public:
  explicit Partner(bool one_process) {
    if (!one_process) {
      child_ = std::make_unique<test::Child>("answer");
      return;
    }
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    pipe_ = std::make_unique<test::Pipe>(ends[0]);
    thread_ = std::thread([fd = ends[1]] {
      test::Pipe pipe(fd);
      answer(pipe);
    });
  }
  ~Partner() {
    pipe_.reset();
    if (thread_.joinable()) thread_.join();
  }
  test::Pipe& pipe() { return child_ != nullptr ? child_->pipe() : *pipe_; }

 private:
  std::unique_ptr<test::Child> child_;
  std::unique_ptr<test::Pipe> pipe_;
  std::thread thread_;
};

struct Way {
  const char* name;
  const char* transport;
  bool one_process;
};
constexpr Way kWays[] = {{"shm", "shm", false}, {"shm_one_process", "shm", true}, {"tcp", "tcp", false}};

std::string describe(const Row& row) {
  std::string text = std::string(row.operation) + " of " + std::to_string(row.size) +
                     (row.rows ? " bytes in rows, " : " bytes, ") + row.place[0] + " -> " + row.place[1] + ", seed " +
                     std::to_string(row.seed);
  if (row.fails == kNobody) return text + ", sound";
  return text + ", rank " + std::to_string(row.fails) + "'s " + kKindNames[row.kind] + " number " + std::to_string(row.nth);
}

class DeviceFaults : public testing::TestWithParam<std::tuple<Way, const char*>> {
 protected:
  void SetUp() override { ::setenv("THALWEG_EMULATED", "devices=2", 1); }  // a partner inherits it
  const Way& way() const { return std::get<0>(GetParam()); }
  const char* operation() const { return std::get<1>(GetParam()); }
  bool is(const char* name) const { return std::strcmp(operation(), name) == 0; }

  /// Both ends of a row; false: they are out of step, and the next row needs a new partner.
  bool run(const Row& row, Outcome out[2]) {
    if (partner_ == nullptr) partner_ = std::make_unique<Partner>(way().one_process);
    const size_t before = holdings();
    partner_->pipe().send(bytes_of(row));
    out[0] = run_row(row, 0, partner_->pipe());
    std::string text;
    if (out[0].wrong[0] == 0) text = partner_->pipe().receive();
    if (text.size() == sizeof out[1]) {
      std::memcpy(&out[1], text.data(), sizeof out[1]);
    } else {
      std::snprintf(out[1].wrong, sizeof out[1].wrong, "rank 1 has given up");
    }
    if (out[0].wrong[0] == 0 && out[1].wrong[0] == 0) {
      EXPECT_EQ(holdings(), before) << "device memory was not given back";
      return true;
    }
    partner_.reset();
    return false;
  }

  void check(const Row& row, const Outcome out[2]) {
    const std::string text = describe(row);
    bool fired = false;
    for (unsigned rank = 0; rank < 2; ++rank) {
      EXPECT_STREQ(out[rank].wrong, "") << text << ": rank " << rank;
      if (row.fails != kNobody && (row.one_process ? rank == 0 : rank == row.fails))
        fired = out[rank].calls[row.kind] >= row.nth;
    }
    EXPECT_TRUE(fired || row.fails == kNobody || row.nth != 1) << text << ": nothing failed";
    for (unsigned rank = 0; rank < 2; ++rank) {
      const Outcome& end = out[rank];
      EXPECT_TRUE(fired || end.status == TW_OK) << text << ": rank " << rank << ": " << end.error;
      const bool says = end.status == TW_OK || end.status == TW_ERR_CANCELED || end.error[0] != 0;
      EXPECT_TRUE(says) << text << ": rank " << rank << ": an error without a text";
      EXPECT_EQ(end.again, TW_OK) << text << ": rank " << rank << " afterwards: " << end.error;
    }
    injected_ += fired ? 1 : 0;
    failed_ += fired && (out[0].status < 0 || out[1].status < 0) ? 1 : 0;
  }

  /// The row with sound devices, then with each kind of call failing at each end.
  void run_all(Row row) {
    Outcome sound[2] = {}, out[2] = {};
    row.fails = kNobody;
    run(row, sound);
    check(row, sound);
    for (row.fails = 0; row.fails < (way().one_process ? 1 : 2) && !HasFatalFailure(); ++row.fails) {
      for (row.kind = 0; row.kind < kKinds; ++row.kind) {
        const uint32_t calls = sound[row.fails].calls[row.kind];
        for (const uint32_t nth : std::set<uint32_t>{1, 2, calls}) {
          if (nth > calls || nth == 0) continue;
          row.nth = nth;
          row.seed = random_();
          const char* const given = std::getenv("THALWEG_FAULTS_ROWS");  // a part of their description, or all
          const std::string only = given != nullptr ? given : "number 1";
          if (only != "all" && describe(row).find(only) == std::string::npos) continue;
          out[0] = out[1] = {};
          run(row, out);
          check(row, out);
        }
      }
    }
  }

  Row row_of(const char* mine, const char* theirs, uint64_t size, bool rows) {
    Row row{};
    std::snprintf(row.operation, sizeof row.operation, "%s", operation());
    std::snprintf(row.transport, sizeof row.transport, "%s", way().transport);
    std::snprintf(row.place[0], sizeof row.place[0], "%s", mine);
    std::snprintf(row.place[1], sizeof row.place[1], "%s", theirs);
    row.size = size;
    row.rows = rows;
    row.one_process = way().one_process;
    row.seed = random_();
    return row;
  }

  std::mt19937_64 random_{std::random_device{}()};
  std::unique_ptr<Partner> partner_;
  unsigned injected_ = 0, failed_ = 0;
};

TEST_P(DeviceFaults, EndBothSidesAndHurtNothingElse) {
  constexpr std::pair<const char*, const char*> kPlaces[] = {
      {"emulated:0", "emulated:1"}, {"emulated:0", "plain"}, {"plain", "emulated:1"}, {"emulated-pool:0", "emulated:1"}};
  constexpr uint64_t kSmall = 70, kRows = 40'000, kLarge = 3'200'007;  // a frame; a kernel's work; several chunks of staging
  for (const auto& [mine, theirs] : kPlaces) {
    if (is("send_after") && std::strcmp(mine, "plain") == 0) continue;  // it is a stream of the sender's device
    run_all(row_of(mine, theirs, kSmall, false));
    if (is("atomic")) continue;
    run_all(row_of(mine, theirs, kRows, true));
    run_all(row_of(mine, theirs, kLarge, false));
  }
  EXPECT_GT(injected_, 0u);
  std::printf("%u injected failures, %u of them ended the operation\n", injected_, failed_);
}

std::vector<const char*> names() {
  std::vector<const char*> all;
  for (const Named& one : all_operations()) all.push_back(one.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Operations, DeviceFaults, testing::Combine(testing::ValuesIn(kWays), testing::ValuesIn(names())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace thalweg::faults
