// SPDX-License-Identifier: Apache-2.0
// Turning calls into tasks. Copies of one call run last first: there is no order among them to rely on.
#include "devices/emulated/queue.hpp"

#include <cstring>

#include "devices/emulated/emulated.hpp"
#include "devices/emulated/event.hpp"
#include "devices/emulated/kernels.hpp"
#include "devices/emulated/place.hpp"
#include "devices/emulated/program.hpp"

namespace thalweg::impl::emulated {
namespace {

constexpr size_t kMostWords = 64;  // one for each block of a program

/// A few aligned words, each whole: a running kernel's words are read by a copy.
bool copy_words(std::byte* to, const std::byte* from, size_t bytes) {
  const auto misaligned = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % sizeof(uint64_t);
  if (misaligned != 0 || bytes > kMostWords * sizeof(uint64_t)) return false;
  uint64_t held[kMostWords];
  for (size_t i = 0; i < bytes / sizeof *held; ++i)
    held[i] = __atomic_load_n(reinterpret_cast<const uint64_t*>(from) + i, __ATOMIC_ACQUIRE);
  for (size_t i = 0; i < bytes / sizeof *held; ++i)
    __atomic_store_n(reinterpret_cast<uint64_t*>(to) + i, held[i], __ATOMIC_RELEASE);
  return true;
}

void copy_row(std::byte* to, const std::byte* from, size_t bytes) {
  if (!copy_words(to, from, bytes)) std::memmove(to, from, bytes);
}

void perform(const PreparedCopy& prepared) {
  const Copy& copy = prepared.copy;
  if (copy.width == 0) return;
  for (uint64_t z = copy.slices; z-- > 0;) {
    for (uint64_t y = copy.rows; y-- > 0;) {
      const auto row = static_cast<int64_t>(y), slice = static_cast<int64_t>(z);
      copy_row(prepared.to.pointer + slice * copy.to_slice + row * copy.to_row,
               prepared.from.pointer + slice * copy.from_slice + row * copy.from_row, copy.width);
    }
  }
}

/// Settles its point when the task has run or is dropped.
struct Settler {
  std::shared_ptr<EventPoint> point;
  explicit Settler(std::shared_ptr<EventPoint> of) : point(std::move(of)) {}
  ~Settler() { settle(TW_ERR_CLOSED); }
  Settler(const Settler&) = delete;
  Settler& operator=(const Settler&) = delete;
  void settle(Status status) {
    Status expected = TW_IN_PROGRESS;
    point->status.compare_exchange_strong(expected, status, std::memory_order_release);
    point->status.notify_all();
  }
};

/// release: the queue's earlier copies are visible to a thread that acquires the word.
Status store_word(const Place& place, uint64_t value) {
  __atomic_store_n(reinterpret_cast<uint64_t*>(place.pointer), value, __ATOMIC_RELEASE);
  return TW_OK;
}

Status await_word(const EmulatedStream& stream, const Place& place, uint64_t value) {
  return stream.await([&] { return reached(place.pointer, value) ? Status{TW_OK} : Status{TW_IN_PROGRESS}; });
}

}  // namespace

Device* EmulatedQueue::device() { return device_; }

Status EmulatedQueue::enqueue(Task task) {
  if (stream_->order_only()) {
    return fail(
        TW_ERR_UNSUPPORTED,
        "nothing is enqueued on a default stream, where the caller's kernels run; order an own queue after it by an event");
  }
  return stream_->enqueue(std::move(task));
}

Status EmulatedQueue::admit(Use use, uint64_t address, uint64_t length) {
  return emulated::admit(device_, use, address, length);
}

Status EmulatedQueue::copy(const Copy* copies, size_t count) {
  if (Status s = stream_->engine().faults.check(Operation::copy); is_error(s)) return s;
  std::vector<PreparedCopy> prepared(count);
  for (size_t i = 0; i < count; ++i) {
    if (Status s = prepare(device_, Use::copy, copies[i], &prepared[i]); is_error(s)) return s;
  }
  return enqueue({[prepared = std::move(prepared)](EmulatedStream&) {
    for (size_t i = prepared.size(); i-- > 0;) perform(prepared[i]);
    return TW_OK;
  }});
}

Status EmulatedQueue::word_at(uint64_t address, Place* out) {
  if (address % sizeof(uint64_t) != 0) return fail(TW_ERR_MISALIGNED, "a queue's word must be aligned to 8 bytes");
  return locate(device_, Use::word, address, 0, sizeof(uint64_t), out);
}

Status EmulatedQueue::write_value(uint64_t address, uint64_t value, bool add) {
  if (Status s = stream_->engine().faults.check(Operation::word); is_error(s)) return s;
  Place place;
  if (Status s = word_at(address, &place); is_error(s)) return s;
  return enqueue({[place, value, add](EmulatedStream&) {
    if (!add) return store_word(place, value);
    __atomic_fetch_add(reinterpret_cast<uint64_t*>(place.pointer), value, __ATOMIC_RELEASE);
    return Status{TW_OK};
  }});
}

Status EmulatedQueue::wait_geq(uint64_t address, uint64_t value) {
  if (Status s = stream_->engine().faults.check(Operation::word); is_error(s)) return s;
  Place place;
  if (Status s = word_at(address, &place); is_error(s)) return s;
  return enqueue({[place, value](EmulatedStream& stream) { return await_word(stream, place, value); }});
}

/// Of a kernel that the library has.
Status EmulatedQueue::check_launch() {
  if (!stream_->engine().options.kernels) return fail(TW_ERR_UNSUPPORTED, "this device behaves as in a build without kernels");
  return stream_->engine().faults.check(Operation::launch);
}

Status EmulatedQueue::launch(const Kernel& kernel) {
  if (Status s = check_launch(); is_error(s)) return s;
  Twin twin;
  if (Status s = make_twin(device_, stream_->engine().options, kernel, &twin); is_error(s)) return s;
  return enqueue({std::move(twin), true});
}

Status EmulatedQueue::launch_twin(std::function<void()> kernel) {
  if (Status s = stream_->engine().faults.check(Operation::launch); is_error(s)) return s;
  return enqueue({[kernel = std::move(kernel)](EmulatedStream&) {
                    kernel();
                    return TW_OK;
                  },
                  true});
}

Status EmulatedQueue::record(Event& event) {
  if (Status s = stream_->engine().faults.check(Operation::event); is_error(s)) return s;
  if (capture_state() != CaptureState::none) return fail(TW_ERR_UNSUPPORTED, "emulated captures do not hold events");
  auto settler = std::make_shared<Settler>(static_cast<EmulatedEvent&>(event).state().start_point());
  return stream_->enqueue({[settler](EmulatedStream&) {
    settler->settle(TW_OK);
    return TW_OK;
  }});
}

Status EmulatedQueue::wait_event(Event& event) {
  if (Status s = stream_->engine().faults.check(Operation::event); is_error(s)) return s;
  if (capture_state() != CaptureState::none) return fail(TW_ERR_UNSUPPORTED, "emulated captures do not hold events");
  const std::shared_ptr<EventPoint> point = static_cast<EmulatedEvent&>(event).state().point();
  if (point == nullptr) return TW_OK;
  return stream_->enqueue({[point](EmulatedStream& stream) {
    return stream.await([&] { return point->status.load(std::memory_order_acquire); });
  }});
}

Status EmulatedQueue::run(const ProgramRun& program) {
  if (Status s = check_launch(); is_error(s)) return s;
  Task task;
  if (Status s = make_program(device_, program, &task); is_error(s)) return s;
  return enqueue(std::move(task));
}

Status EmulatedQueue::call(void (*function)(void* argument), void* argument) {
  if (device_ != nullptr) return fail(TW_ERR_UNSUPPORTED, "a device's queue calls no host function; use a host queue");
  return enqueue({[=](EmulatedStream&) { return function(argument), TW_OK; }});
}

Status EmulatedQueue::end_capture(std::unique_ptr<Graph>* out) {
  std::vector<Task> tasks;
  if (Status s = stream_->end_capture(&tasks); is_error(s)) return s;
  *out = std::make_unique<EmulatedGraph>(device_, std::move(tasks));
  return TW_OK;
}

Status EmulatedGraph::launch(Queue& queue) {
  auto* const target = dynamic_cast<EmulatedQueue*>(&queue);
  if (target == nullptr || target->device_ != device_)
    return fail(TW_ERR_INVALID, "a graph is launched on a queue of the device where it was captured");
  for (const Task& task : tasks_) {
    if (Status s = target->enqueue(task); is_error(s)) return s;
  }
  return TW_OK;
}

}  // namespace thalweg::impl::emulated

namespace thalweg::impl {

std::unique_ptr<Queue> make_host_queue() {
  using namespace emulated;
  return std::make_unique<EmulatedQueue>(nullptr, std::make_shared<EmulatedStream>(std::make_shared<Engine>(Options()), false));
}

}  // namespace thalweg::impl
