// SPDX-License-Identifier: Apache-2.0
// An application run with arguments, as from a shell.
#pragma once
#include <string>
#include <vector>

namespace thalweg::test {

struct Outcome {
  int code = -1;       // exit code; 124: it took more than 60 s
  std::string output;  // standard output and error
  /// The lines that are JSON objects.
  std::vector<std::string> objects() const;
};
/// `environment`: "NAME=value NAME=value".
Outcome run_program(const std::string& program, const std::string& arguments, const std::string& environment = "");
/// The value of a key of a flat JSON object, without quotes; "" when it is not there.
std::string value_of(const std::string& object, const std::string& key);

}  // namespace thalweg::test
