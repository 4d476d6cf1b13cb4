// SPDX-License-Identifier: Apache-2.0
// UCX's communication from device code: Thalweg has its own (docs/kernels.md), whose kernels UCX's device functions do not know.
#include "status.hpp"

#if __has_include(<ucp/api/device/ucp_host.h>)
#pragma GCC visibility push(default)
#include <ucp/api/device/ucp_host.h>
#pragma GCC visibility pop

using namespace thalweg::ucx;

namespace {

constexpr const char* kRemedy = "leave UCP_FEATURE_DEVICE out, or use Thalweg's windows and channels in kernels";

}  // namespace

extern "C" {

#if THALWEG_HAS_ucp_device_local_mem_list_create
ucs_status_t ucp_device_local_mem_list_create(const ucp_device_mem_list_params_t*, ucp_device_local_mem_list_h*) {
  return unsupported("ucp_device_local_mem_list_create", "communication from device code", kRemedy);
}

ucs_status_t ucp_device_remote_mem_list_create(const ucp_device_mem_list_params_t*, ucp_device_remote_mem_list_h*) {
  return unsupported("ucp_device_remote_mem_list_create", "communication from device code", kRemedy);
}

uint32_t ucp_device_get_mem_list_length(const void*) {
  (void)unsupported("ucp_device_get_mem_list_length", "communication from device code", kRemedy);
  return 0;
}

void ucp_device_mem_list_release(void*) {
#else  // of 1.20
ucs_status_t ucp_device_mem_list_create(ucp_ep_h, const ucp_device_mem_list_params_t*, ucp_device_mem_list_handle_h*) {
  return unsupported("ucp_device_mem_list_create", "communication from device code", kRemedy);
}

void ucp_device_mem_list_release(ucp_device_mem_list_handle_h) {
#endif
  (void)unsupported("ucp_device_mem_list_release", "communication from device code", kRemedy);
}

ucs_status_t ucp_device_counter_init(ucp_worker_h, const ucp_device_counter_params_t*, void*) {
  return unsupported("ucp_device_counter_init", "communication from device code", kRemedy);
}

uint64_t ucp_device_counter_read(ucp_worker_h, const ucp_device_counter_params_t*, void*) {
  (void)unsupported("ucp_device_counter_read", "communication from device code", kRemedy);
  return 0;
}

}  // extern "C"
#endif
