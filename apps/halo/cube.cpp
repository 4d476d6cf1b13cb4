// SPDX-License-Identifier: Apache-2.0
#include "halo/cube.hpp"

#include <sys/random.h>

#include <cstring>
#include <stdexcept>

namespace halo {
namespace {

/// Towards the next rank, or the previous one?
bool positive(const apps::Direction& d) { return d[0] != 0 ? d[0] > 0 : d[1] != 0 ? d[1] > 0 : d[2] > 0; }

apps::Moves ring(apps::Ranks& ranks, const apps::Triple& inside, const std::vector<apps::Direction>& directions) {
  const int next = (ranks.rank() + 1) % ranks.size(), previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
  apps::Moves moves;
  for (const apps::Direction& d : directions) {
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

template <class F>
void each_point(const apps::Box& box, F body) {
  const apps::Triple& first = box.start;
  for (uint64_t i = first[0]; i < first[0] + box.extent[0]; ++i)
    for (uint64_t j = first[1]; j < first[1] + box.extent[1]; ++j)
      for (uint64_t k = first[2]; k < first[2] + box.extent[2]; ++k) body({i, j, k});
}

}  // namespace

const std::vector<std::string>& region_names() {
  static const std::vector<std::string> names = {"jk", "ik", "ij", "26"};
  return names;
}

std::vector<apps::Direction> directions_of(const std::string& region) {
  if (region == "jk") return {{1, 0, 0}};
  if (region == "ik") return {{0, 1, 0}};
  if (region == "ij") return {{0, 0, 1}};
  return apps::directions();
}

Cube::Cube(apps::Ranks& ranks, uint64_t n, size_t element, const std::string& region, const std::string& place)
    : ranks_(ranks),
      inside_{n, n, n},
      shape_{{n + 2, n + 2, n + 2}, element},
      directions_(directions_of(region)),
      moves_(ring(ranks, inside_, directions_)),
      memory_(ranks.context.allocate(shape_.bytes(), place.c_str())) {
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

uint64_t Cube::value(int rank, uint64_t number) const {
  return mixed(mixed(round_ * 4096 + static_cast<uint64_t>(rank)) + number);
}

std::vector<unsigned char> Cube::start() const {
  std::vector<unsigned char> cells(shape_.bytes(), 0xa5);
  each_point({{1, 1, 1}, inside_}, [&](const apps::Triple& point) {
    const uint64_t at = number(point), cell = value(ranks_.rank(), at);
    std::memcpy(&cells[at * shape_.element], &cell, shape_.element);
  });
  return cells;
}

void Cube::fill() {
  ++round_;
  const std::vector<unsigned char> cells = start();
  ranks_.context.copy(data(), cells.data(), cells.size());
  ranks_.barrier();  // nobody writes into a halo that is yet to be poisoned
}

void Cube::check(const std::string& by) {
  std::vector<unsigned char> wanted = start(), found(shape_.bytes());
  ranks_.context.copy(found.data(), data(), found.size());
  for (size_t n = 0; n < directions_.size(); ++n) {
    const apps::Box from = apps::edge_towards(inside_, directions_[n]), &to = moves_.receives[n].box;
    each_point(to, [&](const apps::Triple& point) {
      apps::Triple there{};
      for (size_t axis = 0; axis < 3; ++axis) there[axis] = point[axis] - to.start[axis] + from.start[axis];
      const uint64_t cell = value(moves_.receives[n].peer, number(there));
      std::memcpy(&wanted[number(point) * shape_.element], &cell, shape_.element);
    });
  }
  const bool right = wanted == found;
  if (ranks_.sum(right ? 0 : 1) != 0) throw std::runtime_error(by + ": a wrong cell" + (right ? " on another rank" : ""));
}

}  // namespace halo
