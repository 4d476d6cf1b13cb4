// SPDX-License-Identifier: Apache-2.0
// Blocks by index: prepared sets of blocks, put and get of many of them, notifications.
#include <cstring>

#include "arguments.hpp"
#include "request.hpp"

namespace thalweg::python {
namespace {

/// What ranges name: a Memory, or a buffer that is held.
struct Ranges {
  std::vector<Loan> memories;
  std::vector<std::unique_ptr<BufferView>> buffers;
};

struct Blocks {
  nb::object context_object;
  Context* context = nullptr;
  tw_blocks* handle = nullptr;
  nb::object ranges;  ///< a capsule of Ranges, which operations under way keep, too
  Blocks() = default;
  Blocks(Blocks&& other) noexcept
      : context_object(std::move(other.context_object)),
        context(other.context),
        handle(std::exchange(other.handle, nullptr)),
        ranges(std::move(other.ranges)) {}
  ~Blocks() { close(); }
  void close() noexcept {
    tw_blocks_destroy(std::exchange(handle, nullptr));
    ranges.reset();
  }
  tw_blocks* get() const {
    if (handle == nullptr) raise(TW_ERR_HANDLE, "the blocks are released");
    context->get();
    return handle;
  }
};

struct RemoteBlocks {
  nb::object endpoint_object;
  Endpoint* endpoint = nullptr;
  tw_remote_blocks* handle = nullptr;
  RemoteBlocks() = default;
  RemoteBlocks(RemoteBlocks&& other) noexcept
      : endpoint_object(std::move(other.endpoint_object)),
        endpoint(other.endpoint),
        handle(std::exchange(other.handle, nullptr)) {}
  ~RemoteBlocks() { close(); }
  void close() noexcept {
    tw_remote_blocks* ended = std::exchange(handle, nullptr);
    if (ended != nullptr) endpoint->worker->end_import(ended, tw_remote_blocks_release);
  }
  tw_remote_blocks* get() const {
    if (handle == nullptr) raise(TW_ERR_HANDLE, "the remote blocks are released");
    endpoint->get();
    return handle;
  }
};

/// (memory or buffer, offset, count) or (memory or buffer, offset, count, stride).
tw_block_range range_of(nb::handle given, size_t length, Ranges& ranges) {
  const nb::tuple parts = nb::cast<nb::tuple>(given);
  if (parts.size() != 3 && parts.size() != 4)
    raise(TW_ERR_INVALID, "a range is (memory, offset, count) or with a stride behind");
  tw_block_range range{};
  range.offset = nb::cast<uint64_t>(parts[1]);
  range.count = nb::cast<uint64_t>(parts[2]);
  range.stride = parts.size() == 4 ? nb::cast<uint64_t>(parts[3]) : length;
  if (nb::isinstance<Memory>(parts[0])) {
    range.memory = nb::inst_ptr<Memory>(parts[0])->get();
    ranges.memories.emplace_back(nb::handle(parts[0]));
    return range;
  }
  ranges.buffers.push_back(std::make_unique<BufferView>());
  BufferView& view = *ranges.buffers.back();
  view.acquire(nb::handle(parts[0]).ptr(), BufferView::Use::destination);
  if (view.layout() != nullptr) raise(TW_ERR_INVALID, "blocks lie in a contiguous buffer");
  const unsigned __int128 last = static_cast<unsigned __int128>(range.count == 0 ? 0 : range.count - 1) * range.stride;
  if (last + range.offset + length > view.length()) raise(TW_ERR_OUT_OF_BOUNDS, "a range of blocks reaches outside its buffer");
  range.address = view.data();
  return range;
}

nb::object make_blocks(nb::handle_t<Context> owner, nb::iterable ranges, size_t length) {
  Blocks blocks;
  std::vector<tw_block_range> given;
  auto* const held = new Ranges;
  blocks.ranges = nb::capsule(held, [](void* p) noexcept { delete static_cast<Ranges*>(p); });
  for (nb::handle range : ranges) given.push_back(range_of(range, length, *held));
  blocks.context = nb::inst_ptr<Context>(owner);
  blocks.context_object = nb::borrow(owner);
  check(tw_blocks_create(blocks.context->get(), given.data(), given.size(), length, &blocks.handle));
  return nb::cast(std::move(blocks), nb::rv_policy::move);
}

nb::bytes export_blocks(Blocks& self, const std::string& access) {
  uint32_t bits = 0;
  for (const char c : access) {
    if (c != 'r' && c != 'w') raise(TW_ERR_INVALID, "access is letters of \"rw\": read, write");
    bits |= c == 'r' ? TW_MEMORY_READ : TW_MEMORY_WRITE;
  }
  size_t length = 0;
  check(tw_blocks_export(self.get(), bits, nullptr, &length));
  std::string key(length, '\0');
  check(tw_blocks_export(self.get(), bits, key.data(), &length));
  return nb::bytes(key.data(), key.size());
}

nb::object import_blocks(nb::handle_t<Endpoint> owner, nb::bytes key) {
  RemoteBlocks remote;
  remote.endpoint = nb::inst_ptr<Endpoint>(owner);
  remote.endpoint_object = nb::borrow(owner);
  check(tw_blocks_import(remote.endpoint->get(), key.c_str(), key.size(), &remote.handle));
  return nb::cast(std::move(remote), nb::rv_policy::move);
}

/// Numbers of blocks: contiguous 64-bit integers are used where they are, others are widened into a list of ours.
class Index {
 public:
  explicit Index(PyObject* object) {
    if (PyObject_CheckBuffer(object) == 0) {
      take_sequence(object);
      return;
    }
    if (PyObject_GetBuffer(object, &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) throw nb::python_error();
    held_ = true;
    const char* format = view_.format != nullptr ? view_.format : "B";
    if (*format == '@' || *format == '=' || *format == '<') ++format;
    if (std::strchr("qQlLnNiI", *format) == nullptr || format[1] != '\0' || (view_.itemsize != 8 && view_.itemsize != 4)) {
      PyBuffer_Release(&view_);
      held_ = false;
      raise(TW_ERR_INVALID, "numbers of blocks are 64-bit or 32-bit integers");
    }
    count_ = static_cast<size_t>(view_.len / view_.itemsize);
    data_ = static_cast<const uint64_t*>(view_.buf);
    if (view_.itemsize == 4) widen(static_cast<const int32_t*>(view_.buf));
  }
  ~Index() {
    if (held_) PyBuffer_Release(&view_);
  }
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;
  const uint64_t* data() const { return data_; }
  size_t count() const { return count_; }

 private:
  void take_sequence(PyObject* object) {
    nb::object fast = nb::steal(PySequence_Fast(object, "numbers of blocks are an array or a sequence of integers"));
    if (!fast.is_valid()) throw nb::python_error();
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.ptr()); ++i) {
      own_.push_back(as_u64(PySequence_Fast_GET_ITEM(fast.ptr(), i), 0));
    }
    data_ = own_.data();
    count_ = own_.size();
  }
  /// A negative one becomes a number that no block has.
  void widen(const int32_t* from) {
    own_.assign(from, from + count_);
    data_ = own_.data();
  }
  Py_buffer view_{};
  bool held_ = false;
  std::vector<uint64_t> own_;
  const uint64_t* data_ = nullptr;
  size_t count_ = 0;
};

/// The notification into options; `held` keeps its bytes.
void describe(PyObject* notification, PyObject* handler, BufferView* held, tw_blocks_options* options) {
  const bool by_handler = handler != nullptr && handler != Py_None;
  if (notification != nullptr && notification != Py_None) {
    held->acquire(notification, BufferView::Use::source);
    if (held->layout() != nullptr || held->on_device()) raise(TW_ERR_INVALID, "a notification is contiguous bytes on the host");
    options->notification = held->data();
    options->notification_length = held->length();
  } else if (!by_handler) {
    return;
  }
  options->notify = by_handler ? TW_NOTIFY_HANDLER : TW_NOTIFY_QUEUE;
  const uint64_t id = by_handler ? as_u64(handler, 0) : 0;
  options->handler = id > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(id);
}

template <bool put, bool blocking>
PyObject* move_blocks(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<12> signature(put ? "put_blocks" : "get_blocks", 4, 4,
                                         {"local", "local_index", "remote", "remote_index", "notification", "handler", "signal",
                                          "value", "after_all", "visible", "timeout", "no_wait"});
    std::array<PyObject*, 12> a;
    signature.parse(a, args, count, keywords);
    Endpoint& endpoint = *nb::inst_ptr<Endpoint>(self);
    Blocks* local = as_object<Blocks>(a[0], "local");
    RemoteBlocks* remote = as_object<RemoteBlocks>(a[2], "remote");
    RemoteSignal* signal = as_object<RemoteSignal>(a[6], "signal");
    if (local == nullptr || remote == nullptr) raise(TW_ERR_INVALID, "local is a Blocks, remote a RemoteBlocks");
    if (remote->endpoint != &endpoint) raise(TW_ERR_INVALID, "the remote blocks were imported through another endpoint");
    const Index from(a[1]), to(a[3]);
    if (from.count() != to.count()) raise(TW_ERR_INVALID, "as many numbers of local as of remote blocks");
    Operation operation(endpoint.worker_object, endpoint.worker, Result::none);
    tw_blocks* const here = local->get();
    operation.keep(local->ranges);
    operation.keep(a[2]);
    tw_blocks_options options = TW_BLOCKS_OPTIONS_INIT;
    BufferView text;
    describe(a[4], a[5], &text, &options);
    if (signal != nullptr) {
      options.signal = signal->get();
      options.signal_op = signal->adds ? TW_SIGNAL_ADD : TW_SIGNAL_SET;
      options.signal_value = as_u64(a[7], 1);
      operation.keep(a[6]);
    }
    if (as_bool(a[8])) options.flags |= TW_OP_AFTER_ALL;
    if (as_bool(a[9])) options.flags |= TW_OP_REMOTE;
    if (as_bool(a[11])) options.flags |= TW_OP_NO_WAIT;
    operation.posted((put ? tw_put_blocks : tw_get_blocks)(endpoint.get(), here, from.data(), remote->get(), to.data(),
                                                           to.count(), &options, &operation.request));
    return deliver(operation, blocking, blocking ? deadline_of(a[10]) : 0);
  });
}

