// SPDX-License-Identifier: Apache-2.0
// Collectives: the methods of Group that are collective over data. Each has a blocking form and one that returns a Request.
#include "collective_call.hpp"

namespace thalweg::python {
namespace {

using Arguments = PyObject* const*;

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

template <bool blocking>
PyObject* barrier(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<2> signature("barrier", 0, 0, {"algorithm", "timeout"});
    std::array<PyObject*, 2> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    call.take_options(a[0], a[1]);
    return call.run(blocking, [](auto... to) { return tw_barrier(to...); });
  });
}

template <bool blocking>
PyObject* broadcast(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<5> signature("broadcast", 1, 2, {"buffer", "root", "dtype", "algorithm", "timeout"});
    std::array<PyObject*, 5> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    call.take_type(a[0], {}, a[2]);
    call.take_options(a[3], a[4]);
    const uint32_t root = root_of(a[1]);
    const Elements buffer = root == call.rank() ? call.sent(a[0]) : call.received(a[0]);
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_broadcast(group, buffer.address, buffer.count, call.type(), root, to...);
    });
  });
}

// ------------------------------------------------------------------------------------------------ reductions

template <auto function, bool blocking>
PyObject* everywhere(const char* name, PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<9> signature(
        name, 1, 3, {"send", "recv", "op", "dtype", "repeatable", "algorithm", "scale", "commutative", "timeout"});
    std::array<PyObject*, 9> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    call.take_type(a[0], a[1], a[3]);
    call.take_operation(a[2], a[6], a[7], a[4]);
    call.take_options(a[5], a[8]);
    const Replaced sides(call, a[0], a[1]);
    call.demand("recv", sides.recv.count, sides.count);
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return function(group, sides.send.address, sides.recv.address, sides.count, call.type(), call.op(), to...);
    });
  });
}

template <bool blocking>
PyObject* allreduce(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return everywhere<&tw_allreduce, blocking>("allreduce", self, args, count, keywords);
}
template <bool blocking>
PyObject* scan(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return everywhere<&tw_scan, blocking>("scan", self, args, count, keywords);
}
template <bool blocking>
PyObject* exclusive_scan(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return everywhere<&tw_exclusive_scan, blocking>("exclusive_scan", self, args, count, keywords);
}

template <bool blocking>
PyObject* reduce(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<10> signature(
        "reduce", 1, 4, {"send", "recv", "op", "root", "dtype", "repeatable", "algorithm", "scale", "commutative", "timeout"});
    std::array<PyObject*, 10> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    const uint32_t root = root_of(a[3]);
    const bool here = root == call.rank();
    call.take_type(a[0], here ? a[1] : nullptr, a[4]);
    call.take_operation(a[2], a[7], a[8], a[5]);
    call.take_options(a[6], a[9]);
    Elements send, recv;
    if (here) {
      const Replaced sides(call, a[0], a[1]);
      call.demand("recv", sides.recv.count, sides.count);
      send = {sides.send.address, sides.count};
      recv = sides.recv;
    } else {
      send = call.sent(a[0]);
    }
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_reduce(group, send.address, recv.address, send.count, call.type(), call.op(), root, to...);
    });
  });
}

template <bool blocking>
PyObject* reduce_scatter(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<9> signature(
        "reduce_scatter", 1, 3, {"send", "recv", "op", "dtype", "repeatable", "algorithm", "scale", "commutative", "timeout"});
    std::array<PyObject*, 9> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    call.take_type(a[0], a[1], a[3]);
    call.take_operation(a[2], a[6], a[7], a[4]);
    call.take_options(a[5], a[8]);
    const Replaced sides(call, a[0], a[1]);
    const size_t share = call.share("send", sides.count);
    if (given(a[1])) call.demand("recv", sides.recv.count, share);
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_reduce_scatter(group, sides.send.address, sides.recv.address, share, call.type(), call.op(), to...);
    });
  });
}

template <bool blocking>
PyObject* reduce_scatterv(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<10> signature(
        "reduce_scatterv", 3, 4,
        {"send", "recv", "counts", "op", "dtype", "repeatable", "algorithm", "scale", "commutative", "timeout"});
    std::array<PyObject*, 10> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    call.take_type(a[0], a[1], a[4]);
    call.take_operation(a[3], a[7], a[8], a[5]);
    call.take_options(a[6], a[9]);
    const Counts counts(a[2], {}, call.size(), "counts");
    const Replaced sides(call, a[0], a[1]);
    call.demand("send", sides.count, counts.extent());
    if (given(a[1])) call.demand("recv", sides.recv.count, counts.counts[call.rank()]);
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_reduce_scatterv(group, sides.send.address, sides.recv.address, counts.counts.data(), call.type(), call.op(),
                                to...);
    });
  });
}

// ------------------------------------------------------------------------------------------------ exchanges

