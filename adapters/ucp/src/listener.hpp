// SPDX-License-Identifier: Apache-2.0
// Listeners and connection requests, and socket addresses as text.
#pragma once
#include <sys/socket.h>
#include <thalweg/thalweg.h>

#include <memory>
#include <string>
#include <vector>

#include "ucx.hpp"
#include "worker.hpp"

struct ucp_listener {
  ucp_worker* worker = nullptr;
  tw_listener* listener = nullptr;
  ucp_listener_conn_handler_t on_request{nullptr, nullptr};
  ucp_listener_accept_handler_t on_accept{nullptr, nullptr};
  sockaddr_storage address{};
  std::vector<ucp_conn_request*> waiting{};  // arrived in a call that is none of progress
  std::shared_ptr<int> life = std::make_shared<int>();
};

struct ucp_conn_request {
  ucp_worker* worker;  // the listener may be gone before the answer
  tw_connection_request* request;
  uint64_t client_id;
  std::string peer;  // its address as text
};

namespace thalweg::ucx {

/// "1.2.3.4:5", "[::1]:5"; "": of another family.
std::string text_of(const sockaddr* address);
/// Back. False: it is none.
bool socket_address(const std::string& text, sockaddr_storage* address);

}  // namespace thalweg::ucx