nb::object next_notification(nb::handle_t<Worker> owner) {
  tw_notification next{};
  const tw_status status = tw_worker_next_notification(nb::inst_ptr<Worker>(owner)->enter(), &next);
  check(status);
  if (status == TW_AGAIN) return nb::none();
  const nb::bytes data(reinterpret_cast<const char*>(next.data), next.length);
  nb::object endpoint = next.endpoint != nullptr ? wrap_endpoint(owner, next.endpoint, false) : nb::none();
  return nb::make_tuple(std::move(endpoint), data);
}

const char put_doc[] =
    "Moves local[local_index[i]] to remote[remote_index[i]] for every i, as one operation; returns when the local blocks may "
    "be\n"
    "reused, with visible when all are visible at the peer. Indices: arrays of 64-bit integers (used without a copy), 32-bit\n"
    "ones or a sequence; read during the call only. notification: up to 64 bytes that the peer gets behind the blocks, from\n"
    "Worker.next_notification() or, with handler, as the header of an active message. signal, value, after_all and no_wait as\n"
    "in put. Raises OutOfBounds before anything moves, PeerLost, Stale.";
const char get_doc[] =
    "Moves remote[remote_index[i]] to local[local_index[i]] for every i; returns when all are here. Else as put_blocks: the\n"
    "notification tells the owner that its blocks were read.";
