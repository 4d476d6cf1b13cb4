// SPDX-License-Identifier: Apache-2.0
// Interfaces and the filter over them.
#include "base/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/sockets.hpp"

namespace thalweg::impl {

namespace {

bool same_subnet(std::string_view a, std::string_view b, unsigned bits) {
  if (a.size() != b.size() || a.size() * 8 < bits) return false;
  const size_t whole = bits / 8;
  if (std::memcmp(a.data(), b.data(), whole) != 0) return false;
  const unsigned rest = bits % 8;
  return rest == 0 || (static_cast<uint8_t>(a[whole]) ^ static_cast<uint8_t>(b[whole])) >> (8 - rest) == 0;
}

int rank(const LocalAddress& a) { return a.address.loopback() ? 2 : a.address.link_local() ? 1 : 0; }

/// Does one item of a filter ("eth0", an address, a subnet) name this address?
bool named(const std::string& item, const LocalAddress& local) {
  if (item == local.interface) return true;
  const size_t slash = item.find('/');
  SocketAddress wanted;
  if (!parse_numeric(item.substr(0, slash), 0, &wanted)) return false;
  unsigned bits = static_cast<unsigned>(wanted.host_bytes().size() * 8);
  if (slash != std::string::npos) {
    const char* end = item.data() + item.size();
    const auto [stop, error] = std::from_chars(item.data() + slash + 1, end, bits);
    if (error != std::errc() || stop != end) return false;
  }
  return same_subnet(wanted.host_bytes(), local.address.host_bytes(), bits);
}

std::vector<std::string> split(const char* list) {
  std::vector<std::string> items;
  std::string item;
  for (const char* at = list == nullptr ? "" : list;; ++at) {
    if (*at == ',' || *at == '\0') {
      if (!item.empty()) items.push_back(item);
      item.clear();
      if (*at == '\0') return items;
    } else if (*at != ' ') {
      item += *at;
    }
  }
}

Status all_addresses(std::vector<LocalAddress>* out) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return fail_errno(errno, "getifaddrs");
  for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || (a->ifa_flags & IFF_UP) == 0) continue;
    const int family = a->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    LocalAddress local;
    local.interface = a->ifa_name;
    local.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&local.address.storage, a->ifa_addr, local.address.length);
    out->push_back(local);
  }
  ::freeifaddrs(list);
  std::stable_sort(out->begin(), out->end(), [](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return TW_OK;
}

std::string describe(const std::vector<LocalAddress>& all) {
  std::string text;
  for (const LocalAddress& a : all) {
    const std::string address = a.address.text();
    text += (text.empty() ? "" : ", ") + a.interface + " " + address.substr(0, address.rfind(':'));
  }
  return text.empty() ? "none" : text;
}

/// Those of the addresses that `filter` allows; of a wildcard, all that it allows. IPv6 link-local ones mean nothing
/// elsewhere.
Status narrow(const AddressText& text, const char* filter, const std::vector<SocketAddress>& wanted,
              std::vector<SocketAddress>* out) {
  std::vector<LocalAddress> allowed;
  if (Status s = local_addresses(filter, &allowed); is_error(s)) return s;
  for (const LocalAddress& local : allowed) {
    const bool named = std::any_of(wanted.begin(), wanted.end(), [&](const SocketAddress& one) {
      return one.any() || one.host_bytes() == local.address.host_bytes();
    });
    if (named && !local.address.link_local()) out->push_back(local.address);
  }
  if (!out->empty()) return TW_OK;
  return fail(TW_ERR_INVALID,
              "%s is on no interface that may be used here (interfaces \"%s\", THALWEG_INTERFACES); there are: %s",
              text.text().c_str(), filter, describe(allowed).c_str());
}

/// One of them: the second is for a machine without IPv6.
Status listen_at_one(const std::vector<SocketAddress>& candidates, int backlog, std::vector<UniqueFd>* out) {
  Status status = TW_ERR_UNREACHABLE;
  for (const SocketAddress& at : candidates) {
    UniqueFd socket;
    status = listen_at(at, backlog, &socket);
    if (!is_error(status)) out->push_back(std::move(socket));
    if (!is_error(status) || status == TW_ERR_ADDRESS_IN_USE) break;
  }
  return status;
}

/// All of them, with one port. The kernel chooses it at the first address: at another it may be taken, so a few are tried.
Status listen_at_all(const std::vector<SocketAddress>& where, uint16_t port, int backlog, std::vector<UniqueFd>* out) {
  constexpr int kTries = 16;
  Status status = TW_OK;
  for (int i = 0; i < kTries; ++i) {
    uint16_t chosen = port;
    out->clear();
    for (SocketAddress at : where) {
      at.set_port(chosen);
      UniqueFd socket;
      if (status = listen_at(at, backlog, &socket); is_error(status)) break;
      if (status = local_address(socket.get(), &at); is_error(status)) break;
      chosen = at.port();
      out->push_back(std::move(socket));
    }
    if (status != TW_ERR_ADDRESS_IN_USE || port != 0) break;
  }
  return status;
}

}  // namespace

Status listen_where_allowed(const AddressText& text, const char* filter, int backlog, std::vector<UniqueFd>* sockets,
                            uint16_t* port) {
  sockets->clear();
  std::vector<SocketAddress> wanted, allowed;
  if (Status s = resolve(text, true, &wanted); is_error(s)) return s;
  if (text.unix_path || split(filter).empty()) {
    if (Status s = listen_at_one(wanted, backlog, sockets); is_error(s)) return s;
  } else {
    if (Status s = narrow(text, filter, wanted, &allowed); is_error(s)) return s;
    if (Status s = listen_at_all(allowed, text.port, backlog, sockets); is_error(s)) return s;
  }
  SocketAddress bound;
  if (Status s = local_address(sockets->front().get(), &bound); is_error(s)) return s;
  *port = bound.port();
  return TW_OK;
}

Status local_addresses(const char* filter, std::vector<LocalAddress>* out) {
  out->clear();
  std::vector<LocalAddress> all;
  if (Status s = all_addresses(&all); s != TW_OK) return s;
  const std::vector<std::string> items = split(filter);
  if (items.empty()) {
    *out = std::move(all);
    return TW_OK;
  }
  for (const std::string& item : items) {
    if (std::none_of(all.begin(), all.end(), [&](const auto& a) { return named(item, a); }))
      return fail(TW_ERR_INVALID, "'%s' names no interface, address or subnet that is up here; there are: %s", item.c_str(),
                  describe(all).c_str());
  }
  for (const LocalAddress& a : all) {
    if (std::any_of(items.begin(), items.end(), [&](const auto& item) { return named(item, a); })) out->push_back(a);
  }
  return TW_OK;
}

}  // namespace thalweg::impl
