// SPDX-License-Identifier: Apache-2.0
// The library's log in Python's logging. The library may log on any thread, with its own locks held and with or without the
// GIL; so its handler only queues the line, and the interpreter's main thread hands it to logging a moment later.
#include <atomic>
#include <deque>
#include <mutex>

#include "errors.hpp"

namespace thalweg::python {
namespace {

struct Line {
  int level;
  std::string text;
};

struct Queue {
  const int generation = fork_generation();
  std::mutex mutex;
  std::deque<Line> lines;
};

std::atomic<Queue*> current{nullptr};

/// Of this process: another thread of the parent may have held the lock as a child was forked. The parent's is left alone.
Queue& queue() {
  Queue* known = current.load(std::memory_order_acquire);
  if (known != nullptr && known->generation == fork_generation()) return *known;
  auto* fresh = new Queue;
  if (current.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;  // another thread was first
  return *known;
}

constexpr size_t most_lines = 1000;  // an interpreter that never runs again must not collect for ever

int python_level(int level) {
  switch (level) {
    case TW_LOG_DEBUG:
      return 10;
    case TW_LOG_INFO:
      return 20;
    case TW_LOG_WARNING:
      return 30;
    default:
      return 40;
  }
}

int deliver(void*) {
  while (true) {
    Queue& mine = queue();  // what logs may fork
    Line line;
    {
      std::lock_guard lock(mine.mutex);
      if (mine.lines.empty()) return 0;
      line = std::move(mine.lines.front());
      mine.lines.pop_front();
    }
    try {
      nb::object logger = nb::module_::import_("logging").attr("getLogger")("thalweg");
      logger.attr("log")(python_level(line.level), "%s", line.text);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("thalweg's log");
    }
  }
}

void queue_line(void*, int level, const char* text) {
  {
    Queue& mine = queue();
    std::lock_guard lock(mine.mutex);
    if (mine.lines.size() >= most_lines) return;
    mine.lines.push_back({level, text});
  }
  Py_AddPendingCall(&deliver, nullptr);
}

}  // namespace

void bind_log(nb::module_& m) {
  m.def(
      "_log_to_python",
      [](bool on) {
        const Released release;  // waits for a handler that runs
        tw_set_log_handler(on ? &queue_line : nullptr, nullptr);
      },
      nb::arg("on"));
  m.def("_flush_log", [] { deliver(nullptr); });
}

}  // namespace thalweg::python
