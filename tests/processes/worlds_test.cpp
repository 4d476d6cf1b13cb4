// SPDX-License-Identifier: Apache-2.0
// tw_init in real processes under the environment of each launcher: `thalweg run`, torchrun, PMIx (mpirun, where there is one),
// none; what they leave out or get wrong; and a rank that is killed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <thalweg/thalweg.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "process.hpp"

using namespace thalweg::test;

namespace {

constexpr const char* kKey = "THALWEG_JOB_KEY=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// The world's ranks pass a number around, and split.
std::string go_round() {
  auto world = thalweg::init();
  const uint32_t rank = world.rank(), size = world.size();
  uint64_t sum = 0;
  if (rank != 0) thalweg::check(world.worker().recv_blocking(std::span(&sum, 1), 5));
  sum += rank + 1;
  if (size > 1) thalweg::check(tw_send_blocking(world.endpoint((rank + 1) % size), &sum, sizeof sum, 5));
  if (rank == 0 && size > 1) thalweg::check(world.worker().recv_blocking(std::span(&sum, 1), 5));
  const auto half = world.split(rank % 2);
  half.barrier();
  world.barrier();
  return std::to_string(rank) + " of " + std::to_string(size) + ": " + std::to_string(rank == 0 ? sum : 0);
}

const Role kRound("round", [](Pipe& pipe) {
  try {
    pipe.send(go_round());
    return 0;
  } catch (const thalweg::Error& error) {
    pipe.send(error.what());
    return 1;
  }
});

/// Under a launcher that has no pipe to this test.
const Role kPrint("print", [](Pipe&) {
  try {
    std::printf("%s\n", go_round().c_str());
    return 0;
  } catch (const thalweg::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
});

/// Waits in a barrier that rank 1 never enters.
const Role kLast("last", [](Pipe& pipe) {
  auto world = thalweg::init();
  world.barrier();
  pipe.send("here");
  if (world.rank() == 1) {
    pipe.receive();
    return 9;
  }
  try {
    world.barrier();
    return 2;
  } catch (const thalweg::Error& error) {
    pipe.send(error.what());
  }
  const auto left = world.shrink();
  left.barrier();
  pipe.send(std::to_string(left.rank()) + " of " + std::to_string(left.size()));
  return 0;
});

/// What was made of the world is used behind the world's own end, and says how its own went.
const Role kParts("parts", [](Pipe& pipe) {
  thalweg::Group half, all;
  {
    auto world = thalweg::init();
    all = world.duplicate();
    half = all.split(0, 9 - world.rank());
    if (world.destroy() != TW_OK || world) return 2;
  }
  const uint32_t rank = all.rank();
  const uint64_t mine = 5 + rank;
  uint64_t got = 0;
  if (tw_send_blocking(all.endpoint(1 - rank), &mine, sizeof mine, 3) != TW_OK) return 3;
  if (all.worker().recv_blocking(std::span(&got, 1), 3) != TW_OK || got != 6 - rank) return 4;
  tw_request request = TW_REQUEST_NONE;
  if (rank == 0 && tw_barrier(half.get(), nullptr, &request) != TW_IN_PROGRESS) return 5;
  if (rank == 0 && half.destroy() != TW_ERR_BUSY) return 6;
  all.barrier();
  if (rank == 1 && tw_barrier(half.get(), nullptr, &request) < TW_OK) return 7;
  if (request != TW_REQUEST_NONE && tw_request_finish(request) != TW_OK) return 8;
  all = thalweg::Group();
  if (half.destroy() != TW_OK || half) return 9;
  pipe.send("through");
  return 0;
});

class Folder {
 public:
  Folder() : path((std::filesystem::temp_directory_path() / "thalweg-worlds-XXXXXX").string()) {
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

std::vector<std::string> own(const Folder& folder, int rank, int size) {
  return {"THALWEG_STORE=file:" + folder.path + "/store", kKey, "THALWEG_RANK=" + std::to_string(rank),
          "THALWEG_SIZE=" + std::to_string(size)};
}

using Environment = std::vector<std::string>;

std::vector<std::unique_ptr<Child>> start(const char* role, const std::vector<Environment>& ranks) {
  std::vector<std::unique_ptr<Child>> children;
  for (const Environment& one : ranks) children.push_back(std::make_unique<Child>(role, one));
  return children;
}

void expect_round(const std::vector<Environment>& ranks) {
  const auto children = start("round", ranks);
  const size_t size = ranks.size();
  for (size_t i = 0; i < size; ++i) {
    EXPECT_EQ(children[i]->receive(),
              std::to_string(i) + " of " + std::to_string(size) + ": " + std::to_string(i == 0 ? size * (size + 1) / 2 : 0));
  }
  for (const auto& child : children) EXPECT_EQ(child->join(), 0);
}

TEST(Worlds, OwnLauncher) {
  const Folder folder;
  expect_round({own(folder, 0, 3), own(folder, 1, 3), own(folder, 2, 3)});
}

TEST(Worlds, Torchrun) {
  std::random_device random;
  const std::string port = std::to_string(20000 + random() % 20000);
  std::vector<Environment> ranks;
  for (int i = 0; i < 3; ++i) {
    ranks.push_back({"RANK=" + std::to_string(i), "WORLD_SIZE=3", "MASTER_ADDR=localhost", "MASTER_PORT=" + port, kKey,
                     "TORCHELASTIC_RUN_ID=a-run"});
  }
  expect_round(ranks);
}

TEST(Worlds, Alone) { expect_round({{"NOTHING=1"}}); }

TEST(Worlds, WhatIsMissingIsNamed) {
  const auto error_of = [](const Environment& environment) {
    Child child("round", environment);
    const std::string text = child.receive();
    EXPECT_EQ(child.join(), 1) << text;
    return text;
  };
  EXPECT_NE(error_of({"THALWEG_RANK=1", "THALWEG_SIZE=2"}).find("THALWEG_STORE"), std::string::npos);
  EXPECT_NE(error_of({"THALWEG_RANK=x", "THALWEG_SIZE=2"}).find("THALWEG_RANK"), std::string::npos);
  EXPECT_NE(error_of({"THALWEG_RANK=0"}).find("THALWEG_SIZE is not"), std::string::npos);
  EXPECT_NE(error_of({"THALWEG_SIZE=2"}).find("THALWEG_RANK is not"), std::string::npos);
  EXPECT_NE(error_of({"TORCHELASTIC_RUN_ID=a", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost"}).find("MASTER_PORT"),
            std::string::npos);
  EXPECT_NE(error_of({"SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4"}).find("--mpi=pmix"), std::string::npos);
  EXPECT_NE(error_of({"PMIX_NAMESPACE=a", "PMIX_RANK=0", "THALWEG_PMIX=/nowhere/libpmix.so.2"}).find("THALWEG_PMIX"),
            std::string::npos);
}

TEST(Worlds, HalfAPlaceInTheOptionsIsRefused) {
  for (const bool ranked : {true, false}) {
    tw_init_options options = TW_INIT_OPTIONS_INIT;
    (ranked ? options.rank : options.count) = ranked ? 0 : 1;
    tw_group* group = nullptr;
    EXPECT_EQ(tw_init(&options, &group), TW_ERR_INVALID);
    const std::string text = tw_last_error();
    EXPECT_NE(text.find(ranked ? "THALWEG_SIZE is not" : "THALWEG_RANK is not"), std::string::npos) << text;
  }
}

TEST(Worlds, APartOutlivesTheWorldsOwnGroup) {
  const Folder folder;
  for (const auto& child : start("parts", {own(folder, 0, 2), own(folder, 1, 2)})) EXPECT_EQ(child->join(), 0);
}

TEST(Worlds, AKilledRankIsNamedAndLeftBehind) {
  const Folder folder;
  const auto children = start("last", {own(folder, 0, 4), own(folder, 1, 4), own(folder, 2, 4), own(folder, 3, 4)});
  for (const auto& child : children) ASSERT_EQ(child->receive(), "here");
  const uint64_t killed = now_ns();
  children[1]->kill();
  for (const int rank : {0, 2, 3}) EXPECT_NE(children[rank]->receive().find("rank 1:"), std::string::npos);
  EXPECT_LT(now_ns() - killed, 2'000'000'000u);
  EXPECT_EQ(children[0]->receive(), "0 of 3");
  EXPECT_EQ(children[2]->receive(), "1 of 3");
  EXPECT_EQ(children[3]->receive(), "2 of 3");
  for (const int rank : {0, 2, 3}) EXPECT_EQ(children[rank]->join(), 0);
}

TEST(Worlds, Pmix) {
  if (std::system("command -v mpirun >/dev/null && ldconfig -p | grep -q libpmix.so.2") != 0)
    GTEST_SKIP() << "no mpirun or no libpmix.so.2";
  const Folder folder;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe"), output = folder.path + "/output";
  // A role closes descriptor 3 when it ends: nothing else may be there.
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 mpirun --oversubscribe -n 3 sh -c 'exec " + self +
      " --role=print 3</dev/null' 2>&1 | head -c 100000 >" + output + "; grep -q ' of 3' " + output;
  const int code = std::system(command.c_str());
  std::ifstream file(output);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ASSERT_EQ(code, 0) << text;
  for (const char* line : {"0 of 3: 6\n", "1 of 3: 0\n", "2 of 3: 0\n"}) EXPECT_NE(text.find(line), std::string::npos) << text;
}

}  // namespace
