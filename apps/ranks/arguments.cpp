// SPDX-License-Identifier: Apache-2.0
#include "ranks/arguments.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace apps {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> words;
  for (size_t from = 0; from <= text.size();) {
    const size_t end = std::min(text.find(at, from), text.size());
    words.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return words;
}

Arguments::Arguments(int argc, char** argv, const char* help, std::initializer_list<const char*> valued,
                     std::initializer_list<const char*> switches) {
  const std::set<std::string> with(valued.begin(), valued.end()), without(switches.begin(), switches.end());
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      std::fputs(help, stdout);
      std::exit(0);
    }
    if (word.rfind("--", 0) != 0) throw Usage(word + ": what is that? See --help");
    word.erase(0, 2);
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (without.contains(name) && equals == std::string::npos) {
      values_[name] = "";
    } else if (!with.contains(name)) {
      throw Usage("no option --" + word + "; see --help");
    } else if (equals != std::string::npos) {
      values_[name] = word.substr(equals + 1);
    } else if (i + 1 < argc) {
      values_[name] = argv[++i];
    } else {
      throw Usage("--" + name + " wants a value; see --help");
    }
  }
}

std::string Arguments::text(const std::string& name, const std::string& otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? otherwise : found->second;
}

double Arguments::number(const std::string& name, double otherwise, double least) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  if (found->second.empty() || *end != 0 || !(value >= least) || value > 1e15) {
    throw Usage("--" + name + " " + found->second + ": wants a number from " + std::to_string(least) + " on");
  }
  return value;
}

std::vector<std::string> Arguments::words(const std::string& name, const std::string& otherwise,
                                          const std::vector<std::string>& known) const {
  const std::string given = text(name, otherwise);
  if (given == "all") return known;
  std::vector<std::string> chosen = split(given, ',');
  for (const std::string& word : chosen) {
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    std::string all;
    for (const std::string& one : known) all += " " + one;
    throw Usage("--" + name + " " + word + ": not one of" + all);
  }
  return chosen;
}

}  // namespace apps
