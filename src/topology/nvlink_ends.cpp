// SPDX-License-Identifier: Apache-2.0
// The driver does not say which port of one GPU meets which of another, so the links of two GPUs are matched by their numbers.
#include "topology/nvlink_ends.hpp"

#include <algorithm>

namespace thalweg::impl::topology {
namespace {

class Ends {
 public:
  Ends(const Graph& graph, std::vector<Link> told) : graph_(graph), told_(std::move(told)), taken_(told_.size()) {}

  std::vector<Link> join() {
    const std::vector<size_t> gpus = graph_.all(NodeKind::gpu);
    for (size_t one = 0; one < gpus.size(); ++one)
      for (size_t other = one + 1; other < gpus.size(); ++other) join_pair(gpus[one], gpus[other]);
    for (size_t i = 0; i < told_.size(); ++i) {
      if (taken_[i]) continue;
      if (told_[i].to == kNoNode && !told_[i].up) told_[i].to = switch_of(told_[i].from);
      whole_.push_back(told_[i]);
    }
    std::stable_sort(whole_.begin(), whole_.end(), [](const Link& a, const Link& b) { return a.from < b.from; });
    return std::move(whole_);
  }

 private:
  /// Of one end those that are up, and those that are down.
  struct Told {
    std::vector<size_t> up, down;
    size_t count() const { return up.size() + down.size(); }
  };
  Told between(size_t from, size_t to) {
    Told found;
    for (size_t i = 0; i < told_.size(); ++i) {
      if (told_[i].from != from || told_[i].to != to) continue;
      (told_[i].up ? found.up : found.down).push_back(i);
      taken_[i] = true;
    }
    return found;
  }

  void join_pair(size_t one, size_t other) {
    const Told here = between(one, other), there = between(other, one);
    // Of the other end's, which are none of this end's cannot be known: as many as make both ends agree are down.
    const size_t more = there.count() - std::min(there.count(), here.count()),
                 dead = std::min(more, there.down.size() - std::min(there.down.size(), here.down.size()));
    const size_t first = whole_.size();
    for (const size_t i : here.up) whole_.push_back(told_[i]);
    for (size_t i = 0; i < more - dead; ++i) whole_.push_back(told_[there.up[i]]);
    const size_t carrying = whole_.size(), down = std::max(here.down.size(), there.down.size());
    for (const size_t i : here.down) whole_.push_back(told_[i]);
    for (size_t i = 0; i < dead; ++i) whole_.push_back(told_[there.down[i]]);
    for (size_t i = carrying; i > first && whole_.size() - i < down; --i) whole_[i - 1].up = false;
    for (size_t i = 0; i < more; ++i) take_lost(one, i >= dead);
    for (size_t i = there.count(); i < here.count(); ++i) take_lost(other, i < here.up.size());
  }

  /// One of `gpu`'s that does not say where it leads is what the other end has told of.
  void take_lost(size_t gpu, bool up) {
    size_t best = told_.size();
    for (size_t i = 0; i < told_.size(); ++i) {
      if (taken_[i] || told_[i].from != gpu || told_[i].to != kNoNode) continue;
      if (best == told_.size() || (told_[best].up != up && told_[i].up == up)) best = i;
    }
    if (best == told_.size()) return;
    taken_[best] = true;
  }

  size_t switch_of(size_t gpu) const {
    for (const Link& link : told_)
      if (link.from == gpu && link.to != kNoNode && graph_.nodes[link.to].kind == NodeKind::nvswitch) return link.to;
    return kNoNode;
  }

  const Graph& graph_;
  std::vector<Link> told_;
  std::vector<bool> taken_;
  std::vector<Link> whole_;
};

}  // namespace

std::vector<Link> join_ends(const Graph& graph, std::vector<Link> told) { return Ends(graph, std::move(told)).join(); }

}  // namespace thalweg::impl::topology
