// SPDX-License-Identifier: Apache-2.0
// Queues, graphs and plans: what they keep alive, and the arguments that their operations share.
#pragma once
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "buffer.hpp"
#include "wait.hpp"

namespace thalweg::python {

using Buffers = std::vector<std::shared_ptr<BufferView>>;

/// What a host queue's task that runs once has of Python's. Under the GIL.
struct Entrusted {
  nb::object object;
  std::list<Entrusted>* of;
  std::list<Entrusted>::iterator at;
  /// The task runs: it is the task's now, and this one ends.
  nb::object take();
};

struct Queue {
  nb::object context_object, stream;
  Context* context = nullptr;
  tw_queue* handle = nullptr;
  int users = 0;  ///< threads that wait for it
  bool capturing = false;
  struct KeptView {
    std::unique_ptr<BufferView> view;
    bool recent = true;  ///< used since the last let_go_of_buffers()
  };
  std::multimap<std::pair<void*, size_t>, KeptView> buffers;  ///< of single operations that may use them
  size_t fresh = 0, fresh_bytes = 0;                          ///< of buffers since let_go_of_buffers()
  std::vector<nb::object> kept;                               ///< what else they use
  std::vector<nb::object> captured;                           ///< plans enqueued while capturing,
  Buffers captured_buffers;                                   ///< and what was theirs then
  std::vector<nb::object> captured_calls;                     ///< callables enqueued while capturing
  std::list<Entrusted> entrusted;                             ///< of tasks that have not run yet
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() { close(); }
  void close() noexcept;
  tw_queue* get() const;
  /// The view that stands for this memory and shape from now on: the first one of them.
  const BufferView& keep(std::unique_ptr<BufferView> view);
  /// After an operation. Where many buffers were new, those that have not been named again for a while, and that neither a run nor a
  /// graph uses, are the program's again.
  void let_go_of_buffers();
  Entrusted& entrust(nb::object object);
  void keep(nb::object object) {
    for (const nb::object& one : kept) {
      if (one.is(object)) return;
    }
    kept.push_back(std::move(object));
  }
};

struct Graph {
  nb::object queue;
  tw_graph* handle = nullptr;
  int users = 0;  ///< threads that launch it
  std::vector<nb::object> kept;
  std::vector<nb::object> calls;  ///< callables in it
  Buffers buffers;                ///< an update gives the plans others
  Graph() = default;
  Graph(Graph&& other) noexcept
      : queue(std::move(other.queue)),
        handle(std::exchange(other.handle, nullptr)),
        kept(std::move(other.kept)),
        calls(std::move(other.calls)),
        buffers(std::move(other.buffers)) {}
  ~Graph() { close(); }
  void close() noexcept;
};

/// Its steps' buffers are kept, by number of the step, until it is closed.
struct Plan {
  nb::object context_object;
  Context* context = nullptr;
  tw_plan* handle = nullptr;
  std::vector<Buffers> buffers;
  std::vector<uint32_t> stores;  ///< steps that store to their first buffer
  std::vector<nb::object> kept;
  std::vector<Worker*> workers;  ///< of the endpoints and groups, which are in kept
  int users = 0;                 ///< threads that wait for it

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan();
  tw_status close() noexcept;
  tw_plan* get() const;
  tw_endpoint* use(nb::handle peer);
  /// An object of that worker's, until the plan ends.
  void keep(nb::handle object, Worker* worker);
  /// A step was added (or refused); its views stay.
  uint32_t added(tw_status status, uint32_t step, std::unique_ptr<BufferView> view, std::unique_ptr<BufferView> second = {});
};

/// Options of a step with what they point to.
struct StepArguments {
  tw_op_options options = TW_OP_OPTIONS_INIT;
  size_t length = 0;
  std::vector<uint32_t> after;
  /// The buffer's address and layout, or a part of it by `layout`. The view must live as long as the step.
  std::unique_ptr<BufferView> take_buffer(nb::handle buffer, nb::handle layout, BufferView::Use use);
  void take_remote_layout(nb::handle layout);
  void take_after(nb::handle steps);
  void take_signal(nb::handle signal, uint64_t value);
};

/// The stream that an object names, as a device's library knows it.
void* stream_handle(nb::handle stream);
uint32_t compare_of(const std::string& compare);  // signal.cpp
uint32_t atomic_of(PyObject* name);               // one_sided.cpp
/// An operand (`what`) of an atomic on a word of `size` bytes; a negative one as two's complement. Null: 0. (one_sided.cpp)
uint64_t operand_of(PyObject* value, size_t size, const char* what);

}  // namespace thalweg::python
