// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "devices/program/specialised.hpp"

namespace thalweg::impl {

/// The specialised kernel of a program whose steps are arranged; not known() for most that do several unlike things.
device::Specialised specialised_of(std::span<const device::Step> steps, std::span<const uint32_t> after);

}  // namespace thalweg::impl
