// SPDX-License-Identifier: Apache-2.0
#include "simulator.hpp"

#include <algorithm>

namespace thalweg::impl::test {
namespace {

struct Access {
  Part part;
  bool writes;
};
std::vector<Access> accesses(const Schedule& schedule, const CollectiveStep& step) {
  std::vector<Access> all;
  if (step.verb != StepVerb::send) all.push_back({step.to, true});
  if (step.verb == StepVerb::send || step.verb == StepVerb::copy) all.push_back({step.from, false});
  for (uint32_t i = 0; i < step.sources; ++i) all.push_back({schedule.sources[step.first_source + i], false});
  return all;
}

bool overlap(const Part& a, const Part& b) {
  return a.where == b.where && a.offset < b.offset + b.length && b.offset < a.offset + a.length;
}
bool same(const Part& a, const Part& b) { return a.where == b.where && a.offset == b.offset && a.length == b.length; }

std::string check_step(const Schedule& schedule, uint32_t index, uint32_t rank, uint32_t size, Memory& memory) {
  const CollectiveStep& step = schedule.steps[index];
  const bool moves = step.verb == StepVerb::send || step.verb == StepVerb::recv;
  if (moves && (step.peer >= size || step.peer == rank)) return "no such peer";
  if (step.verb == StepVerb::reduce && step.sources < 2) return "nothing to reduce";
  for (uint32_t i = 0; i < step.after; ++i) {
    if (schedule.after[step.first_after + i] >= index) return "waits for a later step";
  }
  const std::vector<Access> parts = accesses(schedule, step);
  for (const auto& [part, writes] : parts) {
    if (part.length == 0 || part.length != parts[0].part.length) return "a wrong length";
    if (part.offset + part.length > memory[part.where].size()) return "outside of its buffer";
    if (!writes && step.verb != StepVerb::send && overlap(part, step.to) && !same(part, step.to)) return "overlaps itself";
    if (step.verb == StepVerb::copy && !writes && same(part, step.to)) return "copies to itself";
  }
  return "";
}

struct At {
  uint32_t rank = 0, step = 0;
};

class Simulator {
 public:
  Simulator(const std::vector<Schedule>& schedules, std::vector<Memory>& memories, Operation operation, Eager eager,
            std::mt19937& random)
      : schedules_(schedules), memories_(memories), operation_(operation), eager_(eager), random_(random) {}
  std::string match();
  std::string run();

 private:
  struct State {
    uint32_t waits = 0;
    bool posted = false, sent = false;  // of a send: its receive waits; its bytes were taken before
    At match;                           // the other side
    Bytes message = {};
    std::vector<uint32_t> next = {};
  };
  const CollectiveStep& step(At at) const { return schedules_[at.rank].steps[at.step]; }
  State& state(At at) { return states_[at.rank][at.step]; }
  void begin(At at);
  void send(At at);
  void receive(At at);
  void end(At at);

