// SPDX-License-Identifier: Apache-2.0
// Overview. A Model has the schedules of all ranks, and runs them by events: a step becomes ready when what it names is over,
// and ready steps are taken in the order of their times. A send is over when its bytes are out; they are there at the same
// time.
//
// Of many ranks that all do the same, three are modelled, each alone and with blocks of one length: its k-th receive gets what
// its own k-th send would send, at the time of that. Where that send waits for the receive, the message is taken to be sent
// when the receive is ready.
//
// Of many ranks that do different things (kinds with a root, scans), and of many hosts, groups of three sizes are modelled, each of half
// the ranks of the next, and what a doubling adds goes on as it did: a part that is the same each time, and one that doubles.
#include "collectives/estimate.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <queue>
#include <unordered_map>

#include "collectives/blocks.hpp"

namespace thalweg::impl {
namespace {

/// As many are modelled together; where they do different things more, and, where there are many, of so many hosts so many ranks each.
constexpr uint32_t kFewRanks = 16, kFewUnlike = 64, kFewHosts = 16;

struct At {
  uint32_t rank = UINT32_MAX, step = 0;
};
struct Event {
  double time;
  At at;
  bool operator<(const Event& other) const {  // the earliest is on top
    if (time != other.time) return time > other.time;
    return at.rank != other.at.rank ? at.rank > other.at.rank : at.step > other.at.step;
  }
};

struct StepState {
  double ready = 0, arrived = -1;  // arrived: what a receive gets
  uint32_t waits = 0;              // for so many steps
  bool posted = false;             // a receive without its message
  At match;                        // of a send: the receive
  std::vector<uint32_t> next = {};
};
struct RankState {
  Schedule schedule;
  std::vector<StepState> steps;
  double sends = 0, recvs = 0, cpu = 0;  // free from then on
};
/// What the ranks of a host share: its way to others.
struct HostState {
  double out = 0, in = 0;  // free from then on
};

class Model {
 public:
  Model(const Algorithm& algorithm, const Collective& collective, const CollectiveCosts& costs)
      : algorithm_(algorithm), collective_(collective), costs_(costs) {
    if (collective.ranks_per_host != 0) hosts_.resize(collective.size / collective.ranks_per_host + 1);
  }
  double all_ranks() {
    for (uint32_t rank = 0; rank < collective_.size; ++rank) add(rank);
    match_all();
    return run();
  }
  double alone(uint32_t rank) {
    add(rank);
    match_alone();
    return run();
  }

 private:
  void add(uint32_t rank);
  void match_all();
  void match_alone();
  double run();
  void begin(const Event& event);
  void receive(At at);
  void end(At at, double time);
  double& sends(RankState& rank) const { return costs_.cpu_moves ? rank.cpu : rank.sends; }
  double& recvs(RankState& rank) const { return costs_.cpu_moves ? rank.cpu : rank.recvs; }
  bool far(uint32_t rank, uint32_t peer) const {
    const uint32_t each = collective_.ranks_per_host;
    return each != 0 && rank / each != peer / each;
  }
  double message(uint32_t rank, uint32_t peer) const {
    return far(rank, peer) && costs_.host_message_ns > 0 ? costs_.host_message_ns : costs_.message_ns;
  }
  double bytes(uint32_t rank, uint32_t peer, uint64_t length) const {
    const double each = far(rank, peer) && costs_.host_byte_ns > 0 ? costs_.host_byte_ns : costs_.byte_ns;
    return each * static_cast<double>(length);
  }

