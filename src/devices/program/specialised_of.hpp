// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "devices/program/specialised.hpp"

namespace thalweg::impl {

/// The specialised kernel of a program whose steps are arranged; not known() for most that do several unlike things.
device::Specialised specialised_of(std::span<const device::Step> steps, std::span<const uint32_t> after);

/// Of a program of independent steps: the numbers of those that move, then of those that are polled, then of the receives' credits.
std::vector<uint32_t> independent_order(std::span<const device::Step> steps);

}  // namespace thalweg::impl
