// SPDX-License-Identifier: Apache-2.0
#include "core/socket_dir.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/sockets.hpp"

namespace thalweg::impl {
namespace {
constexpr int64_t kAbandonedSeconds = 10;
constexpr unsigned kAbandonedMost = 4096;  // some microseconds each
}  // namespace

Status prepare_socket_dir(const std::string& directory, const char* ending) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(errno, ("mkdir " + directory).c_str());
  struct stat info {};
  if (lstat(directory.c_str(), &info) != 0) return fail_errno(errno, ("stat " + directory).c_str());
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return fail(TW_ERR_PERMISSION, "%s must be a directory of this user with mode 0700: remove it, or set THALWEG_SOCKET_DIR",
                directory.c_str());
  }
  // Another user who may rename this directory could replace it.
  const std::string parent = directory.substr(0, std::max<size_t>(directory.rfind('/'), 1));
  if (stat(parent.c_str(), &info) != 0) return fail_errno(errno, ("stat " + parent).c_str());
  const bool foreign = info.st_uid != geteuid() && info.st_uid != 0;
  if (foreign || ((info.st_mode & 022) != 0 && (info.st_mode & S_ISVTX) == 0)) {
    return fail(TW_ERR_PERMISSION,
                "others may replace what is in %s: set THALWEG_SOCKET_DIR to a directory of this user's, or of root's with the "
                "sticky bit",
                parent.c_str());
  }
  remove_abandoned_sockets(directory, ending, kAbandonedSeconds, kAbandonedMost);
  return TW_OK;
}

}  // namespace thalweg::impl
