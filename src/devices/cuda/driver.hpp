// SPDX-License-Identifier: Apache-2.0
// Loading the driver's library at run time. It stays loaded until exit.
#pragma once
#include "base/status.hpp"
#include "devices/cuda/driver_api.hpp"

namespace thalweg::impl::cuda {

constexpr const char* kDriverLibrary = "libcuda.so.1";

/// Loads `library` and finds its functions; initialises nothing. An error has why there is no CUDA here.
Status load_driver(const char* library, DriverApi* out);

/// TW_OK, or the named error of a driver's call: `what` was done when it failed.
[[gnu::cold]] Status fail_cuda(CuResult result, const char* what);
inline Status check(CuResult result, const char* what) {
  if (result == result::success) [[likely]]
    return TW_OK;
  return fail_cuda(result, what);
}

}  // namespace thalweg::impl::cuda
