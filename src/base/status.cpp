// SPDX-License-Identifier: Apache-2.0
// Names, general texts and the thread's last error.
#include "base/status.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/told_status.hpp"

namespace thalweg::impl {
namespace {

struct Entry {
  Status code;
  const char* name;
  const char* text;
};

constexpr Entry kEntries[] = {
    {TW_OK, "ok", "success"},
    {TW_IN_PROGRESS, "in_progress", "the operation completes later: progress and test its request"},
    {TW_AGAIN, "again", "nothing was queued: progress, then try again"},
    {TW_ERR_INVALID, "invalid", "an argument makes no sense; check it against the function's comment"},
    {TW_ERR_HANDLE, "handle", "the handle or request is not alive any more; do not use it after its release"},
    {TW_ERR_UNSUPPORTED, "unsupported", "this combination is not supported; see the table of operations in the documentation"},
    {TW_ERR_OUT_OF_BOUNDS, "out_of_bounds", "the access leaves the registered region; check offset and length"},
    {TW_ERR_MISALIGNED, "misaligned", "atomics and signals need naturally aligned words; align the offset to the size"},
    {TW_ERR_THREAD, "thread", "a single-thread worker was used by two threads; create it with TW_THREADS_MULTI"},
    {TW_ERR_FORKED, "forked", "the object belongs to the parent process; make a new context and its objects after fork()"},
    {TW_ERR_BUSY, "busy", "in use, or events are pending; progress first"},
    {TW_ERR_PERMISSION, "permission", "the key does not allow this access; export the memory with that access"},
    {TW_ERR_NO_MEMORY, "no_memory", "out of memory; free some or raise the memory limit"},
    {TW_ERR_NO_DESCRIPTORS, "no_descriptors", "out of file descriptors; raise the limit (ulimit -n) or close endpoints"},
    {TW_ERR_NO_SHARED_MEMORY, "no_shared_memory", "shared memory is full; enlarge /dev/shm or the memory limit"},
    {TW_ERR_LIMIT, "limit", "a documented limit of the library was reached"},
    {TW_ERR_IO, "io", "a system call failed; the error's text says which"},
    {TW_ERR_PEER_LOST, "peer_lost", "the peer ended or cannot be reached any more; connect again"},
    {TW_ERR_UNREACHABLE, "unreachable", "no transport reaches the peer; check that it runs, its address and the firewall"},
    {TW_ERR_REJECTED, "rejected", "the listener's user rejected the connection; its private data may say why"},
    {TW_ERR_TIMED_OUT, "timed_out", "the time limit passed; raise it or find out what the peer waits for"},
    {TW_ERR_CLOSED, "closed", "the connection or object was closed, by this side or by the peer"},
    {TW_ERR_STALE, "stale", "the key or address is of an earlier incarnation or was revoked; ask the peer for a new one"},
    {TW_ERR_ADDRESS_IN_USE, "address_in_use", "the address is in use; choose another port or 0"},
    {TW_ERR_AUTHENTICATION, "authentication", "the peer does not know the job key; give both sides the same key"},
    {TW_ERR_VERSION, "version", "no common protocol version; install the same release on both sides"},
    {TW_ERR_PROTOCOL, "protocol", "the peer sent what no peer may send; the connection was closed"},
    {TW_ERR_KEY_FILE, "key_file", "the job key file cannot be used; see the error's text"},
    {TW_ERR_TRUNCATED, "truncated", "the receive buffer is too short; the true length is known"},
    {TW_ERR_CANCELED, "canceled", "the request was canceled"},
    {TW_ERR_NO_MATCH, "no_match", "nothing matches"},
    {TW_ERR_DEVICE, "device", "the accelerator reported an error; see the error's text"},
};

const Entry* find(Status s) {
  for (const Entry& entry : kEntries) {
    if (entry.code == s) return &entry;
  }
  return nullptr;
}

std::string& text_of_thread() {
  thread_local std::string text;
  return text;
}

Status class_of(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE:
      return TW_ERR_NO_DESCRIPTORS;
    case ENOMEM:
      return TW_ERR_NO_MEMORY;
    case EADDRINUSE:
      return TW_ERR_ADDRESS_IN_USE;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return TW_ERR_UNREACHABLE;
    case ECONNRESET:
    case EPIPE:
      return TW_ERR_PEER_LOST;
    case ETIMEDOUT:
      return TW_ERR_TIMED_OUT;
    default:
      return TW_ERR_IO;
  }
}

}  // namespace

Status fail(Status code, const char* format, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  text_of_thread() = buffer;
  return code;
}

Status fail_errno(int error, const char* what) {
  const Status code = class_of(error);
  char buffer[128];
  const char* system_text = strerror_r(error, buffer, sizeof buffer);
  if (code == TW_ERR_IO) return fail(code, "%s: %s", what, system_text);
  return fail(code, "%s: %s (%s)", what, system_text, status_text(code));
}

Status told_status(int32_t number) {
  const bool sensible = number == TW_OK || (number < 0 && find(number) != nullptr);
  return sensible ? Status{number} : Status{TW_ERR_PROTOCOL};
}

Status told_outcome(int64_t number, Status otherwise) {
  if (number < INT32_MIN || number > 0 || find(static_cast<Status>(number)) == nullptr) return otherwise;
  switch (number) {
    case TW_ERR_HANDLE:
    case TW_ERR_THREAD:
    case TW_ERR_FORKED:
    case TW_ERR_BUSY:
    case TW_ERR_TIMED_OUT:
      return otherwise;
    default:
      return static_cast<Status>(number);
  }
}

Status told_error(int64_t number) {
  const Status status = told_outcome(number, TW_ERR_INVALID);
  return status == TW_OK ? Status{TW_ERR_INVALID} : status;
}

const char* status_name(Status s) {
  const Entry* entry = find(s);
  return entry ? entry->name : "unknown";
}

const char* status_text(Status s) {
  const Entry* entry = find(s);
  return entry ? entry->text : "a status this version does not know; the peer or caller may be newer";
}

const char* last_error() { return text_of_thread().c_str(); }

void set_last_error(std::string text) { text_of_thread() = std::move(text); }

}  // namespace thalweg::impl
