// SPDX-License-Identifier: Apache-2.0
// A user's listener and the requests that came to it. Its socket is a Door of the service thread.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.hpp"

struct tw_worker;

/// A client that waits to be accepted or rejected. Owned by the listener until tw_listener_next or on_request hands it out,
/// then by the user until tw_accept or tw_reject.
struct tw_connection_request {
  tw_worker* worker = nullptr;
  uint64_t listener = 0;
  uint64_t acceptor = 0;
  std::vector<std::byte> data;
  std::string peer;
};

struct tw_listener {
  tw_worker* worker = nullptr;
  uint64_t id = 0;
  uint16_t port = 0;
  void (*on_request)(void* arg, tw_connection_request* request) = nullptr;
  void* arg = nullptr;
  std::deque<std::unique_ptr<tw_connection_request>> waiting;
};
