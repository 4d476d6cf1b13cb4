// SPDX-License-Identifier: Apache-2.0
// `thalweg run`: THALWEG_RANK, THALWEG_SIZE, THALWEG_STORE, and the job key in THALWEG_JOB_KEY. Or a store and places of the
// program's.
#include <thalweg/thalweg.h>

#include "bootstrap/launcher.hpp"
#include "security/tls.hpp"

namespace thalweg::impl {

Status find_own(const LaunchOptions& options, std::unique_ptr<Launcher>* out) {
  const bool placed = options.rank != TW_STORE_ENVIRONMENT || options.count != TW_STORE_ENVIRONMENT ||
                      variable("THALWEG_RANK") != nullptr || variable("THALWEG_SIZE") != nullptr;
  if (options.store == nullptr && !placed) return TW_OK;
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
