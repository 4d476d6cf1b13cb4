// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "driver.hpp"
#include "kernels_image.hpp"

namespace perf {

using namespace cuda;

namespace {

constexpr uint64_t kLimit = 60'000'000'000;
constexpr const char* kNoKernels =
    "this build has no kernels for GPUs: build where CMake finds nvcc (-DTHALWEG_NVCC=PATH, or scripts/setup.sh cuda)";

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
    return std::string(kNoKernels) + "; --memory host or pinned on both sides runs the twin of device code on the CPU";
  return "";
}

unsigned ordinal_of(const std::string& memory) {
  const size_t colon = memory.find(':');
  return colon == std::string::npos ? 0 : static_cast<unsigned>(std::strtoul(memory.c_str() + colon + 1, nullptr, 10));
}

std::string why_no_gpu() {
  if (kernels_image().empty()) return kNoKernels;
  return why_no_driver();
}

Gpu::Gpu(unsigned ordinal) : ordinal_(ordinal) {
  const Driver& d = driver();
  const auto device = static_cast<int>(ordinal);  // a handle is the ordinal
  if (ordinal >= device_count())
    end_with("there is no " + place() + ": the CUDA driver sees " + std::to_string(device_count()) + " devices");
  multiprocessors_ = static_cast<unsigned>(attribute_of(ordinal, kMultiprocessors));
  capability_ = static_cast<unsigned>(attribute_of(ordinal, kCapabilityMajor));
  // Retained for the life of the process, as by the library: a context that ended would take the library's memory along.
  check(d.DevicePrimaryCtxRetain(&context_, device), "the context of " + place());
  check(d.CtxPushCurrent(context_), "cuCtxPushCurrent");
  check(d.StreamCreate(&stream_, kNonBlocking), "cuStreamCreate");
}

Gpu::~Gpu() {
  void* popped = nullptr;
  check(driver().StreamDestroy(stream_), "cuStreamDestroy");
  check(driver().CtxPopCurrent(&popped), "cuCtxPopCurrent");
}

Gpu::Turn::Turn(const Gpu& gpu) { check(driver().CtxPushCurrent(gpu.context_), "cuCtxPushCurrent"); }
Gpu::Turn::~Turn() {
  void* popped = nullptr;
  check(driver().CtxPopCurrent(&popped), "cuCtxPopCurrent");
}

bool Gpu::reach(const Gpu& peer) const {
  if (peer.ordinal_ == ordinal_) return true;
  int can = 0;
  check(driver().DeviceCanAccessPeer(&can, static_cast<int>(ordinal_), static_cast<int>(peer.ordinal_)),
        "cuDeviceCanAccessPeer");
  if (can == 0) return false;
  const Turn turn(*this);
  const Result result = driver().CtxEnablePeerAccess(peer.context_, 0);  // the library may have done so before
  if (result == kPeerUnsupported || result == kTooManyPeers) return false;
  if (result != kPeerEnabled) check(result, "access of " + place() + " to " + peer.place());
  return true;
}

void Gpu::launch_raw(const char* kernel, unsigned blocks, unsigned threads, void* argument) {
  void* parameters[] = {argument};
  check(driver().LaunchKernel(find_kernel(kernel), blocks, 1, 1, threads, 1, 1, 0, stream_, parameters, nullptr),
        std::string("launching ") + kernel);
}

void Gpu::copy(void* to, const void* from, size_t bytes) {
  check(driver().MemcpyAsync(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, stream_),
        "cuMemcpyAsync");
}

bool Gpu::idle() const {
  const Result result = driver().StreamQuery(stream_);
  if (result == kNotReady) return false;
  check(result, "work on " + place());
  return true;
}

void Gpu::finish() const {
  for (const uint64_t end = now_ns() + kLimit; !idle();) {
    if (now_ns() > end) end_with("work on " + place() + " has not ended within a minute");
    std::this_thread::yield();
  }
}

void Gpu::finish(Pair& pair) {
  for (const uint64_t end = now_ns() + kLimit; !idle();) {
    (void)tw_worker_progress(pair.worker);  // which also notices that the peer is lost, and ends the waits of its windows
    if (now_ns() > end) end_with("a kernel on " + place() + " has not ended within a minute");
  }
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
