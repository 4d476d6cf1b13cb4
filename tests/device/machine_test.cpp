// SPDX-License-Identifier: Apache-2.0
// Device code is the same text for every machine: what is one machine's stands in include/thalweg/device/machine/ and nowhere else,
// and each machine has all of it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace thalweg::device::twins {
namespace {

const std::filesystem::path kSource = THALWEG_SOURCE;
const char* const kMachines = "include/thalweg/device/machine";

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Without what follows // : prose may name anything.
std::string code_of(const std::filesystem::path& file) { return std::regex_replace(text_of(file), std::regex("//[^\n]*"), ""); }

/// The functions and constants of namespace machine.
std::set<std::string> members_of(const char* name) {
  const std::string code = code_of(kSource / kMachines / name);
  std::set<std::string> found;
  for (const char* pattern :
       {R"(\nTHALWEG_DEVICE [\w ]+?[ *](\w+)\()", R"(\nconstexpr \w+ (\w+) =)", R"(\nusing (\w+) =)", R"(#define (\w+))"}) {
    const std::regex declared(pattern);
    for (std::sregex_iterator at(code.begin(), code.end(), declared), end; at != end; ++at) found.insert((*at)[1]);
  }
  return found;
}

TEST(DeviceMachine, OnlyItsOwnFolderNamesAMachine) {
  const std::regex machine(
      R"(__CUDA|__NVCC|__HIP|__AMDGCN|\basm\b|__(shfl|ballot|any|all|syncwarp|syncthreads|ffs|ldg|threadfence|global__|shared__|device__)|)"
      R"(atomic\w+_system|(thread|block)Idx|(block|grid)Dim|0xffffffff|\(~0u,)");
  unsigned files = 0;
  for (const char* folder :
       {"include/thalweg/device", "src/devices/kernels", "src/devices/program", "src/devices/persistent"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kSource / folder)) {
      if (!entry.is_regular_file() || entry.path().parent_path() == kSource / kMachines) continue;
      std::smatch found;
      const std::string code = code_of(entry.path());
      EXPECT_FALSE(std::regex_search(code, found, machine)) << entry.path() << " names a machine: " << found.str();
      ++files;
    }
  }
  EXPECT_GT(files, 25u);
}

TEST(DeviceMachine, OnlyOneHeaderAsksTheCompiler) {
  const std::regex asks(R"(#\s*(if|elif|ifdef|ifndef)\b[^\n]*(CUDA|NVCC|HIP|AMD))");
  for (const auto& entry : std::filesystem::directory_iterator(kSource / kMachines)) {
    EXPECT_EQ(std::regex_search(code_of(entry.path()), asks), entry.path().filename() == "machine.hpp") << entry.path();
  }
}

TEST(DeviceMachine, EachHasTheSameMembers) {
  std::set<std::string> cuda = members_of("cuda.hpp");
  EXPECT_GT(cuda.size(), 50u);
  cuda.erase("neighbours");  // its own
  EXPECT_EQ(cuda, members_of("host.hpp"));
}

}  // namespace
}  // namespace thalweg::device::twins