  const std::vector<Schedule>& schedules_;
  std::vector<Memory>& memories_;
  const Operation operation_;
  const Eager eager_;
  std::mt19937& random_;
  std::vector<std::vector<State>> states_;
  std::vector<At> ready_;
  size_t left_ = 0;
};

std::string Simulator::match() {
  const uint32_t size = static_cast<uint32_t>(schedules_.size());
  std::vector<std::vector<uint32_t>> sends(size * size), recvs(size * size);  // [from, to]
  for (uint32_t rank = 0; rank < size; ++rank) {
    const Schedule& schedule = schedules_[rank];
    states_.emplace_back(schedule.steps.size());
    left_ += schedule.steps.size();
    for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
      const CollectiveStep& step = schedule.steps[i];
      if (step.verb == StepVerb::send) sends[rank * size + step.peer].push_back(i);
      if (step.verb == StepVerb::recv) recvs[step.peer * size + rank].push_back(i);
      states_[rank][i].waits = step.after;
      for (uint32_t k = 0; k < step.after; ++k) states_[rank][schedule.after[step.first_after + k]].next.push_back(i);
      if (step.after == 0) ready_.push_back({rank, i});
    }
  }
  for (uint32_t pair = 0; pair < size * size; ++pair) {
    const std::string names = std::to_string(pair / size) + " to " + std::to_string(pair % size);
    if (sends[pair].size() != recvs[pair].size()) return "not as many receives as sends from " + names;
    for (size_t i = 0; i < sends[pair].size(); ++i) {
      const At from{pair / size, sends[pair][i]}, to{pair % size, recvs[pair][i]};
      if (step(from).from.length != step(to).to.length) return "a message of another length from " + names;
      state(from).match = to;
      state(to).match = from;
    }
  }
  return "";
}

std::string Simulator::run() {
  while (!ready_.empty()) {
    const size_t i = random_() % ready_.size();
    const At at = ready_[i];
    ready_[i] = ready_.back();
    ready_.pop_back();
    begin(at);
  }
  if (left_ == 0) return "";
  std::string stuck = "deadlock:";
  for (uint32_t rank = 0; rank < states_.size(); ++rank) {
    for (uint32_t i = 0; i < states_[rank].size(); ++i) {
      if (states_[rank][i].posted) stuck += " " + std::to_string(rank) + "." + std::to_string(i);
    }
  }
  return stuck;
}

void Simulator::begin(At at) {
  const CollectiveStep& what = step(at);
  Memory& memory = memories_[at.rank];
  switch (what.verb) {
    case StepVerb::send:
      return send(at);
    case StepVerb::recv:
      return receive(at);
    case StepVerb::copy:
      std::ranges::copy(memory.at(what.from), memory.at(what.to).begin());
      break;
    case StepVerb::reduce: {
      const Part* sources = &schedules_[at.rank].sources[what.first_source];
      const auto first = memory.at(sources[0]);
      Bytes sum(first.begin(), first.end());
      for (uint32_t i = 1; i < what.sources; ++i) combine(operation_, sum, memory.at(sources[i]));
      std::ranges::copy(sum, memory.at(what.to).begin());
    }
  }
  end(at);
}

void Simulator::send(At at) {
  State& here = state(at);
  const auto bytes = memories_[at.rank].at(step(at).from);
  if (state(here.match).posted) {
    std::ranges::copy(bytes, memories_[here.match.rank].at(step(here.match).to).begin());
    state(here.match).posted = false;
    end(here.match);
    return end(at);
  }
  if (eager_ == Eager::none || random_() % 2 == 0) {
    here.posted = true;
    return;
  }
  here.message.assign(bytes.begin(), bytes.end());
  here.sent = true;
  end(at);
}

void Simulator::receive(At at) {
  State& here = state(at);
  State& there = state(here.match);
  const auto bytes = memories_[at.rank].at(step(at).to);
  if (there.sent) {
    std::ranges::copy(there.message, bytes.begin());
    return end(at);
  }
  here.posted = !there.posted;
  if (here.posted) return;
  std::ranges::copy(memories_[here.match.rank].at(step(here.match).from), bytes.begin());
  there.posted = false;
  end(here.match);
  end(at);
}

void Simulator::end(At at) {
  --left_;
  for (uint32_t next : state(at).next) {
    if (--state({at.rank, next}).waits == 0) ready_.push_back({at.rank, next});
  }
}

}  // namespace

std::string check_steps(const Schedule& schedule, uint32_t rank, uint32_t size, Memory& memory) {
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const std::string wrong = check_step(schedule, i, rank, size, memory);
    if (!wrong.empty()) return "rank " + std::to_string(rank) + ", step " + std::to_string(i) + ": " + wrong;
  }
  return "";
}

std::string check_overlaps(const Schedule& schedule) {
  const size_t steps = schedule.steps.size(), words = (steps + 63) / 64;
  std::vector<uint64_t> before(steps * words);  // [step]: bits of those that it waits for, over others, too
  std::vector<std::vector<Access>> all;
  for (size_t i = 0; i < steps; ++i) {
    const CollectiveStep& step = schedule.steps[i];
    uint64_t* mine = &before[i * words];
    for (uint32_t k = 0; k < step.after; ++k) {
      const uint32_t waited = schedule.after[step.first_after + k];
      for (size_t w = 0; w < words; ++w) mine[w] |= before[waited * words + w];
      mine[waited / 64] |= uint64_t{1} << waited % 64;
    }
    all.push_back(accesses(schedule, step));
    for (size_t other = 0; other < i; ++other) {
      if ((mine[other / 64] >> other % 64 & 1) != 0) continue;
      for (const Access& a : all[i]) {
        for (const Access& b : all[other]) {
          if ((a.writes || b.writes) && overlap(a.part, b.part)) {
            return "steps " + std::to_string(other) + " and " + std::to_string(i) + " overlap";
          }
        }
      }
    }
  }
  return "";
}

std::string simulate(const std::vector<Schedule>& schedules, std::vector<Memory>& memories, Operation operation, Eager eager,
                     std::mt19937& random) {
  for (uint32_t rank = 0; rank < schedules.size(); ++rank) {
    memories[rank][Where::scratch].assign(schedules[rank].scratch, static_cast<uint8_t>(random()));
    const uint32_t size = static_cast<uint32_t>(schedules.size());
    const std::string wrong = check_steps(schedules[rank], rank, size, memories[rank]);
    if (!wrong.empty()) return wrong;
  }
  Simulator simulator(schedules, memories, operation, eager, random);
  const std::string wrong = simulator.match();
  return wrong.empty() ? simulator.run() : wrong;
}

}  // namespace thalweg::impl::test
