// SPDX-License-Identifier: Apache-2.0
// Collectives: the methods of Group that are collective over data, each in a blocking form and one that returns a Request; the
// same as functions of a Queue and as methods of Plan.
#include "collective_call.hpp"

#include <array>
#include <optional>

namespace thalweg::python {
namespace {

bool given(PyObject* argument) { return argument != nullptr && argument != Py_None; }

/// send and recv of as many elements; recv None: the result replaces send.
struct Replaced {
  Replaced(CollectiveCall& call, PyObject* send_object, PyObject* recv_object) {
    if (!given(recv_object)) {
      recv = call.received(send_object);
      count = recv.count;
      return;
    }
    send = call.sent(send_object);
    recv = call.received(recv_object);
    count = send.count;
  }
  Elements send{TW_IN_PLACE, 0}, recv;
  size_t count;
};

uint32_t root_of(PyObject* root) {
  const uint64_t number = as_u64(root, 0);
  return static_cast<uint32_t>(number > UINT32_MAX ? UINT32_MAX : number);  // which is no rank
}

PyObject* barrier(Form form, const Given& arguments) {
  static const Signature<3> signature("barrier", 0, 0, {"algorithm", "timeout", "after"});
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  call.take_options(a[0], a[1], a[2]);
  return call.run(Functions{tw_barrier, tw_barrier_on, tw_plan_barrier});
}

PyObject* broadcast(Form form, const Given& arguments) {
  static const Signature<6> signature("broadcast", 1, 2, {"buffer", "root", "dtype", "algorithm", "timeout", "after"});
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  call.take_type(a[0], {}, a[2]);
  call.take_options(a[3], a[4], a[5]);
  const uint32_t root = root_of(a[1]);
  const Elements buffer = root == call.rank() ? call.sent(a[0]) : call.received(a[0]);
  return call.run(Functions{tw_broadcast, tw_broadcast_on, tw_plan_broadcast}, buffer.address, buffer.count, call.type(), root);
}

// ------------------------------------------------------------------------------------------------ reductions

template <class F>
PyObject* everywhere(const Signature<10>& signature, const F& functions, Form form, const Given& arguments) {
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  call.take_type(a[0], a[1], a[3]);
  call.take_operation(a[2], a[6], a[7], a[4]);
  call.take_options(a[5], a[8], a[9]);
  const Replaced sides(call, a[0], a[1]);
  call.demand("recv", sides.recv.count, sides.count);
  return call.run(functions, sides.send.address, sides.recv.address, sides.count, call.type(), call.op());
}

constexpr std::array<const char*, 10> kReduction = {"send",      "recv",  "op",          "dtype",   "repeatable",
                                                    "algorithm", "scale", "commutative", "timeout", "after"};

PyObject* allreduce(Form form, const Given& arguments) {
  static const Signature<10> signature("allreduce", 1, 3, kReduction);
  return everywhere(signature, Functions{tw_allreduce, tw_allreduce_on, tw_plan_allreduce}, form, arguments);
}
PyObject* scan(Form form, const Given& arguments) {
  static const Signature<10> signature("scan", 1, 3, kReduction);
  return everywhere(signature, Functions{tw_scan, tw_scan_on, tw_plan_scan}, form, arguments);
}
PyObject* exclusive_scan(Form form, const Given& arguments) {
  static const Signature<10> signature("exclusive_scan", 1, 3, kReduction);
  return everywhere(signature, Functions{tw_exclusive_scan, tw_exclusive_scan_on, tw_plan_exclusive_scan}, form, arguments);
}

PyObject* reduce(Form form, const Given& arguments) {
  static const Signature<11> signature(
      "reduce", 1, 4,
      {"send", "recv", "op", "root", "dtype", "repeatable", "algorithm", "scale", "commutative", "timeout", "after"});
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  const uint32_t root = root_of(a[3]);
  const bool here = root == call.rank();
  call.take_type(a[0], here ? a[1] : nullptr, a[4]);
  call.take_operation(a[2], a[7], a[8], a[5]);
  call.take_options(a[6], a[9], a[10]);
  Elements send, recv;
  if (here) {
    const Replaced sides(call, a[0], a[1]);
    call.demand("recv", sides.recv.count, sides.count);
    send = {sides.send.address, sides.count};
    recv = sides.recv;
  } else {
    send = call.sent(a[0]);
  }
  return call.run(Functions{tw_reduce, tw_reduce_to_root_on, tw_plan_reduce_to_root}, send.address, recv.address, send.count,
                  call.type(), call.op(), root);
}

PyObject* reduce_scatter(Form form, const Given& arguments) {
  static const Signature<10> signature("reduce_scatter", 1, 3, kReduction);
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  call.take_type(a[0], a[1], a[3]);
  call.take_operation(a[2], a[6], a[7], a[4]);
  call.take_options(a[5], a[8], a[9]);
  const Replaced sides(call, a[0], a[1]);
  const size_t share = call.share("send", sides.count);
  if (given(a[1])) call.demand("recv", sides.recv.count, share);
  return call.run(Functions{tw_reduce_scatter, tw_reduce_scatter_on, tw_plan_reduce_scatter}, sides.send.address,
                  sides.recv.address, share, call.type(), call.op());
}

PyObject* reduce_scatterv(Form form, const Given& arguments) {
  static const Signature<11> signature(
      "reduce_scatterv", 3, 4,
      {"send", "recv", "counts", "op", "dtype", "repeatable", "algorithm", "scale", "commutative", "timeout", "after"});
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  call.take_type(a[0], a[1], a[4]);
  call.take_operation(a[3], a[7], a[8], a[5]);
  call.take_options(a[6], a[9], a[10]);
  const Counts counts(a[2], {}, call.size(), "counts");
  const Replaced sides(call, a[0], a[1]);
  call.demand("send", sides.count, counts.extent());
  if (given(a[1])) call.demand("recv", sides.recv.count, counts.counts[call.rank()]);
  return call.run(Functions{tw_reduce_scatterv, tw_reduce_scatterv_on, tw_plan_reduce_scatterv}, sides.send.address,
                  sides.recv.address, counts.counts.data(), call.type(), call.op());
}

// ------------------------------------------------------------------------------------------------ exchanges

PyObject* allgather(Form form, const Given& arguments) {
  static const Signature<6> signature("allgather", 2, 2, {"send", "recv", "dtype", "algorithm", "timeout", "after"});
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  call.take_type(a[0], a[1], a[2]);
  call.take_options(a[3], a[4], a[5]);
  const Elements recv = call.received(a[1]);
  const size_t share = call.share("recv", recv.count);
  const Elements send = given(a[0]) ? call.sent(a[0]) : Elements{TW_IN_PLACE, share};
  call.demand("send", send.count, share);
  return call.run(Functions{tw_allgather, tw_allgather_on, tw_plan_allgather}, send.address, recv.address, share, call.type());
}

PyObject* allgatherv(Form form, const Given& arguments) {
  static const Signature<8> signature("allgatherv", 3, 4,
                                      {"send", "recv", "counts", "offsets", "dtype", "algorithm", "timeout", "after"});
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  call.take_type(a[0], a[1], a[4]);
  call.take_options(a[5], a[6], a[7]);
  const Counts counts(a[2], a[3], call.size(), "counts");
  const Elements recv = call.received(a[1]);
  const size_t own = counts.counts[call.rank()];
  const Elements send = given(a[0]) ? call.sent(a[0]) : Elements{TW_IN_PLACE, own};
  call.demand("send", send.count, own);
  call.demand_room("recv", recv.count, counts.extent());
  return call.run(Functions{tw_allgatherv, tw_allgatherv_on, tw_plan_allgatherv}, send.address, recv.address,
                  counts.counts.data(), counts.offsets_or_null(), call.type());
}

/// gather and scatter: each rank has its own block, and root the whole, too. Own None, at root: it is in the whole.
struct Rooted {
  Rooted(CollectiveCall& call, bool gathers, uint32_t to) : call(call), gathers(gathers), root(to), here(to == call.rank()) {}
  void take_type(PyObject* send, PyObject* recv, PyObject* dtype) {
    call.take_type(here || gathers ? send : nullptr, here || !gathers ? recv : nullptr, dtype);
  }
  Elements take(PyObject* buffer, bool sent) { return sent ? call.sent(buffer) : call.received(buffer); }
  /// own_count: of root's block, by the whole's elements.
  template <class OwnCount>
  void take_sides(PyObject* send, PyObject* recv, OwnCount own_count) {
    PyObject* const own_object = gathers ? send : recv;
    if (given(own_object) || !here) own = take(own_object, gathers);
    if (!here) return;
    whole = take(gathers ? recv : send, !gathers);
    const size_t share = own_count(whole.count);
    if (own.address == TW_IN_PLACE) own.count = share;
    call.demand(gathers ? "send" : "recv", own.count, share);
  }
  CollectiveCall& call;
  const bool gathers;
  const uint32_t root;
  const bool here;
  Elements own{TW_IN_PLACE, 0}, whole;
};

Rooted take_rooted(CollectiveCall& call, bool gathers, const Signature<7>& signature) {
  const auto a = call.parse(signature);
  Rooted sides(call, gathers, root_of(a[2]));
  sides.take_type(a[0], a[1], a[3]);
  call.take_options(a[4], a[5], a[6]);
  sides.take_sides(a[0], a[1], [&](size_t count) { return call.share(gathers ? "recv" : "send", count); });
  return sides;
}
constexpr std::array<const char*, 7> kRooted = {"send", "recv", "root", "dtype", "algorithm", "timeout", "after"};

PyObject* gather(Form form, const Given& arguments) {
  static const Signature<7> signature("gather", 1, 3, kRooted);
  CollectiveCall call(form, arguments);
  const Rooted r = take_rooted(call, true, signature);
  return call.run(Functions{tw_gather, tw_gather_on, tw_plan_gather}, r.own.address, r.whole.address, r.own.count, call.type(),
                  r.root);
}
PyObject* scatter(Form form, const Given& arguments) {
  static const Signature<7> signature("scatter", 1, 3, kRooted);
  CollectiveCall call(form, arguments);
  const Rooted r = take_rooted(call, false, signature);
  return call.run(Functions{tw_scatter, tw_scatter_on, tw_plan_scatter}, r.whole.address, r.own.address, r.own.count,
                  call.type(), r.root);
}

Rooted take_rooted(CollectiveCall& call, bool gathers, const Signature<9>& signature, std::optional<Counts>* counts) {
  const auto a = call.parse(signature);
  Rooted sides(call, gathers, root_of(a[4]));
  sides.take_type(a[0], a[1], a[5]);
  call.take_options(a[6], a[7], a[8]);
  if (sides.here) counts->emplace(a[2], a[3], call.size(), "counts");
  sides.take_sides(a[0], a[1], [&](size_t count) {
    call.demand_room(gathers ? "recv" : "send", count, (*counts)->extent());
    return (*counts)->counts[call.rank()];
  });
  return sides;
}
constexpr std::array<const char*, 9> kRootedCounts = {"send",  "recv",      "counts",  "offsets", "root",
                                                      "dtype", "algorithm", "timeout", "after"};

PyObject* gatherv(Form form, const Given& arguments) {
  static const Signature<9> signature("gatherv", 1, 5, kRootedCounts);
  CollectiveCall call(form, arguments);
  std::optional<Counts> counts;
  const Rooted r = take_rooted(call, true, signature, &counts);
  return call.run(Functions{tw_gatherv, tw_gatherv_on, tw_plan_gatherv}, r.own.address, r.own.count, r.whole.address,
                  r.here ? counts->counts.data() : nullptr, r.here ? counts->offsets_or_null() : nullptr, call.type(), r.root);
}
PyObject* scatterv(Form form, const Given& arguments) {
  static const Signature<9> signature("scatterv", 1, 5, kRootedCounts);
  CollectiveCall call(form, arguments);
  std::optional<Counts> counts;
  const Rooted r = take_rooted(call, false, signature, &counts);
  return call.run(Functions{tw_scatterv, tw_scatterv_on, tw_plan_scatterv}, r.whole.address,
                  r.here ? counts->counts.data() : nullptr, r.here ? counts->offsets_or_null() : nullptr, r.own.address,
                  r.own.count, call.type(), r.root);
}

PyObject* alltoall(Form form, const Given& arguments) {
  static const Signature<6> signature("alltoall", 2, 2, {"send", "recv", "dtype", "algorithm", "timeout", "after"});
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  call.take_type(a[0], a[1], a[2]);
  call.take_options(a[3], a[4], a[5]);
  const Elements recv = call.received(a[1]);
  const size_t share = call.share("recv", recv.count);
  const Elements send = given(a[0]) ? call.sent(a[0]) : Elements{TW_IN_PLACE, recv.count};
  call.demand("send", send.count, recv.count);
  return call.run(Functions{tw_alltoall, tw_alltoall_on, tw_plan_alltoall}, send.address, recv.address, share, call.type());
}

PyObject* alltoallv(Form form, const Given& arguments) {
  static const Signature<10> signature(
      "alltoallv", 4, 4,
      {"send", "send_counts", "recv", "recv_counts", "send_offsets", "recv_offsets", "dtype", "algorithm", "timeout", "after"});
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  if (!given(a[0])) raise(TW_ERR_INVALID, "alltoallv is not done in place: give send");
  call.take_type(a[0], a[2], a[6]);
  call.take_options(a[7], a[8], a[9]);
  const Counts from(a[1], a[4], call.size(), "send_counts"), to(a[3], a[5], call.size(), "recv_counts");
  const Elements send = call.sent(a[0]), recv = call.received(a[2]);
  call.demand_room("send", send.count, from.extent());
  call.demand_room("recv", recv.count, to.extent());
  return call.run(Functions{tw_alltoallv, tw_alltoallv_on, tw_plan_alltoallv}, send.address, from.counts.data(),
                  from.offsets_or_null(), recv.address, to.counts.data(), to.offsets_or_null(), call.type());
}

size_t row_bytes_of(const CollectiveCall& call, const Elements& buffer, nb::handle array, PyObject* wanted) {
  if (given(wanted)) return static_cast<size_t>(as_u64(wanted, 0));
  const nb::object shape = nb::getattr(array, "shape", nb::none());
  const size_t rows = shape.is_none() || nb::len(shape) == 0 ? 0 : nb::cast<size_t>(shape[0]);
  if (rows == 0) raise(TW_ERR_INVALID, "how long are the rows of recv? Its first dimension says it, or row_bytes does");
  return call.bytes(buffer.count) / rows;
}

/// Of queues alone.
PyObject* alltoallv_counted(Form form, const Given& arguments) {
  static const Signature<8> signature(
      "alltoallv_counted_on", 4, 4,
      {"send", "send_counts", "recv", "recv_counts", "send_offsets", "recv_offsets", "row_bytes", "dtype"});
  CollectiveCall call(form, arguments);
  const auto a = call.parse(signature);
  for (const size_t needed : {0, 1, 2, 3}) {
    if (!given(a[needed])) raise(TW_ERR_INVALID, "send, send_counts, recv and recv_counts are arrays, none of them None");
  }
  call.take_type(a[0], a[2], a[7]);
  const Elements send = call.sent(a[0]), recv = call.received(a[2]);
  const size_t row = row_bytes_of(call, recv, a[2], a[6]);
  if (row == 0) raise(TW_ERR_INVALID, "rows have no bytes");
  const auto numbers = [&](size_t at, const char* name) {
    return call.numbers_of_ranks(a[at], name, at == 3 ? BufferView::Use::destination : BufferView::Use::source);
  };
  const uint64_t *const counts = numbers(1, "send_counts"), *const from = numbers(4, "send_offsets"),
                        *const to = numbers(5, "recv_offsets");
  uint64_t* const received = numbers(3, "recv_counts");
  const auto none = [](auto...) { return tw_status{TW_ERR_UNSUPPORTED}; };
  return call.run(Functions{none, tw_alltoallv_counted_on, none}, send.address, counts, from, call.bytes(send.count) / row,
                  recv.address, received, to, call.bytes(recv.count) / row, row);
}

PyObject* explain(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<7> signature("explain", 2, 2,
                                        {"collective", "count", "dtype", "repeatable", "algorithm", "commutative", "on"});
    CollectiveCall call(Form::blocking, {self, args, count, keywords});
    const auto a = call.parse(signature);
    if (given(a[2])) call.take_type({}, {}, a[2]);
    call.take_operation(nullptr, nullptr, a[5], a[3]);
    call.take_options(a[4], nullptr, nullptr);
    const std::string name = nb::cast<std::string>(nb::handle(a[0]));
    const size_t elements = as_u64(a[1], 0);
    const std::string text = call.explain(c_text(name), elements, a[6]);
    return nb::str(text.c_str()).release().ptr();
  });
}

