// SPDX-License-Identifier: Apache-2.0
// torchrun, and what else sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. The last one is of torch's own store, which its
// rank 0 or the agent serves; ours is at the port behind it, served by rank 0, or where THALWEG_STORE says.
//
// torchrun gives its processes no secret: a run's id may be in anybody's list of processes. So the key comes from where keys of
// a user do (THALWEG_JOB_KEY, the key file, which machines with one home directory share), and the run's id only tells its runs
// apart.
#include <thalweg/thalweg.h>

#include <string>

#include "bootstrap/launcher.hpp"
#include "security/tls.hpp"

namespace thalweg::impl {
namespace {

constexpr const char* kVariables[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0; }

/// Where rank 0 serves, and the others find it.
Status store_address(uint32_t rank, std::string* out) {
  if (const char* given = variable("THALWEG_STORE")) {
    *out = given;
    if (rank == 0 && out->rfind("tcp:", 0) == 0) *out = "serve:" + out->substr(4);
    return TW_OK;
  }
  std::string host = variable("MASTER_ADDR");
  uint32_t port = 0;
  if (const Status s = read_place(TW_STORE_ENVIRONMENT, "MASTER_PORT", 0, &port); is_error(s)) return s;
  if (port == 0 || port > 65534)
    return fail(TW_ERR_INVALID, "MASTER_PORT is %u: the store would be at the port behind it; set THALWEG_STORE=tcp:host:port",
                port);
  if (rank == 0 && !is_loopback(host)) host = "";  // all interfaces: the name may lead to one that the others do not see
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  *out = (rank == 0 ? "serve:" : "tcp:") + host + ":" + std::to_string(port + 1);
  return TW_OK;
}

Status job_key(const LaunchOptions& options, Bytes* out) {
  JobKey key;
  if (const Status s = JobKey::load(options.job_key, options.job_key_length, options.key_file, &key); is_error(s)) return s;
  std::string run;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"}) {
    const char* text = variable(name);
    run += std::string(text != nullptr ? text : "") + '\0';
  }
  const auto derived = key.mac("torchrun", run.data(), run.size());
  out->assign(derived.begin(), derived.end());
  return TW_OK;
}

}  // namespace

Status find_torchrun(const LaunchOptions& options, std::unique_ptr<Launcher>* out) {
  const bool elastic = variable("TORCHELASTIC_RUN_ID") != nullptr;
  for (const char* name : kVariables) {
    if (variable(name) != nullptr) continue;
    if (!elastic) return TW_OK;
    return fail(TW_ERR_INVALID, "torchrun started this process (TORCHELASTIC_RUN_ID), but %s is not set: pass it on", name);
  }
  StoreOptions store;
  if (const Status s = read_place(options.rank, "RANK", 0, &store.rank); is_error(s)) return s;
  if (const Status s = read_place(options.count, "WORLD_SIZE", 1, &store.count); is_error(s)) return s;
  std::string address;
  if (const Status s = store_address(store.rank, &address); is_error(s)) return s;
  Bytes key;
  if (const Status s = job_key(options, &key); is_error(s)) return s;
  if (const Status s = JobKey::load(key.data(), key.size(), nullptr, &store.key); is_error(s)) return s;
  store.timeout_ns = options.timeout_ns;
  if (const Status s = choose_tls(options.tls, &store.tls); is_error(s)) return s;
  std::unique_ptr<Store> made;
  if (const Status s = Store::open(address, store, &made); is_error(s)) {
    const std::string why = last_error();
    return fail(s, "%s (the store of a job that torchrun started; THALWEG_STORE=tcp:host:port puts it elsewhere)", why.c_str());
  }
  *out = std::make_unique<StoreLauncher>(std::move(made), std::move(key));
  return TW_OK;
}

}  // namespace thalweg::impl
