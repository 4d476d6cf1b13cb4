// SPDX-License-Identifier: Apache-2.0
#include "machine/mapping.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace perf {

int nameless_file(const std::string& folder, std::string* why) {
  std::string name = folder + "/thalweg-perf-XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) {
    *why = "no file can be made in " + folder + ": " + std::strerror(errno);
    return -1;
  }
  (void)::unlink(name.c_str());
  return fd;
}

std::string file_system_of(const std::string& folder) {
  struct statfs s {};
  if (::statfs(folder.c_str(), &s) != 0) return "";
  constexpr std::pair<unsigned, const char*> kKnown[] = {{0x01021994, "tmpfs"}, {0xef53, "ext4"},        {0x58465342, "xfs"},
                                                         {0x9123683e, "btrfs"}, {0x794c7630, "overlay"}, {0x6969, "nfs"},
                                                         {0x2fc12fc1, "zfs"},   {0x858458f6, "ramfs"},   {0x0bd00bd0, "lustre"},
                                                         {0x65735546, "fuse"},  {0xf2f52010, "f2fs"},    {0x01021997, "9p"}};
  for (const auto& [magic, name] : kKnown) {
    if (static_cast<unsigned>(s.f_type) == magic) return name;
  }
  char number[24];
  std::snprintf(number, sizeof number, "0x%x", static_cast<unsigned>(s.f_type));
  return number;
}

std::string temporary_folder() {
  const char* const temporary = std::getenv("TMPDIR");
  return temporary != nullptr && *temporary != 0 ? temporary : "/tmp";
}

uint64_t free_below(const std::string& folder) {
  struct statvfs s {};
  return ::statvfs(folder.c_str(), &s) == 0 ? static_cast<uint64_t>(s.f_bavail) * s.f_frsize : 0;
}

Mapping Mapping::anonymous(size_t bytes, bool huge) {
  Mapping m;
  m.bytes_ = bytes;
  m.address_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m.address_ == MAP_FAILED) {
    m.why_ = "no memory of " + std::to_string(bytes) + " bytes: " + std::strerror(errno);
    m.address_ = nullptr;
    return m;
  }
  (void)::madvise(m.address_, bytes,
                  huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);  // a system without them says no, and that is that
  return m;
}

Mapping Mapping::of_file(const std::string& folder, size_t bytes) {
  Mapping m;
  m.bytes_ = bytes;
  m.file_ = nameless_file(folder, &m.why_);
  if (m.file_ < 0) return m;
  if (const int code = ::posix_fallocate(m.file_, 0, static_cast<off_t>(bytes)); code != 0) {
    m.why_ = "no room for " + std::to_string(bytes) + " bytes in " + folder + ": " + std::strerror(code);
    return m;
  }
  m.address_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m.file_, 0);
  if (m.address_ != MAP_FAILED) return m;
  m.why_ = "a file in " + folder + " cannot be mapped: " + std::strerror(errno);
  m.address_ = nullptr;
  return m;
}

Mapping::Mapping(Mapping&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)),
      bytes_(other.bytes_),
      file_(std::exchange(other.file_, -1)),
      why_(std::move(other.why_)) {}

Mapping::~Mapping() {
  if (address_ != nullptr) (void)::munmap(address_, bytes_);
  if (file_ >= 0) (void)::close(file_);
}

}  // namespace perf
