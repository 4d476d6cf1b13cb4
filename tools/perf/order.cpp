// SPDX-License-Identifier: Apache-2.0
#include "order.hpp"

#include <thalweg/plans.h>

#include <algorithm>
#include <iterator>

namespace perf {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 40, kMostIterations = 1u << 20, kMostWindow = 65536;

bool is(const Order& order, std::initializer_list<const char*> tests) {
  return std::any_of(tests.begin(), tests.end(), [&](const char* test) { return std::string(order.test) == test; });
}

std::string wrong_size(const Order& order) {
  if (order.size > kMostBytes) return "--size: up to 1024G";
  if (is(order, {"blocks_bw"}) && order.size == 0) return "blocks_bw: --size of a block, from 1";
  if (is(order, {"daxpy"}) && order.size < sizeof(double)) return "daxpy: --size of an operand, from 8 (a double)";
  if (is(order, {"atomic_lat", "atomic_rate"}) && order.size != 4 && order.size != 8) return "atomics are of --size 4 or 8";
  return "";
}

std::string wrong_layout(const Order& order) {
  const Layout& l = order.layout;
  if (!l) return "";
  if (is(order,
         {"bytes_lat", "bytes_bw", "atomic_lat", "atomic_rate", "blocks_bw", "signal_lat", "chain", "strided_put", "daxpy"}))
    return std::string("--layout does not apply to ") + order.test;
  if (l.block == 0 || l.stride < l.block) return "--layout: blocks of at least one byte, at least their length apart";
  if (l.block > kMostBytes || l.stride > kMostBytes || l.count > kMostBytes / l.stride) return "--layout: up to 1024G in all";
  if (order.size != l.bytes()) return "--layout says how many bytes there are: leave --size out";
  return "";
}

}  // namespace

std::string why_refused(const Order& order) {
  if (const std::string why = wrong_size(order); !why.empty()) return why;
  if (const std::string why = wrong_layout(order); !why.empty()) return why;
  if (order.window == 0 || order.window > kMostWindow) return "--window wants a number from 1 to 65536";
  if (order.iterations > kMostIterations) return "too many iterations";
  if (order.trigger > static_cast<uint8_t>(Trigger::plan)) return "no such trigger";
  if (order.waits > TW_WAITS_AHEAD) return "no such --waits";
  return "";
}

}  // namespace perf
