// SPDX-License-Identifier: Apache-2.0
// Groups: ranks that work together.
#pragma once
#include <thalweg/collectives.h>

#include "wait.hpp"

namespace thalweg::python {

struct Group {
  nb::object worker_object;
  Worker* worker = nullptr;
  tw_group* handle = nullptr;
  int generation = fork_generation();
  int users = 0;       ///< threads that are inside without the GIL
  bool world = false;  ///< its worker ends with it

  ~Group() {
    tw_group* const ended = std::exchange(handle, nullptr);
    if (ended == nullptr || generation != fork_generation()) return;
    worker->in_turn([ended] { (void)tw_group_destroy(ended); });
  }
  tw_group* get() const {
    if (handle == nullptr) raise(TW_ERR_HANDLE, "the group is closed");
    worker->get();
    return handle;
  }
};

/// Collectives (collectives.cpp): as methods of Group and of Plan, and as functions of a Queue.
void add_collectives(nb::handle group);
void add_planned_collectives(nb::handle plan);
void add_queue_collectives(nb::module_& m);

}  // namespace thalweg::python
