// SPDX-License-Identifier: Apache-2.0
// Memory of emulated devices.
#include "devices/emulated/allocation.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

namespace thalweg::impl::emulated {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

uint64_t whole_pages(uint64_t bytes) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

uint64_t next_buffer_id() {
  static std::atomic<uint64_t> count{0};
  return count.fetch_add(1, std::memory_order_relaxed) + 1;
}

Allocation::~Allocation() {
  if (view != nullptr && !registered) munmap(view, mapped);
}

/// All pieces, in order, in one range of this process.
Status Allocation::map() {
  const Piece& last = pieces.back();
  mapped = last.offset + whole_pages(last.length);
  void* range = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return fail_errno(errno, "reserving addresses for emulated device memory");
  view = static_cast<std::byte*>(range);
  for (const Piece& piece : pieces) {
    if (mmap(view + piece.offset, whole_pages(piece.length), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, piece.fd.get(),
             0) == MAP_FAILED) {
      return fail_errno(errno, "mapping emulated device memory");
    }
  }
  return TW_OK;
}

Status Allocation::create_piece(uint64_t bytes) {
  const int raw = memfd_create("thalweg-emulated-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (raw < 0) return fail_errno(errno, "memfd_create for emulated device memory");
  const uint64_t offset = pieces.empty() ? 0 : pieces.back().offset + pieces.back().length;
  pieces.push_back({UniqueFd(raw), offset, bytes, next_buffer_id()});
  const auto size = static_cast<off_t>(whole_pages(bytes));
  if (ftruncate(raw, size) != 0) return fail_errno(errno, "sizing emulated device memory");
  if (posix_fallocate(raw, 0, size) != 0) {
    return fail(TW_ERR_NO_SHARED_MEMORY,
                "no room for %zu bytes of emulated device memory; free some or enlarge the memory cgroup",
                static_cast<size_t>(size));
  }
  if (fcntl(raw, F_ADD_SEALS, kSeals) != 0) return fail_errno(errno, "sealing emulated device memory");
  return TW_OK;
}

Status Allocation::create(MemoryKind of, uint64_t bytes, uint64_t piece_bytes) {
  kind = of;
  length = bytes;
  if (host_access()) {
    mapped = whole_pages(bytes);
    void* range = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (range == MAP_FAILED) return fail_errno(errno, "allocating pinned or managed memory");
    view = static_cast<std::byte*>(range);
    pieces.push_back({UniqueFd(), 0, bytes, next_buffer_id()});
    return TW_OK;
  }
  if (kind != MemoryKind::vmm) piece_bytes = bytes;
  for (uint64_t done = 0; done < bytes; done += piece_bytes) {
    if (Status s = create_piece(std::min(piece_bytes, bytes - done)); is_error(s)) return s;
  }
  return map();
}

Status Allocation::adopt(std::vector<Piece> from) {
  for (const Piece& piece : from) {
    struct stat info;
    if (!piece.fd || fstat(piece.fd.get(), &info) != 0)
      return fail(TW_ERR_INVALID, "the export has no descriptor; pass it on over a unix socket");
    const int seals = fcntl(piece.fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & kSeals) != kSeals || info.st_size <= 0 || piece.length == 0 ||
        static_cast<uint64_t>(info.st_size) < piece.length) {
      return fail(TW_ERR_PROTOCOL, "the descriptor is not one of exported device memory");
    }
  }
  pieces = std::move(from);
  length = pieces.back().offset + pieces.back().length;
  imported = true;
  return map();
}

void Allocation::adopt_host(void* host, size_t bytes) {
  kind = MemoryKind::pinned;
  registered = true;
  view = static_cast<std::byte*>(host);
  mapped = length = bytes;
  pieces.push_back({UniqueFd(), 0, bytes, next_buffer_id()});
}

const Piece& Allocation::piece_at(uint64_t offset) const {
  const auto after =
      std::upper_bound(pieces.begin(), pieces.end(), offset, [](uint64_t at, const Piece& piece) { return at < piece.offset; });
  return *std::prev(after);
}

}  // namespace thalweg::impl::emulated