const char i_doc[] = "As the function without i, but returns a Request.";

#define BLOCKS "local, local_index, remote, remote_index, *, notification=None, handler=None, "
#define PUT BLOCKS "signal=None, value=1, after_all=False, visible=False, "
FastMethods methods{
    {"put_blocks", &move_blocks<true, true>, PUT "timeout=None, no_wait=False", put_doc},
    {"iput_blocks", &move_blocks<true, false>, PUT "no_wait=False", i_doc},
    {"get_blocks", &move_blocks<false, true>, BLOCKS "timeout=None, no_wait=False", get_doc},
    {"iget_blocks", &move_blocks<false, false>, BLOCKS "no_wait=False", i_doc},
};
#undef PUT
#undef BLOCKS

}  // namespace

void bind_blocks(nb::module_& m) {
  using nb::arg;
  nb::class_<Blocks>(
      m, "Blocks",
      "Ranges of memory cut into blocks of `length` bytes, prepared once; a block is a number, which goes on from\n"
      "range to range. Any thread may use it.")
      .def(nb::new_(&make_blocks), arg("context"), arg("ranges"), arg("length"),
           "ranges: (memory, offset, count) or (memory, offset, count, stride), in bytes; memory is a Memory, or a writable\n"
           "buffer, which is kept and cannot be exported. A Memory is not released before the blocks are closed and what was "
           "under "
           "way\nwith them has ended: BusyError.")
      .def("__len__", [](Blocks& s) { return tw_blocks_count(s.get()); })
      .def_prop_ro(
          "length", [](Blocks& s) { return tw_blocks_length(s.get()); }, "Bytes of a block.")
      .def("export", &export_blocks, nb::kw_only(), arg("access") = "",
           "A key of all blocks (bytes), to travel by any means. access: letters of \"rw\"; empty: what the memory allows.")
      .def("close", &Blocks::close, "Ends the preparation; operations under way go on.");
  nb::class_<RemoteBlocks>(m, "RemoteBlocks", "A peer's blocks, imported through an endpoint from their key.")
      .def(nb::new_([](nb::handle_t<Endpoint> endpoint, nb::bytes key) { return import_blocks(endpoint, std::move(key)); }),
           arg("endpoint"), arg("key"))
      .def("__len__", [](RemoteBlocks& s) { return tw_remote_blocks_count(s.get()); })
      .def_prop_ro(
          "length", [](RemoteBlocks& s) { return tw_remote_blocks_length(s.get()); }, "Bytes of a block.")
      .def("release", &RemoteBlocks::close, "Ends the import.");
  methods.add_to(m.attr("Endpoint"));
  nb::borrow<nb::class_<Worker>>(m.attr("Worker"))
      .def("next_notification", &next_notification,
           "(endpoint, bytes) of the next notification that a peer's put_blocks or get_blocks queued here, or None. Does not\n"
           "progress.");
}

}  // namespace thalweg::python
