// SPDX-License-Identifier: Apache-2.0
// Identity and location of a process, and how the kernel reports its end.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {

/// A hash of the kernel's boot id: equal means the same running kernel, also across containers. Never 0.
uint64_t host_id();

/// Random per process start and per fork. Never 0.
uint64_t process_incarnation();

/// The file name of this process's program: "python3.11". Empty where the kernel does not tell.
std::string program_name();

/// Fresh random bits from the kernel. Never 0.
uint64_t random_id();

/// A descriptor that becomes readable when the process ends. TW_ERR_PEER_LOST when there is no such process (any more).
Status open_pidfd(pid_t pid, UniqueFd* out);

/// The same for the process at the other end of a connected unix socket. Exact with SO_PEERPIDFD, else by its pid.
/// TW_ERR_UNSUPPORTED when the kernel does not know it (another PID namespace): watch the socket instead.
Status open_peer_pidfd(int socket, UniqueFd* out);

/// The pid, as seen from here, of the process at the other end of a unix socket; 0 when it cannot be seen.
pid_t peer_pid(int socket);
/// Its user id; uid_t(-1) when unknown.
uid_t peer_uid(int socket);

/// May this process use process_vm_readv / process_vm_writev on pid? Tried, not guessed.
bool may_access_process(pid_t pid);

/// May this process read the byte at an address? A system call, some 0.1 us. True also if the kernel cannot tell.
bool may_read(const void* address);

}  // namespace thalweg::impl
