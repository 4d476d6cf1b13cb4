// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

namespace apps {
namespace {

/// The driver's functions, by the names and types of its documentation (handles are pointers, results ints).
struct Driver {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*primary_retain)(void**, int);
  int (*primary_release)(int);
  int (*set_current)(void*);
  int (*module_load)(void**, const void*);
  int (*module_unload)(void*);
  int (*get_function)(void**, void*, const char*);
  int (*stream_create)(void**, unsigned);
  int (*stream_destroy)(void*);
  int (*stream_synchronize)(void*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*error_string)(int, const char**);

  Driver() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error("no NVIDIA driver here (libcuda.so.1); use --memory host");
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name + "; it is too old");
    };
    find("cuInit", init);
    find("cuDeviceGet", device_get);
    find("cuDevicePrimaryCtxRetain", primary_retain);
    find("cuDevicePrimaryCtxRelease_v2", primary_release);
    find("cuCtxSetCurrent", set_current);
    find("cuModuleLoadData", module_load);
    find("cuModuleUnload", module_unload);
    find("cuModuleGetFunction", get_function);
    find("cuStreamCreate", stream_create);
    find("cuStreamDestroy_v2", stream_destroy);
    find("cuStreamSynchronize", stream_synchronize);
    find("cuLaunchKernel", launch);
    find("cuGetErrorString", error_string);
  }
};

const Driver& driver() {
  static const Driver loaded;
  return loaded;
}

void must_work(int result, const char* what) {
  if (result == 0) return;
  const char* text = nullptr;
  driver().error_string(result, &text);
  throw std::runtime_error(std::string(what) + ": " + (text == nullptr ? std::to_string(result) : text));
}

}  // namespace

Gpu::Gpu(const std::string& place, std::span<const unsigned char> image) {
  if (image.empty()) throw std::runtime_error("built without kernels, as CMake found no nvcc (THALWEG_NVCC)");
  const size_t colon = place.find(':');
  must_work(driver().init(0), "cuInit");
  must_work(driver().device_get(&device_, colon == std::string::npos ? 0 : std::atoi(place.c_str() + colon + 1)),
            place.c_str());
  void* context = nullptr;
  must_work(driver().primary_retain(&context, device_), "cuDevicePrimaryCtxRetain");
  must_work(driver().set_current(context), "cuCtxSetCurrent");
  must_work(driver().module_load(&module_, image.data()), "cuModuleLoadData");
  constexpr unsigned kNonBlocking = 1;  // not ordered with the default stream
  must_work(driver().stream_create(&stream_, kNonBlocking), "cuStreamCreate");
}

Gpu::~Gpu() {
  if (stream_ != nullptr) driver().stream_destroy(stream_);
  if (module_ != nullptr) driver().module_unload(module_);
  driver().primary_release(device_);
}

void* Gpu::kernel(const char* name) const {
  void* function = nullptr;
  must_work(driver().get_function(&function, module_, name), name);
  return function;
}

void Gpu::launch(void* kernel, Grid grid, Grid block, void** arguments) const {
  must_work(driver().launch(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, 0, stream_, arguments, nullptr),
            "cuLaunchKernel");
}

void Gpu::synchronize() const { must_work(driver().stream_synchronize(stream_), "cuStreamSynchronize"); }

}  // namespace apps
