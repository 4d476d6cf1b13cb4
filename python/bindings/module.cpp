// SPDX-License-Identifier: Apache-2.0
// thalweg._core: the C interface as Python classes. The package's modules add the convenient forms.
#include "objects.hpp"

NB_MODULE(_core, m) {
  namespace py = thalweg::python;
  nanobind::set_leak_warnings(false);
  m.doc() = "The C interface of Thalweg as Python classes; use the package thalweg, which names all of them.";
  m.attr("__version__") = tw_version_string();
  m.attr("ANY_TAG_MASK") = uint64_t{0};
  m.attr("FULL_TAG_MASK") = UINT64_MAX;
  m.attr("PRIVATE_MAX") = TW_PRIVATE_MAX;
  m.attr("AM_HEADER_SHORT") = TW_AM_HEADER_SHORT;
  m.def(
      "status_name", [](int status) { return tw_status_name(status); }, nanobind::arg("status"),
      "The name of a status number, such as \"peer_lost\".");
  m.def(
      "_give_signature",
      [](nanobind::handle kind, nanobind::handle value) {
        auto* type = reinterpret_cast<PyTypeObject*>(kind.ptr());  // nanobind's own, which Python's setattr refuses
        if (PyDict_SetItemString(type->tp_dict, "__signature__", value.ptr()) != 0) throw nanobind::python_error();
        PyType_Modified(type);
      },
      nanobind::arg("kind"), nanobind::arg("value"));
  py::bind_log(m);
  py::bind_layout(m);
  py::bind_context(m);
  py::bind_worker(m);
  py::bind_endpoint(m);
  py::bind_request(m);
  py::bind_memory(m);
  py::bind_places(m);
  py::bind_topology(m);
  py::bind_signal(m);
  py::bind_messages(m);
  py::bind_one_sided(m);
  py::bind_active_messages(m);
  py::bind_block(m);
  py::bind_blocks(m);
  py::bind_completions(m);
  py::bind_store(m);
  py::bind_window(m);
  py::bind_group(m);
  py::bind_queue(m);
  py::bind_plan(m);
  py::bind_channel_end(m);
}
