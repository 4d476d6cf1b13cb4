// SPDX-License-Identifier: Apache-2.0
#include "buffer.hpp"
#include "wait.hpp"

namespace thalweg::python {
namespace {

uint32_t access_of(const std::string& access) {
  uint32_t bits = 0;
  for (char c : access) {
    if (c == 'r')
      bits |= TW_MEMORY_READ;
    else if (c == 'w')
      bits |= TW_MEMORY_WRITE;
    else if (c == 'a')
      bits |= TW_MEMORY_ATOMIC;
    else
      raise(TW_ERR_INVALID, "access is letters of \"rwa\": read, write, atomic");
  }
  if (bits == 0) raise(TW_ERR_INVALID, "access is letters of \"rwa\": read, write, atomic");
  return bits;
}

void own(Memory& self, nb::object context) {
  self.context = nb::inst_ptr<Context>(context);
  self.context_object = std::move(context);
  check(tw_memory_query(tw_memory_address(self.handle), &self.info));
  ++self.context->children;
}

nb::object memory_allocate(nb::handle_t<Context> owner, size_t length, const std::string& access, bool huge_pages,
                           const std::string& place) {
  Memory memory;
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.access = access_of(access);
  options.huge_pages = huge_pages ? 1 : 0;
  options.place = c_text(place);
  check(tw_memory_allocate(nb::inst_ptr<Context>(owner)->get(), length, &options, &memory.handle));
  own(memory, nb::borrow(owner));
  return nb::cast(std::move(memory), nb::rv_policy::move);
}

nb::object memory_register(nb::handle_t<Context> owner, nb::handle buffer, const std::string& access) {
  Memory memory;
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.access = access_of(access);
  tw_context* context = nb::inst_ptr<Context>(owner)->get();
  memory.writable = (options.access & (TW_MEMORY_WRITE | TW_MEMORY_ATOMIC)) != 0;
  memory.source = std::make_shared<BufferView>();
  memory.source->acquire(buffer.ptr(), memory.writable ? BufferView::Use::destination : BufferView::Use::source);
  if (memory.source->layout() != nullptr) raise(TW_ERR_INVALID, "only a contiguous buffer can be registered");
  check(tw_memory_register(context, memory.source->data(), memory.source->length(), &options, &memory.handle));
  own(memory, nb::borrow(owner));
  return nb::cast(std::move(memory), nb::rv_policy::move);
}

nb::bytes memory_export(Memory& self, size_t offset, nb::handle length, nb::handle access) {
  size_t range = length.is_none() ? 0 : nb::cast<size_t>(length);
  if (!length.is_none() && range == 0) raise(TW_ERR_INVALID, "an empty range cannot be exported");
  uint32_t bits = access.is_none() ? 0 : access_of(nb::cast<std::string>(access));
  return bytes_of([&](void* key, size_t* size) { return tw_memory_export_range(self.get(), offset, range, bits, key, size); });
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Memory& memory = *nb::inst_ptr<Memory>(self);
  view->obj = nullptr;
  if (memory.handle == nullptr) {
    PyErr_SetString(PyExc_BufferError, "the memory is released");
    return -1;
  }
  if (memory.info.host_access == 0) {
    PyErr_Format(PyExc_BufferError, "the memory lies on %s, which the host cannot touch: thalweg.copy brings it here",
                 memory.info.place);
    return -1;
  }
  void* address = tw_memory_address(memory.handle);
  if (PyBuffer_FillInfo(view, self, address, static_cast<Py_ssize_t>(tw_memory_length(memory.handle)), memory.writable ? 0 : 1,
                        flags) != 0) {
    return -1;
  }
  ++memory.views;
  return 0;
}

void release_buffer(PyObject* self, Py_buffer*) { --nb::inst_ptr<Memory>(self)->views; }

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer)},
                              {0, nullptr}};

void memory_release(Memory& self) {
  if (self.views > 0)
    raise(TW_ERR_BUSY, "arrays, views, signals, blocks or a window in this memory are alive: drop or close them first");
  check(self.close());
}

