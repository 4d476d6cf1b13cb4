// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <sys/wait.h>

#include <cstdio>
#include <sstream>

namespace thalweg::test {

std::vector<std::string> Outcome::objects() const {
  std::vector<std::string> found;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line.front() == '{') found.push_back(line);
  return found;
}

Outcome run_program(const std::string& program, const std::string& arguments, const std::string& environment) {
  Outcome run;
  const std::string command = environment + " timeout --kill-after=5 60 '" + program + "' " + arguments + " 2>&1 </dev/null";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  char piece[4096];
  for (size_t n = 0; (n = std::fread(piece, 1, sizeof piece, pipe)) > 0;) run.output.append(piece, n);
  const int status = ::pclose(pipe);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return run;
}

std::string value_of(const std::string& object, const std::string& key) {
  const std::string quoted = "\"" + key + "\": ";
  size_t from = object.find(quoted);
  if (from == std::string::npos) return "";
  from += quoted.size();
  if (object[from] == '"') return object.substr(from + 1, object.find('"', from + 1) - from - 1);
  return object.substr(from, object.find_first_of(",}", from) - from);
}

}  // namespace thalweg::test
