// SPDX-License-Identifier: Apache-2.0
// The directory of this user's unix sockets.
#pragma once
#include <string>

#include "base/status.hpp"

namespace thalweg::impl {

/// Makes it where it is not there, with mode 0700. TW_ERR_PERMISSION: others could put something of theirs in its place. Removes the
/// sockets with this ending that killed processes have left behind.
Status prepare_socket_dir(const std::string& directory, const char* ending);

}  // namespace thalweg::impl
