// SPDX-License-Identifier: Apache-2.0
#include "status.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace thalweg::ucx {
namespace {

constexpr size_t kTold = 128;  // texts of one format that are remembered: more are not told. A peer may choose what is in them

bool is_silent() {
  const char* ucx = std::getenv("UCX_LOG_LEVEL");
  const char* own = std::getenv("THALWEG_LOG");
  return (ucx != nullptr && std::strcmp(ucx, "fatal") == 0) || (own != nullptr && std::strcmp(own, "off") == 0);
}

ucs_status_t status_of_connection(tw_status status) {
  switch (status) {
    case TW_ERR_PEER_LOST:
      return UCS_ERR_ENDPOINT_TIMEOUT;
    case TW_ERR_UNREACHABLE:
    case TW_ERR_STALE:
      return UCS_ERR_UNREACHABLE;
    case TW_ERR_REJECTED:
      return UCS_ERR_REJECTED;
    case TW_ERR_TIMED_OUT:
      return UCS_ERR_TIMED_OUT;
    case TW_ERR_CLOSED:
      return UCS_ERR_CONNECTION_RESET;
    case TW_ERR_ADDRESS_IN_USE:
      return UCS_ERR_BUSY;
    case TW_ERR_AUTHENTICATION:
    case TW_ERR_VERSION:
    case TW_ERR_KEY_FILE:
      return UCS_ERR_UNREACHABLE;
    default:
      return UCS_ERR_IO_ERROR;
  }
}

}  // namespace

ucs_status_t status_of(tw_status status) {
  switch (status) {
    case TW_OK:
      return UCS_OK;
    case TW_IN_PROGRESS:
      return UCS_INPROGRESS;
    case TW_AGAIN:
    case TW_ERR_NO_DESCRIPTORS:
      return UCS_ERR_NO_RESOURCE;
    case TW_ERR_INVALID:
    case TW_ERR_HANDLE:
    case TW_ERR_MISALIGNED:
    case TW_ERR_THREAD:
    case TW_ERR_FORKED:
      return UCS_ERR_INVALID_PARAM;
    case TW_ERR_UNSUPPORTED:
      return UCS_ERR_UNSUPPORTED;
    case TW_ERR_OUT_OF_BOUNDS:
      return UCS_ERR_OUT_OF_RANGE;
    case TW_ERR_BUSY:
      return UCS_ERR_BUSY;
    case TW_ERR_PERMISSION:
      return UCS_ERR_INVALID_ADDR;
    case TW_ERR_NO_MEMORY:
      return UCS_ERR_NO_MEMORY;
    case TW_ERR_NO_SHARED_MEMORY:
      return UCS_ERR_SHMEM_SEGMENT;
    case TW_ERR_LIMIT:
      return UCS_ERR_EXCEEDS_LIMIT;
    case TW_ERR_TRUNCATED:
      return UCS_ERR_MESSAGE_TRUNCATED;
    case TW_ERR_CANCELED:
      return UCS_ERR_CANCELED;
    case TW_ERR_NO_MATCH:
      return UCS_ERR_NO_MESSAGE;
    case TW_ERR_DEVICE:
      return UCS_ERR_NO_DEVICE;
    default:
      return status_of_connection(status);
  }
}

void tell(const char* format, ...) {
  static const bool silent = is_silent();
  if (silent) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  static std::mutex mutex;
  static auto* const all = new std::map<const char*, std::set<std::string>>;  // other threads may tell while the process ends
  const std::lock_guard lock(mutex);
  std::set<std::string>& told = (*all)[format];
  if (told.size() >= kTold || !told.insert(text).second) return;
  std::fprintf(stderr, "thalweg ucx: %s\n", text);
}

bool wants_info() {
  const char* level = std::getenv("THALWEG_LOG");
  return level != nullptr && (std::strcmp(level, "info") == 0 || std::strcmp(level, "debug") == 0);
}

ucs_status_t unsupported(const char* function, const char* what, const char* remedy) {
  tell("%s: %s is not supported; %s (docs/adapters.md lists what is not)", function, what, remedy);
  return UCS_ERR_UNSUPPORTED;
}

ucs_status_t failed(const char* function, tw_status status) {
  tell("%s: %s: %s", function, tw_status_name(status), tw_last_error());
  return status_of(status);
}

ucs_status_t unknown_bits(const char* function, const char* field, uint64_t bits) {
  const std::string what = std::string("bit ") + std::to_string(__builtin_ctzll(bits)) + " of " + field;
  return unsupported(function, what.c_str(), "it is of a later UCX, or a gap: leave it out");
}

}  // namespace thalweg::ucx
