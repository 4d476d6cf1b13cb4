// SPDX-License-Identifier: Apache-2.0
// Two workers of two contexts in one process, as users of UCX see them: only ucp.h.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <ucp/api/ucp.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace ucp_test {

inline std::vector<unsigned char> random_bytes(size_t length) {
  static std::mt19937_64 random{std::random_device{}()};
  std::vector<unsigned char> bytes(length);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

struct Side {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  ucp_ep_h ep = nullptr;

  explicit Side(ucs_thread_mode_t mode = UCS_THREAD_MODE_SINGLE, const std::function<void(ucp_params_t&)>& change = {}) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_WAKEUP |
                      UCP_FEATURE_STREAM | UCP_FEATURE_AM;
    if (change) change(params);
    EXPECT_EQ(ucp_init(&params, nullptr, &context), UCS_OK);
    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = mode;
    EXPECT_EQ(ucp_worker_create(context, &worker_params, &worker), UCS_OK);
  }
  ~Side() {
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void connect(Side& other, const std::function<void(ucp_ep_params_t&)>& change = {}) {
    ucp_address_t* address = nullptr;
    size_t length = 0;
    ASSERT_EQ(ucp_worker_get_address(other.worker, &address, &length), UCS_OK);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = address;
    if (change) change(params);
    EXPECT_EQ(ucp_ep_create(worker, &params, &ep), UCS_OK);
    ucp_worker_release_address(other.worker, address);
  }
};

inline ucs_status_t set_am_handler(ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t handle, void* arg, uint32_t flags) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                     UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  param.id = id;
  param.cb = handle;
  param.arg = arg;
  param.flags = flags;
  return ucp_worker_set_am_recv_handler(worker, &param);
}

inline ucs_memory_type_t memory_type_of(ucs_status_ptr_t request) {
  ucp_request_attr_t attr{};
  attr.field_mask = UCP_REQUEST_ATTR_FIELD_MEM_TYPE;
  attr.mem_type = UCS_MEMORY_TYPE_LAST;
  EXPECT_EQ(ucp_request_query(request, &attr), UCS_OK);
  return attr.mem_type;
}

/// At a free port of the loopback address, which goes to *address. asked: of each connection request.
inline ucp_listener_h listen(Side& side, ucp_listener_conn_callback_t asked, void* arg, sockaddr_storage* address) {
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {reinterpret_cast<sockaddr*>(&any), sizeof any};
  params.conn_handler = {asked, arg};
  ucp_listener_h listener = nullptr;
  EXPECT_EQ(ucp_listener_create(side.worker, &params, &listener), UCS_OK);
  ucp_listener_attr_t attr{};
  attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  EXPECT_EQ(ucp_listener_query(listener, &attr), UCS_OK);
  *address = attr.sockaddr;
  return listener;
}

inline ucp_ep_h call_listener(Side& side, sockaddr_storage& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {reinterpret_cast<sockaddr*>(&address), sizeof(sockaddr_in)};
  ucp_ep_h ep = nullptr;
  EXPECT_EQ(ucp_ep_create(side.worker, &params, &ep), UCS_OK);
  return ep;
}

struct World {
  Side a, b;
  explicit World(ucs_thread_mode_t mode = UCS_THREAD_MODE_SINGLE, const std::function<void(ucp_params_t&)>& change = {})
      : a(mode, change), b(mode, change) {}

  void connect() {
    a.connect(b);
    b.connect(a);
  }
  void progress() {
    ucp_worker_progress(a.worker);
    ucp_worker_progress(b.worker);
  }
  /// Progresses both until it holds; fails after 20 s.
  template <class Done>
  bool until(const Done& done) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      progress();
    }
    return true;
  }
  /// The operation's end; frees its request.
  ucs_status_t end(ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_RAW_STATUS(request);
    EXPECT_TRUE(until([&] { return ucp_request_check_status(request) != UCS_INPROGRESS; }));
    const ucs_status_t status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
  }
};

inline ucp_request_param_t nothing() {
  ucp_request_param_t param{};
  return param;
}
inline ucp_request_param_t flags(uint32_t flags) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  return param;
}

}  // namespace ucp_test
