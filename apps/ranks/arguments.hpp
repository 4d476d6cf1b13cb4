// SPDX-License-Identifier: Apache-2.0
// The command line of an application: "--name value", "--name=value" and switches.
#pragma once
#include <initializer_list>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace apps {

/// A mistake on the command line: its text is for the user, the exit code is 2.
struct Usage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Arguments {
 public:
  /// `valued` take a value, `switches` none; "--help" prints `help` and ends the program. Throws Usage for anything else.
  Arguments(int argc, char** argv, const char* help, std::initializer_list<const char*> valued,
            std::initializer_list<const char*> switches);
  bool has(const std::string& name) const { return values_.contains(name); }
  std::string text(const std::string& name, const std::string& otherwise) const;
  /// A number of at least `least`; Usage otherwise.
  double number(const std::string& name, double otherwise, double least) const;
  /// A comma list whose words are all in `known`; "all" is all of them.
  std::vector<std::string> words(const std::string& name, const std::string& otherwise,
                                 const std::vector<std::string>& known) const;

 private:
  std::map<std::string, std::string> values_;
};

/// "1,2,3" -> its words.
std::vector<std::string> split(const std::string& text, char at);

}  // namespace apps
