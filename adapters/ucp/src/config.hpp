// SPDX-License-Identifier: Apache-2.0
// UCX's configuration: names and values, from the environment and ucp_config_modify. Few have a meaning here (config.cpp).
#pragma once
#include <map>
#include <string>

#include "ucx.hpp"

struct ucp_config {
  std::map<std::string, std::string> values;  // by the name without "UCX_"
};

namespace thalweg::ucx {

/// What UCX_TLS means: Thalweg's transports as tw_context_options takes them; "" : all. UCS_ERR_NO_DEVICE: none is left.
ucs_status_t transports_of(const ucp_config& config, std::string* transports);
/// The configuration that ucp_init takes without one.
ucp_config default_config();

}  // namespace thalweg::ucx