// ------------------------------------------------------------------------------------------------ their names and texts

template <auto collective, Form form>
PyObject* as(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] { return collective(form, {self, args, count, keywords}); });
}

constexpr const char* kAgain = "Returns a Request for what the name without i does; its waits have no time-out of their own.";
constexpr const char* kOnQueue =
    "Group's method of that name (reduce_to_root_on: reduce) after the queue's earlier work and before its later work. The "
    "first "
    "call\n"
    "with a buffer prepares it, together with the other ranks; group and buffers are kept by the queue. What fails later is "
    "raised "
    "by\n"
    "queue.check(). No function of Python's; \"average\", \"scaled_sum\", and reductions of float8 and bool by kernels alone. "
    "Streams of\n"
    "arrays are not waited for. Raises Unsupported for memory that the queue's device does not reach, TimedOut, BusyError; "
    "ThreadError\n"
    "while another thread is in such a call of the group.";
constexpr const char* kCountedOnQueue =
    "Rank to rank, as many rows as counts say that the queue's device reads: the dispatch and the combine of a mixture of "
    "experts,\n"
    "without the host. send_counts[j] rows go to rank j, from row send_offsets[j] on (None: one behind the other); "
    "recv_counts[i] is\n"
    "written, rows of rank i from row recv_offsets[i] of recv on. All four are arrays of 64-bit integers, one for each rank, "
    "in "
    "memory\n"
    "that the device reads. A row: an entry of recv's first dimension, or row_bytes. Kept by the queue, as are group and "
    "buffers.\n"
    "Counts beyond the buffers fail the queue (queue.check()) by Truncated. Raises Unsupported where the queues are not of "
    "devices\n"
    "that all reach each other.";