nb::object remote_import(nb::handle_t<Endpoint> owner, nb::bytes key) {
  RemoteMemory remote;
  check(tw_memory_import(nb::inst_ptr<Endpoint>(owner)->get(), key.c_str(), key.size(), &remote.handle));
  remote.endpoint = nb::inst_ptr<Endpoint>(owner);
  remote.endpoint_object = nb::borrow(owner);
  return nb::cast(std::move(remote), nb::rv_policy::move);
}

/// The peer's memory as loads and stores reach it; views of it keep the import alive.
struct Mapping {
  nb::object remote;
  void* address;
  size_t length;
  bool writable;
};

int map_buffer(PyObject* self, Py_buffer* view, int flags) {
  Mapping& mapping = *nb::inst_ptr<Mapping>(self);
  return PyBuffer_FillInfo(view, self, mapping.address, static_cast<Py_ssize_t>(mapping.length), mapping.writable ? 0 : 1,
                           flags);
}

PyType_Slot mapping_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&map_buffer)}, {0, nullptr}};

/// Does the key allow stores? A put of no bytes moves nothing, and is checked as every put is.
bool takes_stores(RemoteMemory& self) {
  const char nothing = 0;
  const tw_status status = tw_put(self.endpoint->get(), &nothing, 0, self.get(), 0, nullptr, nullptr);
  if (status == TW_ERR_PERMISSION) return false;
  check(status);
  return true;
}

nb::object remote_map(nb::handle_t<RemoteMemory> owner) {
  RemoteMemory& self = *nb::inst_ptr<RemoteMemory>(owner);
  tw_remote_memory* const handle = self.get();
  void* address = nullptr;
  const Using user(self.users);
  check(without_gil({self.endpoint->worker}, [&] { return tw_remote_memory_map(handle, &address); }));
  const bool writable = takes_stores(self);
  nb::object mapping =
      nb::cast(Mapping{nb::borrow(owner), address, tw_remote_memory_length(self.handle), writable}, nb::rv_policy::move);
  nb::object view = nb::steal(PyMemoryView_FromObject(mapping.ptr()));
  if (!view.is_valid()) throw nb::python_error();
  return view;
}

std::string remote_explain(RemoteMemory& self, const std::string& verb, size_t length, nb::handle buffer) {
  tw_remote_memory* handle = self.get();
  if (!buffer.is_none()) return explain_buffer(self.endpoint->get(), verb, buffer, handle);
  const char* const name = c_text(verb);
  return text_of([&](char* to, size_t* size) { return tw_remote_memory_explain(handle, name, length, to, size); });
}

}  // namespace

Memory::~Memory() {
  if (close() != TW_ERR_BUSY) return;
  context->unreleased.emplace_back(handle, std::move(source));  // a peer still writes there
  --context->children;
}

tw_status Memory::close() noexcept {
  tw_memory* const ended = std::exchange(handle, nullptr);  // no other thread takes it meanwhile
  if (ended == nullptr) return TW_OK;
  if (context->generation == fork_generation()) {
    tw_status status;
    {
      const Released release;  // it waits for peers that are in the middle of a copy
      status = tw_memory_release(ended);
    }
    if (status == TW_ERR_BUSY) {
      handle = ended;
      return status;
    }
  }
  --context->children;
  source.reset();
  return TW_OK;
}

Loan::Loan(nb::handle memory) : memory_(nb::borrow(memory)) {
  if (memory_.is_valid()) ++nb::inst_ptr<Memory>(memory_)->views;
}

Loan::~Loan() {
  if (memory_.is_valid()) --nb::inst_ptr<Memory>(memory_)->views;
}

tw_memory* Memory::get() const {
  if (handle == nullptr) raise(TW_ERR_HANDLE, "the memory is released");
  context->get();
  return handle;
}

void RemoteMemory::close() noexcept {
  tw_remote_memory* ended = std::exchange(handle, nullptr);
  if (owner.is_valid()) return owner.reset();
  if (ended != nullptr) endpoint->worker->end_import(ended, tw_remote_memory_release);
}

