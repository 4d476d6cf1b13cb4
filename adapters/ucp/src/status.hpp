// SPDX-License-Identifier: Apache-2.0
// Thalweg's status as UCX's, and what the user is told where UCX has no words: on stderr, each text once.
#pragma once
#include <thalweg/thalweg.h>

#include "ucx.hpp"

namespace thalweg::ucx {

ucs_status_t status_of(tw_status status);
/// Of an operation or an endpoint: a negative status as UCX's pointer.
inline ucs_status_ptr_t pointer_of(ucs_status_t status) { return UCS_STATUS_PTR(status); }

/// Tells the user, once for each text: "thalweg ucx: <text>". UCX_LOG_LEVEL=fatal (or THALWEG_LOG=off) silences it.
[[gnu::cold, gnu::format(printf, 1, 2)]] void tell(const char* format, ...);

/// The same where the user asked for more words: THALWEG_LOG=info or debug.
bool wants_info();

/// A gap of docs/adapters.md: tells function, what is not supported, and the remedy. Always UCS_ERR_UNSUPPORTED.
[[gnu::cold]] ucs_status_t unsupported(const char* function, const char* what, const char* remedy);

/// A status of Thalweg that UCX's caller cannot read the text of: tells the text for what is nobody's ordinary outcome.
[[gnu::cold]] ucs_status_t failed(const char* function, tw_status status);

/// The bits of `mask` outside `known`: UCS_ERR_UNSUPPORTED, and the lowest of them is told.
[[gnu::cold]] ucs_status_t unknown_bits(const char* function, const char* field, uint64_t bits);
inline ucs_status_t check_mask(const char* function, const char* field, uint64_t mask, uint64_t known) {
  if ((mask & ~known) == 0) [[likely]]
    return UCS_OK;
  return unknown_bits(function, field, mask & ~known);
}

}  // namespace thalweg::ucx
