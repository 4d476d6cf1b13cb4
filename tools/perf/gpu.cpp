// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "kernels_image.hpp"

namespace perf {
namespace {

using Result = int;  // CUresult
constexpr Result kSuccess = 0, kNotReady = 600;
constexpr int kMultiprocessors = 16, kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_*
constexpr unsigned kNonBlocking = 1;                         // CU_STREAM_NON_BLOCKING
constexpr int kVersion = 12000;                              // of the driver's interface as it is declared here
constexpr uint64_t kLimit = 60'000'000'000;

/// F(name, parameters): the functions of the driver that are called, without their prefix.
#define THALWEG_PERF_DRIVER(F)                                                                                          \
  F(Init, (unsigned flags))                                                                                             \
  F(DeviceGetAttribute, (int* value, int attribute, int device))                                                        \
  F(DevicePrimaryCtxRetain, (void** context, int device))                                                               \
  F(CtxPushCurrent, (void* context))                                                                                    \
  F(CtxPopCurrent, (void** context))                                                                                    \
  F(StreamCreate, (void** stream, unsigned flags))                                                                      \
  F(StreamQuery, (void* stream))                                                                                        \
  F(StreamDestroy, (void* stream))                                                                                      \
  F(LibraryLoadData, (void** library, const void* image, void* jit_options, void** jit_values, unsigned jit_count,      \
                      void* options, void** values, unsigned count))                                                    \
  F(LibraryGetKernel, (void** kernel, void* library, const char* name))                                                 \
  F(LaunchKernel, (void* kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
                   unsigned block_z, unsigned shared, void* stream, void** parameters, void** extra))                   \
  F(GetErrorName, (Result result, const char** name))                                                                   \
  F(GetErrorString, (Result result, const char** text))

struct Driver {
#define THALWEG_PERF_MEMBER(name, parameters) Result(*name) parameters = nullptr;
  THALWEG_PERF_DRIVER(THALWEG_PERF_MEMBER)
#undef THALWEG_PERF_MEMBER
};

[[noreturn]] void end_with(const std::string& text) {
  std::fprintf(stderr, "thalweg perf: %s\n", text.c_str());
  std::fflush(stdout);
  _exit(3);
}

/// Once for the process, and never given back.
const Driver& driver() {
  static const Driver loaded = [] {
    Driver d;
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      end_with("the CUDA driver cannot be loaded (" + std::string(::dlerror()) +
               "); install it, or in a container ask for the GPUs");
    using Find = Result (*)(const char* name, void** function, int version, uint64_t flags, int* status);
    const auto find = reinterpret_cast<Find>(::dlsym(library, "cuGetProcAddress_v2"));
    if (find == nullptr) end_with("the CUDA driver is older than 12.0; update it");
    const struct {
      const char* name;
      void** function;
    } wanted[] = {
#define THALWEG_PERF_ENTRY(name, parameters) {"cu" #name, reinterpret_cast<void**>(&d.name)},
        THALWEG_PERF_DRIVER(THALWEG_PERF_ENTRY)
#undef THALWEG_PERF_ENTRY
    };
    for (const auto& one : wanted) {
      int status = 0;
      if (find(one.name, one.function, kVersion, 0, &status) != kSuccess || status != 0 || *one.function == nullptr)
        end_with("the CUDA driver has no " + std::string(one.name) + "; update it");
    }
    return d;
  }();
  return loaded;
}

void check(Result result, const std::string& what) {
  if (result == kSuccess) return;
  const char *name = nullptr, *text = nullptr;
  (void)driver().GetErrorName(result, &name);
  (void)driver().GetErrorString(result, &text);
  end_with(what + ": " + (name != nullptr ? name : std::to_string(result)) + (text != nullptr ? std::string(", ") + text : ""));
}

/// The kernels of all devices: a library belongs to no context. Loaded once, and never given back.
void* find_kernel(const char* name) {
  static std::mutex mutex;
  static std::map<std::string, void*> known;
  static void* library = nullptr;
  const std::lock_guard lock(mutex);
  if (library == nullptr)
    check(driver().LibraryLoadData(&library, kernels_image().data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "loading this tool's kernels");
  void*& kernel = known[name];
  if (kernel == nullptr) check(driver().LibraryGetKernel(&kernel, library, name), std::string("finding the kernel ") + name);
  return kernel;
}

}  // namespace

std::string why_no_kernels(const std::string& memory) {
  if (!on_device(memory)) return "";
  if (memory.rfind("emulated", 0) == 0)
    return "emulated devices run no kernels of this tool: use --memory host or pinned on both sides for the twin of device "
           "code "
           "on the CPU, or cuda:N";
  if (kernels_image().empty())
    return "this build has no kernels for GPUs: build where CMake finds nvcc (-DTHALWEG_NVCC=PATH, or scripts/setup.sh cuda); "
           "--memory host or pinned on both sides runs the twin of device code on the CPU";
  return "";
}

unsigned ordinal_of(const std::string& memory) {
  const size_t colon = memory.find(':');
  return colon == std::string::npos ? 0 : static_cast<unsigned>(std::strtoul(memory.c_str() + colon + 1, nullptr, 10));
}

Gpu::Gpu(unsigned ordinal) : ordinal_(ordinal) {
  const Driver& d = driver();
  const auto device = static_cast<int>(ordinal);  // a handle is the ordinal; that there is one the library has found out
  int value = 0;
  void* context = nullptr;
  check(d.Init(0), "cuInit");
  check(d.DeviceGetAttribute(&value, kMultiprocessors, device), "cuDeviceGetAttribute");
  multiprocessors_ = static_cast<unsigned>(value);
  check(d.DeviceGetAttribute(&value, kCapabilityMajor, device), "cuDeviceGetAttribute");
  capability_ = static_cast<unsigned>(value);
  // Retained for the life of the process, as by the library: a context that ended would take the library's memory along.
  check(d.DevicePrimaryCtxRetain(&context, device), "the context of " + place());
  check(d.CtxPushCurrent(context), "cuCtxPushCurrent");
  check(d.StreamCreate(&stream_, kNonBlocking), "cuStreamCreate");
}

Gpu::~Gpu() {
  void* popped = nullptr;
  check(driver().StreamDestroy(stream_), "cuStreamDestroy");
  check(driver().CtxPopCurrent(&popped), "cuCtxPopCurrent");
}

void Gpu::launch_raw(const char* kernel, unsigned blocks, unsigned threads, void* argument) {
  void* parameters[] = {argument};
  check(driver().LaunchKernel(find_kernel(kernel), blocks, 1, 1, threads, 1, 1, 0, stream_, parameters, nullptr),
        std::string("launching ") + kernel);
}

void Gpu::finish(Pair& pair) {
  const uint64_t end = now_ns() + kLimit;
  Result result;
  while ((result = driver().StreamQuery(stream_)) == kNotReady) {
    (void)tw_worker_progress(pair.worker);  // which also notices that the peer is lost, and ends the waits of its windows
    if (now_ns() > end) end_with("a kernel on " + place() + " has not ended within a minute");
  }
  check(result, "a kernel on " + place());
}

DeviceWords::DeviceWords(tw_context* context, const std::string& place) : context_(context) {
  tw_memory_options o = TW_MEMORY_OPTIONS_INIT;
  o.place = place.c_str();
  must(tw_memory_allocate(context, kWords * sizeof(uint64_t), &o, &memory_), "tw_memory_allocate");
  for (size_t i = 0; i < kWords; ++i) write(i, 0);
}

uint64_t DeviceWords::read(size_t word) const {
  uint64_t value = 0;
  must(tw_memory_copy(context_, &value, at<uint64_t>(word), sizeof value), "tw_memory_copy");
  return value;
}

void DeviceWords::write(size_t word, uint64_t value) {
  must(tw_memory_copy(context_, at<uint64_t>(word), &value, sizeof value), "tw_memory_copy");
}

}  // namespace perf
