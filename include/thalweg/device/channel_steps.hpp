// SPDX-License-Identifier: Apache-2.0
// The nonblocking pieces of channel operations, for executors that do several things at a time; channel.hpp combines
// them. `n` counts an end's sends or receives from 0; a caller with several in flight numbers them itself, starting
// at the end's count.
//
//   send     try_begin_send until it returns true; copy to Sending::to unless status is set; finish_send
//   receive  try_post until it returns true; later try_take until it returns true; finish_take
#pragma once
#include <thalweg/device/copy.hpp>
#include <thalweg/device/wait.hpp>

namespace thalweg::device {

THALWEG_DEVICE u64 slot_word(u64 n, u64 info) { return (n + 1) << 16 | info; }
/// Cyclically, in the 48 bits of a count.
THALWEG_DEVICE bool slot_reached(u64 word, u64 n) { return static_cast<i64>(((word >> 16) - (n + 1)) << 16) >= 0; }
THALWEG_DEVICE u64 slot_info(u64 word) { return word & 0xffff; }

/// The receive buffer that a credit names.
THALWEG_DEVICE const RecvBuffer* recv_buffer_of(const RecvBuffer* recv_buffers, u64 credit) {
  return recv_buffers + slot_info(credit) % kRecvBuffers;  // a peer may send an invalid number
}

/// What orders a channel's word after this thread's earlier accesses: the store itself, or the caller's fence (or nothing,
/// if it publishes nothing).
enum class Publish : u32 { fenced, released };

/// Every word of a channel's slots is written here, by users' kernels, specialised kernels, programs and the host. info: of a
/// credit, the receive buffer; of a flag, 0 or why there is no data.
template <Publish publish, class M>
THALWEG_DEVICE void write_slot(M m, u64* slots, u64 n, u64 info) {
  if constexpr (publish == Publish::released) {
    m.release(slots + n % kSlots, slot_word(n, info));
  } else {
    m.store(slots + n % kSlots, slot_word(n, info));
  }
}
template <Publish publish, class M>
THALWEG_DEVICE void write_credit(M m, const RecvEnd* end, u64 n, u32 recv_buffer) {
  write_slot<publish>(m, read_pointer(m, &end->credits), n, recv_buffer);
}
template <Publish publish, class M>
THALWEG_DEVICE void write_flag(M m, const SendEnd* end, u64 n, i64 status) {
  write_slot<publish>(m, read_pointer(m, &end->flags), n, static_cast<u64>(-status));
}

/// Before the flag, by one thread of those that finish_send() covers: the host that carries the message takes so many bytes.
template <class M>
THALWEG_DEVICE void write_length(M m, u64* lengths, u64 n, u64 bytes) {
  m.store(lengths + n % kSlots, bytes);
}

struct Sending {
  u64 n;
  Side to;
  u64 capacity;  // bytes
  i64 status;    // 0, or kTruncated: there is nothing to copy
};

/// A word of a receive buffer's entry. A CPU's thread may be held up between two of them, so it reads them in their order.
template <class M>
THALWEG_DEVICE u64 entry_word(M m, const void* word) {
  const auto* const at = static_cast<const u64*>(word);
  if constexpr (M::whole_runs) {
    return m.acquire(at);
  } else {
    return m.read(at);
  }
}

/// What the n-th receive's credit holds: where the send lands. Reads the receive buffer in the executor's memory, once. A peer may have
/// given a credit for one that is only now filled in, or taken back: its room is written last, and taken away first, so it is read first,
/// with acquire order; what it was not throughout is none.
template <class M>
THALWEG_DEVICE Sending begin_send(M m, const RecvBuffer* recv_buffers, u64 n, u64 credit, u64 bytes) {
  const RecvBuffer* const recv_buffer = recv_buffer_of(recv_buffers, credit);
  const u64 capacity = m.acquire(&recv_buffer->capacity);
  Sending out{n, contiguous_at(entry_word(m, &recv_buffer->to.base)), capacity, 0};
  out.to.block = entry_word(m, &recv_buffer->to.block);
  out.to.pieces = reinterpret_cast<const Piece*>(entry_word(m, &recv_buffer->to.pieces));
  if (!contiguous(out.to)) {
    for (u32 d = 0; d < 2; ++d) out.to.count[d] = entry_word(m, &recv_buffer->to.count[d]);
    for (u32 d = 0; d < 3; ++d) out.to.stride[d] = static_cast<i64>(entry_word(m, &recv_buffer->to.stride[d]));
    out.to.piece_count = entry_word(m, &recv_buffer->to.piece_count);
  }
  if constexpr (M::whole_runs) {
    if (entry_word(m, &recv_buffer->capacity) != capacity) out.capacity = 0;
  }
  if (bytes > out.capacity) out.status = kTruncated;
  return out;
}

/// Does a program's send go into a receive of `capacity` bytes? One comparison, as lengths are below 2^63: with more, kernels spill.
THALWEG_DEVICE bool fits_receive(const Step& step, u64 capacity) {
  return capacity - step.bytes <= (step.compare != 0 ? u64{0} : ~u64{0} >> 1);
}

/// Is the n-th receive posted? For one thread, or each of several.
template <class M>
THALWEG_DEVICE bool try_begin_send(M m, const SendEnd* end, u64 n, u64 bytes, Sending* out) {
  const u64 credit = m.acquire(read_pointer(m, &end->credits) + n % kSlots);
  if (!slot_reached(credit, n)) return false;
  *out = begin_send(m, read_pointer(m, &end->recv_buffers), n, credit, bytes);
  return true;
}

/// By all threads of the group when their parts are copied: barrier; the last one's fence and flag. The send is over.
template <class ThreadGroup, class M>
THALWEG_DEVICE void finish_send(M m, ThreadGroup group, SendEnd* end, const Sending& sending) {
  if (!group.counting(end->arrived + sending.n % kSlots).last(m)) return;
  write_flag<Publish::released>(m, end, sending.n, sending.status);
  m.fetch_add(&end->count, u64{1});
}

/// Release: what was read in the receive buffer has been read before the sender sees the credit and writes there again.
template <class M>
THALWEG_DEVICE void give_credit(M m, RecvEnd* end, u64* credits, u64 n, u32 recv_buffer) {
  write_slot<Publish::released>(m, credits, n, recv_buffer);
  m.fetch_add(&end->posted, u64{1});
}

/// Gives the sender a credit that names `recv_buffer`, unless kSlots receives are under way. One thread. What read the receive buffer's
/// earlier contents is done.
template <class M>
THALWEG_DEVICE bool try_post(M m, RecvEnd* end, u64 n, u32 recv_buffer) {
  if (static_cast<i64>(n - m.load(&end->taken)) >= static_cast<i64>(kSlots)) return false;
  give_credit(m, end, read_pointer(m, &end->credits), n, recv_buffer);
  return true;
}

/// Is the n-th receive's data there? For one thread, or each of several. *status: 0, or why there is none.
template <class M>
THALWEG_DEVICE bool try_take(M m, const RecvEnd* end, u64 n, i64* status) {
  const u64 flag = m.acquire(read_pointer(m, &end->flags) + n % kSlots);
  if (!slot_reached(flag, n)) return false;
  *status = -static_cast<i64>(slot_info(flag));
  return true;
}

/// By all threads of the group, after try_take. The receive is over: its slot may be posted again.
template <class ThreadGroup, class M>
THALWEG_DEVICE void finish_take(M m, ThreadGroup group, RecvEnd* end, u64 n) {
  if (group.counting(end->arrived + n % kSlots).passed(m)) m.fetch_add(&end->taken, u64{1});
}

}  // namespace thalweg::device
