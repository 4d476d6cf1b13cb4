// SPDX-License-Identifier: Apache-2.0
#include "ranks.hpp"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "processes.hpp"

namespace perf {
namespace {

constexpr char kFolder[] = "thalweg-perf-XXXXXX";
constexpr unsigned kRanks = 2;  // without -n

/// By a thalweg-perf: its processes are pinned, where a launcher binds its own.
bool started_by_perf() {
  const char* const store = std::getenv("THALWEG_STORE");
  const std::string name(kFolder, sizeof kFolder - sizeof "XXXXXX");
  return store != nullptr && std::strncmp(store, "file:", 5) == 0 && std::strstr(store, ("/" + name).c_str()) != nullptr;
}

bool is_one_of_several(const char* rank, const char* size) {
  const char* const count = std::getenv(size);
  return std::getenv(rank) != nullptr && count != nullptr && std::atoi(count) > 1;
}

/// Slurm gives a rank to every batch script, too, and there it started one process.
bool launched() {
  return std::getenv("THALWEG_RANK") != nullptr || std::getenv("PMIX_RANK") != nullptr ||
         is_one_of_several("SLURM_PROCID", "SLURM_STEP_NUM_TASKS") || is_one_of_several("RANK", "WORLD_SIZE");
}

/// Of the store, while ranks may read it; "": it is gone, or a launcher's.
std::string folder;
/// What was started here.
std::vector<pid_t> children;

void remove_folder() {
  if (folder.empty()) return;
  ::unlink((folder + "/store").c_str());
  ::rmdir(folder.c_str());
  folder.clear();
}

/// Children that are about to open the store would make it anew.
void remove_folder_of_failure() {
  if (folder.empty()) return;
  for (const pid_t child : children) {
    (void)::kill(child, SIGKILL);
    (void)exit_code_of(child);
  }
  remove_folder();
}

}  // namespace

void Ranks::start_others(unsigned count, char** argv) {
  std::error_code none;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(none);
  std::string made = (none ? std::filesystem::path("/tmp") : temporary) / kFolder;
  if (::mkdtemp(made.data()) == nullptr)
    end_with("cannot make a folder " + made + ": " + std::strerror(errno) + "; set TMPDIR");
  folder = made;
  before_failing = remove_folder_of_failure;
  ::setenv("THALWEG_STORE", ("file:" + folder + "/store").c_str(), 1);
  ::setenv("THALWEG_SIZE", std::to_string(count).c_str(), 1);
  for (unsigned i = 1; i < count; ++i) {
    ::setenv("THALWEG_RANK", std::to_string(i).c_str(), 1);
    const pid_t child = start_child();
    if (child == 0) {
      before_failing = nullptr;
      ::execv("/proc/self/exe", argv);
      _exit(127);
    }
    children.push_back(child);
  }
  ::setenv("THALWEG_RANK", "0", 1);
}

Ranks::Ranks(const Options& o, char** argv) {
  const unsigned wanted = o.ranks != 0 ? o.ranks : kRanks;
  if (!launched() && wanted > 1) start_others(wanted, argv);
  const std::string transports = o.transport == "auto" ? "" : "self," + o.transport;
  tw_context_options c = TW_CONTEXT_OPTIONS_INIT;
  c.tls = o.tls;
  if (!transports.empty()) c.transports = transports.c_str();
  tw_worker_options w = TW_WORKER_OPTIONS_INIT;
  if (o.progress_thread) w.progress = TW_PROGRESS_THREAD;
  tw_init_options init = TW_INIT_OPTIONS_INIT;
  init.context = &c;
  init.worker = &w;
  must(tw_init(&init, &group), "tw_init");
  context = tw_group_context(group);
  rank = tw_group_rank(group);
  size = tw_group_size(group);
  if (o.ranks != 0 && o.ranks != size)
    end_with("-n " + std::to_string(o.ranks) + ", but the launcher's group has the size " + std::to_string(size) +
             ": leave -n out, or have it start as many");
  // Behind tw_init: the first context of a machine measures costs on two cores. A progress thread, or a queue's, would share the
  // core.
  const bool alone = !o.progress_thread && (o.trigger == Trigger::call || o.trigger == Trigger::host);
  if (started_by_perf() && alone) pin_to_core(rank);
  if (!started_by_perf()) return;
  barrier();  // all have met, and read the store no more: whatever ends this leaves nothing behind
  remove_folder();
}

int Ranks::end() {
  barrier();
  must(tw_group_destroy(group), "tw_group_destroy");
  int code = 0;
  for (const pid_t child : children) code = std::max(code, exit_code_of(child));
  return code;
}

double Ranks::agree(double mine) const {
  std::vector<double> all(size);
  must(tw_group_exchange(group, &mine, sizeof mine, all.data()), "tw_group_exchange");
  return all[0];
}

double Ranks::largest(double mine) const { return slowest({mine})[0]; }

std::vector<double> Ranks::slowest(const std::vector<double>& mine) const {
  std::vector<double> all(mine.size() * size), most = mine;
  must(tw_group_exchange(group, mine.data(), mine.size() * sizeof(double), all.data()), "tw_group_exchange");
  for (size_t i = 0; i < all.size(); ++i) most[i % mine.size()] = std::max(most[i % mine.size()], all[i]);
  return most;
}

bool Ranks::all(bool mine) const { return largest(mine ? 0 : 1) == 0; }

std::string Ranks::transport() const {
  tw_endpoint* endpoint = nullptr;
  must(tw_group_endpoint(group, (rank + 1) % size, &endpoint), "tw_group_endpoint");
  return tw_endpoint_transport(endpoint);
}

}  // namespace perf
