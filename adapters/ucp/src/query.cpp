// SPDX-License-Identifier: Apache-2.0
// What endpoints tell about themselves.
#include <cstdio>
#include <cstring>

#include "endpoint.hpp"
#include "listener.hpp"
#include "status.hpp"

using namespace thalweg::ucx;

extern "C" {

ucs_status_t ucp_ep_query(ucp_ep_h ep, ucp_ep_attr_t* attr) {
  if (ep == nullptr || attr == nullptr) return UCS_ERR_INVALID_PARAM;
  constexpr uint64_t kKnown = UCP_EP_ATTR_FIELD_NAME | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR
#if THALWEG_HAS_UCP_EP_ATTR_FIELD_TRANSPORTS
                              | UCP_EP_ATTR_FIELD_TRANSPORTS
#endif
#if THALWEG_HAS_UCP_EP_ATTR_FIELD_USER_DATA
                              | UCP_EP_ATTR_FIELD_USER_DATA
#endif
      ;
  if (ucs_status_t s = check_mask("ucp_ep_query", "field_mask", attr->field_mask, kKnown); s != UCS_OK) return s;
  const Hold hold(*ep->worker);
  if ((attr->field_mask & UCP_EP_ATTR_FIELD_NAME) != 0) {
    std::memset(attr->name, 0, sizeof attr->name);
    const std::string made = "endpoint-" + std::to_string(reinterpret_cast<uintptr_t>(ep));
    const std::string& name = ep->name.empty() ? made : ep->name;
    name.copy(attr->name, sizeof attr->name - 1);
  }
  if ((attr->field_mask & UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR) != 0 &&
      (ep->peer == nullptr || !socket_address(ep->peer->remote, &attr->remote_sockaddr))) {
    return UCS_ERR_NOT_CONNECTED;
  }
#if THALWEG_HAS_UCP_EP_ATTR_FIELD_USER_DATA
  if ((attr->field_mask & UCP_EP_ATTR_FIELD_USER_DATA) != 0) attr->user_data = ep->user_data;
#endif
#if THALWEG_HAS_UCP_EP_ATTR_FIELD_TRANSPORTS
  if ((attr->field_mask & UCP_EP_ATTR_FIELD_TRANSPORTS) != 0 && attr->transports.num_entries != 0) {
    ucp_transport_entry_t& entry = attr->transports.entries[0];
    entry.transport_name = tw_endpoint_transport(ep->endpoint);
    entry.device_name = *entry.transport_name == 't' ? "network" : "memory";
    attr->transports.num_entries = 1;
  }
#endif
  return UCS_OK;
}

void ucp_ep_print_info(ucp_ep_h ep, FILE* stream) {
  const Hold hold(*ep->worker);
  std::fprintf(stream, "#\n# UCP endpoint %s\n#\n#               transport: %s\n#\n", ep->name.c_str(),
               ep->peer != nullptr ? tw_endpoint_transport(ep->endpoint) : "closed");
}

ucs_status_t ucp_ep_evaluate_perf(ucp_ep_h, const ucp_ep_evaluate_perf_param_t*, ucp_ep_evaluate_perf_attr_t*) {
  return unsupported("ucp_ep_evaluate_perf", "an estimate", "measure, or read what `thalweg explain` predicts");
}

}  // extern "C"
