// SPDX-License-Identifier: Apache-2.0
// Connecting without blocking, listening, accepting.
#include "base/sockets.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>

#include "base/passed_descriptors.hpp"

namespace thalweg::impl {

namespace {

Status make_socket(int family, UniqueFd* out) {
  *out = UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (*out) return TW_OK;
  if (errno == EAFNOSUPPORT) return fail(TW_ERR_UNREACHABLE, "this machine has no sockets of address family %d", family);
  return fail_errno(errno, "socket");
}

Status connect_failed(int error, const SocketAddress& to) {
  const std::string text = to.text();
  switch (error) {
    case ECONNREFUSED:
    case ENOENT:
      return fail(TW_ERR_UNREACHABLE, "nobody listens at %s: start the listener first, or check the port", text.c_str());
    case ETIMEDOUT:
      return fail(TW_ERR_TIMED_OUT, "%s does not answer: check the address and firewalls on the way", text.c_str());
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
    case ECONNRESET:
    case EACCES:
    case EPERM:
      return fail(TW_ERR_UNREACHABLE, "%s cannot be reached: %s; check the address and the route to it", text.c_str(),
                  std::strerror(error));
    default:
      return fail_errno(error, ("connect to " + text).c_str());
  }
}

/// A socket file of this user.
bool own_socket_file(const char* path, struct stat* info) {
  return ::lstat(path, info) == 0 && S_ISSOCK(info->st_mode) && info->st_uid == ::geteuid();
}

/// True if no process has it bound any more. The probe's socket type differs from a listener's, so a live process is not
/// disturbed, and one that has not begun to listen is seen.
bool abandoned(const SocketAddress& at) {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe && ::connect(probe.get(), at.get(), at.length) != 0 && errno == ECONNREFUSED;
}

const char* path_of(const SocketAddress& at) { return reinterpret_cast<const sockaddr_un&>(at.storage).sun_path; }

/// Who removes stale files of a folder does it alone: between the look and the removal another one may have bound a socket there.
/// Nothing: another process has the lock, for longer than these looks and removals take.
UniqueFd lock_folder(const std::string& folder) {
  constexpr int kTries = 200;
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; fd && i < kTries; ++i) {
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR)) return fd;  // or has no locks
    const timespec shortly{0, 1'000'000};
    (void)::nanosleep(&shortly, nullptr);
  }
  return UniqueFd();
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

/// Removes a socket file that a process of this user has left; one that is bound stays.
bool remove_stale_file(const SocketAddress& at) {
  struct stat info;
  return own_socket_file(path_of(at), &info) && abandoned(at) && ::unlink(path_of(at)) == 0;
}

/// Returns errno; 0: bound.
int bind_to(int fd, const SocketAddress& at) { return ::bind(fd, at.get(), at.length) == 0 ? 0 : errno; }

/// The same where a file is, which may be stale.
int bind_over_file(int fd, const SocketAddress& at) {
  const UniqueFd lock = lock_folder(folder_of(path_of(at)));
  return lock && remove_stale_file(at) ? bind_to(fd, at) : EADDRINUSE;
}

Status in_use(const SocketAddress& at) {
  if (at.internet())
    return fail(TW_ERR_ADDRESS_IN_USE, "%s is in use by another listener: choose another port, or 0 for any",
                at.text().c_str());
  struct stat info;
  const bool socket = ::lstat(path_of(at), &info) != 0 || S_ISSOCK(info.st_mode);
  return fail(TW_ERR_ADDRESS_IN_USE, "%s: %s: choose another path", at.text().c_str(),
              socket ? "another listener, or another user, has its socket there" : "a file that is no socket is there");
}

}  // namespace

