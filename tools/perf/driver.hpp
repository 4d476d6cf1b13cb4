// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as this tool calls it: loaded at run time, so that the tool is built and runs where there is none.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace perf::cuda {

using Result = int;  // CUresult
constexpr Result kSuccess = 0, kPeerUnsupported = 217, kNotReady = 600, kPeerEnabled = 704, kTooManyPeers = 711;
enum Attribute : int {  // CU_DEVICE_ATTRIBUTE_*
  kMultiprocessors = 16,
  kCapabilityMajor = 75,
  kHostNativeAtomics = 86,
  kConcurrentManaged = 89,
  kStreamMemoryOps64 = 122,
};
constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kWaitGeq = 0;      // CU_STREAM_WAIT_VALUE_GEQ

/// F(name, parameters): the functions of the driver that are called, without their prefix.
#define THALWEG_PERF_DRIVER(F)                                                                                          \
  F(Init, (unsigned flags))                                                                                             \
  F(DeviceGetCount, (int* count))                                                                                       \
  F(DeviceGetAttribute, (int* value, int attribute, int device))                                                        \
  F(DeviceCanAccessPeer, (int* can, int device, int peer))                                                              \
  F(DevicePrimaryCtxRetain, (void** context, int device))                                                               \
  F(CtxPushCurrent, (void* context))                                                                                    \
  F(CtxPopCurrent, (void** context))                                                                                    \
  F(CtxEnablePeerAccess, (void* peer, unsigned flags))                                                                  \
  F(StreamCreate, (void** stream, unsigned flags))                                                                      \
  F(StreamQuery, (void* stream))                                                                                        \
  F(StreamDestroy, (void* stream))                                                                                      \
  F(StreamWaitEvent, (void* stream, void* event, unsigned flags))                                                       \
  F(StreamWriteValue64, (void* stream, uint64_t address, uint64_t value, unsigned flags))                               \
  F(StreamWaitValue64, (void* stream, uint64_t address, uint64_t value, unsigned flags))                                \
  F(EventCreate, (void** event, unsigned flags))                                                                        \
  F(EventRecord, (void* event, void* stream))                                                                           \
  F(EventDestroy, (void* event))                                                                                        \
  F(MemcpyAsync, (uint64_t to, uint64_t from, size_t length, void* stream))                                             \
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
  /// Of managed memory; null: the driver has none.
  Result (*MemPrefetchAsync)(uint64_t address, size_t length, int device, void* stream) = nullptr;
};

/// "": there is a driver with at least one device. Else why not, with the remedy.
const std::string& why_no_driver();
/// Once for the process, and never given back. Ends the process where there is none.
const Driver& driver();
/// Devices that this process sees.
unsigned device_count();
int attribute_of(unsigned device, Attribute attribute);
/// What the driver says of an error.
std::string text_of(Result result);
/// Ends the process, with `what` and that text.
void check(Result result, const std::string& what);

}  // namespace perf::cuda
