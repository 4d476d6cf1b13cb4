// SPDX-License-Identifier: Apache-2.0
// Text to socket address and back.
#include "base/socket_address.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <cstring>

namespace thalweg::impl {

namespace {

const sockaddr_in& v4(const SocketAddress& a) { return reinterpret_cast<const sockaddr_in&>(a.storage); }
const sockaddr_in6& v6(const SocketAddress& a) { return reinterpret_cast<const sockaddr_in6&>(a.storage); }

Status parse_port(std::string_view text, std::string_view whole, uint16_t* out) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > 65535)
    return fail(TW_ERR_INVALID, "'%.*s' has no port number from 0 to 65535 after the last colon",
                static_cast<int>(whole.size()), whole.data());
  *out = static_cast<uint16_t>(value);
  return TW_OK;
}

}  // namespace

bool SocketAddress::loopback() const {
  if (family() == AF_INET) return (ntohl(v4(*this).sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6(*this).sin6_addr);
}

bool SocketAddress::link_local() const { return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(*this).sin6_addr); }

bool SocketAddress::any() const {
  if (family() == AF_INET) return v4(*this).sin_addr.s_addr == 0;
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6(*this).sin6_addr);
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(v4(*this).sin_port);
  return family() == AF_INET6 ? ntohs(v6(*this).sin6_port) : 0;
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
}

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN + IF_NAMESIZE + 1] = "?";
  switch (family()) {
    case AF_INET:
      ::inet_ntop(AF_INET, &v4(*this).sin_addr, host, sizeof(host));
      return std::string(host) + ":" + std::to_string(port());
    case AF_INET6: {
      ::inet_ntop(AF_INET6, &v6(*this).sin6_addr, host, sizeof(host));
      std::string out = std::string("[") + host;
      if (v6(*this).sin6_scope_id != 0) {
        char name[IF_NAMESIZE];
        const char* known = ::if_indextoname(v6(*this).sin6_scope_id, name);
        out += "%" + (known ? std::string(known) : std::to_string(v6(*this).sin6_scope_id));
      }
      return out + "]:" + std::to_string(port());
    }
    case AF_UNIX: {
      const sockaddr_un& un = reinterpret_cast<const sockaddr_un&>(storage);
      const size_t room = length > offsetof(sockaddr_un, sun_path) ? length - offsetof(sockaddr_un, sun_path) : 0;
      const std::string path(un.sun_path, ::strnlen(un.sun_path, room));
      return path.empty() ? "unix" : "unix:" + path;
    }
    default:
      return "nowhere";
  }
}

std::string_view SocketAddress::host_bytes() const {
  if (family() == AF_INET) return {reinterpret_cast<const char*>(&v4(*this).sin_addr), 4};
  if (family() == AF_INET6) return {reinterpret_cast<const char*>(&v6(*this).sin6_addr), 16};
  return {};
}

std::string AddressText::text() const {
  if (unix_path) return "unix:" + host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Status parse_address_text(std::string_view text, AddressText* out) {
  *out = {};
  if (text.substr(0, 5) == "unix:") {
    out->unix_path = true;
    out->host = text.substr(5);
    SocketAddress checked;
    return unix_address(out->host, &checked);
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return fail(TW_ERR_INVALID, "'%.*s' is no address: write host:port, [v6]:port, :port or unix:/path",
                static_cast<int>(text.size()), text.data());
  std::string_view host = text.substr(0, colon);
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']' || host.size() < 3)
      return fail(TW_ERR_INVALID, "'%.*s' has no closing bracket before its port", static_cast<int>(text.size()), text.data());
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return fail(TW_ERR_INVALID, "'%.*s': put an IPv6 address in brackets, as in [::1]:4711", static_cast<int>(text.size()),
                text.data());
  }
  if (host.size() > 255 || host.find('\0') != std::string_view::npos)
    return fail(TW_ERR_INVALID, "the host name of this address is too long");
  out->host = host;
  return parse_port(text.substr(colon + 1), text, &out->port);
}

bool parse_numeric(const std::string& host, uint16_t port, SocketAddress* out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  std::memcpy(&out->storage, found->ai_addr, found->ai_addrlen);
  out->length = found->ai_addrlen;
  ::freeaddrinfo(found);
  out->set_port(port);
  return true;
}

SocketAddress internet_address(std::string_view host_bytes, uint16_t port) {
  SocketAddress out;
  const bool is_v4 = host_bytes.size() == 4;
  out.storage.ss_family = is_v4 ? AF_INET : AF_INET6;
  out.length = is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(const_cast<char*>(out.host_bytes().data()), host_bytes.data(), host_bytes.size());
  out.set_port(port);
  return out;
}

Status unix_address(const std::string& path, SocketAddress* out) {
  sockaddr_un& un = reinterpret_cast<sockaddr_un&>(out->storage);
  if (path.empty() || path.size() >= sizeof(un.sun_path))
    return fail(TW_ERR_INVALID, "the socket path '%s' is empty or longer than %zu bytes: choose a shorter directory",
                path.c_str(), sizeof(un.sun_path) - 1);
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path, path.c_str(), path.size() + 1);
  out->length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return TW_OK;
}

Status resolve(const AddressText& text, bool to_listen, std::vector<SocketAddress>* out) {
  out->clear();
  SocketAddress address;
  if (text.unix_path) {
    if (Status s = unix_address(text.host, &address); s != TW_OK) return s;
    out->push_back(address);
    return TW_OK;
  }
  if (text.host.empty()) {
    // Everywhere to listen at; this machine to connect to.
    for (const char* host : {to_listen ? "::" : "127.0.0.1", to_listen ? "0.0.0.0" : "::1"}) {
      if (parse_numeric(host, text.port, &address)) out->push_back(address);
    }
    return TW_OK;
  }
  if (parse_numeric(text.host, text.port, &address)) {
    out->push_back(address);
    return TW_OK;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(text.host.c_str(), nullptr, &hints, &found); error != 0)
    return fail(TW_ERR_UNREACHABLE, "the host '%s' has no address: %s", text.host.c_str(), ::gai_strerror(error));
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    SocketAddress next;
    std::memcpy(&next.storage, a->ai_addr, a->ai_addrlen);
    next.length = a->ai_addrlen;
    next.set_port(text.port);
    out->push_back(next);
  }
  ::freeaddrinfo(found);
  return TW_OK;
}

}  // namespace thalweg::impl
