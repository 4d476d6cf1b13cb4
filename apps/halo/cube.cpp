// SPDX-License-Identifier: Apache-2.0
#include "halo/cube.hpp"

#include <sys/random.h>

#include <cstring>
#include <stdexcept>

namespace halo {
namespace {

/// Towards the next rank, or the previous one?
bool positive(const apps::Direction& d) { return d[0] != 0 ? d[0] > 0 : d[1] != 0 ? d[1] > 0 : d[2] > 0; }

apps::Moves plane(uint64_t n, size_t axis, int next, int previous) {
  apps::Box last{{0, 0, 0}, {n, n, n}};
  last.extent[axis] = 1;
  const apps::Box first = last;
  last.start[axis] = n - 1;
  return {{{next, axis, last}}, {{previous, axis, first}}};
}

apps::Moves neighbours(uint64_t n, int next, int previous) {
  const apps::Triple inside{n, n, n};
  apps::Moves moves;
  for (const apps::Direction& d : apps::directions()) {
    const uint64_t tag = apps::number_of(d);
    moves.sends.push_back({positive(d) ? next : previous, tag, apps::edge_towards(inside, d)});
    moves.receives.push_back({positive(d) ? previous : next, tag, apps::halo_towards(inside, apps::opposite(d))});
  }
  return moves;
}

/// splitmix64.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Cells first, first + 1, ... of a rank, given its seed.
template <class T>
void fill_row(T* cells, uint64_t count, uint64_t seed, uint64_t first) {
  for (uint64_t k = 0; k < count; ++k) cells[k] = static_cast<T>(mixed(seed + first + k));
}

constexpr uint64_t kWords = 2 * apps::kDirections;

int axis_of(const std::string& region) { return region == "jk" ? 0 : region == "ik" ? 1 : region == "ij" ? 2 : -1; }

}  // namespace

const std::vector<std::string>& region_names() {
  static const std::vector<std::string> names = {"jk", "ik", "ij", "26"};
  return names;
}

Cube::Cube(apps::Ranks& ranks, uint64_t n, size_t element, const std::string& region, const std::string& place)
    : ranks_(ranks),
      n_(n),
      axis_(axis_of(region)),
      next_((ranks.rank() + 1) % ranks.size()),
      previous_((ranks.rank() + ranks.size() - 1) % ranks.size()),
      shape_(axis_ < 0 ? apps::Shape{{n + 2, n + 2, n + 2}, element} : apps::Shape{{n, n, n}, element}),
      moves_(axis_ < 0 ? neighbours(n, next_, previous_) : plane(n, static_cast<size_t>(axis_), next_, previous_)),
      memory_(ranks.context.allocate(word(kWords), place.c_str())) {
  const std::vector<uint64_t> zeros(kWords);
  ranks.context.copy(static_cast<char*>(data()) + word(0), zeros.data(), zeros.size() * sizeof(uint64_t));
  uint64_t mine = 0;
  if (ranks.rank() == 0 && ::getrandom(&mine, sizeof mine, 0) != sizeof mine) throw std::runtime_error("getrandom failed");
  round_ = ranks.sum_bits(mine);  // rank 0's, for all
}

uint64_t Cube::bytes() const {
  uint64_t points = 0;
  for (const apps::Move& move : moves_.sends) points += move.box.points();
  return points * shape_.element;
}

uint64_t Cube::number(const apps::Triple& point) const {
  return (point[0] * shape_.points[1] + point[1]) * shape_.points[2] + point[2];
}

uint64_t Cube::seed(int rank) const { return mixed(round_ * 4096 + static_cast<uint64_t>(rank)); }

bool Cube::in_halo(const apps::Triple& point) const {
  if (axis_ >= 0) return false;
  for (const uint64_t at : point)
    if (at == 0 || at == n_ + 1) return true;
  return false;
}

/// Where a cell comes from, rank and point there; not from the moves, which may be wrong.
std::optional<std::pair<int, apps::Triple>> Cube::source_of(const apps::Triple& point) const {
  apps::Triple source = point;
  if (axis_ >= 0) {
    const auto axis = static_cast<size_t>(axis_);
    if (point[axis] != 0) return std::nullopt;
    source[axis] = n_ - 1;
    return std::pair(previous_, source);
  }
  if (!in_halo(point)) return std::nullopt;
  apps::Direction travelled{};
  for (size_t axis = 0; axis < 3; ++axis) {
    if (point[axis] == 0) travelled[axis] = 1, source[axis] = n_;
    if (point[axis] == n_ + 1) travelled[axis] = -1, source[axis] = 1;
  }
  return std::pair(positive(travelled) ? previous_ : next_, source);
}

std::vector<unsigned char> Cube::start() const {
  std::vector<unsigned char> cells(shape_.bytes(), 0xa5);
  const uint64_t border = axis_ < 0 ? 1 : 0, inner = shape_.points[2] - 2 * border, mine = seed(ranks_.rank());
  for (uint64_t i = border; i < shape_.points[0] - border; ++i)
    for (uint64_t j = border; j < shape_.points[1] - border; ++j) {
      const uint64_t first = number({i, j, border});
      unsigned char* row = &cells[first * shape_.element];
      if (shape_.element == sizeof(uint32_t)) {
        fill_row(reinterpret_cast<uint32_t*>(row), inner, mine, first);
      } else {
        fill_row(reinterpret_cast<uint64_t*>(row), inner, mine, first);
      }
    }
  return cells;
}

void Cube::fill() {
  ++round_;
  const std::vector<unsigned char> cells = start();
  ranks_.context.copy(data(), cells.data(), cells.size());
  ranks_.align();  // nobody writes into a halo that is yet to be poisoned
}

void Cube::check(const std::string& by) {
  std::vector<unsigned char> wanted = start(), found(shape_.bytes());
  ranks_.context.copy(found.data(), data(), found.size());
  const auto [ni, nj, nk] = shape_.points;
  for (uint64_t i = 0; i < ni; ++i)
    for (uint64_t j = 0; j < nj; ++j) {
      const bool all = i == 0 || j == 0 || i == ni - 1 || j == nj - 1;  // else only the ends of a row come from others
      for (uint64_t k = 0; k < nk; k += all ? 1 : nk - 1) {
        const auto source = source_of({i, j, k});
        if (!source) continue;
        const uint64_t cell = mixed(seed(source->first) + number(source->second));
        std::memcpy(&wanted[number({i, j, k}) * shape_.element], &cell, shape_.element);
      }
    }
  const bool wrong = wanted != found;
  if (ranks_.sum_bits(wrong ? 1 : 0) == 0) return;
  throw std::runtime_error(by + ": a cell is wrong" + (wrong ? "" : " on another rank"));
}

}  // namespace halo