template <bool blocking>
PyObject* allgather(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<5> signature("allgather", 2, 2, {"send", "recv", "dtype", "algorithm", "timeout"});
    std::array<PyObject*, 5> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    call.take_type(a[0], a[1], a[2]);
    call.take_options(a[3], a[4]);
    const Elements recv = call.received(a[1]);
    const size_t share = call.share("recv", recv.count);
    const Elements send = given(a[0]) ? call.sent(a[0]) : Elements{TW_IN_PLACE, share};
    call.demand("send", send.count, share);
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_allgather(group, send.address, recv.address, share, call.type(), to...);
    });
  });
}

template <bool blocking>
PyObject* allgatherv(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<7> signature("allgatherv", 3, 4,
                                        {"send", "recv", "counts", "offsets", "dtype", "algorithm", "timeout"});
    std::array<PyObject*, 7> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    call.take_type(a[0], a[1], a[4]);
    call.take_options(a[5], a[6]);
    const Counts counts(a[2], a[3], call.size(), "counts");
    const Elements recv = call.received(a[1]);
    const size_t own = counts.counts[call.rank()];
    const Elements send = given(a[0]) ? call.sent(a[0]) : Elements{TW_IN_PLACE, own};
    call.demand("send", send.count, own);
    call.demand_room("recv", recv.count, counts.extent());
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_allgatherv(group, send.address, recv.address, counts.counts.data(), counts.offsets_or_null(), call.type(),
                           to...);
    });
  });
}

template <bool blocking>
PyObject* gather(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<6> signature("gather", 1, 3, {"send", "recv", "root", "dtype", "algorithm", "timeout"});
    std::array<PyObject*, 6> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    const uint32_t root = root_of(a[2]);
    const bool here = root == call.rank();
    call.take_type(a[0], here ? a[1] : nullptr, a[3]);
    call.take_options(a[4], a[5]);
    Elements send{TW_IN_PLACE, 0}, recv;
    if (given(a[0]) || !here) send = call.sent(a[0]);
    if (here) {
      recv = call.received(a[1]);
      const size_t share = call.share("recv", recv.count);
      if (send.address == TW_IN_PLACE) send.count = share;
      call.demand("send", send.count, share);
    }
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_gather(group, send.address, recv.address, send.count, call.type(), root, to...);
    });
  });
}

template <bool blocking>
PyObject* gatherv(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<8> signature("gatherv", 1, 5,
                                        {"send", "recv", "counts", "offsets", "root", "dtype", "algorithm", "timeout"});
    std::array<PyObject*, 8> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    const uint32_t root = root_of(a[4]);
    const bool here = root == call.rank();
    call.take_type(a[0], here ? a[1] : nullptr, a[5]);
    call.take_options(a[6], a[7]);
    Elements send{TW_IN_PLACE, 0}, recv;
    if (given(a[0]) || !here) send = call.sent(a[0]);
    std::optional<Counts> counts;
    if (here) {
      counts.emplace(a[2], a[3], call.size(), "counts");
      recv = call.received(a[1]);
      const size_t own = counts->counts[call.rank()];
      if (send.address == TW_IN_PLACE) send.count = own;
      call.demand("send", send.count, own);
      call.demand_room("recv", recv.count, counts->extent());
    }
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_gatherv(group, send.address, send.count, recv.address, here ? counts->counts.data() : nullptr,
                        here ? counts->offsets_or_null() : nullptr, call.type(), root, to...);
    });
  });
}

template <bool blocking>
PyObject* scatter(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<6> signature("scatter", 1, 3, {"send", "recv", "root", "dtype", "algorithm", "timeout"});
    std::array<PyObject*, 6> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    const uint32_t root = root_of(a[2]);
    const bool here = root == call.rank();
    call.take_type(here ? a[0] : nullptr, a[1], a[3]);
    call.take_options(a[4], a[5]);
    Elements send, recv{TW_IN_PLACE, 0};
    if (given(a[1]) || !here) recv = call.received(a[1]);
    if (here) {
      send = call.sent(a[0]);
      const size_t share = call.share("send", send.count);
      if (recv.address == TW_IN_PLACE) recv.count = share;
      call.demand("recv", recv.count, share);
    }
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_scatter(group, send.address, recv.address, recv.count, call.type(), root, to...);
    });
  });
}

