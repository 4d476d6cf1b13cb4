// SPDX-License-Identifier: Apache-2.0
// Non-blocking reads and writes over a socket or the TLS on it, with one way of saying how they went.
#pragma once
#include <cstddef>
#include <cstdint>

typedef struct ssl_st SSL;

namespace thalweg::impl {

enum class IoState { moved, want_read, want_write, end, error };
struct IoResult {
  IoState state;
  size_t bytes = 0;  // moved: at least 1
  int error = 0;     // error: errno; 0 for an error inside TLS
};

/// At most n bytes. tls may be null. Never blocks, never raises SIGPIPE.
IoResult stream_read(int fd, SSL* tls, void* buffer, size_t n);
IoResult stream_write(int fd, SSL* tls, const void* buffer, size_t n);

}  // namespace thalweg::impl
