// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "objects.hpp"

namespace thalweg::python {

/// Layout.callbacks.
Layout layout_callbacks(nb::object size, nb::object pack, nb::object unpack);

}  // namespace thalweg::python