template <bool blocking>
PyObject* scatterv(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<8> signature("scatterv", 1, 5,
                                        {"send", "recv", "counts", "offsets", "root", "dtype", "algorithm", "timeout"});
    std::array<PyObject*, 8> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    const uint32_t root = root_of(a[4]);
    const bool here = root == call.rank();
    call.take_type(here ? a[0] : nullptr, a[1], a[5]);
    call.take_options(a[6], a[7]);
    Elements send, recv{TW_IN_PLACE, 0};
    if (given(a[1]) || !here) recv = call.received(a[1]);
    std::optional<Counts> counts;
    if (here) {
      counts.emplace(a[2], a[3], call.size(), "counts");
      send = call.sent(a[0]);
      const size_t own = counts->counts[call.rank()];
      if (recv.address == TW_IN_PLACE) recv.count = own;
      call.demand("recv", recv.count, own);
      call.demand_room("send", send.count, counts->extent());
    }
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_scatterv(group, send.address, here ? counts->counts.data() : nullptr,
                         here ? counts->offsets_or_null() : nullptr, recv.address, recv.count, call.type(), root, to...);
    });
  });
}

template <bool blocking>
PyObject* alltoall(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<5> signature("alltoall", 2, 2, {"send", "recv", "dtype", "algorithm", "timeout"});
    std::array<PyObject*, 5> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    call.take_type(a[0], a[1], a[2]);
    call.take_options(a[3], a[4]);
    const Elements recv = call.received(a[1]);
    const size_t share = call.share("recv", recv.count);
    const Elements send = given(a[0]) ? call.sent(a[0]) : Elements{TW_IN_PLACE, recv.count};
    call.demand("send", send.count, recv.count);
    return call.run(blocking, [&](tw_group* group, auto... to) {
      return tw_alltoall(group, send.address, recv.address, share, call.type(), to...);
    });
  });
}

template <bool blocking>
PyObject* alltoallv(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<9> signature(
        "alltoallv", 4, 4,
        {"send", "send_counts", "recv", "recv_counts", "send_offsets", "recv_offsets", "dtype", "algorithm", "timeout"});
    std::array<PyObject*, 9> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    if (!given(a[0])) raise(TW_ERR_INVALID, "alltoallv is not done in place: give send");
    call.take_type(a[0], a[2], a[6]);
    call.take_options(a[7], a[8]);
    const Counts from(a[1], a[4], call.size(), "send_counts"), to(a[3], a[5], call.size(), "recv_counts");
    const Elements send = call.sent(a[0]), recv = call.received(a[2]);
    call.demand_room("send", send.count, from.extent());
    call.demand_room("recv", recv.count, to.extent());
    return call.run(blocking, [&](tw_group* group, auto... rest) {
      return tw_alltoallv(group, send.address, from.counts.data(), from.offsets_or_null(), recv.address, to.counts.data(),
                          to.offsets_or_null(), call.type(), rest...);
    });
  });
}

PyObject* explain(PyObject* self, Arguments args, Py_ssize_t count, PyObject* keywords) {
  return guarded([&] {
    static const Signature<6> signature("explain", 2, 2,
                                        {"collective", "count", "dtype", "repeatable", "algorithm", "commutative"});
    std::array<PyObject*, 6> a;
    signature.parse(a, args, count, keywords);
    CollectiveCall call(self);
    if (given(a[2])) call.take_type({}, {}, a[2]);
    call.take_operation(nullptr, nullptr, a[5], a[3]);
    call.take_options(a[4], nullptr);
    const std::string name = nb::cast<std::string>(nb::handle(a[0]));
    const size_t elements = as_u64(a[1], 0);
    const std::string text = text_of([&](char* to, size_t* size) { return call.explain(name.c_str(), elements, to, size); });
    return nb::str(text.c_str()).release().ptr();
  });
}

constexpr const char* kAgain = "Returns a Request for what the name without i does; its waits have no time-out of their own.";

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

