// SPDX-License-Identifier: Apache-2.0
// Which steps of a plan are cut, and where.
#include "plans/plan_pieces.hpp"

#include <algorithm>
#include <cmath>

#include <thalweg/device/reduce.hpp>

#include "base/platform/process.hpp"
#include "core/endpoint.hpp"
#include "core/worker.hpp"
#include "devices/program.hpp"
#include "protocols/operation_routes.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kAlign = 64;                               // of cuts: whole elements, and whole words of what is aligned
constexpr uint64_t kMostPieces = 64, kMostHostPieces = 1024;  // of a chain
constexpr uint64_t kHostChunk = 256 << 10;                    // is in the second-level cache when the next step reads it
constexpr uint64_t kDeviceChunk = 8 << 20;  // takes all blocks long enough for one walk over the steps not to matter
constexpr uint64_t kDevicePieces = 4;       // two steps of as many are in a launch's parameters
constexpr double kNearByte = 0.03;          // nanoseconds of what the executor does
constexpr uint64_t kLeastCarried = 64 << 10;
constexpr double kOperationFrames = 4;  // doorbell, request, data, and the word that says that it is there

/// Bytes that a step reads or writes, by the address that a process has for them. A peer's memory that is mapped here is also ours.
struct Span {
  uint64_t process;  // 0: this one
  uint64_t address;
};
struct Touched {
  Span all[2];
  size_t count = 0;
  void add(uint64_t process, uint64_t address) { all[count++] = {process, address}; }
};

Touched local(uint64_t address) {
  Touched at;
  at.add(0, address);
  return at;
}
Touched remote(const RemoteRegion& region, const Reached& reached, uint64_t offset) {
  Touched at;
  at.add(region.key.incarnation == process_incarnation() ? 0 : region.key.incarnation, region.key.base + offset);
  if (reached.address() != 0) at.add(0, reached.address() + offset);
  return at;
}

Touched written(const PlanStep& step, const Resolved& how) {
  if (step.op.verb == Verb::put) return remote(*step.op.remote, how.remote, step.op.remote_offset);
  return local(step.op.verb == Verb::get ? step.address() : step.there());
}
std::vector<Touched> read(const PlanStep& step, const Resolved& how) {
  if (step.op.verb == Verb::get) return {remote(*step.op.remote, how.remote, step.op.remote_offset)};
  if (step.op.verb != Verb::reduce) return {local(step.address())};
  std::vector<Touched> all;
  for (size_t i = 0; i < step.sources.size(); ++i) {
    const ReduceSource& source = step.sources[i];
    all.push_back(source.region != nullptr ? remote(*source.region, how.sources[i], source.address) : local(source.address));
  }
  return all;
}

/// Of two ranges of these lengths: do they have a byte in common, which is not at the same coordinate?
bool collide(const Touched& a, uint64_t a_begin, uint64_t a_length, const Touched& b, uint64_t b_begin, uint64_t b_length) {
  for (size_t i = 0; i < a.count; ++i) {
    for (size_t j = 0; j < b.count; ++j) {
      const Span &x = a.all[i], &y = b.all[j];
      if (x.process != y.process || x.address >= y.address + b_length || y.address >= x.address + a_length) continue;
      if (x.address - a_begin != y.address - b_begin) return true;
    }
  }
  return false;
}

uint64_t element_of(const PlanStep& step) {
  return step.op.verb == Verb::reduce ? device::element_bytes(static_cast<device::ElementType>(step.op.word)) : 1;
}

}  // namespace

bool PlanPieces::divisible(size_t index) const {
  const PlanStep& step = list_[index];
  const bool moves =
      step.op.verb == Verb::copy || step.op.verb == Verb::put || step.op.verb == Verb::get || step.op.verb == Verb::reduce;
  return moves && step.op.length != 0 && step.op.layout == nullptr && step.op.remote_layout == nullptr && step.of.empty();
}

