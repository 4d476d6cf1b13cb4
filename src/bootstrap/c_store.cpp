// SPDX-License-Identifier: Apache-2.0
// The C functions of the store.
#include <thalweg/thalweg.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/environment.hpp"
#include "bootstrap/launcher.hpp"
#include "security/tls.hpp"

using namespace thalweg::impl;

struct tw_store {
  std::unique_ptr<Store> store;
};

namespace {

Status read_options(const tw_store_options* given, StoreOptions* out) {
  tw_store_options options = TW_STORE_OPTIONS_INIT;
  if (given) {
    if (given->size < offsetof(tw_store_options, job_key) || given->size > 4096) {
      return fail(TW_ERR_INVALID, "tw_store_options.size is %zu; use TW_STORE_OPTIONS_INIT", given->size);
    }
    std::memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
  }
  if (options.timeout_ns != 0) out->timeout_ns = options.timeout_ns;
  warn_of_unknown_level();
  if (const Status status = choose_tls(options.tls != 0, &out->tls); is_error(status)) return status;
  if (const Status status = read_place(options.rank, "THALWEG_RANK", 0, &out->rank); is_error(status)) return status;
  if (const Status status = read_place(options.count, "THALWEG_SIZE", 1, &out->count); is_error(status)) return status;
  return JobKey::load(options.job_key, options.job_key_length, nullptr, &out->key);
}

Status check(const tw_store* store) {
  return store ? Status(TW_OK) : fail(TW_ERR_HANDLE, "the store is NULL; open one with tw_store_open");
}

Status check(const tw_store* store, const char* key, const size_t* length) {
  if (const Status status = check(store); is_error(status)) return status;
  return key && length ? Status(TW_OK) : fail(TW_ERR_INVALID, "key and length may not be NULL");
}

Status hand_out(const Bytes& found, const char* key, void* value, size_t* length) {
  const size_t room = value ? *length : 0;
  *length = found.size();
  if (room < found.size()) {
    return fail(TW_ERR_TRUNCATED, "\"%s\" has %zu bytes and the buffer %zu", key, found.size(), room);
  }
  if (!found.empty()) std::memcpy(value, found.data(), found.size());
  return TW_OK;
}

// C callers see no exception: what standard containers throw is lack of memory.
template <typename Function>
Status guarded(Function&& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return fail(TW_ERR_NO_MEMORY, "out of memory in a store's function");
  }
}

}  // namespace

tw_status tw_store_open(const char* address, const tw_store_options* options, tw_store** store) {
  if (!store) return fail(TW_ERR_INVALID, "where should the store go? store is NULL");
  *store = nullptr;
  return guarded([&]() -> Status {
    const char* where = address ? address : std::getenv("THALWEG_STORE");
    if (!where || !*where) {
      return fail(TW_ERR_INVALID, "no store's address: give one, set THALWEG_STORE, or start with \"thalweg run\"");
    }
    StoreOptions parsed;
    if (const Status status = read_options(options, &parsed); is_error(status)) return status;
    auto made = std::make_unique<tw_store>();
    if (const Status status = Store::open(where, parsed, &made->store); is_error(status)) return status;
    *store = made.release();
    return TW_OK;
  });
}

void tw_store_close(tw_store* store) { delete store; }

const char* tw_store_address(const tw_store* store) { return store ? store->store->address().c_str() : ""; }

uint32_t tw_store_rank(const tw_store* store) { return store ? store->store->rank() : 0; }

uint32_t tw_store_count(const tw_store* store) { return store ? store->store->count() : 0; }

tw_status tw_store_put(tw_store* store, const char* key, const void* value, size_t length) {
  if (const Status status = check(store, key, &length); is_error(status)) return status;
  if (!value && length) return fail(TW_ERR_INVALID, "value is NULL and length %zu", length);
  return guarded([&] { return store->store->put(key, value, length); });
}

tw_status tw_store_get(tw_store* store, const char* key, void* value, size_t* length) {
  if (const Status status = check(store, key, length); is_error(status)) return status;
  return guarded([&] {
    Bytes found;
    const Status status = store->store->get(key, &found);
    return is_error(status) ? status : hand_out(found, key, value, length);
  });
}

tw_status tw_store_wait(tw_store* store, const char* key, void* value, size_t* length) {
  if (const Status status = check(store, key, length); is_error(status)) return status;
  return guarded([&] {
    Bytes found;
    const Status status = store->store->wait(key, &found);
    return is_error(status) ? status : hand_out(found, key, value, length);
  });
}

tw_status tw_store_exchange(tw_store* store, const void* mine, size_t length, void* values) {
  if (const Status status = check(store); is_error(status)) return status;
  if (length && (!mine || !values)) return fail(TW_ERR_INVALID, "mine and values may not be NULL");
  return guarded([&] { return store->store->exchange(mine, length, values); });
}

tw_status tw_store_barrier(tw_store* store) {
  if (const Status status = check(store); is_error(status)) return status;
  return guarded([&] { return store->store->barrier(); });
}
