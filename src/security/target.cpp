// SPDX-License-Identifier: Apache-2.0
// Names of targets.
#include "security/target.hpp"

#include <openssl/evp.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/sockets.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kPortAt = 16;  // behind the 16 bytes of an address

std::string path_of(const SocketAddress& address) {
  const auto* unix_address = reinterpret_cast<const sockaddr_un*>(&address.storage);
  const size_t start = offsetof(sockaddr_un, sun_path);
  if (address.length <= start) return "";
  return std::string(unix_address->sun_path, strnlen(unix_address->sun_path, address.length - start));
}

}  // namespace

std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const auto absolute = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  return error ? path : absolute.string();
}

DialTarget DialTarget::of_worker(uint64_t worker, uint64_t incarnation) {
  DialTarget target;
  std::memcpy(target.name.data(), &worker, sizeof worker);
  std::memcpy(target.name.data() + sizeof worker, &incarnation, sizeof incarnation);
  return target;
}

uint64_t DialTarget::worker() const {
  uint64_t worker;
  std::memcpy(&worker, name.data(), sizeof worker);
  return worker;
}

uint64_t DialTarget::incarnation() const {
  uint64_t incarnation;
  std::memcpy(&incarnation, name.data() + sizeof incarnation, sizeof incarnation);
  return incarnation;
}

DialTarget DialTarget::at_path(Purpose purpose, const std::string& path) {
  DialTarget target;
  target.purpose = purpose;
  EVP_Digest(path.data(), path.size(), reinterpret_cast<unsigned char*>(target.name.data()), nullptr, EVP_sha256(), nullptr);
  return target;
}

DialTarget DialTarget::at(Purpose purpose, const SocketAddress& address) {
  if (!address.internet()) return at_path(purpose, absolute_path(path_of(address)));
  DialTarget target;
  target.purpose = purpose;
  const std::string_view host = address.host_bytes();
  if (host.size() == 4) target.name[10] = target.name[11] = std::byte{0xff};  // ::ffff:a.b.c.d, as a listener for both sees it
  std::memcpy(target.name.data() + kPortAt - host.size(), host.data(), host.size());
  const uint16_t port = address.port();
  std::memcpy(target.name.data() + kPortAt, &port, sizeof port);
  return target;
}

DialTarget DialTarget::dialled(Purpose purpose, int fd, const SocketAddress& given) {
  SocketAddress peer;
  if (given.internet() && !is_error(peer_address(fd, &peer))) return at(purpose, peer);
  return at(purpose, given);  // a unix socket's server chooses the name that the kernel would report
}

DialTarget DialTarget::reached(Purpose purpose, int fd) {
  SocketAddress local;
  if (is_error(local_address(fd, &local))) return {purpose, {}};
  return at(purpose, local);
}

Status known_as(Purpose purpose, std::vector<DialTarget>* out) {
  out->clear();
  const char* variable = std::getenv("THALWEG_KNOWN_AS");
  std::string_view rest = variable != nullptr ? variable : "";
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string one(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (one.empty()) continue;
    AddressText text;
    std::vector<SocketAddress> found;
    Status status = parse_address_text(one, &text);
    if (!is_error(status) && !text.unix_path && (text.host.empty() || text.port == 0)) status = TW_ERR_INVALID;
    if (!is_error(status)) status = resolve(text, false, &found);
    if (is_error(status)) return fail(TW_ERR_INVALID, "THALWEG_KNOWN_AS: \"%s\" is no host:port or unix:/path", one.c_str());
    for (const SocketAddress& address : found) out->push_back(DialTarget::at(purpose, address));
  }
  return TW_OK;
}

}  // namespace thalweg::impl