constexpr const char* kInPlan =
    "Group's method of that name (reduce_to_root: reduce) as a part of the plan; returns the number of a step that ends when "
    "this "
    "rank's\n"
    "part is over. All ranks add a group's collectives to plans in the same order. No function of Python's; "
    "\"average\",\n"
    "\"scaled_sum\", and reductions of float8 and bool by kernels alone.";

constexpr const char* kAllreduce =
    "Collective: recv becomes the reduction of all ranks' send, with the same bits on all; recv None: it replaces send. "
    "Buffers\n"
    "are contiguous arrays of NumPy, PyTorch or CuPy, Memory, or what else has the buffer protocol, DLPack or\n"
    "__cuda_array_interface__. op: \"sum\", \"product\", \"min\", \"max\", \"and\", \"or\", \"xor\", \"average\", "
    "\"scaled_sum\" (the sum times scale),\n"
    "or an associative function of two arrays of NumPy's that returns an array, or None where it has changed the first one;\n"
    "commutative False: it is applied in the order of ranks. dtype: of the elements where the buffers do not say; float16, "
    "bfloat16,\n"
    "float32, float64, int8 to int64, uint8, float8_e4m3fn, float8_e5m2, bool. repeatable: the same input gives the same bits "
    "every\n"
    "time. algorithm: its name (thalweg explain), of all ranks; None: what is predicted to be the fastest. timeout: seconds "
    "until the\n"
    "group fails (None: the world's). What is enqueued on an array's stream is waited for first. Ctrl-C fails the group on all "
    "ranks.\n"
    "Raises PeerLost and TimedOut, with the rank, InvalidError, Unsupported.";

