// SPDX-License-Identifier: Apache-2.0
// put_single_copy and get_single_copy: process_vm_writev / readv through the port, contiguous and strided, in batches of
// runs. Before the first byte the owner's check word is read, so that a revoked key never reaches memory that is used for
// something else by now.
#include <algorithm>

#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kRuns = 64;                // of each side and call
constexpr size_t kPart = size_t{16} << 20;  // between two checks of the key; the peer's release or close waits for one

/// The next runs of both sides, covering the same bytes. Both cursors advance.
struct Batch {
  iovec local[kRuns], remote[kRuns];
  size_t locals = 0, remotes = 0, bytes = 0;

  static size_t fill(LayoutCursor& cursor, size_t limit, iovec* pieces, size_t* count) {
    LayoutCursor::Run runs[kRuns];
    *count = gather_runs(cursor, limit, runs, kRuns);
    size_t sum = 0;
    for (size_t i = 0; i < *count; ++i) {
      pieces[i] = {runs[i].address, runs[i].length};
      sum += runs[i].length;
    }
    return sum;
  }
  void next(LayoutCursor& here, LayoutCursor& there) {
    const LayoutCursor start = here;
    bytes = fill(here, kPart, local, &locals);
    const size_t reached = fill(there, bytes, remote, &remotes);
    if (reached == bytes) return;
    here = start;  // the other side needed more runs for it
    bytes = fill(here, reached, local, &locals);
  }
};

enum class KernelCopy { put, get };

/// About kPart bytes from `done` on. TW_OK, TW_AGAIN: not possible this way, use frames; or an error.
Status copy_part(const OpDesc& op, KernelCopy direction, LayoutCursor& here, LayoutCursor& there, uint64_t& done) {
  if (Status s = check_alive(*op.remote); s != TW_OK) return s;
  Link& link = *op.peer->link;
  const uint64_t end = std::min<uint64_t>(op.length, done + kPart);
  while (done < end) {
    Batch batch;
    batch.next(here, there);
    const int64_t n = direction == KernelCopy::put
                          ? link.port->write_peer(link, batch.local, batch.locals, batch.remote, batch.remotes)
                          : link.port->read_peer(link, batch.local, batch.locals, batch.remote, batch.remotes);
    if (n == TW_ERR_PEER_LOST) return fail(TW_ERR_PEER_LOST, "the peer's process is gone");
    if (n <= 0) return TW_AGAIN;  // forbidden, or not mapped (any more): the owner's answer to a frame tells which
    done += static_cast<uint64_t>(n);
    if (static_cast<uint64_t>(n) != batch.bytes) {
      here.seek(done);
      there.seek(done);
    }
  }
  return TW_OK;
}

Status copy_by_kernel(const OpDesc& op, KernelCopy direction) {
  if (op.peer->link == nullptr) return TW_AGAIN;
  Link& link = *op.peer->link;
  LayoutCursor here(op.address, op.layout, op.length);
  LayoutCursor there(reinterpret_cast<std::byte*>(op.remote->key.base + op.remote_offset), op.remote_layout, op.length);
  uint64_t done = 0;
  do {
    if (!link.port->enter_peer(link)) return fail(TW_ERR_PEER_LOST, "the peer has ended the connection");
    const Status s = copy_part(op, direction, here, there, done);
    link.port->leave_peer(link);
    if (s != TW_OK) return s;
  } while (done < op.length);
  count_moved(op, Way::kernel);
  return TW_OK;
}

}  // namespace

Status check_alive(RemoteRegion& region) {
  const KeyBody& key = region.key;
  uint64_t word = 0;
  const iovec local{&word, sizeof word}, remote{reinterpret_cast<void*>(key.check), sizeof word};
  Link& link = *region.peer->link;
  const int64_t n = link.port->read_peer(link, &local, 1, &remote, 1);
  if (n == TW_ERR_PEER_LOST) return fail(TW_ERR_PEER_LOST, "the peer's process is gone");
  if (n != sizeof word) return TW_AGAIN;
  if (word != key.rkey) {
    region.revoked = true;
    return fail(TW_ERR_STALE, "the peer has released this memory; import a new key");
  }
  return TW_OK;
}

const char* why_no_single_copy(const OpDesc& op) {
  if (by_calls(op)) return "the local side is packed or unpacked by the user's functions, which the kernel does not call";
  if ((link_features(op) & kLinkSingleCopy) == 0) {
    return "the kernel does not copy between these processes (another machine, or ptrace is forbidden)";
  }
  if (op.remote != nullptr && (of_device(*op.remote) || op.remote->key.check == 0)) {
    return "the peer's memory is not host memory";
  }
  return nullptr;
}

Status put_single_copy(const OpDesc& op) { return copy_by_kernel(op, KernelCopy::put); }
Status get_single_copy(const OpDesc& op) { return copy_by_kernel(op, KernelCopy::get); }

}  // namespace thalweg::impl
