// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include <dlfcn.h>

#include "pair.hpp"

namespace perf::cuda {
namespace {

constexpr int kVersion = 12000;  // of the driver's interface as it is declared here

struct Loaded {
  Driver functions;
  unsigned devices = 0;
  std::string why;
};

using Find = Result (*)(const char* name, void** function, int version, uint64_t flags, int* status);

/// "": all functions are there.
std::string find_all(Driver* d) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return "the CUDA driver cannot be loaded (" + std::string(::dlerror()) +
           "); install it, or in a container ask for the GPUs";
  const auto find = reinterpret_cast<Find>(::dlsym(library, "cuGetProcAddress_v2"));
  if (find == nullptr) return "the CUDA driver is older than 12.0; update it";
  const struct {
    const char* name;
    void** function;
  } wanted[] = {
#define THALWEG_PERF_ENTRY(name, parameters) {"cu" #name, reinterpret_cast<void**>(&d->name)},
      THALWEG_PERF_DRIVER(THALWEG_PERF_ENTRY)
#undef THALWEG_PERF_ENTRY
  };
  for (const auto& one : wanted) {
    int status = 0;
    if (find(one.name, one.function, kVersion, 0, &status) != kSuccess || status != 0 || *one.function == nullptr)
      return "the CUDA driver has no " + std::string(one.name) + "; update it";
  }
  int status = 0;
  void** const prefetch = reinterpret_cast<void**>(&d->MemPrefetchAsync);
  if (find("cuMemPrefetchAsync", prefetch, kVersion, 0, &status) != kSuccess || status != 0) *prefetch = nullptr;
  return "";
}

std::string text_by(const Driver& d, Result result) {
  const char *name = nullptr, *text = nullptr;
  (void)d.GetErrorName(result, &name);
  (void)d.GetErrorString(result, &text);
  return (name != nullptr ? name : std::to_string(result)) + (text != nullptr ? std::string(", ") + text : "");
}

const Loaded& loaded() {
  static const Loaded once = [] {
    Loaded all;
    all.why = find_all(&all.functions);
    if (!all.why.empty()) return all;
    int count = 0;
    Result result = all.functions.Init(0);
    if (result == kSuccess) result = all.functions.DeviceGetCount(&count);
    if (result != kSuccess) all.why = "the CUDA driver does not start: " + text_by(all.functions, result);
    if (all.why.empty() && count <= 0) all.why = "the CUDA driver sees no device: CUDA_VISIBLE_DEVICES may hide them";
    all.devices = static_cast<unsigned>(count);
    return all;
  }();
  return once;
}

}  // namespace

const std::string& why_no_driver() { return loaded().why; }

const Driver& driver() {
  const Loaded& all = loaded();
  if (!all.why.empty()) end_with(all.why);
  return all.functions;
}

unsigned device_count() { return loaded().devices; }

int attribute_of(unsigned device, Attribute attribute) {
  int value = 0;
  check(driver().DeviceGetAttribute(&value, attribute, static_cast<int>(device)), "cuDeviceGetAttribute");
  return value;
}

std::string text_of(Result result) { return text_by(driver(), result); }

void check(Result result, const std::string& what) {
  if (result != kSuccess) end_with(what + ": " + text_of(result));
}

}  // namespace perf::cuda