  const Algorithm& algorithm_;
  Collective collective_;
  const CollectiveCosts& costs_;
  std::vector<HostState> hosts_;
  std::vector<RankState> ranks_;
  std::vector<uint32_t> numbers_;  // of ranks_
  std::priority_queue<Event> events_;
  std::vector<At> posted_;  // receives, in the order of their times
  double over_ = 0;
};

void Model::add(uint32_t rank) {
  Collective here = collective_;
  here.rank = rank;
  RankState& state = ranks_.emplace_back();
  numbers_.push_back(rank);
  Schedule& schedule = state.schedule;
  algorithm_.write(here, &schedule);
  state.steps.resize(schedule.steps.size());
  const double begins = costs_.scratch_byte_ns * static_cast<double>(schedule.scratch);
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const CollectiveStep& step = schedule.steps[i];
    state.steps[i].waits = step.after;
    state.steps[i].ready = begins;
    for (uint32_t k = 0; k < step.after; ++k) state.steps[schedule.after[step.first_after + k]].next.push_back(i);
    if (step.after == 0) events_.push({begins, {static_cast<uint32_t>(ranks_.size() - 1), i}});
  }
}

void Model::match_all() {
  std::unordered_map<uint64_t, std::vector<uint32_t>> received;  // from << 32 | by: steps
  for (uint64_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto& steps = ranks_[rank].schedule.steps;
    for (uint32_t i = 0; i < steps.size(); ++i) {
      if (steps[i].verb == StepVerb::recv) received[uint64_t{steps[i].peer} << 32 | rank].push_back(i);
    }
  }
  std::unordered_map<uint64_t, uint32_t> sent;
  for (uint64_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto& steps = ranks_[rank].schedule.steps;
    for (uint32_t i = 0; i < steps.size(); ++i) {
      if (steps[i].verb != StepVerb::send) continue;
      const uint64_t pair = rank << 32 | steps[i].peer;
      ranks_[rank].steps[i].match = {steps[i].peer, received[pair].at(sent[pair]++)};
    }
  }
}

void Model::match_alone() {
  const auto& steps = ranks_[0].schedule.steps;
  const auto next = [&](StepVerb verb, size_t from) {
    while (from < steps.size() && steps[from].verb != verb) ++from;
    return from;
  };
  size_t sent = next(StepVerb::send, 0), received = next(StepVerb::recv, 0);
  while (sent < steps.size() && received < steps.size()) {
    ranks_[0].steps[sent].match = {0, static_cast<uint32_t>(received)};
    sent = next(StepVerb::send, sent + 1);
    received = next(StepVerb::recv, received + 1);
  }
}

double Model::run() {
  size_t unsent = 0;  // in posted_
  for (;;) {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      begin(event);
    }
    while (unsent < posted_.size() && !ranks_[posted_[unsent].rank].steps[posted_[unsent].step].posted) ++unsent;
    if (unsent == posted_.size()) return over_;
    const At at = posted_[unsent];
    StepState& state = ranks_[at.rank].steps[at.step];
    const CollectiveStep& step = ranks_[at.rank].schedule.steps[at.step];
    const uint32_t rank = numbers_[at.rank];
    state.arrived = state.ready + message(rank, step.peer) / 2 + bytes(rank, step.peer, step.to.length);
    receive(at);
  }
}

void Model::begin(const Event& event) {
  RankState& rank = ranks_[event.at.rank];
  StepState& state = rank.steps[event.at.step];
  const CollectiveStep& step = rank.schedule.steps[event.at.step];
  const uint32_t number = numbers_[event.at.rank];
  if (step.verb == StepVerb::recv) {
    state.posted = true;
    posted_.push_back(event.at);
    if (state.arrived >= 0) receive(event.at);
  } else if (step.verb == StepVerb::send) {
    double& free = sends(rank);
    double begins = std::max(event.time, free);
    const double length_ns = bytes(number, step.peer, step.from.length);
    if (far(number, step.peer)) {
      double& out = hosts_[number / collective_.ranks_per_host].out;
      begins = std::max(begins, out);
      out = begins + length_ns;
    }
    const double sent = free = begins + message(number, step.peer) / 2 + length_ns;
    if (state.match.rank != UINT32_MAX) {
      StepState& there = ranks_[state.match.rank].steps[state.match.step];
      if (there.arrived < 0) there.arrived = sent;
      if (there.posted) receive(state.match);
    }
    end(event.at, sent);
  } else {
    const double length = static_cast<double>(step.to.length);
    const double each = step.verb == StepVerb::copy ? costs_.copy_byte_ns : costs_.reduce_byte_ns * (step.sources - 1);
    rank.cpu = std::max(event.time, rank.cpu) + costs_.step_ns + length * each;
    end(event.at, rank.cpu);
  }
}

void Model::receive(At at) {
  RankState& rank = ranks_[at.rank];
  StepState& state = rank.steps[at.step];
  const CollectiveStep& step = rank.schedule.steps[at.step];
  const uint32_t number = numbers_[at.rank];
  double& free = recvs(rank);
  const double length_ns = bytes(number, step.peer, step.to.length);
  double there = std::max({state.arrived, state.ready, free + length_ns});
  if (far(number, step.peer)) {
    double& in = hosts_[number / collective_.ranks_per_host].in;
    in = there = std::max(there, in + length_ns);
  }
  free = there + message(number, step.peer) / 2;
  state.posted = false;
  end(at, free);
}

