// SPDX-License-Identifier: Apache-2.0
// Memory of emulated devices.
#include "devices/emulated/allocation.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace thalweg::impl::emulated {
namespace {
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
}

Allocation::~Allocation() {
  if (view != nullptr) munmap(view, mapped);
}

Status Allocation::map() {
  void* at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return fail_errno(errno, "mapping emulated device memory");
  view = static_cast<std::byte*>(at);
  return TW_OK;
}

Status Allocation::create(uint64_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  length = bytes;
  mapped = (bytes + page - 1) / page * page;
  const int raw = memfd_create("thalweg-emulated-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (raw < 0) return fail_errno(errno, "memfd_create for emulated device memory");
  fd = UniqueFd(raw);
  if (ftruncate(raw, static_cast<off_t>(mapped)) != 0) return fail_errno(errno, "sizing emulated device memory");
  if (const int error = posix_fallocate(raw, 0, static_cast<off_t>(mapped)); error != 0) {
    return fail(TW_ERR_NO_SHARED_MEMORY,
                "no room for %zu bytes of emulated device memory; free some or enlarge the memory "
                "cgroup",
                mapped);
  }
  if (fcntl(raw, F_ADD_SEALS, kSeals) != 0) return fail_errno(errno, "sealing emulated device memory");
  return map();
}

Status Allocation::adopt(UniqueFd from, uint64_t bytes) {
  struct stat info;
  if (!from || fstat(from.get(), &info) != 0)
    return fail(TW_ERR_INVALID, "the export has no descriptor; pass it on over a unix socket");
  const int seals = fcntl(from.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || info.st_size <= 0 || bytes == 0 ||
      static_cast<uint64_t>(info.st_size) < bytes) {
    return fail(TW_ERR_PROTOCOL, "the descriptor is not one of exported device memory");
  }
  fd = std::move(from);
  length = bytes;
  mapped = static_cast<size_t>(info.st_size);
  imported = true;
  return map();
}

}  // namespace thalweg::impl::emulated
