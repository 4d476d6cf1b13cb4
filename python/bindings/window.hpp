// SPDX-License-Identifier: Apache-2.0
// Windows: symmetric memory over ranks.
#pragma once
#include "group.hpp"

namespace thalweg::python {

/// Views of its parts count themselves: close() may not take the memory from under them.
struct Window {
  nb::object worker_object, exchange;
  nb::object group_object;  ///< of a group's, which it may not outlive; else not valid
  Group* group = nullptr;   ///< of one that is open
  Loan memory;
  std::vector<nb::object> endpoints;
  Worker* worker = nullptr;
  tw_window* handle = nullptr;
  int generation = fork_generation();
  Py_ssize_t views = 0;
  int users = 0;      ///< threads that are inside without the GIL
  nb::object raised;  ///< by exchange
  ~Window() { drop(); }
  /// Ends it here, without asking the others.
  void drop() noexcept;
  /// The status of tw_window_destroy. Waits for the other ranks, without the GIL.
  tw_status close() noexcept;
  tw_window* get() const;
  void join(Group& of);
  void leave() noexcept;
};

/// Group.window
nb::object make_group_window(nb::handle_t<Group> owner, nb::handle_t<Memory> memory, nb::handle timeout);

}  // namespace thalweg::python
