// SPDX-License-Identifier: Apache-2.0
// Every function is asked for by the version of the interface that driver_api.hpp declares, so a newer driver gives the same.
#include "devices/cuda/driver.hpp"

#include <dlfcn.h>

namespace thalweg::impl::cuda {
namespace {

constexpr int kOldest = 12000, kWithFuncLoad = 12040, kWithBatches = 13000;

using GetProcAddress = CuResult (*)(const char* name, void** function, int version, uint64_t flags, int* found);

bool find(GetProcAddress get, const char* name, int version, void** out) {
  int found = 0;
  if (get(name, out, version, 0, &found) != result::success || found != 0) *out = nullptr;
  return *out != nullptr;
}

}  // namespace

Status load_driver(const char* library, DriverApi* out) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return fail(TW_ERR_DEVICE, "the CUDA driver cannot be loaded (%s); install it, or in a container ask for the GPUs",
                dlerror());
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(handle, "cuGetProcAddress_v2"));
  if (get == nullptr) return fail(TW_ERR_DEVICE, "the CUDA driver is older than 12.0; update it");
  DriverApi api;
  const struct {
    const char* name;
    void** function;
  } wanted[] = {
#define THALWEG_CUDA_ENTRY(name, parameters) {"cu" #name, reinterpret_cast<void**>(&api.name)},
      THALWEG_CUDA_FUNCTIONS(THALWEG_CUDA_ENTRY)
#undef THALWEG_CUDA_ENTRY
  };
  for (const auto& one : wanted) {
    if (!find(get, one.name, kOldest, one.function))
      return fail(TW_ERR_DEVICE, "the CUDA driver has no %s; update it", one.name);
  }
  find(get, "cuMemcpyBatchAsync", kWithBatches, reinterpret_cast<void**>(&api.MemcpyBatchAsync));
  find(get, "cuFuncLoad", kWithFuncLoad, reinterpret_cast<void**>(&api.FuncLoad));
  *out = api;
  return TW_OK;
}

}  // namespace thalweg::impl::cuda