FastMethods methods{
    {"explain", &explain, "collective, count, *, dtype='uint8', repeatable=False, algorithm=None, commutative=True",
     "The algorithms of a collective (\"allreduce\", ...) of so many elements, as its function counts them, with the times "
     "that are\n"
     "predicted for them, the one that is taken, and what this rank does then. Waits for nobody."},
    {"barrier", &barrier<true>, "*, algorithm=None, timeout=None",
     "Collective: returns when all ranks have called it. algorithm, timeout: as of allreduce."},
    {"ibarrier", &barrier<false>, "*, algorithm=None", kAgain},
    {"broadcast", &broadcast<true>, "buffer, root=0, *, dtype=None, algorithm=None, timeout=None",
     "Collective: root's buffer to all others'. dtype, algorithm, timeout: as of allreduce."},
    {"ibroadcast", &broadcast<false>, "buffer, root=0, *, dtype=None, algorithm=None", kAgain},
    {"reduce", &reduce<true>,
     "send, recv=None, op='sum', root=0, *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True, "
     "timeout=None",
     "Collective: as allreduce, but only root gets the result; recv is not used elsewhere."},
    {"ireduce", &reduce<false>,
     "send, recv=None, op='sum', root=0, *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True",
     kAgain},
    {"allreduce", &allreduce<true>,
     "send, recv=None, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True, timeout=None",
     kAllreduce},
    {"iallreduce", &allreduce<false>,
     "send, recv=None, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True", kAgain},
    {"reduce_scatter", &reduce_scatter<true>,
     "send, recv=None, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True, timeout=None",
     "Collective: as allreduce, but rank i gets the i-th of size equal parts of the result; recv None: at the begin of send."},
    {"ireduce_scatter", &reduce_scatter<false>,
     "send, recv=None, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True", kAgain},
    {"reduce_scatterv", &reduce_scatterv<true>,
     "send, recv, counts, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True, "
     "timeout=None",
     "Collective: as reduce_scatter, where rank i gets counts[i] elements."},
    {"ireduce_scatterv", &reduce_scatterv<false>,
     "send, recv, counts, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True", kAgain},
    {"allgather", &allgather<true>, "send, recv, *, dtype=None, algorithm=None, timeout=None",
     "Collective: rank i's send becomes the i-th of size equal parts of recv, on all ranks; send None: it is there.\n"
     "dtype, algorithm, timeout: as of allreduce."},
    {"iallgather", &allgather<false>, "send, recv, *, dtype=None, algorithm=None", kAgain},
    {"allgatherv", &allgatherv<true>, "send, recv, counts, offsets=None, *, dtype=None, algorithm=None, timeout=None",
     "Collective: as allgather, where rank i sends counts[i] elements, to element offsets[i] (None: one behind the other)."},
    {"iallgatherv", &allgatherv<false>, "send, recv, counts, offsets=None, *, dtype=None, algorithm=None", kAgain},
    {"gather", &gather<true>, "send, recv=None, root=0, *, dtype=None, algorithm=None, timeout=None",
     "Collective: as allgather, at root alone; recv is not used elsewhere. send None, at root: it is there."},
    {"igather", &gather<false>, "send, recv=None, root=0, *, dtype=None, algorithm=None", kAgain},
    {"gatherv", &gatherv<true>,
     "send, recv=None, counts=None, offsets=None, root=0, *, dtype=None, algorithm=None, timeout=None",
     "Collective: as allgatherv, at root alone; only send is used elsewhere."},
    {"igatherv", &gatherv<false>, "send, recv=None, counts=None, offsets=None, root=0, *, dtype=None, algorithm=None", kAgain},
    {"scatter", &scatter<true>, "send, recv=None, root=0, *, dtype=None, algorithm=None, timeout=None",
     "Collective: the i-th of size equal parts of root's send becomes rank i's recv; send is not used elsewhere. recv None, at "
     "root:\n"
     "its part stays where it is."},
    {"iscatter", &scatter<false>, "send, recv=None, root=0, *, dtype=None, algorithm=None", kAgain},
    {"scatterv", &scatterv<true>,
     "send, recv=None, counts=None, offsets=None, root=0, *, dtype=None, algorithm=None, timeout=None",
     "Collective: as scatter, where rank i gets counts[i] elements from element offsets[i] on; only recv is used elsewhere."},
    {"iscatterv", &scatterv<false>, "send, recv=None, counts=None, offsets=None, root=0, *, dtype=None, algorithm=None",
     kAgain},
    {"alltoall", &alltoall<true>, "send, recv, *, dtype=None, algorithm=None, timeout=None",
     "Collective: the j-th of size equal parts of rank i's send becomes the i-th part of rank j's recv; send None: it is in "
     "recv."},
    {"ialltoall", &alltoall<false>, "send, recv, *, dtype=None, algorithm=None", kAgain},
    {"alltoallv", &alltoallv<true>,
     "send, send_counts, recv, recv_counts, *, send_offsets=None, recv_offsets=None, dtype=None, algorithm=None, timeout=None",
     "Collective: send_counts[j] elements, from send_offsets[j] on (None: one behind the other), go to rank j, whose "
     "recv_counts[i] is\n"
     "that number."},
    {"ialltoallv", &alltoallv<false>,
     "send, send_counts, recv, recv_counts, *, send_offsets=None, recv_offsets=None, dtype=None, algorithm=None", kAgain},
    {"scan", &scan<true>,
     "send, recv=None, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True, timeout=None",
     "Collective: as allreduce, of the ranks up to this one. No \"average\"."},
    {"iscan", &scan<false>,
     "send, recv=None, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True", kAgain},
    {"exclusive_scan", &exclusive_scan<true>,
     "send, recv=None, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True, timeout=None",
     "Collective: as scan, without this rank; rank 0's recv stays as it is."},
    {"iexclusive_scan", &exclusive_scan<false>,
     "send, recv=None, op='sum', *, dtype=None, repeatable=False, algorithm=None, scale=None, commutative=True", kAgain},
};

}  // namespace

void add_collectives(nb::handle group) { methods.add_to(group); }

}  // namespace thalweg::python
