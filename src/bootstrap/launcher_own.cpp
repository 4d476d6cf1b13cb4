// SPDX-License-Identifier: Apache-2.0
// `thalweg run`: THALWEG_RANK, THALWEG_SIZE, THALWEG_STORE, and the job key in THALWEG_JOB_KEY. Or a store and places of the
// program's.
#include <thalweg/thalweg.h>

#include "bootstrap/launcher.hpp"
#include "security/tls.hpp"

namespace thalweg::impl {
namespace {

bool is_known(uint32_t given, const char* name) { return given != TW_STORE_ENVIRONMENT || variable(name) != nullptr; }

/// To guess the other half would make a world of the wrong ranks.
Status refuse_half(const char* there, const char* missing) {
  return fail(TW_ERR_INVALID,
              "%s is set (or given in the options), but %s is not: a world takes both, or none where this is rank 0 of 1",
              there, missing);
}

}  // namespace

Status find_own(const LaunchOptions& options, std::unique_ptr<Launcher>* out) {
  const bool ranked = is_known(options.rank, "THALWEG_RANK"), counted = is_known(options.count, "THALWEG_SIZE");
  if (ranked != counted)
    return ranked ? refuse_half("THALWEG_RANK", "THALWEG_SIZE") : refuse_half("THALWEG_SIZE", "THALWEG_RANK");
  if (options.store == nullptr && !ranked) return TW_OK;
  StoreOptions store;
  if (const Status s = read_place(options.rank, "THALWEG_RANK", 0, &store.rank); is_error(s)) return s;
  if (const Status s = read_place(options.count, "THALWEG_SIZE", 1, &store.count); is_error(s)) return s;
  const char* address = options.store != nullptr ? options.store : variable("THALWEG_STORE");
  if (store.count == 1 && store.rank == 0 && address == nullptr) return TW_OK;  // alone, or another launcher's
  if (address == nullptr)
    return fail(
        TW_ERR_INVALID,
        "this is rank %u of %u, but there is no store to find the others by: set THALWEG_STORE, or start with \"thalweg run\"",
        store.rank, store.count);
  if (const Status s = JobKey::load(options.job_key, options.job_key_length, options.key_file, &store.key); is_error(s))
    return s;
  store.timeout_ns = options.timeout_ns;
  if (const Status s = choose_tls(options.tls, &store.tls); is_error(s)) return s;
  std::unique_ptr<Store> made;
  if (const Status s = Store::open(address, store, &made); is_error(s)) return s;
  *out = std::make_unique<StoreLauncher>(std::move(made), Bytes());
  return TW_OK;
}

}  // namespace thalweg::impl
