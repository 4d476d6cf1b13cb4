// SPDX-License-Identifier: Apache-2.0
// A UCX context: one of Thalweg's, and what ucp_params said about requests.
#pragma once
#include <thalweg/thalweg.h>

#include <mutex>
#include <string>

#include "config.hpp"
#include "ucx.hpp"

struct ucp_context {
  tw_context* context = nullptr;
  uint64_t features = 0;
  size_t request_size = 0;  // of the user's part
  ucp_request_init_callback_t request_init = nullptr;
  ucp_request_cleanup_callback_t request_cleanup = nullptr;
  bool shared = false;  // mt_workers_shared
  std::string name;
  std::string transports;  // as given to Thalweg; "": all
};
