// SPDX-License-Identifier: Apache-2.0
// Where the key comes from, and that its file is private and made once.
#include "security/job_key.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace thalweg::impl {
namespace {

class KeyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "thalweg_key_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/made/for/it/job.key";
    unsetenv("THALWEG_JOB_KEY");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write_file(const std::string& text, mode_t mode) {
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  std::string folder_, path_;
};

const std::string kHex = "000102030405060708090a0b0c0d0e0f";

TEST_F(KeyFile, IsReadWholeOrRefused) {
  std::string text;
  while (text.size() < 4096) text += kHex;
  write_file(text, 0600);
  JobKey key;
  ASSERT_EQ(JobKey::load(nullptr, 0, path_.c_str(), &key), TW_OK) << last_error();
  write_file(text + "ab", 0600);
  EXPECT_EQ(JobKey::load(nullptr, 0, path_.c_str(), &key), TW_ERR_KEY_FILE);
  EXPECT_NE(std::string(last_error()).find("4096"), std::string::npos) << last_error();
}

TEST_F(KeyFile, IsMadePrivateOnFirstUseAndKept) {
  JobKey first, second;
  ASSERT_EQ(JobKey::load(nullptr, 0, path_.c_str(), &first), TW_OK) << last_error();
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(JobKey::load(nullptr, 0, path_.c_str(), &second), TW_OK);
  EXPECT_EQ(first.hex(), second.hex());
  EXPECT_EQ(first.hex().size(), 64u);
  EXPECT_NE(first.source().find(path_), std::string::npos);
  const std::filesystem::directory_iterator files(std::filesystem::path(path_).parent_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);  // no temporary is left
}

TEST_F(KeyFile, ProcessesThatStartAtOnceAgree) {
  constexpr int kProcesses = 16;
  int results[2];
  int gate[2];
  ASSERT_EQ(pipe(results), 0);
  ASSERT_EQ(pipe(gate), 0);
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() != 0) continue;
    close(gate[1]);
    char byte;
    if (read(gate[0], &byte, 1) != 0) _exit(2);  // all exit when the pipe's other end closes
    JobKey key;
    const bool good = JobKey::load(nullptr, 0, path_.c_str(), &key) == TW_OK;
    const std::string hex = good ? key.hex() : std::string(64, '!');
    _exit(write(results[1], hex.data(), 64) == 64 ? 0 : 1);
  }
  close(gate[0]);
  close(gate[1]);
  std::set<std::string> keys;
  for (int i = 0; i < kProcesses; ++i) {
    std::string hex(64, '?');
    ASSERT_EQ(read(results[0], hex.data(), 64), 64);
    keys.insert(hex);
    int status;
    wait(&status);
  }
  EXPECT_EQ(keys.size(), 1u);
  EXPECT_EQ(keys.begin()->find('!'), std::string::npos);
  close(results[0]);
  close(results[1]);
}

TEST_F(KeyFile, ReadableByOthersIsRefusedWithFileAndRemedy) {
  for (const mode_t mode : {0640, 0604, 0660, 0620, 0601}) {
    write_file(kHex, mode);
    JobKey key;
    EXPECT_EQ(JobKey::load(nullptr, 0, path_.c_str(), &key), TW_ERR_KEY_FILE);
    EXPECT_NE(std::string(last_error()).find("chmod 600 " + path_), std::string::npos) << last_error();
  }
}

TEST_F(KeyFile, GarbageIsRefused) {
  for (const std::string& text : {std::string(), std::string("00112233"), kHex + "0", kHex + "zz", std::string(5000, '!')}) {
    write_file(text, 0600);
    JobKey key;
    EXPECT_EQ(JobKey::load(nullptr, 0, path_.c_str(), &key), TW_ERR_KEY_FILE) << text.size();
    EXPECT_NE(std::string(last_error()).find(path_), std::string::npos);
  }
}

TEST_F(KeyFile, FifoInItsPlaceDoesNotHang) {
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  JobKey key;
  EXPECT_EQ(JobKey::load(nullptr, 0, path_.c_str(), &key), TW_ERR_KEY_FILE);
}

