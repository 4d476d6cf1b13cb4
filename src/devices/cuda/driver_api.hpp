// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver's documented binary interface (12.0 and later) that this back end calls: declared here, so that
// a build needs no CUDA headers. Names are CUDA's without their prefix. tests/unit/devices compares sizes and numbers with
// cuda.h where there is one.
#pragma once
#include <cstddef>
#include <cstdint>

namespace thalweg::impl::cuda {

using CuResult = int;
using CuDevice = int;        // an ordinal
using CuPointer = uint64_t;  // unified address
using CuMemory = uint64_t;   // physical memory of cuMemCreate
using CuContext = struct ContextObject*;
using CuStream = struct StreamObject*;
using CuEvent = struct EventObject*;
using CuPool = struct PoolObject*;
using CuLibrary = struct LibraryObject*;
using CuKernel = struct KernelObject*;
using CuFunction = struct FunctionObject*;
using CuGraph = struct GraphObject*;
using CuGraphExec = struct GraphExecObject*;

/// Stream handles that mean the caller's default streams; null is the first of them, too.
constexpr uintptr_t kLegacyStream = 1, kPerThreadStream = 2;

namespace result {
constexpr CuResult success = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3, deinitialized = 4, stub_library = 34,
                   device_unavailable = 46, no_device = 100, invalid_device = 101, invalid_context = 201, map_failed = 205,
                   already_mapped = 208, no_binary = 209, ecc = 214, peer_unsupported = 217, nvlink = 220,
                   unsupported_ptx = 222, operating_system = 304, invalid_handle = 400, not_found = 500, not_ready = 600,
                   illegal_address = 700, launch_timeout = 702, peer_enabled = 704, context_destroyed = 709,
                   too_many_peers = 711, host_registered = 712, host_not_registered = 713, misaligned = 716,
                   launch_failed = 719, not_permitted = 800, not_supported = 801, system_not_ready = 802, driver_mismatch = 803,
                   capture_unsupported = 900, capture_invalidated = 901, capture_implicit = 906, captured_event = 907,
                   unknown = 999;
}

enum PointerAttribute : unsigned {
  kContext = 1,
  kMemoryType = 2,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kLegacyIpc = 10,
  kRangeStart = 11,
  kRangeSize = 12,
  kHandleTypes = 14,
  kPool = 17,
  kMappingSize = 18,
  kMappingBase = 19,
};
enum DeviceAttribute : unsigned {
  kMultiprocessors = 16,
  kComputeMajor = 75,
  kHostPointerForRegistered = 91,
  kFlushRemoteWrites = 98,
  kVirtualMemory = 102,
  kDescriptorHandles = 103,
  kPools = 115,
  kStreamMemoryOps64 = 122,
};
/// As cuLaunchKernelEx takes them.
constexpr unsigned kProgrammaticSerialization = 6;
struct LaunchAttribute {
  unsigned id;
  unsigned padding;
  union {
    char room[64];
    int allowed;
  };
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  CuStream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
enum PeerAttribute : unsigned { kAccessSupported = 2, kNativeAtomics = 3 };
enum MemoryType : unsigned { kHostMemory = 1, kDeviceMemory = 2, kUnified = 4 };

constexpr unsigned kHostAllocPortable = 1, kHostRegisterPortable = 1, kAttachGlobal = 1, kIpcLazyPeerAccess = 1;
constexpr int kMovesPriority = -1;       // before what computes
constexpr int kHighestPriority = -1000;  // what lies beyond a device's range is brought into it
constexpr unsigned kStreamNonBlocking = 1, kEventBlockingSync = 1, kEventDisableTiming = 2;
constexpr unsigned kWaitGeq = 0, kWaitFlush = 1u << 30;
constexpr unsigned kCaptureNone = 0, kCaptureActive = 1, kCaptureModeThreadLocal = 1, kCaptureModeRelaxed = 2;
constexpr unsigned kHandleDescriptor = 1, kAllocationPinned = 1, kLocationDevice = 1, kReadWrite = 3;
constexpr unsigned kSourceInStreamOrder = 1, kOverlapWithCompute = 1;

struct IpcHandle {
  char bytes[64];
};
struct Location {
  unsigned type;
  int id;
};
struct AccessDescription {
  Location location;
  unsigned flags;
};
struct AllocationProperties {
  unsigned type;
  unsigned handle_types;
  Location location;
  void* windows;
  unsigned char compression, rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
struct BatchAttributes {
  unsigned source_order;
  Location source, target;
  unsigned flags;
};
struct Copy2d {
  size_t from_x, from_y;
  unsigned from_type;
  const void* from_host;
  CuPointer from;
  void* from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  unsigned to_type;
  void* to_host;
  CuPointer to;
  void* to_array;
  size_t to_pitch;
  size_t width, height;
};
struct Copy3d {
  size_t from_x, from_y, from_z, from_level;
  unsigned from_type;
  const void* from_host;
  CuPointer from;
  void* from_array;
  void* reserved0;
  size_t from_pitch, from_height;
  size_t to_x, to_y, to_z, to_level;
  unsigned to_type;
  void* to_host;
  CuPointer to;
  void* to_array;
  void* reserved1;
  size_t to_pitch, to_height;
  size_t width, height, depth;
};

/// F(name, parameters): every function that must be there.
#define THALWEG_CUDA_FUNCTIONS(F)                                                                                              \
  F(Init, (unsigned flags))                                                                                                    \
  F(DeviceGetCount, (int* count))                                                                                              \
  F(DeviceGetUuid, (void* uuid, CuDevice device))                                                                              \
  F(DriverGetVersion, (int* version))                                                                                          \
  F(DeviceGetName, (char* name, int length, CuDevice device))                                                                  \
  F(DeviceGetAttribute, (int* value, unsigned attribute, CuDevice device))                                                     \
  F(DeviceCanAccessPeer, (int* can, CuDevice device, CuDevice peer))                                                           \
  F(DeviceGetP2PAttribute, (int* value, unsigned attribute, CuDevice device, CuDevice peer))                                   \
  F(DevicePrimaryCtxRetain, (CuContext * context, CuDevice device))                                                            \
  F(DevicePrimaryCtxGetState, (CuDevice device, unsigned* flags, int* active))                                                 \
  F(CtxPushCurrent, (CuContext context))                                                                                       \
  F(CtxPopCurrent, (CuContext * context))                                                                                      \
  F(CtxGetCurrent, (CuContext * context))                                                                                      \
  F(CtxGetDevice, (CuDevice * device))                                                                                         \
  F(CtxEnablePeerAccess, (CuContext peer, unsigned flags))                                                                     \
  F(PointerGetAttributes, (unsigned count, unsigned* attributes, void** data, CuPointer address))                              \
  F(MemAlloc, (CuPointer * address, size_t length))                                                                            \
  F(MemFree, (CuPointer address))                                                                                              \
  F(MemHostAlloc, (void** address, size_t length, unsigned flags))                                                             \
  F(MemFreeHost, (void* address))                                                                                              \
  F(MemAllocManaged, (CuPointer * address, size_t length, unsigned flags))                                                     \
  F(MemAllocAsync, (CuPointer * address, size_t length, CuStream stream))                                                      \
  F(MemHostRegister, (void* address, size_t length, unsigned flags))                                                           \
  F(MemHostUnregister, (void* address))                                                                                        \
  F(IpcGetMemHandle, (IpcHandle * handle, CuPointer address))                                                                  \
  F(IpcOpenMemHandle, (CuPointer * address, IpcHandle handle, unsigned flags))                                                 \
  F(IpcCloseMemHandle, (CuPointer address))                                                                                    \
  F(MemGetAllocationGranularity, (size_t * bytes, const AllocationProperties* properties, unsigned option))                    \
  F(MemCreate, (CuMemory * memory, size_t length, const AllocationProperties* properties, uint64_t flags))                     \
  F(MemRelease, (CuMemory memory))                                                                                             \
  F(MemRetainAllocationHandle, (CuMemory * memory, void* address))                                                             \
  F(MemExportToShareableHandle, (void* handle, CuMemory memory, unsigned type, uint64_t flags))                                \
  F(MemImportFromShareableHandle, (CuMemory * memory, void* handle, unsigned type))                                            \
  F(MemAddressReserve, (CuPointer * address, size_t length, size_t alignment, CuPointer at, uint64_t flags))                   \
  F(MemAddressFree, (CuPointer address, size_t length))                                                                        \
  F(MemMap, (CuPointer address, size_t length, size_t offset, CuMemory memory, uint64_t flags))                                \
  F(MemUnmap, (CuPointer address, size_t length))                                                                              \
  F(MemSetAccess, (CuPointer address, size_t length, const AccessDescription* access, size_t count))                           \
  F(MemGetAccess, (uint64_t * flags, const Location* location, CuPointer address))                                             \
  F(MemPoolSetAccess, (CuPool pool, const AccessDescription* access, size_t count))                                            \
  F(MemPoolGetAccess, (unsigned* flags, CuPool pool, Location* location))                                                      \
  F(StreamCreate, (CuStream * stream, unsigned flags))                                                                         \
  F(StreamCreateWithPriority, (CuStream * stream, unsigned flags, int priority))                                               \
  F(StreamDestroy, (CuStream stream))                                                                                          \
  F(StreamGetCtx, (CuStream stream, CuContext * context))                                                                      \
  F(StreamQuery, (CuStream stream))                                                                                            \
  F(StreamSynchronize, (CuStream stream))                                                                                      \
  F(StreamWaitEvent, (CuStream stream, CuEvent event, unsigned flags))                                                         \
  F(StreamIsCapturing, (CuStream stream, unsigned* status))                                                                    \
  F(ThreadExchangeStreamCaptureMode, (unsigned* mode))                                                                         \
  F(StreamBeginCapture, (CuStream stream, unsigned mode))                                                                      \
  F(StreamEndCapture, (CuStream stream, CuGraph * graph))                                                                      \
  F(GraphInstantiateWithFlags, (CuGraphExec * executable, CuGraph graph, unsigned long long flags))                            \
  F(GraphLaunch, (CuGraphExec executable, CuStream stream))                                                                    \
  F(GraphExecDestroy, (CuGraphExec executable))                                                                                \
  F(GraphDestroy, (CuGraph graph))                                                                                             \
  F(StreamWriteValue64, (CuStream stream, CuPointer address, uint64_t value, unsigned flags))                                  \
  F(StreamWaitValue64, (CuStream stream, CuPointer address, uint64_t value, unsigned flags))                                   \
  F(EventCreate, (CuEvent * event, unsigned flags))                                                                            \
  F(EventDestroy, (CuEvent event))                                                                                             \
  F(EventRecord, (CuEvent event, CuStream stream))                                                                             \
  F(EventQuery, (CuEvent event))                                                                                               \
  F(EventSynchronize, (CuEvent event))                                                                                         \
  F(MemsetD8Async, (CuPointer address, unsigned char value, size_t length, CuStream stream))                                   \
  F(MemcpyAsync, (CuPointer to, CuPointer from, size_t length, CuStream stream))                                               \
  F(Memcpy2DAsync, (const Copy2d* copy, CuStream stream))                                                                      \
  F(Memcpy3DAsync, (const Copy3d* copy, CuStream stream))                                                                      \
  F(LibraryLoadData, (CuLibrary * library, const void* image, void* jit, void** jit_values, unsigned jit_count, void* options, \
                      void** option_values, unsigned option_count))                                                            \
  F(LibraryGetKernel, (CuKernel * kernel, CuLibrary library, const char* name))                                                \
  F(KernelGetFunction, (CuFunction * function, CuKernel kernel))                                                               \
  F(LaunchKernel, (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
                   unsigned block_z, unsigned shared, CuStream stream, void** parameters, void** extra))                       \
  F(LaunchKernelEx, (const LaunchConfig* config, CuFunction function, void** parameters, void** extra))

struct DriverApi {
#define THALWEG_CUDA_MEMBER(name, parameters) CuResult(*name) parameters = nullptr;
  THALWEG_CUDA_FUNCTIONS(THALWEG_CUDA_MEMBER)
#undef THALWEG_CUDA_MEMBER
  // Null in drivers before 13.0 and 12.4.
  CuResult (*MemcpyBatchAsync)(CuPointer* to, CuPointer* from, size_t* lengths, size_t count, BatchAttributes* attributes,
                               size_t* attribute_starts, size_t attribute_count, CuStream stream) = nullptr;
  CuResult (*FuncLoad)(CuFunction function) = nullptr;
};

}  // namespace thalweg::impl::cuda
