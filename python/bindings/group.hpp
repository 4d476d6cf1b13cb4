// SPDX-License-Identifier: Apache-2.0
// Groups: ranks that work together.
#pragma once
#include <thalweg/collectives.h>

#include "wait.hpp"

namespace thalweg::python {

struct Window;

struct Group {
  nb::object worker_object;
  Worker* worker = nullptr;
  tw_group* handle = nullptr;
  int generation = fork_generation();
  int users = 0;                 ///< threads that are inside without the GIL
  bool world = false;            ///< its worker ends with it
  std::vector<Window*> windows;  ///< open ones: they may not outlive it

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

/// A call of the group that may wait.
template <class Call>
void group_call(Group& self, Call&& make) {
  tw_group* const handle = self.get();
  const Using user(self.users);
  if (Unlocked::inside()) {  // the exchange of a window: this thread is in its worker already
    check(without_gil({}, [&] { return make(handle); }));
    return;
  }
  self.worker->enter();
  check(without_gil({self.worker}, [&] { return make(handle); }));
}

/// Collectives (collectives.cpp): as methods of Group and of Plan, and as functions of a Queue.
void add_collectives(nb::handle group);
void add_planned_collectives(nb::handle plan);
void add_queue_collectives(nb::module_& m);

}  // namespace thalweg::python
