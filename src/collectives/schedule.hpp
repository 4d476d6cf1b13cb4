// SPDX-License-Identifier: Apache-2.0
// A collective as data: the steps of one rank over symbolic buffers. An algorithm writes it (one file each), the engine runs it
// (run.hpp), a plan is made of it for queues and graphs, and explain prints it.
//
// Steps are numbered in the order in which they are added. A step begins once all steps that it names have ended; the buffers
// of steps that may run at once do not overlap, but for reads. The n-th send of a rank to another one is matched by the n-th
// receive there from it, and has its length: so both sides add them in the same order. No step sends to the own rank, or 0
// bytes.
//
// What the buffers hold, in elements; a kind's v form has the given counts instead of `count`, and the given offsets:
//
//                   input                          output                         in place
//   barrier         -                              -                              -
//   broadcast       count, at the root             count                          the root's output has what is sent
//   reduce          count                          count, at the root             the root's output has its input
//   allreduce       count                          count                          output has the input
//   reduce_scatter  size * count; v: recv_counts   count; v: recv_counts[rank]    output has the input, all of it, and gets the
//                   (offsets: send_offsets)                                       result at its beginning
//   allgather       count; v: recv_counts[rank]    size * count; v: recv_counts   the own block lies in output
//   gather          count; v: recv_counts[rank]    size * count, at the root;     the root's block lies in output
//                                                  v: recv_counts
//   scatter         size * count, at the root;     count; v: send_counts[rank]    the root's block stays in its input; its
//                   v: send_counts                                                output is not named
//   alltoall        size * count; v: send_counts   size * count; v: recv_counts   output has what is sent, by recv_counts
//   scan            count                          count                          output has the input
//   exclusive_scan  count                          count; rank 0: left as it is   output has the input
//
// Of kinds with a root, in_place is the root's: other ranks have an input and an output as otherwise.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace thalweg::impl {

/// A buffer of the collective. In place, input is output (allreduce ...), or the rank's part of it (allgather ...): algorithms
/// read Collective::in_place, and never name `input` then.
enum class Where : uint8_t { input, output, scratch };

/// Bytes of a buffer.
struct Part {
  Where where = Where::scratch;
  uint64_t offset = 0, length = 0;
};

enum class StepVerb : uint8_t { send, recv, copy, reduce };

struct CollectiveStep {
  StepVerb verb;
  uint32_t peer = 0;     // send, recv: rank
  Part to;               // recv, copy, reduce
  Part from;             // send, copy
  uint32_t sources = 0;  // reduce: this many of Schedule::sources from first_source on, in the order in which they are combined
  uint32_t first_source = 0;
  uint32_t after = 0;  // this many of Schedule::after from first_after on
  uint32_t first_after = 0;
};

struct Schedule {
  std::vector<CollectiveStep> steps;
  std::vector<Part> sources;    // each as long as the step's `to`; one may be the same part as it. One alone: of truth values
  std::vector<uint32_t> after;  // numbers of earlier steps
  uint64_t scratch = 0;         // bytes

  uint32_t send(uint32_t peer, const Part& from, std::span<const uint32_t> after = {});
  uint32_t recv(uint32_t peer, const Part& to, std::span<const uint32_t> after = {});
  uint32_t copy(const Part& to, const Part& from, std::span<const uint32_t> after = {});
  uint32_t reduce(const Part& to, std::span<const Part> from, std::span<const uint32_t> after = {});
  /// A part of the scratch memory that no other call gets; aligned to 64 bytes.
  Part take_scratch(uint64_t length);

 private:
  uint32_t add(CollectiveStep step, std::span<const uint32_t> after);
};

enum class CollectiveKind : uint8_t {
  barrier,
  broadcast,
  reduce,
  allreduce,
  reduce_scatter,
  allgather,
  gather,
  scatter,
  alltoall,
  scan,
  exclusive_scan,
  count_
};

/// One call, as an algorithm sees it: the same on all ranks, but for rank and, of the v forms, what says so.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  uint32_t rank = 0, size = 1, root = 0;
  uint64_t count = 0;    // elements: of a rank's input or output, whichever is shorter (allgather: of an input)
  uint32_t element = 1;  // bytes
  bool in_place = false;
  bool commutative = true;  // the operation may be applied in another order than that of ranks
  bool repeatable = false;  // the order depends on nothing but rank, size and count
  bool truths = false;      // it combines truth values: what is combined of one operand alone is 0 or 1, too, and no copy of it
  // The v forms: elements of each rank; null: count. alltoall: of what goes to, and comes from, each rank here; both are given
  // or none is, and `count` is a guess that all ranks share, for the choice of an algorithm alone. The others: the same on all
  // ranks.
  const uint64_t* send_counts = nullptr;
  const uint64_t* send_offsets = nullptr;  // elements; null: one block behind the other. May differ between ranks
  const uint64_t* recv_counts = nullptr;
  const uint64_t* recv_offsets = nullptr;
  bool counts_at_root = false;  // gather, scatter: only the root has counts; `count` is the own one, and a guess at the root
  uint64_t chunk = 256 << 10;   // bytes: longer messages are cut, where steps overlap by that; the same on all ranks
  bool direct = false;          // a blocking call of ranks that map each other's memory (direct_area.hpp)
  uint64_t kernel_room =
      0;  // on queues of devices that reach each other (device_area.hpp): bytes that LL takes at once; 0: not so
  uint64_t line_room = 0;       // there: the same of LL128; half of it in each of two phases; 0: lines do not arrive whole
  bool rare = false;            // there: of a type or operation that LL128 does not have
  bool symmetric = false;       // there, of buffers that lie in windows of the group on all ranks
  uint32_t ranks_per_host = 0;  // ranks i and j are of one host if i / this == j / this; 0: not so
  uint64_t bytes() const { return count * element; }
  bool has_counts() const { return send_counts != nullptr || recv_counts != nullptr || counts_at_root; }
};

}  // namespace thalweg::impl