unsigned remove_abandoned_sockets(const std::string& directory, const char* ending, int64_t age_s, unsigned most) {
  const UniqueFd lock = lock_folder(directory);
  DIR* names = lock ? ::opendir(directory.c_str()) : nullptr;
  if (names == nullptr) return 0;
  const std::string_view wanted(ending);
  const int64_t now = ::time(nullptr);
  unsigned looked = 0, removed = 0;
  while (const dirent* entry = looked < most ? ::readdir(names) : nullptr) {
    if (!std::string_view(entry->d_name).ends_with(wanted)) continue;
    const std::string path = directory + "/" + entry->d_name;
    struct stat info;
    if (!own_socket_file(path.c_str(), &info)) continue;
    if (now - int64_t(info.st_mtime) < age_s) continue;
    ++looked;
    SocketAddress at;
    if (is_error(unix_address(path, &at)) || !abandoned(at) || ::unlink(path.c_str()) != 0) continue;
    ++removed;
  }
  ::closedir(names);
  return removed;
}

Status start_connect(const SocketAddress& to, UniqueFd* out) {
  UniqueFd fd;
  if (Status s = make_socket(to.family(), &fd); s != TW_OK) return s;
  if (to.internet()) {
    const int one = 1;
    (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
  int result;
  do result = ::connect(fd.get(), to.get(), to.length);
  while (result != 0 && errno == EINTR);
  const int error = result == 0 ? 0 : errno;
  // A unix listener with a full backlog answers EAGAIN: there is nothing to wait for, the caller tries again.
  if (error == EAGAIN) return fail(TW_ERR_UNREACHABLE, "%s has too many waiting connections: try again", to.text().c_str());
  if (error != 0 && error != EINPROGRESS) return connect_failed(error, to);
  *out = std::move(fd);
  return error == 0 ? TW_OK : TW_IN_PROGRESS;
}

Status finish_connect(int fd, const SocketAddress& to) {
  int error = 0;
  socklen_t n = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0) return fail_errno(errno, "getsockopt");
  if (error != 0) return connect_failed(error, to);
  sockaddr_storage peer;
  n = sizeof(peer);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &n) == 0) return TW_OK;
  return errno == ENOTCONN ? TW_IN_PROGRESS : connect_failed(errno, to);
}

Status listen_at(const SocketAddress& at, int backlog, UniqueFd* out) {
  UniqueFd fd;
  if (Status s = make_socket(at.family(), &fd); s != TW_OK) return s;
  const int one = 1, zero = 0;
  if (at.internet()) {
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (at.family() == AF_INET6 && at.any()) (void)::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
  } else {
    // The mode of the file is that of the socket when it is bound.
    (void)::fchmod(fd.get(), 0600);
  }
  int error = bind_to(fd.get(), at);
  if (error == EADDRINUSE && !at.internet()) error = bind_over_file(fd.get(), at);
  if (error == EADDRINUSE) return in_use(at);
  if (error == EADDRNOTAVAIL) return fail(TW_ERR_INVALID, "%s is not an address of this machine", at.text().c_str());
  if (error != 0) return fail_errno(error, ("bind to " + at.text()).c_str());
  if (!at.internet()) refuse_descriptors(fd.get());
  if (::listen(fd.get(), backlog) != 0) return fail_errno(errno, "listen");
  *out = std::move(fd);
  return TW_OK;
}

Status accept_from(int listener, UniqueFd* out) {
  while (true) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      *out = UniqueFd(fd);
      return TW_OK;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return TW_AGAIN;
    // The connection was closed while it was pending: try the next one.
    if (errno != EINTR && errno != ECONNABORTED) return fail_errno(errno, "accept4");
  }
}

Status local_address(int fd, SocketAddress* out) {
  out->length = sizeof(out->storage);
  return ::getsockname(fd, out->get(), &out->length) == 0 ? TW_OK : fail_errno(errno, "getsockname");
}

Status peer_address(int fd, SocketAddress* out) {
  out->length = sizeof(out->storage);
  return ::getpeername(fd, out->get(), &out->length) == 0 ? TW_OK : fail_errno(errno, "getpeername");
}

bool is_unix_socket(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

}  // namespace thalweg::impl
