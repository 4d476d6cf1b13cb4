// SPDX-License-Identifier: Apache-2.0
// The log: few lines, never from a hot path. THALWEG_LOG = debug, info, warning (default), error or off.
// Lines go to stderr (through spdlog where the build has it) or to the handler of tw_set_log_handler.
#pragma once
#include <thalweg/thalweg.h>

#include <string>

namespace thalweg::impl {

enum class LogLevel : int {
  debug = TW_LOG_DEBUG,
  info = TW_LOG_INFO,
  warning = TW_LOG_WARNING,
  error = TW_LOG_ERROR,
  off = TW_LOG_OFF
};

/// Is this level enabled? Check before building a costly text.
bool log_enabled(LogLevel level);
void log_text(LogLevel level, const std::string& text);
[[gnu::cold, gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...);

/// A warning with reason and remedy, once per process and key. Any thread. Returns whether it was the first time.
bool warn_once(const char* key, const std::string& text);

/// The warnings of warn_once so far, for `info`: "key: text" lines.
std::string warnings_so_far();

}  // namespace thalweg::impl
