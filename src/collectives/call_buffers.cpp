// SPDX-License-Identifier: Apache-2.0
// The buffers of a call: what is refused, and what the steps of a schedule read and write.
#include <algorithm>
#include <utility>

#include "collectives/call.hpp"

namespace thalweg::impl {
namespace {

bool placed(const Side& side) { return side.used && side.address == TW_IN_PLACE; }

/// Of `blocks` blocks, or of the counts.
Status extent_of(const Call& call, const Counts& counts, uint64_t blocks, uint64_t* out) {
  uint64_t elements = counts.extent();
  const bool too_many = !counts.given() && __builtin_mul_overflow(call.what.count, blocks, &elements);
  if (too_many || __builtin_mul_overflow(elements, uint64_t{element_size(call.type)}, out) || *out > UINT64_MAX / 2)
    return fail(TW_ERR_INVALID, "%s: more elements than there can be", call.name);
  return TW_OK;
}

/// Where all ranks know all counts, this rank's part is one of them.
Status extents_of(const tw_group& group, const Call& call, Extents* out) {
  const bool scatters = call.what.kind == CollectiveKind::reduce_scatter;
  const uint64_t recv_blocks = scatters && placed(call.send) ? group.size : call.recv_blocks;
  if (Status s = extent_of(call, call.sent, call.send_blocks, &out->sent); is_error(s)) return s;
  if (Status s = extent_of(call, call.received, recv_blocks, &out->received); is_error(s)) return s;
  if (call.received.given() && (scatters || call.what.kind == CollectiveKind::allgather)) {
    const uint64_t own = call.received.counts[group.rank] * element_size(call.type);
    if (scatters) out->sent = out->received;
    if (scatters && !placed(call.send)) out->received = own;
    if (!scatters) out->sent = own;
  }
  if (!call.send.used) out->sent = 0;
  if (!call.recv.used) out->received = 0;
  return TW_OK;
}

/// gatherv, scatterv: the root has its own count twice. alltoallv: each rank.
Status check_own_count(const tw_group& group, const Call& call) {
  if (call.what.kind == CollectiveKind::alltoall && call.sent.given() && call.received.given()) {
    const uint64_t sent = call.sent.counts[group.rank], received = call.received.counts[group.rank];
    if (sent == received) return TW_OK;
    return fail(TW_ERR_INVALID, "%s: this rank sends %llu elements to itself, and receives %llu from itself", call.name,
                static_cast<unsigned long long>(sent), static_cast<unsigned long long>(received));
  }
  if (!call.what.counts_at_root || group.rank != call.what.root || placed(call.send) || placed(call.recv)) return TW_OK;
  const Counts& counts = call.what.kind == CollectiveKind::gather ? call.received : call.sent;
  if (counts.counts[group.rank] == call.what.count) return TW_OK;
  return fail(TW_ERR_INVALID, "%s: the root's own count is %llu, and its entry of counts %llu", call.name,
              static_cast<unsigned long long>(call.what.count), static_cast<unsigned long long>(counts.counts[group.rank]));
}

Status check_side(const Call& call, const Side& side, uint64_t bytes) {
  if (placed(side)) {
    if (side.may_be_placed) return TW_OK;
    return fail(TW_ERR_INVALID, "%s: %s cannot be TW_IN_PLACE here", call.name, side.name);
  }
  if (side.used && side.address == nullptr && bytes != 0) return fail(TW_ERR_INVALID, "%s: %s is NULL", call.name, side.name);
  if (side.used && reinterpret_cast<uintptr_t>(side.address) % element_size(call.type) != 0)
    return fail(TW_ERR_MISALIGNED, "%s: %s is not aligned to elements of %s", call.name, side.name, type_name(call.type));
  return TW_OK;
}

Status refuse_overlap(const Call& call, const Extents& bytes) {
  const auto from = reinterpret_cast<uintptr_t>(call.send.address), to = reinterpret_cast<uintptr_t>(call.recv.address);
  const bool both = bytes.sent != 0 && bytes.received != 0 && !placed(call.send) && !placed(call.recv);
  if (!both || from + bytes.sent <= to || to + bytes.received <= from) return TW_OK;
  return fail(TW_ERR_INVALID, "%s: send and recv overlap: pass TW_IN_PLACE, or other buffers", call.name);
}

/// The own rank's part of a whole.
Buffer part_of(const Buffer& whole, const tw_group& group, const Call& call, const Counts& counts) {
  Buffer own = whole;
  own.address += (counts.given() ? counts.offsets[group.rank] : call.what.count * group.rank) * element_size(call.type);
  return own;
}

}  // namespace

Status bind_buffers(const tw_group& group, Call& call, Bound* out) {
  if (Status s = extents_of(group, call, &call.bytes); is_error(s)) return s;
  if (Status s = check_own_count(group, call); is_error(s)) return s;
  return bind_sides(group, call, out);
}

/// In place, what the algorithms read and write then has its other name, too.
Status bind_sides(const tw_group& group, Call& call, Bound* out) {
  const Extents bytes = call.bytes;
  if (Status s = check_side(call, call.send, bytes.sent); is_error(s)) return s;
  if (Status s = check_side(call, call.recv, bytes.received); is_error(s)) return s;
  if (Status s = refuse_overlap(call, bytes); is_error(s)) return s;
  const CollectiveKind kind = call.what.kind;
  const bool send_placed = placed(call.send), recv_placed = placed(call.recv);
  if (call.send.used && !send_placed) {
    if (Status s = describe_buffer(call.send.address, bytes.sent, &out->input); is_error(s)) return s;
  }
  if (call.recv.used && !recv_placed) {
    if (Status s = describe_buffer(call.recv.address, bytes.received, &out->output); is_error(s)) return s;
  }
  const bool gathers = kind == CollectiveKind::allgather || kind == CollectiveKind::gather;
  if (send_placed) out->input = gathers ? part_of(out->output, group, call, call.received) : out->output;
  if (recv_placed) out->output = part_of(out->input, group, call, call.sent);
  if (kind == CollectiveKind::broadcast) out->input = out->output;
  call.what.in_place = send_placed || recv_placed || kind == CollectiveKind::broadcast;
  return TW_OK;
}

uint64_t Counts::extent() const {
  uint64_t end = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != 0) end = std::max(end, offsets[i] + counts[i]);
  }
  return end;
}

Status take_counts(const size_t* counts, const size_t* offsets, uint32_t size, const char* name, Counts* out) {
  if (counts == nullptr) return fail(TW_ERR_INVALID, "%s is NULL: it has an entry for each of the %u ranks", name, size);
  out->counts.assign(counts, counts + size);
  out->offsets.resize(size);
  uint64_t at = 0;
  for (uint32_t i = 0; i < size; ++i) {
    out->offsets[i] = offsets != nullptr ? offsets[i] : at;
    if (__builtin_add_overflow(at, out->counts[i], &at) || out->offsets[i] > UINT64_MAX / 16 || at > UINT64_MAX / 16)
      return fail(TW_ERR_INVALID, "%s[%u] and what is before it are more elements than there can be", name, i);
  }
  return TW_OK;
}

}  // namespace thalweg::impl
