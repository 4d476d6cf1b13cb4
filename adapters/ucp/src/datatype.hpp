// SPDX-License-Identifier: Apache-2.0
// UCX's datatypes as Thalweg's buffers: contiguous bytes, iov as pieces, generic ones as layouts of callbacks.
#pragma once
#include <thalweg/thalweg.h>

#include "ucx.hpp"

namespace thalweg::ucx {

inline constexpr ucp_datatype_t kBytes = ucp_dt_make_contig(1);

struct Generic;

/// What start_pack and start_unpack take; a layout of callbacks gets its address as the buffer, during the call that posts.
struct GenericCall {
  void* buffer;
  size_t count;
  ucs_status_t* outcome = nullptr;  // of a receive: what its request ends with where the user's unpack fails
};

struct Local {
  void* buffer = nullptr;  // never NULL: an empty message has an address, too
  size_t length = 0;
  const tw_layout* layout = nullptr;
  tw_layout* made = nullptr;  // for this operation: destroyed with it
  GenericCall call{nullptr, 0, nullptr};
};

/// Where the user's bytes are; NULL: only a generic datatype's functions know.
inline const void* place_of(const Local& local) {
  return local.layout == nullptr || local.made != nullptr ? local.buffer : nullptr;
}

/// into: Thalweg's buffer for `count` elements at buffer. It stays where it is until the operation was posted.
[[gnu::noinline]] ucs_status_t describe(const char* function, ucp_datatype_t datatype, const void* buffer, size_t count,
                                        Local* into);

struct Span {
  const void* address;
  size_t length;
};
/// Bytes that are here to any memory of this process.
ucs_status_t copy(ucp_worker& worker, const char* function, void* to, Span from);
/// A whole message that is here into `count` elements at buffer.
ucs_status_t unpack_all(ucp_worker& worker, const char* function, ucp_datatype_t datatype, void* buffer, size_t count,
                        Span from);

/// Its operation is not posted: there is no memory for the request.
[[gnu::cold]] ucs_status_ptr_t no_memory(Local& local);

extern char empty_buffer[8];

}  // namespace thalweg::ucx