/// How far behind the earlier step's first byte that it writes the later one's first byte is that it reads. False: it reads none of
/// it, or also others.
bool PlanPieces::displacement(size_t index, uint32_t earlier, uint64_t* out) const {
  const Touched target = written(list_[earlier], resolved_[earlier]);
  const uint64_t room = steps_[earlier].length, length = steps_[index].length;
  for (const Touched& source : read(list_[index], resolved_[index])) {
    for (size_t i = 0; i < source.count; ++i) {
      for (size_t j = 0; j < target.count; ++j) {
        const Span &from = source.all[i], &to = target.all[j];
        if (from.process != to.process || from.address < to.address || length > room) continue;
        *out = from.address - to.address;
        if (*out <= room - length) return true;
      }
    }
  }
  return false;
}

/// Both have their coordinates.
bool PlanPieces::races(size_t index, uint32_t earlier) const {
  const InChain &here = steps_[index], &there = steps_[earlier];
  const Touched to = written(list_[index], resolved_[index]), to_earlier = written(list_[earlier], resolved_[earlier]);
  const auto with = [&](const Touched& a, const Touched& b) {
    return collide(a, here.begin, here.length, b, there.begin, there.length);
  };
  if (with(to, to_earlier)) return true;
  for (const Touched& from : read(list_[index], resolved_[index])) {
    if (with(from, to_earlier)) return true;
  }
  for (const Touched& from : read(list_[earlier], resolved_[earlier])) {
    if (with(to, from)) return true;
  }
  return false;
}

/// With `earlier`, and with what that follows.
bool PlanPieces::races_with_any(size_t index, uint32_t earlier) const {
  std::vector<uint32_t> open{earlier};
  for (size_t at = 0; at < open.size(); ++at) {
    if (races(index, open[at])) return true;
    for (const uint32_t next : steps_[open[at]].follows) {
      if (std::find(open.begin(), open.end(), next) == open.end()) open.push_back(next);
    }
  }
  return false;
}

/// The later step's coordinate; false: it has another one already, or its elements would be cut.
bool PlanPieces::locate(size_t index, uint32_t earlier) {
  uint64_t displaced = 0;
  if (!displacement(index, earlier, &displaced)) return false;
  const uint64_t begin = steps_[earlier].begin + displaced;
  if (begin % element_of(list_[index]) != 0) return false;
  if (!steps_[index].follows.empty()) return steps_[index].begin == begin;
  steps_[index].begin = begin;
  return true;
}

void PlanPieces::join(size_t index) {
  InChain& here = steps_[index];
  for (const uint32_t earlier : list_[index].after) {
    // A signal of the earlier step says that all of it has ended.
    if (!divisible(earlier) || list_[earlier].op.signal != nullptr || follows(index, earlier)) continue;
    if (!locate(index, earlier) || races_with_any(index, earlier)) continue;
    here.follows.push_back(earlier);
    const uint32_t head = std::min(here.head, steps_[earlier].head);
    for (InChain& each : steps_) {
      if (each.head == here.head || each.head == steps_[earlier].head) each.head = head;
    }
  }
  if (here.follows.empty()) here.begin = 0;
}

void PlanPieces::divide(const Executor& by) {
  steps_.clear();
  const auto kernels = [](const PlanStep& step) { return step.exchange != nullptr; };
  if (std::any_of(list_.begin(), list_.end(), kernels)) return;  // several programs
  steps_.resize(list_.size());
  uint64_t members = 0;
  for (uint32_t i = 0; i < list_.size(); ++i) {
    steps_[i].head = i;
    steps_[i].length = list_[i].op.length;
    if (!divisible(i)) continue;
    join(i);
    members += steps_[i].follows.empty() ? 0 : 2;
  }
  const uint64_t whole = 2 * list_.size();  // of the program, at most, if nothing is cut
  if (members == 0 || whole >= kMostSteps) return steps_.clear();
  const uint64_t most = (kMostSteps - whole) / (2 * members);
  for (uint32_t i = 0; i < list_.size(); ++i) {
    if (steps_[i].head == i) cut_chain(i, by, most);
  }
}