/// One collective: how Group, Queue and Plan name it, and its parameters.
struct Described {
  const char* name;
  const char* planned;                    ///< of Plan; with _on, of queues
  std::array<FastFunction, 4> functions;  ///< by Form
  const char* parameters;                 ///< "": none
  const char* keywords;
  bool reduces;
  const char* doc;
};

template <auto collective>
constexpr std::array<FastFunction, 4> forms() {
  return {&as<collective, Form::blocking>, &as<collective, Form::request>, &as<collective, Form::queue>,
          &as<collective, Form::plan>};
}

constexpr const char* kTyped = "dtype=None, ";
constexpr const char* kReducing = "send, recv=None, op='sum'";

const Described kCollectives[] = {
    {"barrier", "barrier", forms<barrier>(), "", "", false,
     "Collective: returns when all ranks have called it. algorithm, timeout: as of allreduce."},
    {"broadcast", "broadcast", forms<broadcast>(), "buffer, root=0", kTyped, false,
     "Collective: root's buffer to all others'. dtype, algorithm, timeout: as of allreduce."},
    {"reduce", "reduce_to_root", forms<reduce>(), "send, recv=None, op='sum', root=0", kTyped, true,
     "Collective: as allreduce, but only root gets the result; recv is not used elsewhere."},
    {"allreduce", "allreduce", forms<allreduce>(), kReducing, kTyped, true, kAllreduce},
    {"reduce_scatter", "reduce_scatter", forms<reduce_scatter>(), kReducing, kTyped, true,
     "Collective: as allreduce, but rank i gets the i-th of size equal parts of the result; recv None: at the begin of send."},
    {"reduce_scatterv", "reduce_scatterv", forms<reduce_scatterv>(), "send, recv, counts, op='sum'", kTyped, true,
     "Collective: as reduce_scatter, where rank i gets counts[i] elements."},
    {"allgather", "allgather", forms<allgather>(), "send, recv", kTyped, false,
     "Collective: rank i's send becomes the i-th of size equal parts of recv, on all ranks; send None: it is there.\n"
     "dtype, algorithm, timeout: as of allreduce."},
    {"allgatherv", "allgatherv", forms<allgatherv>(), "send, recv, counts, offsets=None", kTyped, false,
     "Collective: as allgather, where rank i sends counts[i] elements, to element offsets[i] (None: one behind the other)."},
    {"gather", "gather", forms<gather>(), "send, recv=None, root=0", kTyped, false,
     "Collective: as allgather, at root alone; recv is not used elsewhere. send None, at root: it is there."},
    {"gatherv", "gatherv", forms<gatherv>(), "send, recv=None, counts=None, offsets=None, root=0", kTyped, false,
     "Collective: as allgatherv, at root alone; only send is used elsewhere."},
    {"scatter", "scatter", forms<scatter>(), "send, recv=None, root=0", kTyped, false,
     "Collective: the i-th of size equal parts of root's send becomes rank i's recv; send is not used elsewhere. recv None, at "
     "root:\n"
     "its part stays where it is."},
    {"scatterv", "scatterv", forms<scatterv>(), "send, recv=None, counts=None, offsets=None, root=0", kTyped, false,
     "Collective: as scatter, where rank i gets counts[i] elements from element offsets[i] on; only recv is used elsewhere."},
    {"alltoall", "alltoall", forms<alltoall>(), "send, recv", kTyped, false,
     "Collective: the j-th of size equal parts of rank i's send becomes the i-th part of rank j's recv; send None: it is in "
     "recv."},
    {"alltoallv", "alltoallv", forms<alltoallv>(), "send, send_counts, recv, recv_counts",
     "send_offsets=None, recv_offsets=None, dtype=None, ", false,
     "Collective: send_counts[j] elements, from send_offsets[j] on (None: one behind the other), go to rank j, whose "
     "recv_counts[i] is\n"
     "that number."},
    {"scan", "scan", forms<scan>(), kReducing, kTyped, true,
     "Collective: as allreduce, of the ranks up to this one. No \"average\"."},
    {"exclusive_scan", "exclusive_scan", forms<exclusive_scan>(), kReducing, kTyped, true,
     "Collective: as scan, without this rank; rank 0's recv stays as it is."},
};

