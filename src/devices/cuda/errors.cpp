// SPDX-License-Identifier: Apache-2.0
// The one place that turns the driver's errors into ours.
#include "devices/cuda/driver.hpp"

namespace thalweg::impl::cuda {
namespace {

struct Entry {
  CuResult code;
  Status status;
  const char* text;  // what it means; the remedy
};

constexpr const char* kPoisoned = "the GPU's context is broken for this process; end it";

constexpr Entry kEntries[] = {
    {result::invalid_value, TW_ERR_INVALID, "invalid value"},
    {result::out_of_memory, TW_ERR_NO_MEMORY, "out of memory; free some of the device's or of pinned memory"},
    {result::not_initialized, TW_ERR_DEVICE, "not initialised; after fork() use CUDA in a process that was spawned anew"},
    {result::deinitialized, TW_ERR_CLOSED, "CUDA has shut down: the process is exiting"},
    {result::stub_library, TW_ERR_DEVICE, "the library is a stub for linking; install the driver's own libcuda.so.1"},
    {result::device_unavailable, TW_ERR_BUSY, "another process has the device exclusively; end it or change the compute mode"},
    {result::no_device, TW_ERR_DEVICE, "there is no GPU, or CUDA_VISIBLE_DEVICES hides it"},
    {result::invalid_device, TW_ERR_INVALID, "no such device"},
    {result::invalid_context, TW_ERR_INVALID, "invalid context"},
    {result::map_failed, TW_ERR_DEVICE, "mapping failed"},
    {result::no_binary, TW_ERR_UNSUPPORTED, "the kernels were not built for this GPU; build with an nvcc that knows it"},
    {result::ecc, TW_ERR_DEVICE, "uncorrectable memory error; reset or replace the GPU"},
    {result::peer_unsupported, TW_ERR_UNREACHABLE, "these devices have no peer access; let it go through staging"},
    {result::nvlink, TW_ERR_DEVICE, "uncorrectable NVLink error; reset the GPU"},
    {result::unsupported_ptx, TW_ERR_UNSUPPORTED, "the driver is too old for the kernels; update it"},
    {result::operating_system, TW_ERR_DEVICE, "the operating system refused; a container may lack a device or a capability"},
    {result::invalid_handle, TW_ERR_INVALID, "invalid handle"},
    {result::illegal_address, TW_ERR_DEVICE, "a kernel or copy touched memory that is not mapped; the GPU's context is broken"},
    {result::launch_timeout, TW_ERR_DEVICE, kPoisoned},
    {result::context_destroyed, TW_ERR_CLOSED, "the device was reset or CUDA is shutting down; open it anew"},
    {result::too_many_peers, TW_ERR_LIMIT, "the device has no room for more peers; use fewer GPUs a process"},
    {result::host_registered, TW_ERR_BUSY, "these pages are pinned already; use them as they are"},
    {result::host_not_registered, TW_ERR_HANDLE, "these pages were not pinned by this call's counterpart"},
    {result::misaligned, TW_ERR_DEVICE, kPoisoned},
    {result::launch_failed, TW_ERR_DEVICE, kPoisoned},
    {result::not_permitted, TW_ERR_UNSUPPORTED, "not permitted here"},
    {result::not_supported, TW_ERR_UNSUPPORTED, "not supported by this device, driver or container"},
    {result::system_not_ready, TW_ERR_DEVICE, "the GPUs are not ready; is the fabric manager running?"},
    {result::driver_mismatch, TW_ERR_DEVICE, "libcuda and the kernel driver differ in version; install one release, or reboot"},
    {result::capture_unsupported, TW_ERR_INVALID, "a graph that is being captured cannot hold this; do it outside"},
    {result::capture_invalidated, TW_ERR_INVALID, "the stream's capture was spoilt; end it"},
    {result::capture_implicit, TW_ERR_INVALID, "the default stream cannot be used while a blocking stream is captured"},
    {result::captured_event, TW_ERR_INVALID,
     "the event belongs to a captured graph and cannot be asked or waited for by the host"},
};

}  // namespace

Status fail_cuda(CuResult code, const char* what) {
  for (const Entry& entry : kEntries) {
    if (entry.code == code) return fail(entry.status, "%s: CUDA error %d: %s", what, code, entry.text);
  }
  return fail(TW_ERR_DEVICE, "%s: CUDA error %d; cuda.h names it", what, code);
}

}  // namespace thalweg::impl::cuda