void PlanPieces::cut_chain(uint32_t head, const Executor& by, uint64_t most) {
  std::vector<uint32_t> chain;
  uint64_t bytes = 0;
  for (uint32_t i = head; i < list_.size(); ++i) {
    if (steps_[i].head != head) continue;
    chain.push_back(i);
    bytes = std::max(bytes, steps_[i].begin + steps_[i].length);
  }
  const auto carried = [this](uint32_t i) { return resolved_[i].proxied; };
  const bool by_host = by.device() == nullptr && std::none_of(chain.begin(), chain.end(), carried);
  most = std::min(most, by_host ? kMostHostPieces : kMostPieces);
  uint64_t chunk = chunk_bytes_ != 0 ? chunk_bytes_ : chosen(chain, by, bytes);
  if (chain.size() > 1 && most > 1 && chunk < bytes) chunk = (std::max(chunk, bytes / most + 1) + kAlign - 1) / kAlign * kAlign;
  const bool cuts = chain.size() > 1 && most > 1 && chunk < bytes;
  for (const uint32_t i : chain) {
    InChain& each = steps_[i];
    if (!cuts) each.follows.clear();
    if (!cuts) continue;
    each.chunk = chunk;
    each.count = static_cast<uint32_t>((each.begin + each.length - 1) / chunk - each.begin / chunk + 1);
  }
}

/// Of a chain of `bytes` in which the host carries a step: an operation takes a fixed time that is waited for once more with each piece,
/// and a piece of the faster step is what the slower one does not hide. Their sum is least at the root of the quotient.
uint64_t PlanPieces::chosen(const std::vector<uint32_t>& chain, const Executor& by, uint64_t bytes) const {
  for (const uint32_t i : chain) {
    if (!resolved_[i].proxied) continue;
    tw_endpoint* const endpoint = list_[i].endpoint;
    if (endpoint == nullptr) return kHostChunk;
    const Engine::Guard guard(*endpoint->worker->engine);
    if (!endpoint->peer || endpoint->peer->link == nullptr) return kHostChunk;
    const LinkCosts& costs = costs_of(*endpoint->peer);
    const double link = costs.copy_large != 0 ? costs.copy_large : costs.copy;
    const bool all = std::all_of(chain.begin(), chain.end(), [this](uint32_t each) { return resolved_[each].proxied; });
    const double byte = all ? link : std::min(link, kNearByte);
    const double best = std::sqrt(static_cast<double>(bytes) * kOperationFrames * costs.frame / std::max(byte, 1e-3));
    return std::max(kLeastCarried, static_cast<uint64_t>(best));
  }
  if (by.device() == nullptr) return kHostChunk;
  const bool reduces = std::any_of(chain.begin(), chain.end(), [this](uint32_t i) { return list_[i].op.verb == Verb::reduce; });
  return reduces ? UINT64_MAX : std::max(kDeviceChunk, bytes / kDevicePieces + 1);
}

void PlanPieces::check_again() {
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    InChain& here = steps_[i];
    std::erase_if(here.follows, [&](uint32_t earlier) {
      uint64_t displaced = 0;
      return !displacement(i, earlier, &displaced) || steps_[earlier].begin + displaced != here.begin ||
             races_with_any(i, earlier);
    });
  }
}

PlanPieces::Range PlanPieces::range(size_t step, uint32_t piece) const {
  if (!cut(step)) return {0, list_[step].op.length};
  const InChain& it = steps_[step];
  const uint64_t cut = (first_cut(step) + piece) * it.chunk, begin = std::max(it.begin, cut);
  return {begin - it.begin, std::min(it.begin + it.length, cut + it.chunk) - begin};
}

bool PlanPieces::follows(size_t step, uint32_t earlier) const {
  if (steps_.empty()) return false;
  const std::vector<uint32_t>& all = steps_[step].follows;
  return std::find(all.begin(), all.end(), earlier) != all.end();
}

PlanPieces::Key PlanPieces::key(size_t step, uint32_t piece) const {
  if (!in_chain(step)) return {static_cast<uint32_t>(step), 0, 0};
  return {steps_[step].head, first_cut(step) + piece, steps_[step].begin + range(step, piece).offset};
}

std::string PlanPieces::explain(size_t step) const {
  if (!in_chain(step)) return {};
  const InChain& it = steps_[step];
  std::string text = std::to_string(it.count) + (it.count == 1 ? " piece" : " pieces");
  text += " of up to " + std::to_string(it.chunk) + " bytes";
  for (size_t i = 0; i < it.follows.size(); ++i)
    text += (i == 0 ? ", each after its piece of step " : " and step ") + std::to_string(it.follows[i]);
  return text;
}

}  // namespace thalweg::impl
