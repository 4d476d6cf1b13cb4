// SPDX-License-Identifier: Apache-2.0
// What all stores share: checks, and the collectives built on put and wait.
//
// Exchange number s of an epoch is one key per rank, and one in which rank 0 puts their values together. A rank that has
// finished s + 1 knows that all ranks have finished s (they would not have put s + 1 otherwise), so it erases its own key of s:
// the store does not grow. The epoch counts how often a rank has opened the store, so that a second opening never reads what
// the first one left.
#include "bootstrap/store.hpp"

#include <cstdlib>
#include <cstring>

#include "bootstrap/file_store.hpp"
#include "bootstrap/tcp_store.hpp"

namespace thalweg::impl {

Status Store::open(const std::string& address, const StoreOptions& options, std::unique_ptr<Store>* out) {
  if (options.count == 0) {
    return fail(TW_ERR_INVALID,
                "a store for 0 processes: set count in tw_store_options, or leave TW_STORE_OPTIONS_INIT's, which "
                "takes THALWEG_RANK and THALWEG_SIZE");
  }
  if (options.rank >= options.count) {
    return fail(TW_ERR_INVALID, "rank %u of %u processes: ranks go from 0 to count - 1 (options, THALWEG_RANK, THALWEG_SIZE)",
                options.rank, options.count);
  }
  if (address.rfind("file:", 0) == 0) return FileStore::open(address.substr(5), options, out);
  if (address.rfind("tcp:", 0) == 0) return TcpStore::open(address.substr(4), options, out);
  if (address.rfind("serve:", 0) == 0) return TcpStore::serve(address.substr(6), options, out);
  return fail(TW_ERR_INVALID, "\"%s\" is not a store's address: use file:/path, tcp:host:port or serve:host:port",
              address.c_str());
}

Status Store::check(const std::string& key) const {
  if (const Status status = born_.check("store"); is_error(status)) return status;
  if (key.empty() || key.size() > kMaxKey)
    return fail(TW_ERR_INVALID, "a store's key has 1 to %zu bytes, not %zu", kMaxKey, key.size());
  return TW_OK;
}

Status Store::put(const std::string& key, const void* value, size_t length) {
  if (const Status status = check(key); is_error(status)) return status;
  if (length > kMaxValue) return fail(TW_ERR_LIMIT, "a store's value has at most %zu bytes, not %zu", kMaxValue, length);
  return do_put(key, value, length);
}

Status Store::get(const std::string& key, Bytes* out) {
  if (const Status status = check(key); is_error(status)) return status;
  const Status status = do_get(key, out);
  return status == TW_ERR_NO_MATCH ? fail(status, "the store %s has no key \"%s\"", address_.c_str(), key.c_str()) : status;
}

Status Store::wait(const std::string& key, Bytes* out) {
  if (const Status status = check(key); is_error(status)) return status;
  set_last_error({});
  const Status status = do_wait(key, Deadline(options_.timeout_ns), out);
  if (status != TW_ERR_TIMED_OUT) return status;
  if (const std::string why = last_error(); !why.empty())
    return fail(status, "waiting for \"%s\" in the store %s: %s", key.c_str(), address_.c_str(), why.c_str());
  return fail(status, "nobody put \"%s\" into the store %s within %.1f s; did the process that should have ended?", key.c_str(),
              address_.c_str(), double(options_.timeout_ns) * 1e-9);
}

std::string Store::step_key(uint64_t step, uint32_t rank) const {
  return "thalweg/exchange/" + std::to_string(epoch_) + "/" + std::to_string(step) + "/" + std::to_string(rank);
}

std::string Store::gathered_key(uint64_t step) const {
  return "thalweg/exchange/" + std::to_string(epoch_) + "/" + std::to_string(step) + "/all";
}

std::string Store::epoch_key(uint32_t rank) { return "thalweg/epoch/" + std::to_string(rank); }

Status Store::epoch_of(uint32_t rank, uint64_t* epoch) {
  Bytes before;
  const Status status = do_get(epoch_key(rank), &before);
  if (is_error(status) && status != TW_ERR_NO_MATCH) return status;
  *epoch = 0;
  if (status == TW_OK && before.size() == sizeof *epoch) std::memcpy(epoch, before.data(), sizeof *epoch);
  return TW_OK;
}

/// Of a rank that has not come: has it been here more or less often? Such a store never works again.
std::string Store::other_epoch(uint32_t rank) {
  uint64_t theirs = 0;
  if (is_error(epoch_of(rank, &theirs)) || theirs == epoch_ || theirs == 0) return {};
  const char* const late = theirs < epoch_ ? "if it is not just late, " : "";
  return "; rank " + std::to_string(rank) + " has opened this store " + (theirs < epoch_ ? "fewer" : "more") + " times (" +
         std::to_string(theirs) + ") than rank " + std::to_string(options_.rank) + " (" + std::to_string(epoch_) +
         "): " + late + "a start in which not all ranks came has left it so: use a fresh path, or a new server";
}

Status Store::enter_epoch() {
  if (epoch_ != 0) return TW_OK;
  uint64_t epoch = 0;
  if (const Status status = epoch_of(options_.rank, &epoch); is_error(status)) return status;
  ++epoch;
  if (const Status stored = do_put(epoch_key(options_.rank), &epoch, sizeof epoch); is_error(stored)) return stored;
  epoch_ = epoch;
  return TW_OK;
}

/// The time is over: says who did not come. A store that does not answer any more is not asked for each rank: each question may
/// take the whole time again.
Status Store::missing(uint64_t step) {
  std::string ranks, differs;
  Bytes ignored;
  Status status = do_wait(step_key(step, options_.rank), Deadline(kSecond), &ignored);  // is there
  for (uint32_t rank = 0; rank < options_.count && !is_error(status); ++rank) {
    const Status found = do_get(step_key(step, rank), &ignored);
    if (is_error(found) && found != TW_ERR_NO_MATCH) status = found;
    if (found != TW_ERR_NO_MATCH) continue;
    if (ranks.size() > 200) {
      ranks += ", ...";
      break;
    }
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    if (differs.empty()) differs = other_epoch(rank);
  }
  if (status == TW_ERR_CANCELED) return status;
  if (is_error(status))
    return fail(
        TW_ERR_TIMED_OUT,
        "exchange or barrier %llu over the store %s did not end within %.1f s, and the store does not answer any more: is "
        "its server still running?",
        static_cast<unsigned long long>(step), address_.c_str(), double(options_.timeout_ns) * 1e-9);
  if (ranks.empty()) {  // or all that is here is of a start before
    ranks = "0 (in time to pass on what the others gave)";
    differs = other_epoch(0);
  }
  return fail(TW_ERR_TIMED_OUT, "exchange or barrier %llu over the store %s: of %u ranks, %s did not come within %.1f s%s",
              static_cast<unsigned long long>(step), address_.c_str(), options_.count, ranks.c_str(),
              double(options_.timeout_ns) * 1e-9, differs.c_str());
}

/// Rank 0: reads all ranks' values and puts them together, so that the others read one: 3 requests a rank instead of one a rank
/// and rank. Of values that are too long for one, an empty text: each rank reads all then.
Status Store::gather(uint64_t step, const Deadline& deadline) {
  Bytes together, theirs;
  bool fits = true;
  for (uint32_t rank = 0; rank < options_.count; ++rank) {
    if (const Status status = do_wait(step_key(step, rank), deadline, &theirs); is_error(status)) return status;
    const auto length = static_cast<uint32_t>(theirs.size());
    const auto* head = reinterpret_cast<const std::byte*>(&length);
    fits = fits && together.size() + sizeof length + length <= kMaxValue;
    if (!fits) continue;
    together.insert(together.end(), head, head + sizeof length);
    together.insert(together.end(), theirs.begin(), theirs.end());
  }
  if (!fits) together.clear();
  return do_put(gathered_key(step), together.data(), together.size());
}

/// One rank's value, from what was put together (*at moves on), or its own key.
Status Store::value_of(uint64_t step, uint32_t rank, const Bytes& together, size_t* at, const Deadline& deadline, Bytes* out) {
  if (together.empty()) return do_wait(step_key(step, rank), deadline, out);
  uint32_t length = 0;
  if (together.size() - *at < sizeof length)
    return fail(TW_ERR_PROTOCOL, "the store %s holds a damaged exchange", address_.c_str());
  std::memcpy(&length, together.data() + *at, sizeof length);
  *at += sizeof length;
  if (together.size() - *at < length) return fail(TW_ERR_PROTOCOL, "the store %s holds a damaged exchange", address_.c_str());
  out->assign(together.begin() + static_cast<ptrdiff_t>(*at), together.begin() + static_cast<ptrdiff_t>(*at + length));
  *at += length;
  return TW_OK;
}

Status Store::exchange(const void* mine, size_t length, void* values) {
  if (const Status status = born_.check("store"); is_error(status)) return status;
  if (length > kMaxValue)
    return fail(TW_ERR_LIMIT, "an exchange carries at most %zu bytes per rank, not %zu", kMaxValue, length);
  const std::lock_guard lock(exchange_mutex_);
  if (const Status status = enter_epoch(); is_error(status)) return status;
  const Deadline deadline(options_.timeout_ns);
  const uint64_t step = ++step_;
  if (const Status status = do_put(step_key(step, options_.rank), mine, length); is_error(status)) return status;
  Status status = options_.rank == 0 ? gather(step, deadline) : Status{TW_OK};
  Bytes together, theirs;
  if (!is_error(status)) status = do_wait(gathered_key(step), deadline, &together);
  size_t at = 0;
  for (uint32_t rank = 0; rank < options_.count && !is_error(status); ++rank) {
    status = value_of(step, rank, together, &at, deadline, &theirs);
    if (!is_error(status) && theirs.size() != length) {
      status = fail(TW_ERR_INVALID, "exchange: rank %u gave %zu bytes and rank %u %zu; all give the same length", rank,
                    theirs.size(), options_.rank, length);
    }
    if (!is_error(status) && length != 0)
      std::memcpy(static_cast<std::byte*>(values) + size_t(rank) * length, theirs.data(), length);
  }
  if (status == TW_ERR_TIMED_OUT) return missing(step);
  if (is_error(status) || step == 1) return status;
  status = do_erase(step_key(step - 1, options_.rank));
  return options_.rank == 0 && !is_error(status) ? do_erase(gathered_key(step - 1)) : status;
}

Status Store::barrier() { return exchange(nullptr, 0, nullptr); }

}  // namespace thalweg::impl
