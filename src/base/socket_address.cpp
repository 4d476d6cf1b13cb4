// SPDX-License-Identifier: Apache-2.0
// Parsing and resolving of host and port.
#include "base/socket_address.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

namespace thalweg::impl {

Status parse_host_port(const std::string& text, HostPort* out) {
  const size_t colon = text.rfind(':');
  const bool bracketed = !text.empty() && text[0] == '[';
  const size_t bracket = text.find(']');
  const bool shape = colon != std::string::npos &&
                     (bracketed ? bracket != std::string::npos && bracket + 1 == colon : text.find(':') == colon);
  if (!shape) return fail(TW_ERR_INVALID, "\"%s\" is not host:port, [v6]:port or :port", text.c_str());
  out->host = bracketed ? text.substr(1, bracket - 1) : text.substr(0, colon);
  const std::string digits = text.substr(colon + 1);
  unsigned long port = 0;
  for (const char c : digits) port = c >= '0' && c <= '9' && port <= 65535 ? port * 10 + unsigned(c - '0') : 65536;
  if (digits.empty() || port > 65535) return fail(TW_ERR_INVALID, "\"%s\" has no port between 0 and 65535", text.c_str());
  out->port = uint16_t(port);
  return TW_OK;
}

std::string to_text(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

Status resolve(const HostPort& address, bool passive, std::vector<SocketAddress>* out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = (passive ? AI_PASSIVE : 0) | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return fail(TW_ERR_UNREACHABLE, "the name \"%s\" cannot be resolved: %s", address.host.c_str(), gai_strerror(error));
  }
  out->clear();
  for (const addrinfo* a = found; a; a = a->ai_next) {
    SocketAddress one;
    std::memcpy(&one.storage, a->ai_addr, a->ai_addrlen);
    one.length = a->ai_addrlen;
    out->push_back(one);
  }
  freeaddrinfo(found);
  return TW_OK;
}

std::string to_text(const SocketAddress& address) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(address.get(), address.length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  const bool v6 = std::strchr(host, ':') != nullptr;
  return (v6 ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
}

}  // namespace thalweg::impl
