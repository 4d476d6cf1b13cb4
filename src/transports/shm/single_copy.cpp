// SPDX-License-Identifier: Apache-2.0
// process_vm_readv / writev: lists of any length, partial results, error classes.
#include "transports/shm/single_copy.hpp"

#include <algorithm>
#include <cerrno>

#include "base/status.hpp"

namespace thalweg::impl::shm {
namespace {

/// A position in a list of pieces; hands out windows of it to one system call.
class Pieces {
 public:
  static constexpr size_t kWindow = 64;
  Pieces(const iovec* list, size_t count) : list_(list), count_(count) {}

  size_t window(iovec* out) const {
    size_t n = 0, skip = offset_;
    for (size_t i = index_; i < count_ && n < kWindow; ++i, skip = 0)
      if (list_[i].iov_len > skip) out[n++] = {static_cast<char*>(list_[i].iov_base) + skip, list_[i].iov_len - skip};
    return n;
  }
  void advance(size_t bytes) {
    offset_ += bytes;
    while (index_ < count_ && offset_ >= list_[index_].iov_len) offset_ -= list_[index_++].iov_len;
  }

 private:
  const iovec* list_;
  size_t count_;
  size_t index_ = 0, offset_ = 0;
};

[[gnu::cold]] int64_t explain_failure(int error, pid_t pid) {
  switch (error) {
    case ESRCH:
      return fail(TW_ERR_PEER_LOST, "process %d is gone", int(pid));
    case EFAULT:
      return fail(TW_ERR_INVALID, "single copy with process %d: an address is not mapped", int(pid));
    case EPERM:
      return fail(TW_ERR_UNSUPPORTED,
                  "single copy with process %d is forbidden: allow ptrace (sysctl kernel.yama.ptrace_scope=0, or the "
                  "container capability SYS_PTRACE)",
                  int(pid));
    default:
      return fail_errno(error, "process_vm_readv/writev");
  }
}

}  // namespace

int64_t copy_between(CopyDirection direction, pid_t pid, const iovec* local, size_t locals, const iovec* remote,
                     size_t remotes) {
  Pieces here(local, locals), there(remote, remotes);
  iovec mine[Pieces::kWindow], theirs[Pieces::kWindow];
  int64_t moved = 0;
  for (;;) {
    const size_t n = here.window(mine), m = there.window(theirs);
    if (n == 0 || m == 0) return moved;
    const ssize_t r = direction == CopyDirection::from_peer ? process_vm_readv(pid, mine, n, theirs, m, 0)
                                                            : process_vm_writev(pid, mine, n, theirs, m, 0);
    if (r < 0 && errno == EINTR) continue;
    if (r < 0) return explain_failure(errno, pid);
    if (r == 0) return explain_failure(EFAULT, pid);
    moved += r;
    here.advance(size_t(r));
    there.advance(size_t(r));
  }
}

bool read_word(pid_t pid, uint64_t address, uint64_t* out) {
  const iovec mine{out, sizeof *out};
  const iovec theirs{reinterpret_cast<void*>(static_cast<uintptr_t>(address)), sizeof *out};
  errno = 0;
  return process_vm_readv(pid, &mine, 1, &theirs, 1, 0) == ssize_t(sizeof *out);
}

}  // namespace thalweg::impl::shm