/// With `more` behind the options that all forms have.
std::string parameters_of(const Described& one, const char* before, const char* more) {
  return std::string(before) + one.parameters + (*one.parameters != 0 ? ", " : "") + "*, " + one.keywords +
         (one.reduces ? "repeatable=False, algorithm=None" : "algorithm=None") + more;
}

}  // namespace

void add_collectives(nb::handle group) {
  static FastMethods methods{
      {"explain", &explain,
       "collective, count, *, dtype='uint8', repeatable=False, algorithm=None, commutative=True, "
       "on=None",
       "The algorithms of a collective (\"allreduce\", ...) of so many elements, as its function counts them, with the times "
       "that are\n"
       "predicted for them, the one that is taken, and what this rank does then. on: of a call on this Queue, whose kernels "
       "are "
       "known\n"
       "after the group's first collective on a queue, or in this Plan. Waits for nobody."}};
  for (const Described& one : kCollectives) {
    const std::string more = one.reduces ? ", scale=None, commutative=True" : "";
    methods.add(one.name, one.functions[0], "$self", parameters_of(one, "", (more + ", timeout=None").c_str()), one.doc);
    methods.add(std::string("i") + one.name, one.functions[1], "$self", parameters_of(one, "", more.c_str()), kAgain);
  }
  methods.add_to(group);
}

void add_queue_collectives(nb::module_& m) {
  static FastMethods functions;
  for (const Described& one : kCollectives)
    functions.add(std::string(one.planned) + "_on", one.functions[2], "$module",
                  parameters_of(one, "queue, group, /, ", one.reduces ? ", scale=None" : ""), kOnQueue);
  functions.add(
      "alltoallv_counted_on", &as<alltoallv_counted, Form::queue>, "$module",
      "queue, group, /, send, send_counts, recv, recv_counts, *, send_offsets=None, recv_offsets=None, row_bytes=None, "
      "dtype=None",
      kCountedOnQueue);
  functions.add_to(m);
}

void add_planned_collectives(nb::handle plan) {
  static FastMethods methods;
  for (const Described& one : kCollectives)
    methods.add(one.planned, one.functions[3], "$self",
                parameters_of(one, "group, /, ", one.reduces ? ", scale=None, after=()" : ", after=()"), kInPlan);
  methods.add_to(plan);
}

}  // namespace thalweg::python
