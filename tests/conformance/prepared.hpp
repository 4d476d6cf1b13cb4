// SPDX-License-Identifier: Apache-2.0
// What rows of prepared operations share: plans by each trigger, signals where plans wait for them, keys for the other side.
#pragma once
#include <functional>

#include "../fixtures/rooms.hpp"
#include "side.hpp"

namespace conformance {

enum class Trigger : uint8_t { host, queue, graph, ahead };  // ahead: a queue that waits ahead of its kernels

constexpr unsigned kRuns = 3;  // of each plan
constexpr uint64_t kLong = 20'000'000'000;

/// A channel keeps its executor and its way, so each pair of places has its own, and so has nothing, which is everywhere.
inline uint64_t tag_of(const Row& r, unsigned i) {
  return i + 16u * r.place[0] + 256u * r.place[1] + (r.size == 0 ? 4096u : 0u);
}
/// Memory that the host does not touch.
bool on_device(unsigned place);
/// Device memory that other processes may import.
bool shared(unsigned place);
/// Does memory of the other side come within reach of loads and stores at all?
bool maps(const Side& side);
/// A documented refusal: this status, with a text that has this part.
void must_refuse(tw_status status, tw_status wanted, const char* part, const char* what);
/// The executor of plans on memory of this place.
const char* executor_of(unsigned place);
/// What that executor reaches at the other end, as docs/support.md says. Either: not promised.
enum class Reach : uint8_t { mapped, carried, either };
/// changes: by atomic operations, or signals that add.
Reach reach_of(const Side& side, unsigned mine, unsigned theirs, bool one_process, bool changes = false);
/// Of a step that needs both.
Reach both(Reach one, Reach other);

/// A plan of one side, with its queue and its graph.
class Plan {
 public:
  Plan(Side& side, const Row& r, Trigger trigger);
  ~Plan();
  Plan(const Plan&) = delete;
  void prepare();
  /// Before the next run; a graph is captured again then, because an earlier one keeps the old arguments.
  void update(uint32_t step, const void* address, const uint64_t* value);
  void start();
  void finish();
  void run() {
    start();
    finish();
  }
  void check_running() const;  // where the host can tell
  void expect(Reach reach) const;
  std::string explain() const;
  /// By calls of the host, not by a graph's replay.
  bool started_by_host() const { return trigger_ != Trigger::graph; }
  void close();
  tw_plan* plan = nullptr;
  std::function<void()> give_up;  // ends the waits of a run that nothing else will end

 private:
  void capture();
  const Trigger trigger_;
  tw_queue* queue_ = nullptr;
  tw_graph* graph_ = nullptr;
  bool running_ = false, stale_ = false;
};

/// Aligned memory of a place: random bytes, and what they should be by now.
class Cells {
 public:
  Cells(Side& side, unsigned place, uint64_t seed, size_t length = 4096);
  ~Cells();
  Cells(const Cells&) = delete;
  unsigned char* address() const { return static_cast<unsigned char*>(tw_memory_address(memory)); }
  size_t length() const { return image_.size(); }
  void fill(uint64_t seed);  // with random_bytes()
  void expect(size_t offset, const void* bytes, size_t length);
  void expect(size_t offset, uint64_t value, size_t width) { expect(offset, &value, width); }
  uint64_t load(size_t offset) const;
  void verify() const;
  tw_memory* memory = nullptr;

 private:
  tw_context* context_;
  std::vector<unsigned char> plain_, image_;
};
std::vector<unsigned char> random_bytes(uint64_t seed, size_t length);

/// A signal of this side near the executor of a place, among bytes that must not be touched.
class Word {
 public:
  Word(Side& side, unsigned place, uint32_t kind, uint64_t initial, uint64_t seed);
  ~Word();
  Word(const Word&) = delete;
  void verify(uint64_t value);
  tw_signal* signal = nullptr;

 private:
  std::unique_ptr<Cells> around_;  // null: a word of the library's, for plain memory
  size_t offset_ = 0;
};
/// Where it is, for reach_of().
unsigned place_of_word(unsigned place);

/// Keys of this side's memory and signals, in the order in which the other side imports them.
class Keys {
 public:
  void add(const Payload& payload) { add(payload.memory(), payload.offset()); }
  void add(tw_memory* memory, uint64_t offset);
  void add(const Word& word);
  void send(Side& side) const;

 private:
  friend class Imports;
  struct Key {
    uint64_t length, offset;
    unsigned char bytes[kKeyRoom];
  };
  std::vector<Key> keys_;
};

class Imports {
 public:
  Imports(Side& side, size_t memories, size_t signals);
  ~Imports();
  Imports(const Imports&) = delete;
  std::vector<tw_remote_memory*> memory;
  std::vector<uint64_t> offset;
  std::vector<tw_remote_signal*> signal;
  bool one_process = false;
};

inline tw_op_options after(const std::vector<uint32_t>& steps) {
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.after_steps = steps.data();
  options.after_count = steps.size();
  return options;
}

template <void (*kRun)(Side&, const Row&, Trigger), Trigger kTrigger>
void by(Side& side, const Row& r) {
  kRun(side, r, kTrigger);
}

/// The operation by each trigger, under names that end so.
template <void (*kRun)(Side&, const Row&, Trigger)>
void add_by_each(std::vector<Operation>& all, const char* const (&names)[3], bool layouts, Rows rows = Rows::few,
                 size_t size_limit = ~size_t{0}) {
  void (*const runs[])(Side&, const Row&) = {by<kRun, Trigger::host>, by<kRun, Trigger::queue>, by<kRun, Trigger::graph>};
  for (int i = 0; i < 3; ++i) all.push_back({names[i], layouts, layouts, size_limit, runs[i], Devices::all, rows});
}

}  // namespace conformance
