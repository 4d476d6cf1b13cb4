// SPDX-License-Identifier: Apache-2.0
// Taking descriptors out of unix sockets, and closing the foreign ones on threads of their own.
#include "base/passed_descriptors.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/platform/fork.hpp"
#include "base/platform/signals.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kMostPassed = 253;  // the kernel's, of one message; it joins no two that have descriptors
constexpr int kPassRights = 83;      // SO_PASSRIGHTS, younger than the headers
constexpr unsigned kMostClosers = 8;

union Space {
  cmsghdr align;
  char bytes[CMSG_SPACE(kMostPassed * sizeof(int))];
};

/// Threads end when nothing is left to close.
struct Closers {
  std::mutex mutex;
  std::deque<UniqueFd> waiting;
  unsigned running = 0;
};

void close_all(Closers& closers) {
  for (;;) {
    UniqueFd next;
    {
      const std::lock_guard lock(closers.mutex);
      if (closers.waiting.empty()) {
        --closers.running;
        return;
      }
      next = std::move(closers.waiting.front());
      closers.waiting.pop_front();
    }
    // Not under the lock that fork() takes. A child that is forked between the two keeps what is nobody's of this process.
    if (const int fd = next.release(); fd >= 0) {
      constexpr linger kAtOnce{1, 0};  // where it is a socket: its sender may have asked for hours
      (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &kAtOnce, sizeof kAtOnce);
      close(fd);
    }
  }
}

bool option(int fd, int name, int* value) {
  socklen_t length = sizeof *value;
  return getsockopt(fd, SOL_SOCKET, name, value, &length) == 0;
}

void drop_queue(int socket, bool nested);

/// A unix socket's queue may hold further descriptors, which its last close drops: it is emptied, and takes no more. Not those that lie in
/// it (nested): they may lie in each other without end.
bool is_quiet_stream(int fd, bool nested) {
  int domain = 0, type = 0, listens = 1;
  if (!option(fd, SO_DOMAIN, &domain) || domain != AF_UNIX) return false;
  if (!option(fd, SO_TYPE, &type) || type != SOCK_STREAM || !option(fd, SO_ACCEPTCONN, &listens) || listens != 0) return false;
  if (nested) return false;
  drop_queue(fd, true);
  return true;
}

/// By what asks no file system's server.
bool close_may_block(int fd, bool nested) {
  int domain = 0;
  if (option(fd, SO_DOMAIN, &domain)) return !is_quiet_stream(fd, nested);
  if (fcntl(fd, F_GET_SEALS) >= 0) return false;
  struct statx about {};
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &about) != 0) return true;
  return S_ISREG(about.stx_mode) || S_ISBLK(about.stx_mode);
}

void sort_out(msghdr& header, Passed& passed, bool nested) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number;
      std::memcpy(&number, CMSG_DATA(c) + i * sizeof number, sizeof number);
      UniqueFd fd(number);
      if (!close_may_block(number, nested)) {
        passed.fds.push_back(std::move(fd));
        continue;
      }
      close_elsewhere(std::move(fd));
      ++passed.refused;
    }
  }
  passed.cut |= (header.msg_flags & MSG_CTRUNC) != 0;
}

ssize_t receive(int socket, const iovec* places, size_t count, Passed* passed, bool nested) {
  Space space;
  msghdr header{};
  header.msg_iov = const_cast<iovec*>(places);
  header.msg_iovlen = count;
  header.msg_control = space.bytes;
  header.msg_controllen = sizeof space.bytes;
  ssize_t got;
  do got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0 || (header.msg_controllen == 0 && (header.msg_flags & MSG_CTRUNC) == 0)) [[likely]]
    return got;
  Passed unwanted;
  sort_out(header, passed != nullptr ? *passed : unwanted, nested);
  return got;
}

void drop_queue(int socket, bool nested) {
  shutdown(socket, SHUT_RD);  // what is read below has an end
  char bytes[4096];
  const iovec place{bytes, sizeof bytes};
  while (receive(socket, &place, 1, nullptr, nested) > 0) {
  }
}

}  // namespace

ssize_t receive_passed(int socket, const iovec* places, size_t count, Passed* passed) {
  return receive(socket, places, count, passed, false);
}

void close_elsewhere(UniqueFd fd) {
  auto& closers = state_of_process<Closers>();
  const std::lock_guard lock(closers.mutex);
  closers.waiting.push_back(std::move(fd));
  if (closers.running == kMostClosers) return;
  const SignalsBlocked blocked;
  try {
    std::thread([&closers] { close_all(closers); }).detach();
    ++closers.running;
  } catch (const std::system_error&) {
    // No thread now. It stays open: the next one that comes, or another closer, takes it.
  }
}

void refuse_descriptors(int socket, bool refuse) {
  const int take = refuse ? 0 : 1;
  (void)setsockopt(socket, SOL_SOCKET, kPassRights, &take, sizeof take);  // refused by kernels that do not know it
}

void drop_passed(int socket) { drop_queue(socket, false); }

}  // namespace thalweg::impl
