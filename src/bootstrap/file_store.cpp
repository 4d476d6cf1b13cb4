// SPDX-License-Identifier: Apache-2.0
// File format, little endian: 8 bytes magic, 8 bytes `end`, then records {u32 key length, u32 value length, key, value}.
// Bytes at and after `end` do not count: a writer (under flock) writes its record behind `end`, then moves `end`, so that a
// writer killed half way leaves nothing behind. Readers take a shared lock for the look at `end` only, which also makes
// network file systems look again; what lies before `end` never changes. An erased key is a record whose value length is
// kErased.
#include "bootstrap/file_store.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/interrupt.hpp"
#include "base/log.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kMagic = 0x3165726f74735754;  // "TWstore1"
constexpr uint32_t kErased = UINT32_MAX;
constexpr int kPollMs = 50;       // between two polls, with a watch
constexpr int kBlindPollMs = 2;   // without
constexpr int kTriesAtOnce = 64;  // of a lock, before it is polled
constexpr std::chrono::milliseconds kMutexTurn(10);

struct FileHeader {
  uint64_t magic;
  uint64_t end;
};
struct RecordHeader {
  uint32_t key_length;
  uint32_t value_length;
};

}  // namespace

class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {}
  ~FileLock() {
    if (held_) flock(fd_, LOCK_UN);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool take_now(int kind) { return held_ = flock(fd_, kind | LOCK_NB) == 0; }

 private:
  int fd_;
  bool held_ = false;
};

/// Processes hold it for microseconds; but one that is stopped there, or any that may read the file, for as long as it likes: so
/// nothing waits for it in the kernel.
Status FileStore::lock(FileLock& lock, int kind, const Deadline& deadline) {
  for (int tries = 0; !lock.take_now(kind);) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return fail_errno(errno, "flock of the store file");
    if (++tries < kTriesAtOnce) {
      sched_yield();
      continue;
    }
    if (deadline.passed()) return kept_locked();
    if (const Status status = pause(deadline, -1); is_error(status)) return status;
  }
  return TW_OK;
}

Status FileStore::kept_locked() const {
  return fail(TW_ERR_TIMED_OUT,
              "another process keeps the store file %s locked: is one of the job stopped? Any that may read the file can do "
              "so: chmod 600, or a fresh path",
              path_.c_str());
}

/// Another thread keeps the mutex while it waits for the file's lock: that time is this one's, too.
Status FileStore::enter(std::unique_lock<std::timed_mutex>& guard, const Deadline& deadline) {
  while (!guard.try_lock_for(kMutexTurn)) {
    if (deadline.passed()) return kept_locked();
    if (const Status status = interrupted(); is_error(status)) return status;
  }
  return TW_OK;
}

Status FileStore::open(const std::string& path, const StoreOptions& options, std::unique_ptr<Store>* out) {
  std::unique_ptr<FileStore> store(new FileStore(options));
  store->path_ = path;
  store->address_ = "file:" + path;
  store->file_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!store->file_) {
    return fail(TW_ERR_IO, "cannot open the store file %s: %s; choose a path that all processes can write", path.c_str(),
                strerror(errno));
  }
  if (const Status status = store->check_file(); is_error(status)) return status;
  if (const Status status = store->begin(); is_error(status)) return status;
  *out = std::move(store);
  return TW_OK;
}

Status FileStore::check_file() {
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) return fail_errno(errno, "fstat of the store file");
  if (!S_ISREG(info.st_mode)) return fail(TW_ERR_INVALID, "the store %s is not a regular file", path_.c_str());
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return fail(TW_ERR_PERMISSION, "the store file %s belongs to user %u; use a file of your own", path_.c_str(),
                unsigned(info.st_uid));
  }
  if (info.st_mode & 022) {
    return fail(TW_ERR_PERMISSION, "others may write the store file %s; run: chmod 600 %s", path_.c_str(), path_.c_str());
  }
  if (info.st_mode & 044)
    warn_once("store file", "others may read the store file " + path_ + ", and so keep it locked; run: chmod 600 " + path_);
  return TW_OK;
}

Status FileStore::begin() {
  FileLock held(file_.get());
  if (const Status status = lock(held, LOCK_EX, Deadline(options_.timeout_ns)); is_error(status)) return status;
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) return fail_errno(errno, "fstat of the store file");
  FileHeader header{kMagic, sizeof header};
  if (info.st_size < off_t(sizeof header)) {
    if (const Status status = write_at(0, &header, sizeof header); is_error(status)) return status;
  } else if (const Status status = read_at(0, &header, sizeof header); is_error(status)) {
    return status;
  }
  if (header.magic != kMagic) return fail(TW_ERR_INVALID, "%s is not a store file; choose another path", path_.c_str());
  read_end_ = sizeof header;
  return TW_OK;
}

Status FileStore::read_at(uint64_t offset, void* out, size_t n) {
  auto* at = static_cast<std::byte*>(out);
  while (n > 0) {
    const ssize_t got = pread(file_.get(), at, n, off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "reading the store file");
    if (got == 0) return fail(TW_ERR_IO, "the store file %s was cut short while in use", path_.c_str());
    at += got;
    offset += uint64_t(got);
    n -= size_t(got);
  }
  return TW_OK;
}

