// SPDX-License-Identifier: Apache-2.0
// mpirun and prterun of Open MPI, srun --mpi=pmix, and others with a server of PMIx on each machine. Rank 0 makes the job's
// key; it and all values travel over the launcher's own connections, which are as private as the launcher keeps them.
//
// The client is finalised when the process exits: one that ends without it counts as failed, and after it an MPI that is
// initialised later could not have its own (Open MPI 4). An MPI in the process counts its own use.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "base/interrupt.hpp"
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

/// One fence. The library keeps it until it calls back, which it may do after the wait has ended, or never.
struct Fence {
  explicit Fence(const pmix::Proc& self) : among(self) {
    among.rank = pmix::kEveryRank;
    std::memcpy(collect.key, pmix::kCollect, sizeof pmix::kCollect);
    collect.value.type = pmix::kBool;
    collect.value.data.flag = true;
  }
  static void ended(int status, void* data) {
    const std::unique_ptr<std::shared_ptr<Fence>> held(static_cast<std::shared_ptr<Fence>*>(data));
    const std::lock_guard lock((*held)->mutex);
    (*held)->status = status;
    (*held)->over = true;
    (*held)->changed.notify_all();
  }
  /// At most `ms`; -1: no limit.
  bool wait(int ms) {
    std::unique_lock lock(mutex);
    if (ms < 0)
      changed.wait(lock, [this] { return over; });
    else
      changed.wait_for(lock, std::chrono::milliseconds(ms), [this] { return over; });
    return over;
  }

  pmix::Proc among;
  pmix::Info collect{};
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  int status = 0;
};

class PmixLauncher final : public Launcher {
 public:
  PmixLauncher(const pmix::Api& api, uint64_t timeout_ns) : api_(api), timeout_ns_(timeout_ns), opening_(++openings) {}
  Status open();
  Status exchange(const void* mine, size_t length, void* values) override;

 private:
  Status read(uint32_t from, const char* key, size_t length, void* out);
  Status ask_size();
  Status share_key();
  Status meet();

  const pmix::Api& api_;
  const uint64_t timeout_ns_;
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

/// A fence of all ranks, which brings what they have put. The library's own wait knows neither our limit (what servers make of
/// PMIX_TIMEOUT differs) nor an interrupt.
Status PmixLauncher::meet() {
  const auto fence = std::make_shared<Fence>(self_);
  auto held = std::make_unique<std::shared_ptr<Fence>>(fence);
  const int begun = api_.fence(&fence->among, 1, &fence->collect, 1, Fence::ended, held.get());
  if (begun == pmix::kSucceeded) return TW_OK;
  if (begun != 0) return refuse(api_, begun, "PMIx_Fence_nb");
  (void)held.release();  // the library's now
  const Deadline deadline(timeout_ns_);
  while (!fence->wait(interruptible_ms(deadline.left_ms()))) {
    if (const Status s = interrupted(); is_error(s)) return s;
    if (deadline.passed())
      return fail(
          TW_ERR_TIMED_OUT,
          "PMIx: not all %u ranks have come within %llu ms: each must make its world; look for one that ended or hangs, or "
          "give a longer timeout_ns",
          size, static_cast<unsigned long long>(timeout_ns_ / kMillisecond));
  }
  return fence->status == 0 ? Status{TW_OK} : refuse(api_, fence->status, "PMIx_Fence_nb");
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
  if (const Status s = meet(); is_error(s)) return s;
  for (uint32_t from = 0; from < size; ++from) {
    if (const Status s = read(from, name.c_str(), length, static_cast<std::byte*>(values) + from * length); is_error(s))
      return s;
  }
  return TW_OK;
}

}  // namespace

Status find_pmix(const LaunchOptions& options, std::unique_ptr<Launcher>* out) {
  if (variable("PMIX_NAMESPACE") == nullptr || variable("PMIX_RANK") == nullptr) return TW_OK;
  const pmix::Api* api = nullptr;
  if (const Status s = pmix::load(&api); is_error(s)) return s;
  auto made = std::make_unique<PmixLauncher>(*api, options.timeout_ns);
  if (const Status s = made->open(); is_error(s)) return s;
  *out = std::move(made);
  return TW_OK;
}

}  // namespace thalweg::impl