void Model::end(At at, double time) {
  over_ = std::max(over_, time);
  RankState& rank = ranks_[at.rank];
  for (uint32_t next : rank.steps[at.step].next) {
    StepState& state = rank.steps[next];
    state.ready = std::max(state.ready, time);
    if (--state.waits == 0) events_.push({state.ready, {at.rank, next}});
  }
}

/// What all ranks know.
Collective as_all_see_it(Collective c) {
  if (has_root(c.kind)) c.in_place = false;
  if (c.repeatable) {  // rank, size and count alone
    c.root = c.ranks_per_host = 0;
    c.in_place = false;
    c.chunk = Collective{}.chunk;
  }
  if (c.kind == CollectiveKind::alltoall || c.counts_at_root) {
    c.send_counts = c.send_offsets = c.recv_counts = c.recv_offsets = nullptr;
    c.counts_at_root = false;
  }
  c.send_offsets = c.recv_offsets = nullptr;
  return c;
}

/// With blocks of one length, so that all ranks do the same.
Collective with_equal_blocks(Collective c) {
  if (c.recv_counts != nullptr) c.count = std::accumulate(c.recv_counts, c.recv_counts + c.size, uint64_t{0}) / c.size;
  c.send_counts = c.recv_counts = nullptr;
  if (c.kind == CollectiveKind::allreduce) c.count = (c.count + c.size - 1) / c.size * c.size;
  return c;
}

/// A power of two only of one: what algorithms do differs.
uint32_t half_of(uint32_t n) {
  const uint32_t half = (n + 1) / 2;
  return std::has_single_bit(half) && !std::has_single_bit(n) ? half - 1 : half;
}

/// What model(n) would give, of at most `few`, as a sum of what is the same in each doubling and what doubles.
template <class ModelOf>
double extrapolated_ns(uint32_t n, uint32_t few, const ModelOf& model) {
  if (n <= few) return model(n);
  uint32_t doublings = 0, most = n;
  for (; most > few; ++doublings) most = half_of(most);
  const uint32_t middle = half_of(most);
  const double ns = model(most), before = model(middle), first = before - model(half_of(middle)), second = ns - before;
  double doubles = 2 * std::max(second - first, 0.0), sum = ns;
  const double same = std::max(second, 0.0) - doubles;
  for (; doublings != 0; --doublings) sum += same + (doubles *= 2);
  return std::max(sum, ns);
}

double extrapolated_ns(const Algorithm& algorithm, const Collective& c, const CollectiveCosts& costs, bool several_hosts) {
  const uint32_t few = several_hosts ? kFewHosts : kFewUnlike, each_has = several_hosts ? c.ranks_per_host : c.size;
  const auto model = [&](uint32_t hosts, uint32_t each) {
    Collective some = c;
    some.size = hosts * each;
    some.root = c.root % some.size;
    if (several_hosts) some.ranks_per_host = each;
    return Model(algorithm, some, costs).all_ranks();
  };
  return extrapolated_ns((c.size + each_has - 1) / each_has, few, [&](uint32_t hosts) {
    return extrapolated_ns(each_has, few, [&](uint32_t each) { return model(hosts, each); });
  });
}

}  // namespace

double predicted_ns(const Algorithm& algorithm, const Collective& collective, const CollectiveCosts& measured) {
  Collective c = as_all_see_it(collective);
  CollectiveCosts costs = measured;
  if (algorithm.kernels != Kernels::none) return kernel_ns(algorithm.kernels, c, costs);
  if (algorithm.write == nullptr) return direct_ns(c, costs);
  const bool alike = !has_root(c.kind) && c.kind != CollectiveKind::scan && c.kind != CollectiveKind::exclusive_scan;
  const bool several_hosts = c.ranks_per_host != 0 && c.ranks_per_host < c.size;
  if (c.kind == CollectiveKind::alltoall && !several_hosts) costs.cpu_moves = true;  // both ways at once, as much in as out
  if (c.size <= (several_hosts || !alike ? kFewUnlike : kFewRanks)) return Model(algorithm, c, costs).all_ranks();
  c = with_equal_blocks(c);
  if (!alike) return extrapolated_ns(algorithm, c, costs, several_hosts);
  double most = 0;
  for (uint32_t rank : {0u, 1u, c.size - 1}) most = std::max(most, Model(algorithm, c, costs).alone(rank));
  return most;
}

}  // namespace thalweg::impl
