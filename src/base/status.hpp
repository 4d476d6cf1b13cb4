// SPDX-License-Identifier: Apache-2.0
// Status and error text. A function that can fail returns a Status; the first detector calls fail(), which stores the
// calling thread's error text (what happened, and the remedy) and returns the code. Hot paths only pass codes on.
#pragma once
#include <thalweg/thalweg.h>

#include <string>

namespace thalweg::impl {

using Status = tw_status;

inline bool is_error(Status s) { return s < 0; }

/// Stores a formatted text (printf rules) as the calling thread's last error and returns code. Cold.
[[gnu::cold, gnu::format(printf, 2, 3)]] Status fail(Status code, const char* format, ...);

/// As fail(TW_ERR_IO or the class errno belongs to), with the system's text for errno appended. `what` names the call.
/// EMFILE/ENFILE become TW_ERR_NO_DESCRIPTORS, ENOMEM TW_ERR_NO_MEMORY, ENOSPC on shared memory is for the caller to name.
[[gnu::cold]] Status fail_errno(int error, const char* what);

const char* status_name(Status s);  ///< "peer_lost"
const char* status_text(Status s);  ///< one sentence with the general remedy
const char* last_error();           ///< the calling thread's text, "" if none
void set_last_error(std::string text);

}  // namespace thalweg::impl
