// SPDX-License-Identifier: Apache-2.0
// Kinds of memory: what a buffer or address is, blocking copies, and a Memory as arrays of other packages see it.
#include "buffer.hpp"

namespace thalweg::python {
namespace {

nb::object memory_query(nb::handle what) {
  tw_memory_info info = TW_MEMORY_INFO_INIT;
  if (nb::isinstance<nb::int_>(what)) {
    check(tw_memory_query(reinterpret_cast<const void*>(nb::cast<uintptr_t>(what)), &info));
  } else {
    BufferView view;
    view.acquire(what.ptr(), BufferView::Use::source);
    check(tw_memory_query(view.data(), &info));
  }
  static const char* const shares[] = {"no", "handle", "descriptor"};
  nb::dict out;
  out["kind"] = tw_memory_kind_name(info.kind);
  out["place"] = info.place;
  out["device"] = info.device < 0 ? nb::object(nb::none()) : nb::object(nb::int_(info.device));
  out["uuid"] = nb::bytes(info.device_uuid, sizeof info.device_uuid);
  out["base"] = reinterpret_cast<uintptr_t>(info.base);
  out["length"] = info.length;
  out["buffer_id"] = info.buffer_id;
  out["host_access"] = info.host_access != 0;
  out["exportable"] = shares[info.exportable];
  return out;
}

void copy(nb::handle_t<Context> owner, nb::handle to, nb::handle source) {
  tw_context* context = nb::inst_ptr<Context>(owner)->get();
  BufferView target, origin;
  target.acquire(to.ptr(), BufferView::Use::destination);
  origin.acquire(source.ptr(), BufferView::Use::source);
  if (target.layout() != nullptr || origin.layout() != nullptr) raise(TW_ERR_UNSUPPORTED, "copy takes contiguous buffers");
  if (target.length() != origin.length()) raise(TW_ERR_INVALID, "copy takes two buffers of one length");
  tw_status status;
  {
    const Released released;
    status = tw_memory_copy(context, target.data(), origin.data(), target.length());
  }
  check(status);
}

/// DLPack's name of where the memory is: host, pinned, managed, a GPU, or (emulated devices) an extension's device.
std::pair<int, int> dlpack_device(const Memory& memory) {
  const bool emulated = std::string(memory.info.place).rfind("emulated", 0) == 0;
  const int ordinal = memory.info.device;
  if (memory.info.kind == TW_MEMORY_HOST || memory.info.kind == TW_MEMORY_PINNED) return {1, 0};
  if (emulated) return {12, ordinal};
  return {memory.info.kind == TW_MEMORY_MANAGED ? 13 : 2, ordinal};
}

nb::object dlpack(nb::handle_t<Memory> self, nb::kwargs options) {
  Memory& memory = *nb::inst_ptr<Memory>(self);
  memory.get();
  nb::capsule loan(new Loan(self), [](void* p) noexcept { delete static_cast<Loan*>(p); });
  const auto [type, ordinal] = dlpack_device(memory);
  const size_t shape[] = {tw_memory_length(memory.handle)};
  void* const address = tw_memory_address(memory.handle);
  if (!memory.writable) {
    nb::ndarray<nb::array_api, nb::ro> array(address, 1, shape, loan, nullptr, nb::dtype<uint8_t>(), type, ordinal);
    return nb::cast(array).attr("__dlpack__")(**options);
  }
  nb::ndarray<nb::array_api> array(address, 1, shape, loan, nullptr, nb::dtype<uint8_t>(), type, ordinal);
  return nb::cast(array).attr("__dlpack__")(**options);
}

nb::object cuda_interface(nb::handle_t<Memory> self) {
  Memory& memory = *nb::inst_ptr<Memory>(self);
  memory.get();
  const int type = dlpack_device(memory).first;
  if (type != 2 && type != 13) {
    PyErr_Format(PyExc_AttributeError, "this Memory lies on %s, not on a CUDA device", memory.info.place);
    throw nb::python_error();
  }
  nb::dict out;
  out["shape"] = nb::make_tuple(tw_memory_length(memory.handle));
  out["typestr"] = "|u1";
  out["data"] = nb::make_tuple(reinterpret_cast<uintptr_t>(tw_memory_address(memory.handle)), !memory.writable);
  out["strides"] = nb::none();
  out["stream"] = nb::none();  // completed operations leave nothing to wait for
  out["version"] = 3;
  return out;
}

}  // namespace

void bind_places(nb::module_& m) {
  using nb::arg;
  m.def("memory_query", &memory_query, arg("buffer"),
        "What a buffer (or an address, an int) is made of: a dict of kind, place, device, uuid, base, length and buffer_id of "
        "the\n"
        "allocation, host_access, and how another process can map it (exportable). Initialises no device.");
  m.def(
      "copy", &copy, arg("context"), arg("to"), arg("source"),
      "Copies between any two contiguous buffers of one length, on whatever devices; returns when the bytes are there. Waits\n"
      "for no stream: synchronise first what is under way on them. The GIL is released.");
  nb::borrow<nb::class_<Memory>>(m.attr("Memory"))
      .def_prop_ro(
          "place", [](Memory& s) { return std::string((s.get(), s.info.place)); }, "Where it lies, such as \"cuda:1\".")
      .def("__dlpack_device__",
           [](Memory& s) { return nb::make_tuple(dlpack_device(s).first, std::max(dlpack_device(s).second, 0)); })
      .def("__dlpack__", &dlpack, "A DLPack capsule of its bytes. release() is refused while it is in use.")
      .def_prop_ro("__cuda_array_interface__", &cuda_interface);
}

}  // namespace thalweg::python
