// SPDX-License-Identifier: Apache-2.0
// Random prepared programs against the reference. The long form:
//   model_prepared --programs 1000000 --seed 1 [--json FILE]
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "model/prepared/prepared.hpp"

namespace thalweg::model {
namespace {

/// Makes it small.
Prepared shrink(Prepared program) {
  const auto try_change = [&program](auto change) {
    Prepared changed = program;
    change(changed);
    if (!run(changed).empty()) program = changed;
  };
  for (const uint32_t blocks : {2u, 1u}) {
    if (program.blocks > blocks) try_change([blocks](Prepared& p) { p.blocks = blocks; });
    if (program.far_blocks > blocks) try_change([blocks](Prepared& p) { p.far_blocks = blocks; });
  }
  try_change([](Prepared& p) { p.before = 0; });
  try_change([](Prepared& p) { p.messages = 0; });
  try_change([](Prepared& p) { p.value = 0; });
  try_change([](Prepared& p) { p.adds = false; });
  try_change([](Prepared& p) { p.bytes = 8; });
  while (program.runs > 1 && !run([&program] {
                                auto fewer = program;
                                --fewer.runs;
                                return fewer;
                              }())
                                  .empty()) {
    --program.runs;
  }
  return program;
}

/// The first that goes wrong; its seed, or 0.
uint64_t search(uint64_t first, uint64_t programs, uint64_t* looked, std::string* what) {
  for (*looked = 0; *looked < programs;) {
    const uint64_t seed = first + (*looked)++;
    *what = run(generate_prepared(seed));
    if (!what->empty()) return seed;
  }
  return 0;
}

TEST(PreparedPrograms, DoWhatTheReferenceSays) {
  const char* const first = std::getenv("THALWEG_MODEL_SEED");
  uint64_t looked = 0;
  std::string what;
  const uint64_t seed = search(first == nullptr ? 1 : std::strtoull(first, nullptr, 10), 3'000, &looked, &what);
  if (seed == 0) return;
  const Prepared small = shrink(generate_prepared(seed));
  ADD_FAILURE() << "seed " << seed << ": " << what << "\n" << test_of(small, "Seed" + std::to_string(seed));
}

int many(uint64_t first, uint64_t programs, const std::string& json) {
  uint64_t looked = 0;
  std::string what;
  const uint64_t seed = search(first, programs, &looked, &what);
  std::printf("%llu programs\n", static_cast<unsigned long long>(looked));
  if (!json.empty()) {
    std::ofstream(json) << "{\"first_seed\": " << first << ", \"programs\": " << looked
                        << ", \"found\": " << (seed == 0 ? "false" : "true") << ", \"seed\": " << seed << ", \"what\": \""
                        << what << "\"}\n";
  }
  if (seed == 0) return 0;
  std::printf("seed %llu: %s\n%s", static_cast<unsigned long long>(seed), what.c_str(),
              test_of(shrink(generate_prepared(seed)), "Seed" + std::to_string(seed)).c_str());
  return 1;
}

}  // namespace
}  // namespace thalweg::model

int main(int count, char** values) {
  uint64_t first = 1, programs = 0;
  std::string json;
  for (int i = 1; i + 1 < count; ++i) {
    const std::string name = values[i];
    if (name == "--programs") programs = std::strtoull(values[++i], nullptr, 10);
    if (name == "--seed") first = std::strtoull(values[++i], nullptr, 10);
    if (name == "--json") json = values[++i];
  }
  if (programs != 0) return thalweg::model::many(first, programs, json);
  ::testing::InitGoogleTest(&count, values);
  return RUN_ALL_TESTS();
}
