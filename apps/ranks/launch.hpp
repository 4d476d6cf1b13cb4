// SPDX-License-Identifier: Apache-2.0
// Starting the processes of an application on this machine.
#pragma once
#include <functional>
#include <stdexcept>
#include <string>

namespace apps {

class Ranks;

/// Runs body in every rank; the exit code of the program. A process that `thalweg run -n N` started (THALWEG_RANK and
/// THALWEG_SIZE tell) is one rank. Any other starts `processes` of itself with the same arguments, looks after them (when one fails the
/// others are ended) and returns the first failure's code. Called before there is a context: fork() comes first.
int run(unsigned processes, char** argv, const std::function<void(Ranks&)>& body);

/// For a job of one's own: a key (hex), and a folder for its store that only this user can read.
std::string fresh_key();
std::string fresh_folder();

/// What was printed is lost: run() gives 3.
struct Unwritten : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Throws Unwritten where stdout, a full disk for example, takes no more.
void flush_results();

}  // namespace apps
