// SPDX-License-Identifier: Apache-2.0
// What host and device code share, as plain data. Compiles under C++17, nvcc and NVRTC (no standard headers under NVRTC). All
// addresses are ones that the executor (the device, or the host) that runs the code may use. 64-bit words are aligned.
#pragma once

namespace thalweg::device {
using u64 = unsigned long long;
using i64 = long long;
using u32 = unsigned;

/// Why a wait failed. In pinned host memory; written once, by the first to set the guard's abort flag, `code` last.
struct Failure {
  u64 claimed;   // its writing has begun
  i64 code;      // tw_status, negative; 0: all is well
  u64 what;      // Step number of a plan, or what the caller of device code chose
  u64 expected;  // value or generation that was waited for
  u64 found;     // what the word held
  u64 reserved[3];
};

/// Every blocking call of device code takes one (wait.hpp).
struct Guard {
  u64* abort_flag;   // executor's memory: not 0: every wait returns false at once. Set at an expiry, by the executor
  Failure* failure;  // pinned host memory
  const u64* abort;  // pinned host memory; the host sets it (peer lost) to a status; polled every 100 us or so of a wait
  u64 limit_ns;
};

/// Packed bytes from `offset` on, up to the next piece's, are at `address`.
struct Piece {
  u64 offset;
  u64 address;
};
/// One side of a transfer: packed offset -> address. Blocks of `block` bytes, block i0 of row i1 of slice i2 at base + i0 *
/// stride[0] + i1 * stride[1] + i2 * stride[2]; count[0] blocks a row, count[1] rows a slice; the last dimension's count is 0
/// here, as the transfer's length implies it. Contiguous: block = ~0. pieces != null: a list instead, sorted by packed offset,
/// the first at 0, ended by the length.
struct Side {
  u64 base;
  u64 block;
  u64 count[2];
  i64 stride[3];
  const Piece* pieces;
  u64 piece_count;
};

/// ---- Channel, mapped path. The n-th send (n = 0, 1, ...) uses slot n % slots. All words are 64 bits: (n + 1) << 16 | info.
/// A word counts as reached when (i64)((word >> 16) - (n + 1)) >= 0 (in 48 bits, cyclic). info of a credit: number of the
/// receive buffer; of a flag: 0, or the low 16 bits of -(tw_status) of why there is no data (truncated: the buffer was too short;
/// aborted).
constexpr u32 kSlots = 32;         // a receive n is posted only when receive n - kSlots is over
constexpr u32 kRecvBuffers = 256;  // entries of SendEnd::recv_buffers

/// A buffer of the receiver as the sender reaches it.
struct RecvBuffer {
  Side to;
  u64 capacity;
};
/// In the sender executor's memory.
struct SendEnd {
  u64 count;                       // sends that are over
  u64* credits;                    // [kSlots], here; the receiver writes them remotely
  u64* flags;                      // [kSlots], at the receiver
  const RecvBuffer* recv_buffers;  // [kRecvBuffers], here; filled in before the receiver may name it, zero where there is none
  u64* lengths;                    // [kSlots], where the host carries the messages: how long each is; null: nobody asks
  u64 reserved[3];
  u32 arrived[kSlots];  // blocks that did their part of a send that several share; 0 before and after
};
/// In the receiver executor's memory.
struct RecvEnd {
  u64 posted;    // receives whose credit was given
  u64 taken;     // receives that are over
  u64* flags;    // [kSlots], here; the sender writes them remotely
  u64* credits;  // [kSlots], at the sender
  u64 reserved[4];
  u32 arrived[kSlots];  // blocks that saw the end of a receive that several share; 0 before and after
};
// send(n = count++): wait for credits[n % kSlots] to reach n + 1 -> recv_buffer = credit & 0xffff; length > capacity: flag with
//   TW_ERR_TRUNCATED's number, fail; copy; lengths[n % kSlots] = length, if there are any; system fence;
//   flags[n % kSlots] = (n + 1) << 16.
// post(n = posted++, recv_buffer): credits[n % kSlots] = (n + 1) << 16 | recv_buffer, one relaxed system store.
// take(n = taken++): wait for flags[n % kSlots]; info != 0: fail with it.

/// ---- Window: symmetric memory over `size` ranks. In constant or parameter space of a kernel, by value.
constexpr u32 kFirstRanks = 8;
struct Window {
  u32 rank, size;
  u64 length;          // bytes that each rank gave
  char* const* bases;  // [size], executor's memory: where rank r's part is here; null: not reachable from this executor
  Guard guard;
  char* first_bases[kFirstRanks];  // the same of the first ranks: a kernel needs no load. Null: load it from bases
};

/// ---- Program: the steps of a plan as an executor runs them.
enum class StepKind : u32 {
  copy,
  send,
  reduce,
  post,
  take,
  signal,
  wait,
  atomic,
  ring,
  await,
  exchange
};  // the first three move bytes
/// Value of run r (0, 1, ...): value + r * increment.
struct Signal {
  u64* word;  // null: none
  u64 value;
  u64 increment;
  u64 add;  // not 0: added to the word
};
/// With a number in Program::after, of two steps that move bytes: a block of threads needs no more of the earlier step than its own
/// share. Either every block moves the same bytes of both (`recv_buffer`), or the order does not matter for the data.
constexpr u32 kOwnShare = 1u << 31;
struct Step {
  StepKind kind;
  u32 first_after, after_count;  // in Program::after: numbers of earlier steps that must be done
  u32 blocks;                    // wanted; 0: chosen from bytes
  u64 bytes;
  Side from, to;    // copy (put, get, local): both; send: from; reduce: to, contiguous
  Signal signal;    // copy: after its data; signal: itself; ring: before the doorbell; wait: word, value, increment
  void* end;        // send: SendEnd*; post, take: RecvEnd*
  u32 recv_buffer;  // post; of what moves bytes, until arrange(): 1 + the earlier step whose bytes it moves on; 0: none
  u32 compare;      // wait: TW_COMPARE_*; reduce: how many sources; send: not 0: the receive has to be as long
  u32 atomic_op,
      atomic_bytes;       // as AtomicKernel; bytes of a copy: common_word() of its sides, filled in by the executor; reduce:
                          // ReduceOp, ElementType
  u64 operand, operand2;  // atomic; ring: what `result` gets; reduce: not 0: all is aligned to 16 bytes
  /// atomic: the word; ring: pinned word, gets run + 1; await: pinned word, waits until >= run + 1; reduce: the addresses of its sources,
  /// in the executor's memory; copy: how many bytes there are, in the executor's memory, by an earlier step (null: all)
  u64* word;
  /// atomic: old value; ring: pinned word, gets operand before; await: in the executor's memory, gets what stands behind `word`; null: not
  /// wanted
  u64* result;
};
/// In the executor's memory, zeroed by the host at prepare.
struct ProgramState {
  u64 closed;  // not 0: a run failed, or a second one at a time was refused; no run from this number on begins
  u64 runs;    // finished
  u64 abort_flag;
  u64 arrived;  // blocks that are done; a specialised kernel's: specialised_run.hpp
  // followed by the executor's own: one u64 per step, one per block
};
/// When a step was done, or a run, by the executor's clock. In pinned host memory, which the host reads meanwhile: what does not fit `check`
/// is none.
struct StepTime {
  u64 begun, ended;  // ns
  u64 run;           // + 1
  u64 check;         // ended ^ run
};
struct Program {  // by value in a kernel's parameters when the steps are few: see Queue::run
  const Step* steps;
  u32 step_count;
  const u32* after;
  ProgramState* state;
  Guard guard;      // guard.abort_flag == &state->abort_flag
  u64* over;        // pinned host memory: 1 when a run is over that went well; null: nobody polls it
  StepTime* times;  // [kept_runs][step_count + 1], of run r at r % kept_runs, the run itself last; null: not recorded
  u32 kept_runs;    // a power of two
};
}  // namespace thalweg::device
