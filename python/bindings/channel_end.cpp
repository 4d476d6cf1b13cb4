// SPDX-License-Identifier: Apache-2.0
// Ends of channels for kernels.
#include "plan.hpp"

namespace thalweg::python {
namespace {

/// Its buffers are kept until it is released.
struct ChannelEnd {
  nb::object peer;
  Context* context = nullptr;
  tw_channel_end* handle = nullptr;
  std::vector<std::unique_ptr<BufferView>> buffers;

  ChannelEnd() = default;
  ChannelEnd(const ChannelEnd&) = delete;
  ChannelEnd& operator=(const ChannelEnd&) = delete;
  ~ChannelEnd() { close(); }
  tw_status close() noexcept {
    tw_channel_end* ended = std::exchange(handle, nullptr);
    if (ended == nullptr) return TW_OK;
    tw_status status = TW_OK;
    if (context->generation == fork_generation()) {
      const Released release;
      status = tw_channel_end_release(ended);
    }
    leave();
    return status;
  }
  /// A child of the peer's context from here on, until leave().
  void enter(nb::handle endpoint) {
    peer = nb::borrow(endpoint);
    context = nb::inst_ptr<Context>(nb::inst_ptr<Endpoint>(endpoint)->worker->context);
    ++context->children;
  }
  void leave() noexcept {
    --context->children;
    buffers.clear();
  }
  tw_channel_end* get() const {
    if (handle == nullptr) raise(TW_ERR_HANDLE, "the channel's end is released");
    context->get();
    return handle;
  }
};

/// bind(endpoint, options, handle) without the GIL; the options are filled in.
template <class Bind>
nb::object bound(std::unique_ptr<ChannelEnd> made, nb::handle_t<Endpoint> peer, nb::handle place, nb::handle timeout,
                 size_t message_bytes, Bind bind) {
  Endpoint& endpoint = *nb::inst_ptr<Endpoint>(peer);
  tw_endpoint* const given = endpoint.get();
  tw_channel_options options = TW_CHANNEL_OPTIONS_INIT;
  const std::string name = place.is_none() ? "" : nb::cast<std::string>(place);
  options.place = place.is_none() ? nullptr : c_text(name);
  options.timeout_ns = duration_of(timeout.ptr(), 0);
  options.message_bytes = message_bytes;
  made->enter(peer);  // before there is a handle, which a call that is interrupted may leave as well
  try {
    check(without_gil({endpoint.worker}, [&] { return bind(given, options, &made->handle); }));
  } catch (...) {
    if (made->handle == nullptr) made->leave();
    throw;
  }
  return nb::cast(made.release(), nb::rv_policy::take_ownership);
}

nb::object bind_send(nb::handle_t<Endpoint> peer, uint64_t channel, nb::handle place, nb::handle timeout,
                     size_t message_bytes) {
  return bound(std::make_unique<ChannelEnd>(), peer, place, timeout, message_bytes,
               [&](tw_endpoint* endpoint, const tw_channel_options& options, tw_channel_end** out) {
                 return tw_channel_bind_send(endpoint, channel, &options, out);
               });
}

nb::object bind_recv(nb::handle_t<Endpoint> peer, nb::iterable buffers, uint64_t channel, nb::handle place,
                     nb::handle timeout) {
  auto made = std::make_unique<ChannelEnd>();
  std::vector<tw_channel_buffer> given;
  for (nb::handle one : buffers) {
    StepArguments argument;
    nb::object buffer = nb::borrow(one), layout = nb::none();
    if (nb::isinstance<nb::tuple>(one)) {
      if (nb::len(one) != 2) raise(TW_ERR_INVALID, "a buffer with a layout is (buffer, layout)");
      buffer = one[0];
      layout = one[1];
    }
    auto view = argument.take_buffer(buffer, layout, BufferView::Use::destination);
    given.push_back({view->data(), argument.length, argument.options.layout});
    made->buffers.push_back(std::move(view));
  }
  return bound(std::move(made), peer, place, timeout, 0,
               [&](tw_endpoint* endpoint, const tw_channel_options& options, tw_channel_end** out) {
                 return tw_channel_bind_recv(endpoint, given.data(), given.size(), channel, &options, out);
               });
}

uintptr_t address_of(ChannelEnd& self) {
  void* address = nullptr;
  check(tw_channel_end_address(self.get(), &address));
  return reinterpret_cast<uintptr_t>(address);
}

nb::bytes guard_of(ChannelEnd& self) {
  tw_device_guard guard;
  check(tw_channel_end_guard(self.get(), &guard));
  return nb::bytes(&guard, sizeof guard);
}

nb::object recv_buffers_of(ChannelEnd& self) {
  nb::list numbers;
  for (size_t i = 0; i < self.buffers.size(); ++i) {
    uint32_t number = 0;
    check(tw_channel_end_recv_buffer(self.get(), i, &number));
    numbers.append(number);
  }
  return nb::steal(PyList_AsTuple(numbers.ptr()));
}

}  // namespace

void bind_channel_end(nb::module_& m) {
  using nb::arg;
  const auto none = nb::none();
  nb::class_<ChannelEnd>(
      m, "ChannelEnd",
      "An end of a channel for a kernel of the program's own, or its twin on the host (thalweg/device/channel.hpp). Made by\n"
      "bind_send and bind_recv; any thread may use it. Its buffers are kept until it is released.",
      nb::is_weak_referenceable())
      .def_prop_ro("address", &address_of,
                   "Of the thalweg::device::SendEnd or RecvEnd, in the place's memory: the kernel's pointer argument.")
      .def_prop_ro("guard", &guard_of, "The bytes of a thalweg::device::Guard, which the kernel takes by value.")
      .def_prop_ro("recv_buffers", &recv_buffers_of, "For each buffer the number by which the kernel posts a receive into it.")
      .def(
          "explain",
          [](ChannelEnd& s) {
            tw_channel_end* const end = s.get();
            return text_of([end](char* to, size_t* size) { return tw_channel_end_explain(end, to, size); });
          },
          "Its way: mapped, or carried by the host, and why.")
      .def(
          "check", [](ChannelEnd& s) { check(tw_channel_end_check(s.get())); },
          "Raises what went wrong: what the kernel recorded when it gave up, the peer's failure, PeerLost. Waits for nothing.")
      .def(
          "release", [](ChannelEnd& s) { check(s.close()); },
          "The kernel has ended: gives the buffers back, which waits for the peer to let go of them, with the GIL released.\n"
          "The channel goes on for a plan, a queue or another binding. Raises Canceled when receives were posted and not "
          "taken.")
      .def_prop_ro("released", [](const ChannelEnd& s) { return s.handle == nullptr; });
  context_manager<ChannelEnd>(m.attr("ChannelEnd"), "release");
  m.def(
      "bind_send", &bind_send, arg("peer"), arg("channel") = 0, nb::kw_only(), arg("place") = none, arg("timeout") = none,
      arg("message_bytes") = 0,
      "Takes the sending end of the channel (peer, channel) for a kernel at place (\"cuda:1\", \"emulated\"; None: \"host\").\n"
      "Waits, with the GIL released, until the peer has bound the other end, or prepared a plan or called recv_on for it.\n"
      "timeout: seconds of that, and of every wait of the kernel (30). message_bytes: the longest message, where the two ends\n"
      "do not reach each other by loads and stores and the host carries the messages through bounce buffers (0: 1 MiB).\n"
      "Raises BusyError when something here uses the end, LimitError where these would have more than 64 MiB for one peer,\n"
      "Unsupported where the receiving kernel does not reach its own buffers, TimedOut, PeerLost.");
  m.def("bind_recv", &bind_recv, arg("peer"), arg("buffers"), arg("channel") = 0, nb::kw_only(), arg("place") = none,
        arg("timeout") = none,
        "Takes the receiving end. buffers: where messages may land, arrays of any strides and (buffer, Layout) among them. "
        "place None: that of the\n"
        "first buffer on a device, else \"host\". As bind_send.");
}

}  // namespace thalweg::python
