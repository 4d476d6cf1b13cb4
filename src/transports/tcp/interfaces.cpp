// SPDX-License-Identifier: Apache-2.0
// Interfaces and the filter over them.
#include "transports/tcp/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace thalweg::impl::tcp {

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

}  // namespace

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

}  // namespace thalweg::impl::tcp
