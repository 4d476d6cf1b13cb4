// SPDX-License-Identifier: Apache-2.0
#include "listener.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "status.hpp"

namespace thalweg::ucx {

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address->sa_family != AF_INET6) return "";
  const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  const std::string scope = v6.sin6_scope_id != 0 ? "%" + std::to_string(v6.sin6_scope_id) : "";
  return "[" + std::string(text) + scope + "]:" + std::to_string(ntohs(v6.sin6_port));
}

bool socket_address(const std::string& text, sockaddr_storage* address) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  std::memset(address, 0, sizeof *address);
  const uint16_t port = htons(static_cast<uint16_t>(std::atoi(text.c_str() + colon + 1)));
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  auto& v4 = *reinterpret_cast<sockaddr_in*>(address);
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = port;
    return true;
  }
  auto& v6 = *reinterpret_cast<sockaddr_in6*>(address);
  if (const size_t percent = host.find('%'); percent != std::string::npos) {  // a link-local address is one of an interface
    const std::string scope = host.substr(percent + 1);
    const unsigned named = if_nametoindex(scope.c_str());
    v6.sin6_scope_id = named != 0 ? named : static_cast<uint32_t>(std::strtoul(scope.c_str(), nullptr, 10));
    host.resize(percent);
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) return false;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = port;
  return true;
}

namespace {

uint64_t client_id_of(const tw_connection_request* request) {
  size_t length = 0;
  const void* const data = tw_connection_request_data(request, &length);
  AddressHeader header;
  return length >= sizeof header && parse_address(data, &header) ? header.client_id : 0;
}

void accept_at_once(ucp_listener& listener, ucp_conn_request* request) {
  ucp_ep_params_t params;
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  ucp_ep_h endpoint = nullptr;
  if (ucp_ep_create(listener.worker, &params, &endpoint) == UCS_OK) listener.on_accept.cb(endpoint, listener.on_accept.arg);
}

void tell_request(ucp_listener& listener, ucp_conn_request* request) {
  if (listener.on_request.cb != nullptr) return listener.on_request.cb(request, listener.on_request.arg);
  accept_at_once(listener, request);
}

/// The oldest of them; its handler may destroy the listener.
void tell_waiting(ucp_listener& listener) {
  ucp_conn_request* const request = listener.waiting.front();
  listener.waiting.erase(listener.waiting.begin());
  tell_request(listener, request);
}

void on_request(void* arg, tw_connection_request* given) {
  auto& listener = *static_cast<ucp_listener*>(arg);
  auto* const request =
      new (std::nothrow) ucp_conn_request{listener.worker, given, client_id_of(given), tw_connection_request_peer(given)};
  if (request == nullptr) return (void)tw_reject(given, nullptr, 0);
  if (listener.worker->holding == 0) return tell_request(listener, request);
  listener.waiting.push_back(request);
  postpone(*listener.worker, [&listener, life = std::weak_ptr<int>(listener.life)] {
    if (!life.expired() && !listener.worker->ending) tell_waiting(listener);
  });
}

ucs_status_t listen(ucp_listener& listener, const ucs_sock_addr_t& where) {
  const std::string text = text_of(where.addr);
  if (text.empty())
    return unsupported("ucp_listener_create", "this family of socket addresses", "pass an IPv4 or IPv6 address");
  tw_listener_options options = TW_LISTENER_OPTIONS_INIT;
  options.on_request = on_request;
  options.arg = &listener;
  const tw_status status = tw_listen(listener.worker->worker, text.c_str(), &options, &listener.listener);
  if (status != TW_OK) return failed("ucp_listener_create", status);
  std::memcpy(&listener.address, where.addr, std::min<size_t>(where.addrlen, sizeof listener.address));
  reinterpret_cast<sockaddr_in&>(listener.address).sin_port = htons(tw_listener_port(listener.listener));  // v6: the same place
  return UCS_OK;
}

}  // namespace
}  // namespace thalweg::ucx

using namespace thalweg::ucx;

extern "C" {

ucs_status_t ucp_listener_create(ucp_worker_h worker, const ucp_listener_params_t* params, ucp_listener_h* listener_p) {
  if (worker == nullptr || params == nullptr || listener_p == nullptr) return UCS_ERR_INVALID_PARAM;
  constexpr uint64_t kKnown =
      UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  if (ucs_status_t s = check_mask("ucp_listener_create", "field_mask", params->field_mask, kKnown); s != UCS_OK) return s;
  const uint64_t mask = params->field_mask;
  auto listener = std::make_unique<ucp_listener>();
  listener->worker = worker;
  if ((mask & UCP_LISTENER_PARAM_FIELD_CONN_HANDLER) != 0) listener->on_request = params->conn_handler;
  if ((mask & UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER) != 0) listener->on_accept = params->accept_handler;
  const bool one = (listener->on_request.cb != nullptr) != (listener->on_accept.cb != nullptr);
  if ((mask & UCP_LISTENER_PARAM_FIELD_SOCK_ADDR) == 0 || !one) return UCS_ERR_INVALID_PARAM;
  const Hold hold(*worker);
  if (ucs_status_t s = listen(*listener, params->sockaddr); s != UCS_OK) return s;
  *listener_p = listener.release();
  return UCS_OK;
}

void ucp_listener_destroy(ucp_listener_h listener) {
  if (listener == nullptr) return;
  const Hold hold(*listener->worker);
  for (ucp_conn_request* request : listener->waiting) {
    (void)tw_reject(request->request, nullptr, 0);
    delete request;
  }
  tw_listener_close(listener->listener);
  delete listener;
}

ucs_status_t ucp_listener_query(ucp_listener_h listener, ucp_listener_attr_t* attr) {
  if (listener == nullptr || attr == nullptr) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = check_mask("ucp_listener_query", "field_mask", attr->field_mask, UCP_LISTENER_ATTR_FIELD_SOCKADDR);
      s != UCS_OK) {
    return s;
  }
  if ((attr->field_mask & UCP_LISTENER_ATTR_FIELD_SOCKADDR) != 0) attr->sockaddr = listener->address;
  return UCS_OK;
}

ucs_status_t ucp_listener_reject(ucp_listener_h, ucp_conn_request_h conn_request) {
  if (conn_request == nullptr) return UCS_ERR_INVALID_PARAM;
  const Hold hold(*conn_request->worker);
  const tw_status status = tw_reject(conn_request->request, nullptr, 0);
  delete conn_request;
  return status == TW_OK ? UCS_OK : failed("ucp_listener_reject", status);
}

ucs_status_t ucp_conn_request_query(ucp_conn_request_h conn_request, ucp_conn_request_attr_t* attr) {
  if (conn_request == nullptr || attr == nullptr) return UCS_ERR_INVALID_PARAM;
  constexpr uint64_t kKnown = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR | UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
  if (ucs_status_t s = check_mask("ucp_conn_request_query", "field_mask", attr->field_mask, kKnown); s != UCS_OK) return s;
  if ((attr->field_mask & UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID) != 0) attr->client_id = conn_request->client_id;
  if ((attr->field_mask & UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR) == 0) return UCS_OK;
  return socket_address(conn_request->peer, &attr->client_address) ? UCS_OK : UCS_ERR_UNSUPPORTED;
}

}  // extern "C"
