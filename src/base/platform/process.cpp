// SPDX-License-Identifier: Apache-2.0
// Boot id, incarnation, pidfd and permissions towards other processes.
#include "base/platform/process.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>

#include "base/platform/fork.hpp"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace thalweg::impl {
namespace {

uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t read_host_id() {
  char text[128] = {};
  const UniqueFd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  ssize_t n = file ? read(file.get(), text, sizeof text) : -1;
  if (n <= 0) n = gethostname(text, sizeof text) == 0 ? ssize_t(sizeof text) : 0;  // no /proc: the name is the next best
  uint64_t hash = 0xcbf29ce484222325u;
  for (ssize_t i = 0; i < n; ++i) hash = (hash ^ uint8_t(text[i])) * 0x100000001b3u;
  hash = mix(hash);
  return hash ? hash : 1;
}

bool credentials(int socket, ucred* out) {
  socklen_t length = sizeof *out;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, out, &length) == 0;
}

}  // namespace

uint64_t host_id() {
  static const uint64_t id = read_host_id();
  return id;
}

uint64_t random_id() {
  uint64_t id = 0;
  if (getrandom(&id, sizeof id, 0) != ssize_t(sizeof id)) {
    // A sandbox without getrandom: unique is all that is needed here (secrets come from OpenSSL).
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    static std::atomic<uint64_t> count{0};
    id = mix(uint64_t(now.tv_sec) * 1000000007u + uint64_t(now.tv_nsec)) ^ mix(uint64_t(getpid())) ^ mix(++count);
  }
  return id ? id : 1;
}

uint64_t process_incarnation() {
  struct Drawn {
    uint64_t id = random_id();
  };
  return state_of_process<Drawn>().id;
}

std::string program_name() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  const std::string all(path, n > 0 ? static_cast<size_t>(n) : 0);
  return all.substr(all.rfind('/') + 1);
}

Status open_pidfd(pid_t pid, UniqueFd* out) {
  const int fd = int(syscall(SYS_pidfd_open, pid, 0));
  if (fd >= 0) {
    *out = UniqueFd(fd);
    return TW_OK;
  }
  if (errno == ESRCH) return fail(TW_ERR_PEER_LOST, "process %d has ended", int(pid));
  if (errno == ENOSYS || errno == EPERM) {
    return fail(TW_ERR_UNSUPPORTED, "pidfd_open is not available here (kernel older than 5.3 or a sandbox)");
  }
  return fail_errno(errno, "pidfd_open");
}

Status open_peer_pidfd(int socket, UniqueFd* out) {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0 && fd >= 0) {
    *out = UniqueFd(fd);
    return TW_OK;
  }
  if (errno == ESRCH) return fail(TW_ERR_PEER_LOST, "the process at the other end of the socket has ended");
  const pid_t pid = peer_pid(socket);
  if (pid <= 0) return fail(TW_ERR_UNSUPPORTED, "the peer's process cannot be seen from this PID namespace");
  return open_pidfd(pid, out);
}

pid_t peer_pid(int socket) {
  ucred who{};
  return credentials(socket, &who) && who.pid > 0 ? who.pid : 0;
}

uid_t peer_uid(int socket) {
  ucred who{};
  return credentials(socket, &who) ? who.uid : uid_t(-1);
}

bool may_access_process(pid_t pid) {
  // Permission is checked before addresses: a bad address gives EFAULT only to a permitted caller.
  char byte;
  const iovec local{&byte, 1};
  const iovec remote{nullptr, 1};
  return process_vm_readv(pid, &local, 1, &remote, 1, 0) >= 0 || errno == EFAULT;
}

bool may_read(const void* address) {
  // The kernel copies the set before it looks at `how`, which is none here: the cheapest call that reads user memory and does no more.
  constexpr int kNoWay = -1;
  const auto* const word = reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(address) & ~uintptr_t{7});  // of its page
  return ::syscall(SYS_rt_sigprocmask, kNoWay, word, nullptr, size_t{8}) == 0 || errno != EFAULT;
}

}  // namespace thalweg::impl
