// SPDX-License-Identifier: Apache-2.0
// From steps in pieces to units, and to their order.
#include "plans/plan_units.hpp"

#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

namespace thalweg::impl {
namespace {

class Units {
 public:
  Units(const PlanList& list, const ResolvedSteps& resolved, const PlanPieces& pieces)
      : list_(list), resolved_(resolved), pieces_(pieces), first_(list.size()), ends_(list.size()), partly_(list.size()) {
    for (uint32_t i = 0; i < list.size(); ++i) add(i);
  }

  /// By the chain's first step, then the place of the cut, then the step. What has no chain keeps its place: nothing that it waits for
  /// has a later one.
  std::vector<Unit> ordered() {
    using Key = std::tuple<uint32_t, uint64_t, uint32_t, uint32_t>;
    std::vector<uint32_t> open(units_.size()), number(units_.size());
    std::vector<std::vector<uint32_t>> next(units_.size());
    std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
    const auto is_ready = [&](uint32_t unit) {
      const PlanPieces::Key key = pieces_.key(units_[unit].step, units_[unit].piece);
      ready.emplace(key.head, key.chunk, units_[unit].step, unit);
    };
    for (uint32_t i = 0; i < units_.size(); ++i) {
      open[i] = static_cast<uint32_t>(units_[i].after.size());
      for (const Unit::After& earlier : units_[i].after) next[earlier.unit].push_back(i);
      if (open[i] == 0) is_ready(i);
    }
    std::vector<Unit> made;
    while (!ready.empty()) {
      const uint32_t unit = std::get<3>(ready.top());
      ready.pop();
      number[unit] = static_cast<uint32_t>(made.size());
      made.push_back(std::move(units_[unit]));
      for (Unit::After& earlier : made.back().after) earlier.unit = number[earlier.unit];
      for (const uint32_t later : next[unit]) {
        if (--open[later] == 0) is_ready(later);
      }
    }
    return made;
  }

 private:
  bool moved_by_executor(uint32_t step) const { return !resolved_[step].proxied; }

  void add(uint32_t i) {
    const uint32_t count = pieces_.count(i);
    const bool signal_apart = count > 1 && list_[i].op.signal != nullptr && moved_by_executor(i);
    first_[i] = static_cast<uint32_t>(units_.size());
    std::vector<uint32_t> own;
    std::vector<uint32_t>& partly = partly_[i];
    for (uint32_t k = 0; k < count; ++k) own.push_back(add_piece(i, k));
    for (const uint32_t earlier : list_[i].after) {
      if (!pieces_.follows(i, earlier)) continue;
      const std::vector<uint32_t>& rest = pieces_.ends(i, earlier) ? partly_[earlier] : ends_[earlier];
      partly.insert(partly.end(), rest.begin(), rest.end());
    }
    ends_[i] = own;
    ends_[i].insert(ends_[i].end(), partly.begin(), partly.end());
    if (list_[i].op.signal == nullptr || (count == 1 && partly.empty())) return;
    if (signal_apart) {
      units_.push_back({i, count - 1, true, Unit::kNone, {}});
    } else {
      ends_[i].erase(ends_[i].begin() + count - 1);  // the last piece carries the signal
    }
    const uint32_t last = signal_apart ? static_cast<uint32_t>(units_.size() - 1) : own.back();
    for (const uint32_t end : ends_[i]) units_[last].after.push_back({end, false});
    ends_[i] = {last};
  }

  uint32_t add_piece(uint32_t i, uint32_t k) {
    Unit unit{i, k, false, Unit::kNone, {}};
    for (const uint32_t earlier : list_[i].after) {
      if (!pieces_.follows(i, earlier)) {
        for (const uint32_t end : ends_[earlier]) unit.after.push_back({end, false});
        continue;
      }
      unit.after.push_back(
          {first_[earlier] + pieces_.match(i, k, earlier), moved_by_executor(i) && moved_by_executor(earlier)});
    }
    const auto number = static_cast<uint32_t>(units_.size());
    if (k > 0 && moved_by_executor(i) && !pieces_.follows_any(i)) unit.after.push_back({number - 1, true});
    if (resolved_[i].proxied &&
        resolved_[i].channel != nullptr) {  // an ordered pipe: the proxy sees one message of it at a time
      for (uint32_t j = i; j-- > 0;) {
        if (resolved_[j].channel != resolved_[i].channel) continue;
        unit.after.push_back({ends_[j].back(), false});
        break;
      }
    }
    units_.push_back(std::move(unit));
    return number;
  }

  const PlanList& list_;
  const ResolvedSteps& resolved_;
  const PlanPieces& pieces_;
  std::vector<uint32_t> first_;                // unit of a step
  std::vector<std::vector<uint32_t>> ends_;    // units whose ends are the step's
  std::vector<std::vector<uint32_t>> partly_;  // ... that its own pieces do not imply: of steps of which it reads a part
  std::vector<Unit> units_;
};

}  // namespace

std::vector<Unit> units_of(const PlanList& list, const ResolvedSteps& resolved, const PlanPieces& pieces) {
  std::vector<Unit> units = Units(list, resolved, pieces).ordered();
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> first;  // unit that begins at this byte of a chain
  for (uint32_t i = 0; i < units.size(); ++i) {
    Unit& unit = units[i];
    if (!pieces.in_chain(unit.step) || unit.signals || resolved[unit.step].proxied) continue;
    const PlanPieces::Key key = pieces.key(unit.step, unit.piece);
    const auto [at, is_first] = first.try_emplace({key.head, key.begin}, i);
    if (!is_first) unit.shares = at->second;
    const uint32_t shared = at->second;
    for (Unit::After& earlier : unit.after) {
      const Unit& other = units[earlier.unit];
      const bool paces = other.step == unit.step;
      earlier.own = earlier.own && (paces || earlier.unit == shared || other.shares == shared);
    }
  }
  return units;
}

}  // namespace thalweg::impl