Status FileStore::write_at(uint64_t offset, const void* bytes, size_t n) {
  const auto* at = static_cast<const std::byte*>(bytes);
  while (n > 0) {
    const ssize_t put = pwrite(file_.get(), at, n, off_t(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_errno(errno, "writing the store file");
    at += put;
    offset += uint64_t(put);
    n -= size_t(put);
  }
  return TW_OK;
}

Status FileStore::append(const std::string& key, const void* value, uint32_t length) {
  Bytes record(sizeof(RecordHeader) + key.size() + (length == kErased ? 0 : length));
  const RecordHeader header{uint32_t(key.size()), length};
  std::memcpy(record.data(), &header, sizeof header);
  std::memcpy(record.data() + sizeof header, key.data(), key.size());
  if (length != kErased && length != 0) std::memcpy(record.data() + sizeof header + key.size(), value, length);
  const Deadline deadline(options_.timeout_ns);
  std::unique_lock guard(mutex_, std::defer_lock);
  if (const Status status = enter(guard, deadline); is_error(status)) return status;
  FileLock held(file_.get());
  if (const Status status = lock(held, LOCK_EX, deadline); is_error(status)) return status;
  FileHeader file{};
  if (const Status status = read_at(0, &file, sizeof file); is_error(status)) return status;
  if (const Status status = write_at(file.end, record.data(), record.size()); is_error(status)) return status;
  file.end += record.size();
  return write_at(offsetof(FileHeader, end), &file.end, sizeof file.end);
}

Status FileStore::read_new_records(uint64_t end) {
  while (read_end_ < end) {
    RecordHeader header{};
    if (const Status status = read_at(read_end_, &header, sizeof header); is_error(status)) return status;
    const uint64_t value_length = header.value_length == kErased ? 0 : header.value_length;
    const uint64_t next = read_end_ + sizeof header + header.key_length + value_length;
    if (header.key_length == 0 || header.key_length > kMaxKey || value_length > kMaxValue || next > end) {
      return fail(TW_ERR_PROTOCOL, "the store file %s is damaged; use a fresh path", path_.c_str());
    }
    std::string key(header.key_length, '\0');
    if (const Status status = read_at(read_end_ + sizeof header, key.data(), key.size()); is_error(status)) return status;
    if (header.value_length == kErased) {
      places_.erase(key);
    } else {
      places_[key] = Place{read_end_ + sizeof header + header.key_length, header.value_length};
    }
    read_end_ = next;
  }
  return TW_OK;
}

Status FileStore::refresh(const Deadline& deadline) {
  FileHeader header{};
  {
    FileLock held(file_.get());
    if (const Status status = lock(held, LOCK_SH, deadline); is_error(status)) return status;
    if (const Status status = read_at(0, &header, sizeof header); is_error(status)) return status;
  }
  return read_new_records(header.end);
}

Status FileStore::do_put(const std::string& key, const void* value, size_t length) {
  return append(key, value, uint32_t(length));
}

Status FileStore::do_erase(const std::string& key) { return append(key, nullptr, kErased); }

Status FileStore::do_get(const std::string& key, Bytes* out) { return get_within(key, Deadline(options_.timeout_ns), out); }

Status FileStore::get_within(const std::string& key, const Deadline& deadline, Bytes* out) {
  std::unique_lock guard(mutex_, std::defer_lock);
  if (const Status status = enter(guard, deadline); is_error(status)) return status;
  if (const Status status = refresh(deadline); is_error(status)) return status;
  const auto found = places_.find(key);
  if (found == places_.end()) return TW_ERR_NO_MATCH;
  out->resize(found->second.length);
  return read_at(found->second.offset, out->data(), out->size());
}

Status FileStore::pause(const Deadline& deadline, int watch) {
  const int left = deadline.left_ms();
  const int longest = watch >= 0 ? kPollMs : kBlindPollMs;
  pollfd one{watch, POLLIN, 0};
  if (poll(&one, 1, interruptible_ms(left < 0 || left > longest ? longest : left)) > 0) {
    char events[1024];
    const ssize_t drained = read(watch, events, sizeof events);
    (void)drained;
  }
  if (const Status asked = interrupted(); is_error(asked)) return asked;
  return born_.check("store");
}

Status FileStore::do_wait(const std::string& key, const Deadline& deadline, Bytes* out) {
  Status status = get_within(key, deadline, out);
  if (status != TW_ERR_NO_MATCH) return status;
  // The watch is added before the second poll, so that no write is missed. Without one (a limit, a network file system: it
  // sees only this machine's writes) polls are more frequent, or the poll's time-out covers it.
  const UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  const bool watching = watch && inotify_add_watch(watch.get(), path_.c_str(), IN_MODIFY) >= 0;
  for (;;) {
    status = get_within(key, deadline, out);
    if (status != TW_ERR_NO_MATCH) return status;
    if (deadline.passed()) return TW_ERR_TIMED_OUT;
    if (status = pause(deadline, watching ? watch.get() : -1); is_error(status)) return status;
  }
}

}  // namespace thalweg::impl
