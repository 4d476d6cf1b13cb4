// SPDX-License-Identifier: Apache-2.0
// Sealed, preallocated memfds and their mappings.
#include "memory/segment.hpp"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace thalweg::impl {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr size_t kHugePage = 2u << 20;
constexpr size_t kAskFirst = 1u << 20;

/// The length is rounded up to whole pages: the kernel maps nothing smaller.
size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

[[gnu::cold]] Status no_shared_memory(int error, size_t length) {
  if (error == ENOSPC || error == ENOMEM)
    return fail(TW_ERR_NO_SHARED_MEMORY,
                "no room for %zu bytes of shared memory: free memory, or raise the memory limit of this container or cgroup "
                "(shared memory counts against it)",
                length);
  return fail_errno(error, "fallocate on a memfd");
}

/// One number from a one-line file; `missing` when there is none ("max" is none).
uint64_t read_number(const char* path, uint64_t missing) {
  unsigned long long value = missing;
  if (FILE* file = fopen(path, "re")) {
    if (fscanf(file, "%llu", &value) != 1) value = missing;
    fclose(file);
  }
  return value;
}

/// What one memory controller still gives, as far as its files are visible here.
uint64_t left_of(const char* limit_file, const char* usage_file) {
  const uint64_t limit = read_number(limit_file, UINT64_MAX), usage = read_number(usage_file, 0);
  return limit == UINT64_MAX ? limit : limit > usage ? limit - usage : 0;
}

/// Bytes that may be taken without calling the out-of-memory killer: allocating shared memory does not fail before that.
uint64_t memory_left() {
  unsigned long long available_kb = UINT64_MAX / 1024;
  if (FILE* file = fopen("/proc/meminfo", "re")) {
    char line[128];
    while (fgets(line, sizeof line, file) != nullptr)
      if (sscanf(line, "MemAvailable: %llu", &available_kb) == 1) break;
    fclose(file);
  }
  return std::min({uint64_t(available_kb) * 1024, left_of("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
                   left_of("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes")});
}

/// A memfd of huge pages when the machine has reserved some, else an ordinary one. Preallocated either way.
Status make_memfd(const char* name, size_t* length, bool* huge, UniqueFd* out) {
  if (*huge) {
    const size_t rounded = round_up(*length, kHugePage);
    UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (fd && ftruncate(fd.get(), off_t(rounded)) == 0 && fallocate(fd.get(), 0, 0, off_t(rounded)) == 0) {
      *length = rounded;
      *out = std::move(fd);
      return TW_OK;
    }
    *huge = false;
  }
  *length = round_up(*length, size_t(sysconf(_SC_PAGESIZE)));
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(errno, "memfd_create");
  if (ftruncate(fd.get(), off_t(*length)) != 0) return no_shared_memory(errno, *length);
  int error = 0;
  do error = fallocate(fd.get(), 0, 0, off_t(*length)) == 0 ? 0 : errno;
  while (error == EINTR);
  if (error != 0) return no_shared_memory(error, *length);
  *out = std::move(fd);
  return TW_OK;
}

/// The pages exist already; populating only fills this process's page table, so that first use does not fault. Beyond a
/// limit that takes longer than the service thread, which maps imports, may be away.
constexpr size_t kPopulateMax = size_t(64) << 20;
Status map(int fd, size_t length, bool private_to_process, std::byte** data) {
  void* address =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | (length <= kPopulateMax ? MAP_POPULATE : 0), fd, 0);
  if (address == MAP_FAILED) return fail_errno(errno, "mmap of shared memory");
  if (private_to_process) madvise(address, length, MADV_DONTFORK);
  *data = static_cast<std::byte*>(address);
  return TW_OK;
}

}  // namespace

Segment::Segment(Segment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      huge_(other.huge_),
      fd_(std::move(other.fd_)),
      born_(other.born_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr && !born_.forked()) munmap(data_, size_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    huge_ = other.huge_;
    fd_ = std::move(other.fd_);
    born_ = other.born_;
  }
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr && !born_.forked()) munmap(data_, size_);
}

Status Segment::create(const char* name, size_t length, bool private_to_process, bool huge, Segment* out) {
  if (length == 0 || length > (size_t(1) << 46)) return fail(TW_ERR_INVALID, "a shared segment of %zu bytes", length);
  // Reading those files costs more than a small segment does, and a small one is no danger.
  if (length >= kAskFirst && length > memory_left()) return no_shared_memory(ENOSPC, length);
  Segment segment;
  segment.size_ = length;
  segment.huge_ = huge;
  if (Status s = make_memfd(name, &segment.size_, &segment.huge_, &segment.fd_); is_error(s)) return s;
  if (fcntl(segment.fd_.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) return fail_errno(errno, "sealing a memfd");
  if (Status s = map(segment.fd_.get(), segment.size_, private_to_process, &segment.data_); is_error(s)) return s;
  if (huge && !segment.huge_) segment.huge_ = madvise(segment.data_, segment.size_, MADV_HUGEPAGE) == 0;
  *out = std::move(segment);
  return TW_OK;
}

Status Segment::open(UniqueFd fd, size_t expected_length, Segment* out) {
  // Without these two seals a peer could shrink the file under us: an access would then be SIGBUS.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals)
    return fail(TW_ERR_PROTOCOL, "shared memory from a peer is not sealed against resizing");
  expected_length = round_up(expected_length, size_t(sysconf(_SC_PAGESIZE)));
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "fstat of shared memory");
  if (status.st_size <= 0 || size_t(status.st_size) != expected_length)
    return fail(TW_ERR_PROTOCOL, "shared memory from a peer has %lld bytes instead of %zu",
                static_cast<long long>(status.st_size), expected_length);
  // Honest segments are preallocated. Pages of a sparse one would be allocated at the first touch, by this process.
  if (uint64_t(status.st_blocks) * 512 < expected_length)
    return fail(TW_ERR_PROTOCOL, "shared memory from a peer is sparse: %llu of %zu bytes are there",
                static_cast<unsigned long long>(status.st_blocks) * 512, expected_length);
  Segment segment;
  segment.size_ = expected_length;
  segment.huge_ = status.st_blksize >= blksize_t(kHugePage);
  segment.fd_ = std::move(fd);
  if (Status s = map(segment.fd_.get(), segment.size_, true, &segment.data_); is_error(s)) return s;
  *out = std::move(segment);
  return TW_OK;
}

}  // namespace thalweg::impl
