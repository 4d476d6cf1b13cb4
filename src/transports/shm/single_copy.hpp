// SPDX-License-Identifier: Apache-2.0
// Copies between two processes by the kernel (process_vm_readv / writev).
#pragma once
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace thalweg::impl::shm {

enum class CopyDirection { from_peer, to_peer };

/// Moves the bytes of one list to the other, piece borders need not agree. Bytes moved (the smaller sum), or a negative
/// Status: TW_ERR_PEER_LOST (no such process), TW_ERR_INVALID (an address is not mapped), TW_ERR_UNSUPPORTED (forbidden).
int64_t copy_between(CopyDirection direction, pid_t pid, const iovec* local, size_t locals, const iovec* remote,
                     size_t remotes);

/// One word of the process `pid`. False, with errno: not allowed, or nothing there.
bool read_word(pid_t pid, uint64_t address, uint64_t* out);

}  // namespace thalweg::impl::shm