tw_remote_memory* RemoteMemory::get() const {
  if (handle == nullptr) raise(TW_ERR_HANDLE, "the remote memory is released");
  if (owner.is_valid() && nb::cast<bool>(owner.attr("closed"))) raise(TW_ERR_HANDLE, "the window of this memory is closed");
  endpoint->get();
  return handle;
}

void bind_memory(nb::module_& m) {
  using nb::arg;
  nb::class_<Memory>(
      m, "Memory",
      "A region that peers may be given access to. Has the buffer protocol: numpy.frombuffer(memory, dtype) is a\n"
      "view of it. Any thread may use it. Raises BusyError on release while such views are alive.",
      nb::type_slots(memory_slots), nb::is_weak_referenceable())
      .def_static("allocate", &memory_allocate, arg("context"), arg("length"), nb::kw_only(), arg("access") = "rwa",
                  arg("huge_pages") = false, arg("place") = "host",
                  "Allocates length bytes that peers on this machine map, so that a put is a store. Zeroed, page aligned.\n"
                  "place: \"pinned\", or a device's, with undefined contents: \"cuda:1\", \"managed\", \"vmm\", \"pool\", "
                  "\"emulated\".")
      .def_static("register", &memory_register, arg("context"), arg("buffer"), nb::kw_only(), arg("access") = "rwa",
                  "Registers a contiguous buffer, of a device too, which is kept until release. access: letters of \"rwa\"; a "
                  "read-only\nbuffer takes \"r\".")
      .def("export", &memory_export, arg("offset") = 0, arg("length") = nb::none(), nb::kw_only(), arg("access") = nb::none(),
           "An unguessable key for a range (bytes), to travel by any means. Revoked by release().")
      .def_prop_ro("address", [](Memory& s) { return reinterpret_cast<uintptr_t>(tw_memory_address(s.get())); })
      .def("__len__", [](Memory& s) { return tw_memory_length(s.get()); })
      .def(
          "release", &memory_release,
          "Revokes every key, then ends the region. The GIL is released while peers that are in the middle of a copy are "
          "waited "
          "for.\nRaises BusyError when one is stopped, or while views, signals, blocks or a window in it are alive: everything "
          "stays, and\nrelease() may be called again.")
      .def_prop_ro("released", [](const Memory& s) { return s.handle == nullptr; });
  nb::class_<RemoteMemory>(m, "RemoteMemory", "A peer's memory, imported through an endpoint from its key.")
      .def(nb::new_([](nb::handle_t<Endpoint> endpoint, nb::bytes key) { return remote_import(endpoint, std::move(key)); }),
           arg("endpoint"), arg("key"))
      .def("__len__", [](RemoteMemory& s) { return tw_remote_memory_length(s.get()); })
      .def(
          "map", &remote_map,
          "A memoryview of the peer's memory (allocated by Memory.allocate, same machine): loads and stores reach it. "
          "Read-only\n"
          "where its key has not the access \"w\"; raises PermissionDenied where it has not \"r\".\n"
          "Not to be used after the import is released or its endpoint closed; the peer's loss leaves it there. Waits for the\n"
          "peer's answer, progressing, with the GIL released. Raises Unsupported elsewhere.")
      .def("explain", &remote_explain, arg("verb") = "put", arg("length") = 8, nb::kw_only(), arg("buffer") = nb::none(),
           "The ways of a put, get, atomic, put_blocks or get_blocks of length bytes to this memory: predicted cost, the "
           "choice,\n"
           "why the others lost or are impossible. buffer: the local one, such as an array on a device, instead of a length.")
      .def(
          "release",
          [](RemoteMemory& s) {
            if (s.users > 0) raise(TW_ERR_BUSY, "a thread waits for the mapping of this memory: end its wait first");
            s.close();
          },
          "Ends the import; views made by map may not be used any more. Raises BusyError while a thread waits in map.");
  nb::class_<Mapping>(m, "_Mapping", nb::type_slots(mapping_slots));
  context_manager<Memory>(m.attr("Memory"), "release");
}

}  // namespace thalweg::python
