// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

namespace himeno {

/// The fatbin of jacobi.cu; empty when CMake found no nvcc.
std::span<const unsigned char> kernels();

}  // namespace himeno
