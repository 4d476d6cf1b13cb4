// SPDX-License-Identifier: Apache-2.0
// A random program: a few workers, how they reach each other, and a list of operations. Everything that a run of it decides
// (which engine progresses, which frame arrives, what is refused) comes from seeds in here, one for each operation, so that
// a program from which operations were taken still does the same between those that are left.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/random.hpp"

namespace thalweg::model {

constexpr unsigned kWorkers = 9;  // at most
constexpr unsigned kPairs = kWorkers * (kWorkers - 1) / 2;
constexpr unsigned kMemories =
    4;  // that each worker exports: library-allocated, registered, library-allocated and small, a device's
constexpr unsigned kSignals = 2;  // that each worker has
constexpr unsigned kGroups = 3;   // of workers
constexpr unsigned kAnyone = 255;

enum class What : uint8_t {
  connect,
  send,
  receive,
  probe,
  take,          // a probe that takes the message out
  take_receive,  // receives the oldest one that was taken
  cancel,        // of the operation `of`
  active,
  active_receive,  // the oldest payload that a handler kept
  active_release,
  bytes_send,
  bytes_receive,
  put,
  get,
  atomic,
  signal,
  put_blocks,
  get_blocks,
  notification,  // takes the next one
  fence,
  flush,
  flush_worker,
  look,            // the owner reads its memory and its signals
  release_region,  // an importer's handle
  release_memory,  // the owner's memory
  close,
  cut,         // the connection breaks
  kill,        // the process ends
  open,        // the worker's stream goes on
  before,      // a stream of the worker waits for the operation `of`
  collective,  // of a group; the worker is the first rank to call it: jobs.hpp
  join,        // the worker calls the next one of a group
  turns,
  count_
};
const char* name_of(What what);

/// How two workers reach each other, as LinkFeature bits do.
enum class Way : uint8_t { frames, references, kernel, mapped, shared, process, count_ };  // shared: mapped and by the kernel
const char* name_of(Way way);

enum OpFlag : uint32_t {
  kSync = 1u << 0,
  kNoWait = 1u << 1,
  kRemote = 1u << 2,
  kAfterAll = 1u << 3,
  kWaitAll = 1u << 4,
  kEager = 1u << 5,
  kRendezvous = 1u << 6,
  kCallback = 1u << 7,    // completion by a callback
  kDetached = 1u << 8,    // without request and sink
  kLibrary = 1u << 9,     // the local buffer is library-allocated
  kLayout = 1u << 10,     // of the local side
  kFarLayout = 1u << 11,  // of the remote side
  kSignalled = 1u << 12,  // a put with a signal
  kFetch = 1u << 13,      // an atomic that returns the old value
  kNarrow = 1u << 14,     // a word of 4 bytes
  kMasked = 1u << 15,     // a receive of any tag
  kKeep = 1u << 16,       // the handler keeps the payload
  kReply = 1u << 17,      // the handler answers with a message
  kAtOnce = 1u << 18,     // the handler receives the payload itself
  kInside = 1u << 19,     // an end that comes in the middle of some progress
  kGraceful = 1u << 20,   // a close that waits until nothing is under way
  kNotify = 1u << 21,     // blocks with a notification
  kLate = 1u << 22,       // the buffer is a stream's until the stream goes on
  // Of collectives; kFarLayout: with offsets.
  kInPlace = 1u << 23,
  kRepeatable = 1u << 24,
  kDevices = 1u << 25,  // buffers may be devices'
  // Of collectives in programs of ranks.
  kBlocking = 1u << 26,
  kDirect = 1u << 27,   // blocking, over memory that all map
  kPlanned = 1u << 28,  // a plan that the host runs, some times
  kQueued = 1u << 29,
  kFlagsEnd = 1u << 30,
};

/// Counters that may start near their wraps: counters.hpp.
enum Counter : uint32_t {
  kCountGenerations = 1u << 0,  // of requests
  kCountReceives = 1u << 1,     // the order of posted receives
  kCountTickets = 1u << 2,      // calls of a device's queue, and stream waits
  kCountMessages = 1u << 3,     // names of messages in several frames
  kCountFrames = 1u << 4,       // of one-sided operations, and the operations themselves
  kCountCredits = 1u << 5,      // of messages, RTS messages and streams
  kCountWords = 1u << 6,        // words of atomics
  kCountCollectives = 1u << 7,  // of a group
  kCountersEnd = 1u << 8,
};

struct Op {
  What what = What::turns;
  uint8_t worker = 0, peer = 0;  // receive: kAnyone
  uint8_t tag = 0;
  uint8_t memory = 0, signal = 0;
  uint8_t kind = 0;  // of the local buffer: which of kKinds
  uint32_t flags = 0;
  uint32_t size = 0, offset = 0;
  uint32_t of = 0;    // cancel: id of an operation
  uint32_t id = 0;    // of this one, from 1
  uint32_t seed = 0;  // of what happens until the next one
};

/// What programs of ranks go over (ranks.hpp). engines: it is none of those, but goes over the model's network.
enum class Over : uint8_t { engines, shm, tcp, one_context };

struct Program {
  uint64_t seed = 0;
  Over over = Over::engines;
  uint8_t workers = 2;
  Way ways[kPairs] = {};     // of the pairs 01 02 12 03 13 23 ...
  uint32_t copy_max = 4096;  // largest frame by copy
  uint32_t fragment = 4096;
  uint32_t refuse = 0;         // of 100 frames
  uint64_t budget = 64 << 20;  // for unmatched messages, of each worker
  uint64_t late = 0;           // bit per pair: connected by an operation, or at the end
  uint32_t counters = 0;       // Counter bits: which ones start near their wraps
  uint8_t threads = 0;         // that work beside it
  std::vector<Op> ops;
};
inline unsigned pair_of(unsigned a, unsigned b) {
  if (a > b) return pair_of(b, a);
  return b * (b - 1) / 2 + a;
}

Program generate(uint64_t seed, unsigned workers = 0);
/// jobs.hpp says what it makes of the fields that this sets.
void fill_collective(Op& op, Random& random, unsigned workers, bool devices);
/// Is the program of this seed one of collectives?
inline bool is_together(uint64_t seed) { return seed % 8 == 5; }
/// One line for each operation.
std::string text_of(const Program& program);
/// As a test to be pasted into tests/model/found_test.cpp.
std::string test_of(const Program& program, const std::string& name);

}  // namespace thalweg::model
