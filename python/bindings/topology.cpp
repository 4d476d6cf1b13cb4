// SPDX-License-Identifier: Apache-2.0
// The topology as Python sees it; thalweg/_topology.py makes the objects of it.
#include "errors.hpp"
#include "objects.hpp"

namespace thalweg::python {
namespace {

std::string topology_json() {
  tw_status status;
  size_t size = 0;
  {
    const Released released;  // the first question finds it
    status = tw_topology_json(nullptr, &size);
  }
  check(status);
  return text_of([](char* to, size_t* room) { return tw_topology_json(to, room); });
}

nb::dict topology_place(uint32_t rank, uint32_t ranks) {
  tw_placement found = TW_PLACEMENT_INIT;
  tw_status status;
  {
    const Released released;
    status = tw_topology_place(rank, ranks, &found);
  }
  check(status);
  const auto number = [](int32_t value) { return value < 0 ? nb::object(nb::none()) : nb::object(nb::int_(value)); };
  nb::list processors;
  for (unsigned i = 0; i < TW_PROCESSOR_WORDS * 64; ++i)
    if ((found.processors[i / 64] >> i % 64 & 1) != 0) processors.append(i);
  nb::dict out;
  out["gpu"] = number(found.gpu);
  out["device"] = number(found.device);
  out["place"] = found.place;
  out["numa"] = number(found.numa);
  out["nic"] = found.nic;
  out["processors"] = processors;
  out["shared"] = found.shared;
  return out;
}

nb::dict topology_distance(const std::string& source, const std::string& to) {
  tw_distance found = TW_DISTANCE_INIT;
  const char *const begin = c_text(source), *const end = c_text(to);
  tw_status status;
  {
    const Released released;
    status = tw_topology_distance(begin, end, &found);
  }
  check(status);
  nb::dict out;
  out["kind"] = found.kind;
  out["hops"] = found.hops;
  out["links"] = found.links;
  out["links_down"] = found.links_down;
  out["bandwidth"] = found.bandwidth;
  out["path"] = found.path;
  out["note"] = found.note;
  return out;
}

}  // namespace

void bind_topology(nb::module_& m) {
  using nb::arg;
  m.def("topology_json", &topology_json,
        "What is in this machine as JSON text; thalweg.topology() gives it as an object. Found at the first call, which may "
        "take\n"
        "a second with GPUs; the GIL is released. Raises InvalidError where THALWEG_TOPOLOGY names a file that is not right.");
  m.def("topology_place", &topology_place, arg("rank"), arg("ranks"),
        "Where rank `rank` of `ranks` processes of this machine belongs, as a dictionary; see thalweg.Topology.place.");
  m.def("topology_distance", &topology_distance, arg("source"), arg("to"),
        "What lies between two nodes, as a dictionary; see thalweg.Topology.distance.");
}

}  // namespace thalweg::python
