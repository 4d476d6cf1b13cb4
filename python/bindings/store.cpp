// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>

#include <optional>

#include "buffer.hpp"
#include "wait.hpp"

namespace thalweg::python {
namespace {

void store_init(Store* self, std::optional<std::string> address, std::optional<nb::bytes> job_key, nb::handle timeout,
                std::optional<uint32_t> rank, std::optional<uint32_t> count, bool tls) {
  new (self) Store();
  tw_store_options options = TW_STORE_OPTIONS_INIT;
  if (job_key) {
    options.job_key = job_key->c_str();
    options.job_key_length = job_key->size();
  }
  options.timeout_ns = duration_of(timeout.ptr(), 0);
  if (rank) options.rank = *rank;
  if (count) options.count = *count;
  options.tls = tls ? 1 : 0;
  const char* const at = c_text(address);
  check(without_gil({}, [&] { return tw_store_open(at, &options, &self->handle); }));
  hide_job_key();
}

/// A call without the GIL; the store is not closed meanwhile.
template <class Call>
tw_status unlocked(Store& self, Call call) {
  const Using user(self.users);
  return without_gil({}, call);
}

/// Asks with a growing buffer until the value fits.
template <class Ask>
nb::object read_value(Store& self, Ask ask, nb::object absent) {
  tw_store* handle = self.get();
  std::string value(4096, '\0');
  while (true) {
    size_t length = value.size();
    const tw_status status = unlocked(self, [&] { return ask(handle, value.data(), &length); });
    if (status == TW_ERR_TRUNCATED) {
      value.resize(length);
      continue;
    }
    if (status == TW_ERR_NO_MATCH && absent.is_valid()) return absent;
    check(status);
    return nb::bytes(value.data(), length);
  }
}

nb::object store_get(Store& self, const std::string& key, nb::object otherwise) {
  const char* const name = c_text(key);
  return read_value(self, [&](tw_store* s, void* v, size_t* n) { return tw_store_get(s, name, v, n); }, std::move(otherwise));
}

nb::object store_wait(Store& self, const std::string& key) {
  const char* const name = c_text(key);
  return read_value(self, [&](tw_store* s, void* v, size_t* n) { return tw_store_wait(s, name, v, n); }, nb::object());
}

void store_put(Store& self, const std::string& key, nb::handle value) {
  tw_store* handle = self.get();
  const char* const name = c_text(key);
  BufferView bytes;
  acquire_bytes(bytes, value, "value");
  check(unlocked(self, [&] { return tw_store_put(handle, name, bytes.data(), bytes.length()); }));
}

nb::list store_exchange(Store& self, nb::bytes mine, uint32_t count) {
  tw_store* handle = self.get();
  std::string all(mine.size() * count, '\0');
  check(unlocked(self, [&] { return tw_store_exchange(handle, mine.c_str(), mine.size(), all.data()); }));
  nb::list values;
  for (uint32_t i = 0; i < count; ++i) values.append(nb::bytes(all.data() + i * mine.size(), mine.size()));
  return values;
}

void store_barrier(Store& self) {
  tw_store* handle = self.get();
  check(unlocked(self, [&] { return tw_store_barrier(handle); }));
}

}  // namespace

void Store::close() noexcept {
  tw_store* ended = std::exchange(handle, nullptr);
  if (ended != nullptr && generation == fork_generation()) tw_store_close(ended);
}

tw_store* Store::get() const {
  if (handle == nullptr) raise(TW_ERR_CLOSED, "the store is closed");
  if (generation != fork_generation())
    raise(TW_ERR_FORKED, "the store belongs to the parent process: open one of its own after fork()");
  return handle;
}

void bind_store(nb::module_& m) {
  using nb::arg;
  nb::class_<Store>(m, "_Store")
      .def("__init__", &store_init, arg("address").none(), arg("job_key").none(), arg("timeout").none(), arg("rank").none(),
           arg("count").none(), arg("tls"))
      .def_prop_ro("address", [](Store& s) { return tw_store_address(s.get()); })
      .def_prop_ro("rank", [](Store& s) { return tw_store_rank(s.get()); })
      .def_prop_ro("count", [](Store& s) { return tw_store_count(s.get()); })
      .def("put", &store_put, arg("key"), arg("value"))
      .def("get", &store_get, arg("key"), arg("default").none())
      .def("wait", &store_wait, arg("key"))
      .def("exchange", &store_exchange, arg("mine"), arg("count"))
      .def("barrier", &store_barrier)
      .def("close", [](Store& s) {
        if (s.users > 0) raise(TW_ERR_BUSY, "a thread waits in this store: end its wait first");
        s.close();
      });
  context_manager<Store>(m.attr("_Store"));
}

}  // namespace thalweg::python
