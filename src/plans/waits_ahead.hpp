// SPDX-License-Identifier: Apache-2.0
// Waits of a plan's run that a kernel of one block does ahead of the program's kernel (devices/program/wait_ahead.hpp), so that a
// program of many blocks holds no multiprocessors while its peer is late. docs/decisions/0031-one-block-waits-ahead.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace thalweg::impl {

class Executor;
class PlanList;
class ResolvedSteps;

/// Of a plan's run: numbers of its steps.
struct WaitsAhead {
  static constexpr size_t kMostSteps = 48;  // of the plan
  std::vector<uint32_t> posts;              // receives whose credit is given ahead
  std::vector<uint32_t> waits;              // sends and receives that are waited for ahead; empty: there are none
};
/// What all of a prepared plan's actions wait for, whatever else each of them waits for.
WaitsAhead waits_ahead(const PlanList& list, const ResolvedSteps& resolved, const Executor& executor);

/// By TW_WAITS_AUTO, where a kernel's blocks could hold more than this part of the multiprocessors: programs have so many only
/// when they move megabytes (devices/program.cpp), which hides what a launch costs.
inline constexpr unsigned kHeldPart = 4;

}  // namespace thalweg::impl