TEST_F(KeyFile, DefaultPlaceIsInTheConfigurationFolder) {
  setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
  JobKey key;
  ASSERT_EQ(JobKey::load(nullptr, 0, nullptr, &key), TW_OK);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/thalweg/job.key"));
  unsetenv("XDG_CONFIG_HOME");
}

TEST_F(KeyFile, OrderOfSources) {
  write_file(kHex, 0600);
  setenv("THALWEG_JOB_KEY", "ffffffffffffffffffffffffffffffff", 1);
  JobKey key;
  ASSERT_EQ(JobKey::load("0123456789abcdef", 16, path_.c_str(), &key), TW_OK);
  EXPECT_EQ(key.hex(), "30313233343536373839616263646566");
  ASSERT_EQ(JobKey::load(nullptr, 0, path_.c_str(), &key), TW_OK);
  EXPECT_EQ(key.hex(), kHex);
  ASSERT_EQ(JobKey::load(nullptr, 0, nullptr, &key), TW_OK);
  EXPECT_EQ(key.hex(), "ffffffffffffffffffffffffffffffff");
  EXPECT_EQ(key.source(), "THALWEG_JOB_KEY");
  EXPECT_EQ(JobKey::load("too short", 9, nullptr, &key), TW_ERR_INVALID);
  setenv("THALWEG_JOB_KEY", "nothex", 1);
  EXPECT_EQ(JobKey::load(nullptr, 0, nullptr, &key), TW_ERR_INVALID);
  unsetenv("THALWEG_JOB_KEY");
}

std::string output_of(const char* command) {
  FILE* const pipe = popen(command, "r");
  char text[256] = {};
  if (pipe == nullptr || fgets(text, sizeof text, pipe) == nullptr) text[0] = 0;
  if (pipe != nullptr) pclose(pipe);
  return text;
}

TEST_F(KeyFile, TheVariablesKeyIsReadOnceAndNotInherited) {
  const std::string first(32, 'a'), second(32, 'b');
  const char* const ask = "printenv THALWEG_JOB_KEY";
  JobKey key;
  setenv("THALWEG_JOB_KEY", first.c_str(), 1);
  ASSERT_EQ(JobKey::load(nullptr, 0, nullptr, &key), TW_OK) << last_error();
  EXPECT_EQ(output_of(ask), "taken\n");
  JobKey again;
  ASSERT_EQ(JobKey::load(nullptr, 0, nullptr, &again), TW_OK) << last_error();
  EXPECT_EQ(again.hex(), first);
  EXPECT_EQ(again.source(), "THALWEG_JOB_KEY");
  setenv("THALWEG_JOB_KEY", second.c_str(), 1);  // the program sets another
  ASSERT_EQ(JobKey::load(nullptr, 0, nullptr, &key), TW_OK) << last_error();
  EXPECT_EQ(key.hex(), second);
  EXPECT_EQ(output_of(ask), "taken\n");
  setenv("THALWEG_KEEP_JOB_KEY", "1", 1);
  setenv("THALWEG_JOB_KEY", first.c_str(), 1);
  ASSERT_EQ(JobKey::load(nullptr, 0, nullptr, &key), TW_OK) << last_error();
  EXPECT_EQ(output_of(ask), first + "\n");
  unsetenv("THALWEG_KEEP_JOB_KEY");
  unsetenv("THALWEG_JOB_KEY");
}

TEST(JobKey, DerivationsDifferByPurposeAndKey) {
  JobKey a, b;
  ASSERT_EQ(JobKey::load("0123456789abcdef", 16, nullptr, &a), TW_OK);
  ASSERT_EQ(JobKey::load("0123456789abcdeg", 16, nullptr, &b), TW_OK);
  EXPECT_EQ(a.derive("tls"), a.derive("tls"));
  EXPECT_NE(a.derive("tls"), a.derive("handshake"));
  EXPECT_NE(a.derive("tls"), b.derive("tls"));
  EXPECT_NE(a.mac("x", "data", 4), a.mac("x", "date", 4));
  EXPECT_NE(a.mac("x", "data", 4), a.mac("y", "data", 4));
  EXPECT_TRUE(equal_secret("abc", "abc", 3));
  EXPECT_FALSE(equal_secret("abc", "abd", 3));
}

}  // namespace
}  // namespace thalweg::impl
