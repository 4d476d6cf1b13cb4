// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>

#include "buffer.hpp"
#include "wait.hpp"

namespace thalweg::python {
namespace {

std::atomic<int> forks{0};
[[maybe_unused]] const int at_fork = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

void context_init(Context* self, std::optional<nb::bytes> job_key, std::optional<std::string> key_file,
                  std::optional<std::string> transports, std::optional<std::string> interfaces,
                  std::optional<std::string> socket_dir, nb::handle silent_timeout, nb::handle handshake_timeout, bool tls,
                  uint32_t persistent_blocks, nb::handle persistent_idle, std::optional<std::string> way) {
  new (self) Context();
  tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
  if (job_key) {
    options.job_key = job_key->c_str();
    options.job_key_length = job_key->size();
  }
  options.key_file = c_text(key_file);
  options.transports = c_text(transports);
  options.interfaces = c_text(interfaces);
  options.socket_dir = c_text(socket_dir);
  options.silent_timeout_ns = duration_of(silent_timeout.ptr(), 0);
  options.handshake_timeout_ns = duration_of(handshake_timeout.ptr(), 0);
  options.tls = tls ? 1 : 0;
  options.persistent_blocks = persistent_blocks;
  options.persistent_idle_ns = duration_of(persistent_idle.ptr(), 0);
  options.way = c_text(way);
  tw_status status;
  {
    const Released release;
    status = tw_context_create(&options, &self->handle);
  }
  check(status);
  hide_job_key();
}

std::string costs_save(const std::string& values) {
  char path[4096];
  size_t length = sizeof path;
  check(tw_costs_save(c_text(values), path, &length));
  return path;
}

nb::object json_of(tw_status (*ask)(tw_context*, char*, size_t*), tw_context* context) {
  const std::string text = text_of([&](char* to, size_t* size) { return ask(context, to, size); });
  return nb::module_::import_("json").attr("loads")(text.c_str());
}

}  // namespace

int fork_generation() noexcept { return forks.load(std::memory_order_relaxed); }

/// The first that is still in use ends the round: to ask for a buffer that a peer has takes seconds.
void Context::end_dropped() noexcept {
  if (dropped.empty() || handle == nullptr || generation != fork_generation()) return;
  auto trying = std::exchange(dropped, {});  // other threads come by while the GIL is released
  size_t ended = 0;
  while (ended < trying.size() && trying[ended]->end()) ++ended;
  dropped.insert(dropped.begin(), std::make_move_iterator(trying.begin() + static_cast<std::ptrdiff_t>(ended)),
                 std::make_move_iterator(trying.end()));
}

void Context::close() noexcept {
  end_dropped();
  tw_context* ended = std::exchange(handle, nullptr);
  if (ended == nullptr || generation != fork_generation()) return;
  if (!dropped.empty()) {  // they run: the context, and what they use, stay for good
    new std::vector<std::unique_ptr<Dropped>>(std::move(dropped));
    return;
  }
  auto memories = std::exchange(unreleased, {});
  {
    const Released release;  // its threads may be about to end
    for (auto& [memory, source] : memories) {
      if (tw_memory_release(memory) != TW_ERR_BUSY) memory = nullptr;
    }
    tw_context_destroy(ended);
  }
  for (auto& [memory, source] : memories) {
    if (memory != nullptr) new std::shared_ptr<BufferView>(std::move(source));  // a stopped peer has it for good
  }
}

/// What the library has taken out of the environment (THALWEG_JOB_KEY) goes from Python's copy of it, too.
void hide_job_key() {
  constexpr const char* kVariable = "THALWEG_JOB_KEY";
  const char* now = std::getenv(kVariable);
  if (now == nullptr || std::strcmp(now, "taken") != 0) return;
  nb::object environment = nb::module_::import_("os").attr("environ");
  if (nb::cast<std::string>(environment.attr("get")(kVariable, "taken")) != "taken") environment[kVariable] = "taken";
}

tw_context* Context::get() const {
  if (handle == nullptr) raise(TW_ERR_CLOSED, "the context is closed");
  if (generation != fork_generation())
    raise(TW_ERR_FORKED, "the context belongs to the parent process: make one of its own after fork()");
  return handle;
}

void bind_context(nb::module_& m) {
  using nb::arg;
  nb::class_<Context>(
      m, "Context",
      "A process's transports, job key and service thread.\n\n"
      "job_key: at least 16 bytes of secret (None: key_file, THALWEG_JOB_KEY, the user's key file); transports: comma\n"
      "list of self, shm, tcp; interfaces: comma list of network interfaces or addresses; socket_dir: directory\n"
      "of this user's unix sockets; silent_timeout: seconds after which a silent network makes a peer lost (5);\n"
      "handshake_timeout: seconds a stranger has to authenticate (5); tls: TLS 1.3 on every TCP connection;\n"
      "persistent_blocks: thread blocks of a copy kernel that stays on each device for small copies while it is busy\n"
      "(0: what THALWEG_PERSISTENT says, else none); persistent_idle: seconds without work after which it ends (0.001). What\n"
      "waits for a whole device, such as torch.cuda.synchronize(), waits for it too: at most 16 times persistent_idle.\n"
      "way: for measurements, the only way of large transfers beside frames (None: THALWEG_WAY, then what is best).\n"
      "Any thread may use it. Raises KeyFileError, InvalidError.")
      .def("__init__", &context_init, nb::kw_only(), arg("job_key") = nb::none(), arg("key_file") = nb::none(),
           arg("transports") = nb::none(), arg("interfaces") = nb::none(), arg("socket_dir") = nb::none(),
           arg("silent_timeout") = nb::none(), arg("handshake_timeout") = nb::none(), arg("tls") = false,
           arg("persistent_blocks") = 0, arg("persistent_idle") = nb::none(), arg("way") = nb::none())
      .def(
          "info", [](Context& c) { return json_of(&tw_context_info, c.get()); },
          "What was found: version, build, transports and why others are not, limits and remedies, as a dictionary.")
      .def(
          "counters", [](Context& c) { return json_of(&tw_context_counters, c.get()); },
          "What the context counts: refused connections by cause, links, moved (by way), workers with their endpoints, caches, "
          "as a "
          "dictionary.\n"
          "thalweg.h says what each is (tw_context_counters); `thalweg top` shows it from outside.")
      .def(
          "trace",
          [](Context& c, const std::optional<std::string>& file) {
            tw_context* context = c.get();
            const char* const path = c_text(file);
            tw_status status;
            {
              const Released release;
              status = tw_context_trace(context, path);
            }
            check(status);
          },
          arg("file").none(),
          "Records the timeline of this process into a new file in Perfetto's format; \"%p\" in its name is the process's id. "
          "None ends "
          "it;\n"
          "so do close() and the process's end. Raises BusyError while one is recorded, InvalidError for None without one, and "
          "what\n"
          "opening or writing a file raises.")
      .def(
          "close",
          [](Context& c) {
            if (c.handle == nullptr) return;
            c.end_dropped();
            if (c.children > 0)
              raise(TW_ERR_BUSY,
                    "workers, memories or plans of this context are open: close them first; one that was dropped while it ran "
                    "must end");
            c.close();
          },
          "Ends the context. Raises BusyError while workers or memories of it are open.")
      .def_prop_ro("closed", [](const Context& c) { return c.handle == nullptr; });
  context_manager<Context>(m.attr("Context"));
  m.def("costs_save", &costs_save, arg("values"),
        "Keeps costs that were measured on this machine, lines \"name = value\" of those that Context.info()[\"costs\"] shows; "
        "contexts\n"
        "made from now on choose routes by them. Returns the file's path. `thalweg tune` measures and calls this.");
}

}  // namespace thalweg::python
