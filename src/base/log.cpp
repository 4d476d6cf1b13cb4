// SPDX-License-Identifier: Apache-2.0
// Levels, the once-only warnings and where lines go. All state is leaked on purpose: threads may log during exit.
#include "base/log.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "base/environment.hpp"
#include "base/platform/fork.hpp"

#ifdef THALWEG_WITH_SPDLOG
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#endif

namespace thalweg::impl {
namespace {

/// False: it is none. Unset or empty: the default.
bool level_from_environment(LogLevel* out) {
  *out = LogLevel::warning;
  const char* text = std::getenv("THALWEG_LOG");
  if (text == nullptr || *text == 0) return true;
  const char* const names[] = {"debug", "info", "warning", "error", "off"};
  for (int i = 0; i < 5; ++i) {
    if (std::strcmp(text, names[i]) != 0) continue;
    *out = LogLevel(i);
    return true;
  }
  return false;
}

LogLevel shown_from() {
  static const LogLevel level = [] {
    LogLevel found;
    (void)level_from_environment(&found);
    return found;
  }();
  return level;
}

#ifdef THALWEG_WITH_SPDLOG
std::shared_ptr<spdlog::logger>* make_stderr_logger() {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto* logger = new std::shared_ptr<spdlog::logger>(std::make_shared<spdlog::logger>("thalweg", std::move(sink)));
  (*logger)->set_level(spdlog::level::trace);
  (*logger)->set_pattern("[%H:%M:%S.%e] [thalweg %P] [%l] %v");
  return logger;
}
#endif

void write_plain(LogLevel level, const std::string& text) {
  const char* const names[] = {"debug", "info", "warning", "error", "off"};
  std::string line = std::string("[thalweg ") + std::to_string(getpid()) + "] [" + names[int(level)] + "] " + text + "\n";
  // One write, so that lines of several processes do not mix. Nothing can be done when stderr is gone.
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  (void)written;
}

void write_stderr(LogLevel level, const std::string& text) {
#ifdef THALWEG_WITH_SPDLOG
  if (!forked()) {  // in a child, another thread of the parent may have held the sink's lock
    static std::shared_ptr<spdlog::logger>* const logger = make_stderr_logger();
    constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                    spdlog::level::err, spdlog::level::off};
    (*logger)->log(levels[int(level)], spdlog::string_view_t(text.data(), text.size()));
    return;
  }
#endif
  write_plain(level, text);
}

struct Handler {
  std::recursive_mutex mutex;  // recursive: a handler may call the library, which may log
  tw_log_handler function = nullptr;
  void* arg = nullptr;
};

struct Said {
  std::mutex mutex;
  std::map<std::string, std::string> texts;
};

}  // namespace

bool log_enabled(LogLevel level) { return level >= shown_from() && level < LogLevel::off; }

void warn_of_unknown_level() {
  LogLevel ignored;
  if (level_from_environment(&ignored)) return;
  warn_once("THALWEG_LOG", std::string("THALWEG_LOG is \"") + std::getenv("THALWEG_LOG") +
                               "\": set debug, info, warning, error or off; lines from warning on are shown");
}

void log_text(LogLevel level, const std::string& text) {
  if (!log_enabled(level)) return;
  Handler& handler = state_of_process<Handler>();
  {
    const std::lock_guard lock(handler.mutex);
    if (handler.function) {
      handler.function(handler.arg, int(level), text.c_str());
      return;
    }
  }
  write_stderr(level, text);
}

void log(LogLevel level, const char* format, ...) {
  if (!log_enabled(level)) return;
  char buffer[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  log_text(level, buffer);
}

bool warn_once(const char* key, const std::string& text) {
  Said& said = state_of_process<Said>();
  {
    const std::lock_guard lock(said.mutex);
    if (!said.texts.emplace(key, text).second) return false;
  }
  log_text(LogLevel::warning, text);
  return true;
}

std::string warnings_so_far() {
  Said& said = state_of_process<Said>();
  const std::lock_guard lock(said.mutex);
  std::string all;
  for (const auto& [key, text] : said.texts) all.append(key).append(": ").append(text).append("\n");
  return all;
}

}  // namespace thalweg::impl

extern "C" void tw_set_log_handler(tw_log_handler handler, void* arg) {
  auto& current = thalweg::impl::state_of_process<thalweg::impl::Handler>();
  const std::lock_guard lock(current.mutex);
  current.function = handler;
  current.arg = arg;
}
