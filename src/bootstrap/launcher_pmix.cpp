// SPDX-License-Identifier: Apache-2.0
// mpirun and prterun of Open MPI, srun --mpi=pmix, and others with a server of PMIx on each machine. Rank 0 makes the job's
// key; it and all values travel over the launcher's own connections, which are as private as the launcher keeps them.
//
// The client is finalised when the process exits: one that ends without it counts as failed, and after it an MPI that is
// initialised later could not have its own (Open MPI 4). An MPI in the process counts its own use.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "bootstrap/launcher.hpp"
#include "bootstrap/pmix_api.hpp"

namespace thalweg::impl {
namespace {

std::atomic<uint32_t> openings{0};  // by this process: all ranks open in the same order

/// The process's client.
struct Client {
  std::mutex mutex;
  const pmix::Api* api = nullptr;  // null: not initialised yet
  pid_t process = 0;
  pmix::Proc self{};
};

Client& client() {
  static auto* const one = new Client;  // leaked: it is used at exit
  return *one;
}

void end_client() {
  Client& one = client();
  if (one.process == ::getpid()) (void)one.api->finalize(nullptr, 0);
}

Status refuse(const pmix::Api& api, int status, const char* what) {
  return fail(TW_ERR_IO, "PMIx: %s failed: %s; look for what the launcher says", what, api.text(status));
}

Status open_client(const pmix::Api& api, pmix::Proc* self) {
  Client& one = client();
  const std::lock_guard lock(one.mutex);
  if (one.api == nullptr) {
    if (const int status = api.init(&one.self, nullptr, 0); status != 0) return refuse(api, status, "PMIx_Init");
    one.api = &api;
    one.process = ::getpid();
    std::atexit(end_client);
  }
  if (one.process != ::getpid()) return fail(TW_ERR_FORKED, "PMIx: the rank is the parent process's: make its world there");
  *self = one.self;
  return TW_OK;
}

class PmixLauncher final : public Launcher {
 public:
  explicit PmixLauncher(const pmix::Api& api) : api_(api), opening_(++openings) {}
  Status open();
  Status exchange(const void* mine, size_t length, void* values) override;

 private:
  Status read(uint32_t from, const char* key, size_t length, void* out);
  Status ask_size();
  Status share_key();

  const pmix::Api& api_;
  const uint32_t opening_;
  uint32_t step_ = 0;
  pmix::Proc self_{};
};

Status PmixLauncher::open() {
  if (const Status s = open_client(api_, &self_); is_error(s)) return s;
  rank = self_.rank;
  if (const Status s = ask_size(); is_error(s)) return s;
  return share_key();
}

Status PmixLauncher::ask_size() {
  pmix::Proc job = self_;
  job.rank = pmix::kEveryRank;
  pmix::Value* value = nullptr;
  if (const int status = api_.get(&job, pmix::kJobSize, nullptr, 0, &value); status != 0)
    return refuse(api_, status, "asking for the job's size");
  const bool good = value != nullptr && value->type == pmix::kUint32;
  if (good) size = value->data.number;
  std::free(value);
  if (good && rank < size) return TW_OK;
  return fail(TW_ERR_INVALID, "PMIx: rank %u of %u: the launcher's server gives no place in the job", rank, size);
}

Status PmixLauncher::share_key() {
  Bytes mine(32), all(size_t{32} * size);
  if (const Status s = random_bytes(mine.data(), mine.size()); is_error(s)) return s;
  if (const Status s = exchange(mine.data(), mine.size(), all.data()); is_error(s)) return s;
  key.assign(all.begin(), all.begin() + 32);
  return TW_OK;
}

Status PmixLauncher::read(uint32_t from, const char* name, size_t length, void* out) {
  pmix::Proc peer = self_;
  peer.rank = from;
  pmix::Value* value = nullptr;
  if (const int status = api_.get(&peer, name, nullptr, 0, &value); status != 0)
    return refuse(api_, status, "reading a rank's value");
  const bool good = value != nullptr && value->type == pmix::kByteObject && value->data.object.size == length;
  if (good && length != 0) std::memcpy(out, value->data.object.bytes, length);
  if (value != nullptr && value->type == pmix::kByteObject) std::free(value->data.object.bytes);
  std::free(value);
  return good ? Status{TW_OK}
              : fail(TW_ERR_INVALID, "PMIx: rank %u gives another value than was asked for: use one release in all", from);
}

Status PmixLauncher::exchange(const void* mine, size_t length, void* values) {
  const std::string name = "thalweg." + std::to_string(opening_) + "." + std::to_string(++step_);
  Bytes copy(length != 0 ? length : 1);
  if (length != 0) std::memcpy(copy.data(), mine, length);
  pmix::Value value{};
  value.type = pmix::kByteObject;
  value.data.object = {reinterpret_cast<char*>(copy.data()), length};
  if (const int status = api_.put(pmix::kGlobal, name.c_str(), &value); status != 0) return refuse(api_, status, "PMIx_Put");
  if (const int status = api_.commit(); status != 0) return refuse(api_, status, "PMIx_Commit");
  pmix::Info collect{};
  std::memcpy(collect.key, pmix::kCollect, sizeof pmix::kCollect);
  collect.value.type = pmix::kBool;
  collect.value.data.flag = true;
  pmix::Proc all = self_;
  all.rank = pmix::kEveryRank;
  if (const int status = api_.fence(&all, 1, &collect, 1); status != 0) return refuse(api_, status, "PMIx_Fence");
  for (uint32_t from = 0; from < size; ++from) {
    if (const Status s = read(from, name.c_str(), length, static_cast<std::byte*>(values) + from * length); is_error(s))
      return s;
  }
  return TW_OK;
}

}  // namespace

Status find_pmix(const LaunchOptions&, std::unique_ptr<Launcher>* out) {
  if (variable("PMIX_NAMESPACE") == nullptr || variable("PMIX_RANK") == nullptr) return TW_OK;
  const pmix::Api* api = nullptr;
  if (const Status s = pmix::load(&api); is_error(s)) return s;
  auto made = std::make_unique<PmixLauncher>(*api);
  if (const Status s = made->open(); is_error(s)) return s;
  *out = std::move(made);
  return TW_OK;
}

}  // namespace thalweg::impl
