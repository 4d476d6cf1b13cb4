// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

namespace halo {

/// The fatbin of halo.cu; empty when CMake found no nvcc.
std::span<const unsigned char> kernels();

}  // namespace halo
