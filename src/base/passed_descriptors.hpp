// SPDX-License-Identifier: Apache-2.0
// Descriptors that the other end of a unix socket passes along (SCM_RIGHTS), wanted or not.
//
// To close one can block for as long as its sender likes: a TCP socket that lingers, a file whose file system's server does not
// answer. So can every call that makes the kernel drop the last reference: recv() without room for descriptors that are queued, and the
// close of a socket with such in its queue. Hence: what may block is closed by threads that do nothing else; reads take descriptors
// out even where none is wanted; and a socket that expects none has the kernel refuse them (SO_PASSRIGHTS, Linux 6.16).
#pragma once
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <vector>

#include "base/unique_fd.hpp"

namespace thalweg::impl {

/// What came with a read.
struct Passed {
  std::vector<UniqueFd> fds;  // memory, devices, connected unix streams: to close them blocks nobody
  size_t refused = 0;         // others, which are being closed
  bool cut = false;           // the kernel dropped some: this process was out of descriptors
};

/// recvmsg() that blocks neither for bytes nor for descriptors. Returns bytes, 0 at the end, -1 with errno. null: none is wanted, and
/// those that come are given up.
ssize_t receive_passed(int socket, const iovec* places, size_t count, Passed* passed);

/// Closes it without waiting for that.
void close_elsewhere(UniqueFd fd);

/// The kernel refuses descriptors that are sent to this unix socket from now on (an accepted one inherits it), where it can; or takes
/// them again.
void refuse_descriptors(int socket, bool refuse = true);

/// Before the close of a connected unix stream: takes out what was passed to it and not read. Nothing can be sent to it any more.
void drop_passed(int socket);

}  // namespace thalweg::impl
