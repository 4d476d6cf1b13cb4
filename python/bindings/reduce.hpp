// SPDX-License-Identifier: Apache-2.0
// The arguments of reductions.
#pragma once
#include <string>
#include <vector>

#include "objects.hpp"
#include "plan.hpp"

namespace thalweg::python {

/// The name of an element's type, such as "float32": of `dtype`, or of the array's where that is None.
std::string name_of_type(nb::handle array, nb::handle dtype);

/// Views are held until they are given to what keeps them.
struct ReduceArguments {
  /// Raises for what is no buffer, no sequence, or not of the destination's size.
  ReduceArguments(nb::handle destination, nb::handle given, const std::string& operation, nb::handle dtype);
  void* to() const { return views.front()->data(); }

  std::vector<std::unique_ptr<BufferView>> views;  ///< the destination, then the sources of this process
  std::vector<nb::object> remotes;
  std::vector<tw_source> sources;
  size_t count = 0;
  uint32_t type = 0, op = 0;
};

}  // namespace thalweg::python
