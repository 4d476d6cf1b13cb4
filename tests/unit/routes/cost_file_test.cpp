// SPDX-License-Identifier: Apache-2.0
// Measured costs: what is read back, what is refused, and what follows from them.
#include <gtest/gtest.h>

#include <stdlib.h>
#include <sys/stat.h>
#include <algorithm>

#include <clocale>
#include <filesystem>
#include <fstream>
#include <locale>
#include <random>

#include "routes/cost_file.hpp"
#include "routes/cost_text.hpp"

namespace thalweg::impl::test {
namespace {

const std::string kMachine = "host; processor; kernel";

std::string good_text() {
  std::string text;
  EXPECT_EQ(format_costs("shm.frame = 61.5\ntcp.reference = 0.25\n", kMachine, &text), TW_OK) << last_error();
  return text;
}

TEST(CostFile, ComesBackAsItWas) {
  std::mt19937_64 random(std::random_device{}());
  CostTable made, back;
  std::string values;
  for (const CostField& field : cost_fields()) {
    const double value = std::min(field.most, field.least * std::uniform_real_distribution<>(1, 50)(random));
    char line[80];
    snprintf(line, sizeof line, "%s = %.17g\n", field.name.c_str(), value);
    made.*field.link.*field.value = value;
    values += line;
  }
  std::string text;
  ASSERT_EQ(format_costs(values, kMachine, &text), TW_OK) << last_error();
  ASSERT_EQ(parse_costs(text, kMachine, &back), TW_OK) << last_error();
  for (const CostField& field : cost_fields())
    EXPECT_EQ(back.*field.link.*field.value, made.*field.link.*field.value) << field.name;
}

/// A program may have set the locale of its user, whose numbers have a comma.
TEST(CostFile, IsWrittenAlikeInEveryLocale) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"})
    if (setlocale(LC_NUMERIC, name) != nullptr) break;
  EXPECT_EQ(cost_line("shm.frame", 0.0912345), "shm.frame = 0.09123\n");
  EXPECT_EQ(cost_line("tcp.frame", 61.5), "tcp.frame = 61.5\n");
  EXPECT_EQ(cost_line("tcp.frame", 1234567.0), "tcp.frame = 1.235e+06\n");
  std::string text;
  CostTable back;
  EXPECT_EQ(format_costs(cost_line("shm.frame", 60.25) + cost_line("shm.copy", 0.0625), kMachine, &text), TW_OK)
      << last_error();
  EXPECT_EQ(parse_costs(text, kMachine, &back), TW_OK) << last_error();
  EXPECT_EQ(back.shm.frame, 60.25);
  EXPECT_EQ(back.shm.copy, 0.0625);
  setlocale(LC_NUMERIC, "C");
  std::locale::global(before);
}

TEST(CostFile, WhatIsLeftOutStaysADefault) {
  CostTable table;
  ASSERT_EQ(parse_costs(good_text(), kMachine, &table), TW_OK) << last_error();
  EXPECT_EQ(table.shm.frame, 61.5);
  EXPECT_EQ(table.tcp.reference, 0.25);
  EXPECT_EQ(table.shm.copy, CostTable().shm.copy);
}

TEST(CostFile, OfADistanceWhatIsLeftOutIsAsEverywhere) {
  std::string text;
  CostTable table;
  ASSERT_EQ(format_costs("shm.copy = 0.5\nshm.far.frame = 300\n", kMachine, &text), TW_OK) << last_error();
  ASSERT_EQ(parse_costs(text, kMachine, &table), TW_OK) << last_error();
  EXPECT_TRUE(table.distances());
  EXPECT_EQ(table.shm_at(CpuDistance::far).frame, 300);
  EXPECT_EQ(table.shm_at(CpuDistance::far).copy, 0.5);
  EXPECT_EQ(&table.shm_at(CpuDistance::node), &table.shm);
  EXPECT_EQ(&table.shm_at(CpuDistance::count_), &table.shm);
  CostTable none;
  ASSERT_EQ(parse_costs(good_text(), kMachine, &none), TW_OK) << last_error();
  EXPECT_FALSE(none.distances());
}

TEST(CostFile, DamagedOrForeignTextChangesNothing) {
  const std::string text = good_text();
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string changed = text;
    const size_t at = changed.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return changed.replace(at, what.size(), by);
  };
  const std::string bad[] = {"",
                             text.substr(0, text.size() - 4),  // cut
                             text + "more\n",
                             text + std::string(kCostFileMax, '\n'),
                             replaced("thalweg-costs 1", "thalweg-costs 2"),
                             replaced("library = ", "library = 9"),
                             replaced("host;", "other;"),
                             replaced("shm.frame", "shm.fame"),
                             replaced("tcp.reference = 0.25", "shm.frame = 61.5"),  // twice
                             replaced("shm.frame", "self.frame"),
                             replaced("61.5", "61.5 ns"),
                             replaced("61.5", ""),
                             replaced("61.5", "nan"),
                             replaced("61.5", "inf"),
                             replaced("61.5", "-1"),
                             replaced("61.5", "1e-3"),
                             replaced("61.5", "1e300"),
                             replaced("0.25", "0"),
                             replaced(" = 61.5", "=61.5")};
  for (const std::string& given : bad) {
    CostTable table;
    const bool outdated = given.find("library = 9") != std::string::npos || given.find("other;") != std::string::npos;
    EXPECT_EQ(parse_costs(given, kMachine, &table), outdated ? TW_ERR_STALE : TW_ERR_INVALID) << given;
    EXPECT_EQ(table.shm.frame, CostTable().shm.frame) << given;
    EXPECT_EQ(table.tcp.reference, CostTable().tcp.reference) << given;
  }
}

