// SPDX-License-Identifier: Apache-2.0
// Each model holds as it is written, and each order that it names is needed: weakened, something goes wrong. A model names the
// lines of the code that it stands for, and is wrong where they are not there any more.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "models/weak_memory.hpp"

namespace thalweg::models {

inline void check(const std::function<void(Program&)>& model) {
  Program written;
  model(written);
  const Explored all = explore(written);
  EXPECT_GT(all.ends, 0u);
  EXPECT_EQ(all.violations, 0u) << "as it is written:\n" << all.trace;
  EXPECT_FALSE(written.names().empty());
  for (const std::string& name : written.names()) {
    Program weak(name);
    model(weak);
    EXPECT_GT(explore(weak).violations, 0u) << "nothing goes wrong without: " << name;
  }
}

/// The lines that a model stands for, by file. Blanks at their ends do not count.
inline void expect_code(const std::string& file, std::initializer_list<const char*> parts) {
  std::ifstream in(std::string(THALWEG_SOURCE) + "/" + file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(text.empty()) << file;
  size_t at = 0;
  for (const char* part : parts) {
    const size_t found = text.find(part, at);
    EXPECT_NE(found, std::string::npos) << file << " no longer says, in this order: " << part << "\nchange the model with it";
    if (found != std::string::npos) at = found + 1;
  }
}

}  // namespace thalweg::models