TEST(CostFile, WhatIsRefusedIsShownWithoutItsBytes) {
  std::mt19937_64 random(std::random_device{}());
  for (int i = 0; i < 200; ++i) {
    std::string bytes(100, 0);
    for (char& c : bytes) c = static_cast<char>(random());
    CostTable table;
    ASSERT_EQ(parse_costs(bytes, kMachine, &table), TW_ERR_INVALID);
    for (const char c : std::string(last_error())) ASSERT_TRUE(c >= 0x20 && c <= 0x7e) << int(c);
  }
}

/// A cache of its own, thrown away.
class CostCache : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/thalweg-costs-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("XDG_CACHE_HOME", name, 1);
    unsetenv("THALWEG_COSTS");
  }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    unsetenv("THALWEG_COSTS");
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
};

TEST_F(CostCache, IsFoundAgainUnlessSwitchedOff) {
  EXPECT_EQ(load_costs().source, "defaults");
  std::string path;
  ASSERT_EQ(save_costs("shm.frame = 77", &path), TW_OK) << last_error();
  // A version of the library does not write over what another one has measured.
  EXPECT_EQ(path.rfind(folder_.string() + "/thalweg/costs-" + library_version() + "-", 0), 0u) << path;
  const CostTable table = load_costs();
  EXPECT_EQ(table.source, path);
  EXPECT_EQ(table.shm.frame, 77);
  setenv("THALWEG_COSTS", "off", 1);
  EXPECT_EQ(load_costs().source, "defaults");
  EXPECT_EQ(save_costs("shm.frame = 77", &path), TW_ERR_INVALID);
  const std::string elsewhere = folder_ / "deep" / "er" / "file";
  setenv("THALWEG_COSTS", elsewhere.c_str(), 1);
  EXPECT_EQ(load_costs().source, "defaults");
  ASSERT_EQ(save_costs("shm.frame = 78", &path), TW_OK) << last_error();
  EXPECT_EQ(load_costs().shm.frame, 78);
  EXPECT_EQ(load_costs().source, elsewhere);
}

TEST_F(CostCache, IgnoresWhatItCannotTrust) {
  std::string path;
  ASSERT_EQ(save_costs("shm.frame = 77", &path), TW_OK) << last_error();
  chmod(path.c_str(), 0666);
  EXPECT_EQ(load_costs().source, "defaults");
  EXPECT_NE(load_costs().why.find("only this user"), std::string::npos) << load_costs().why;
  chmod(path.c_str(), 0600);
  EXPECT_EQ(load_costs().shm.frame, 77);
  std::ofstream(path) << "rubbish\n";
  const CostTable table = load_costs();
  EXPECT_EQ(table.source, "defaults");
  EXPECT_EQ(table.shm.frame, CostTable().shm.frame);
  EXPECT_NE(table.why.find("rubbish"), std::string::npos) << table.why;
  setenv("THALWEG_COSTS", "/dev/zero", 1);
  EXPECT_EQ(load_costs().source, "defaults");
}

}  // namespace
}  // namespace thalweg::impl::test
