// SPDX-License-Identifier: Apache-2.0
// Messages and streams from and into memory of a CUDA device.
#include <atomic>
#include <thread>

#include "cuda.hpp"

using namespace ucp_test;

namespace {

// ------------------------------------------------------------------------------------------------ tagged messages

struct CudaTag : CudaBetween {};
THALWEG_BETWEEN_PEERS(CudaTag);

enum class First { receive, send, probe };  // what comes first; the last: the receive takes a message that was probed

const char* name_of(First first) {
  return first == First::receive ? "receive first" : first == First::send ? "send first" : "probed";
}

ucp_tag_t next_tag() {
  static ucp_tag_t tag = 0;
  return ++tag;
}

ucs_status_ptr_t receive_probed(Ends& e, ucp_tag_t tag, Buffer& to, const ucp_request_param_t& param) {
  ucp_tag_message_h message = nullptr;
  ucp_tag_recv_info_t info{};
  const auto found = [&] { return (message = ucp_tag_probe_nb(e.to.worker, tag, kAll, 1, &info)) != nullptr; };
  if (!happens(e, found, "a message that a probe finds")) return UCS_STATUS_PTR(UCS_ERR_NO_MESSAGE);
  EXPECT_EQ(info.length, to.length());
  return ucp_tag_msg_recv_nbx(e.to.worker, to.at(), to.length(), message, &param);
}

void send_between(Ends& e, Buffer& from, Buffer& to, bool declared, bool sync, First first) {
  const ucp_request_param_t sending = param_of(from.place(), declared), receiving = param_of(to.place(), declared);
  const ucp_tag_t tag = next_tag();
  ucs_status_ptr_t recv = nullptr;
  if (first == First::receive) recv = ucp_tag_recv_nbx(e.to.worker, to.at(), to.length(), tag, kAll, &receiving);
  if (!posted(recv, "the receive")) return;
  ucs_status_ptr_t const send = sync ? ucp_tag_send_sync_nbx(e.from.ep, from.at(), from.length(), tag, &sending)
                                     : ucp_tag_send_nbx(e.from.ep, from.at(), from.length(), tag, &sending);
  if (!posted(send, "the send")) return;
  if (first == First::probe) recv = receive_probed(e, tag, to, receiving);
  if (first == First::send) {
    progress_some(e);
    recv = ucp_tag_recv_nbx(e.to.worker, to.at(), to.length(), tag, kAll, &receiving);
  }
  if (!posted(recv, "the receive")) return;
  EXPECT_EQ(ended(e, recv), UCS_OK) << "the receive";
  EXPECT_EQ(ended(e, send), UCS_OK) << "the send";
  if (stuck) return;
  EXPECT_TRUE(to.holds(from.written()));
  EXPECT_TRUE(from.untouched()) << "what was sent";
}

void every_message(Peers peers, bool sync) {
  Ends e(peers);
  each(kLengths, [&](const Case& c) {
    for (const First first : {First::receive, First::send, First::probe}) {
      if (stuck || (sync && first == First::probe)) return;
      SCOPED_TRACE(name_of(first));
      Buffer from(c.from, c.length), to(c.to, c.length);
      send_between(e, from, to, c.declared, sync, first);
    }
  });
}

TEST_P(CudaTag, EveryLengthArrivesEachWay) { every_message(GetParam(), false); }

TEST_P(CudaTag, SynchronousSendsArriveEachWay) { every_message(GetParam(), true); }

TEST_P(CudaTag, AddressesOfAnyAlignment) {
  Ends e(GetParam());
  for (const auto& [from, to] : kWays) {
    for (const size_t length : kLengths) {
      if (length > 1 << 20) continue;
      for (const auto& [first, second] : {std::pair<size_t, size_t>{1, 0}, {0, 3}, {5, 5}, {8, 17}}) {
        if (stuck) return;
        SCOPED_TRACE(text_of({from, to, length, false}) + ", shifted by " + std::to_string(first) + " and " +
                     std::to_string(second));
        Buffer source(from, length, first), target(to, length, second);
        send_between(e, source, target, false, false, First::receive);
      }
    }
  }
}

TEST_P(CudaTag, ASynchronousSendWaitsForItsReceive) {
  Ends e(GetParam());
  for (const size_t length : {size_t{8}, size_t{1 << 20}}) {
    Buffer from(Place::device, length), to(Place::device, length);
    const ucp_request_param_t none = nothing();
    const ucp_tag_t tag = next_tag();
    ucs_status_ptr_t const send = ucp_tag_send_sync_nbx(e.from.ep, from.at(), length, tag, &none);
    ASSERT_TRUE(UCS_PTR_IS_PTR(send)) << length;
    for (int i = 0; i < 1000; ++i) e.world.progress();
    EXPECT_EQ(ucp_request_check_status(send), UCS_INPROGRESS) << length;
    EXPECT_EQ(ended(e, ucp_tag_recv_nbx(e.to.worker, to.at(), length, tag, kAll, &none)), UCS_OK) << length;
    EXPECT_EQ(ended(e, send), UCS_OK) << length;
    if (stuck) return;
    EXPECT_TRUE(to.holds(from.written())) << length;
  }
}

TEST_P(CudaTag, ACallbackIsToldAndSeesTheBytes) {
  Ends e(GetParam());
  struct Told {
    Buffer& to;
    Bytes seen;
    ucs_status_t status = UCS_INPROGRESS;
    ucp_tag_recv_info_t info{};
  };
  for (const size_t length : kLengths) {
    SCOPED_TRACE(std::to_string(length) + " bytes");
    Buffer from(Place::device, length), to(Place::device, length);
    Told told{to, {}};
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.user_data = &told;
    param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user_data) {
      Told& one = *static_cast<Told*>(user_data);
      one.status = status;
      one.info = *info;
      one.seen = one.to.read(0, one.to.length());
      ucp_request_free(request);
    };
    const ucp_request_param_t none = nothing();
    const ucp_tag_t tag = next_tag();
    if (!posted(ucp_tag_recv_nbx(e.to.worker, to.at(), length, tag, kAll, &param), "the receive")) return;
    EXPECT_EQ(ended(e, ucp_tag_send_nbx(e.from.ep, from.at(), length, tag, &none)), UCS_OK);
    if (!happens(e, [&] { return told.status != UCS_INPROGRESS; }, "the callback")) return;
    EXPECT_EQ(told.status, UCS_OK);
    EXPECT_EQ(told.info.sender_tag, tag);
    EXPECT_EQ(told.info.length, length);
    EXPECT_TRUE(told.seen == from.written()) << "in the callback";
    EXPECT_TRUE(to.holds(from.written())) << "afterwards";
  }
}

TEST_P(CudaTag, WhatDoesNotFitIsTruncatedAndNothingBehindIsWritten) {
  Ends e(GetParam());
  const ucp_request_param_t none = nothing();
  for (const auto& [from, to] : kWays) {
    for (const size_t length : {size_t{1000}, size_t{65536 + 3}, size_t{1 << 20}}) {
      SCOPED_TRACE(text_of({from, to, length, false}));
      const size_t room = length / 2;
      Buffer source(from, length), target(to, length);
      const ucp_tag_t tag = next_tag();
      ucs_status_ptr_t const recv = ucp_tag_recv_nbx(e.to.worker, target.at(), room, tag, kAll, &none);
      if (!posted(recv, "the receive")) return;
      ucs_status_ptr_t const send = ucp_tag_send_nbx(e.from.ep, source.at(), length, tag, &none);
      EXPECT_EQ(ended(e, recv), UCS_ERR_MESSAGE_TRUNCATED);
      EXPECT_EQ(ended(e, send), UCS_OK);
      if (stuck) return;
      EXPECT_TRUE(target.holds(target.read(0, room))) << "behind the " << room << " bytes of room";
    }
  }
}

// ------------------------------------------------------------------------------------------------ lists of pieces

/// listed: is it in pieces, at this side?
void send_pieces(Ends& e, const Case& c, bool listed_from, bool listed_to) {
  Buffer from(c.from, room_for(c.length)), to(c.to, room_for(c.length));
  const auto sources = pieces_of(from, c.length), targets = pieces_of(to, c.length);
  const Bytes payload = listed_from ? gathered(from, sources) : from.written(0, c.length);
  const ucp_request_param_t sending = listed_from ? pieces_param(c.from, c.declared) : param_of(c.from, c.declared);
  const ucp_request_param_t receiving = listed_to ? pieces_param(c.to, c.declared) : param_of(c.to, c.declared);
  const ucp_tag_t tag = next_tag();
  void* const target = listed_to ? const_cast<ucp_dt_iov_t*>(targets.data()) : static_cast<void*>(to.at());
  const void* const source = listed_from ? static_cast<const void*>(sources.data()) : from.at();
  ucs_status_ptr_t const recv = ucp_tag_recv_nbx(e.to.worker, target, listed_to ? kPieces : c.length, tag, kAll, &receiving);
  if (!posted(recv, "the receive")) return;
  ucs_status_ptr_t const send = ucp_tag_send_nbx(e.from.ep, source, listed_from ? kPieces : c.length, tag, &sending);
  if (!posted(send, "the send")) return;
  EXPECT_EQ(ended(e, recv), UCS_OK) << "the receive";
  EXPECT_EQ(ended(e, send), UCS_OK) << "the send";
  if (stuck) return;
  EXPECT_TRUE(listed_to ? to.holds(payload, targets) : to.holds(payload));
  EXPECT_TRUE(from.untouched()) << "what was sent";
}

TEST_P(CudaTag, PiecesOfAnAllocationAtEitherSide) {
  Ends e(GetParam());
  each(kLengthsInPieces, [&](const Case& c) {
    for (const auto& [from, to] : {std::pair{true, false}, {false, true}, {true, true}}) {
      if (stuck) return;
      SCOPED_TRACE(std::string(from ? "from pieces" : "from one piece") + (to ? " into pieces" : " into one piece"));
      send_pieces(e, c, from, to);
    }
  });
}

TEST_P(CudaTag, PiecesOfSeveralAllocationsAreRefused) {
  Ends e(GetParam());
  Buffer first(Place::device, 1000), second(Place::device, 1000);
  ucp_dt_iov_t pieces[] = {{first.at(), 1000}, {second.at(), 1000}};
  const ucp_request_param_t param = pieces_param(Place::device, false);
  const ucp_tag_t tag = next_tag();
  EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_tag_send_nbx(e.from.ep, pieces, 2, tag, &param)), UCS_ERR_OUT_OF_RANGE);
  EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_tag_recv_nbx(e.to.worker, pieces, 2, tag, kAll, &param)), UCS_ERR_OUT_OF_RANGE);
  progress_some(e);
  EXPECT_EQ(ucp_tag_probe_nb(e.to.worker, tag, kAll, 0, nullptr), nullptr) << "something was sent";
  EXPECT_TRUE(first.untouched());
  EXPECT_TRUE(second.untouched());
}

TEST_P(CudaTag, ManagedMemoryAtEitherSide) {
  Ends e(GetParam());
  for (const auto& [from, to] :
       {std::pair{Place::host, Place::managed}, {Place::managed, Place::device}, {Place::managed, Place::managed}}) {
    for (const size_t length : {size_t{1000}, size_t{65536 + 3}}) {
      if (stuck) return;
      SCOPED_TRACE(text_of({from, to, length, false}));
      Buffer source(from, length), target(to, length);
      send_between(e, source, target, false, false, First::receive);
    }
  }
}

/// Has it ended, while others progress? Within 20 s.
ucs_status_t ended_elsewhere(ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_RAW_STATUS(request);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!stuck && ucp_request_check_status(request) == UCS_INPROGRESS) {
    stuck = std::chrono::steady_clock::now() > limit;
    std::this_thread::yield();
  }
  const ucs_status_t status = ucp_request_check_status(request);
  if (status != UCS_INPROGRESS) ucp_request_free(request);
  return status;
}

TEST_P(CudaTag, AThreadWithoutACudaContextProgresses) {
  Ends e(GetParam(), UCS_THREAD_MODE_MULTI);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) e.world.progress();
  });
  const ucp_request_param_t none = nothing();
  for (const auto& [from, to] : kWays) {
    for (const size_t length : kLengths) {
      if (stuck) break;
      SCOPED_TRACE(text_of({from, to, length, false}));
      Buffer source(from, length), target(to, length);
      const ucp_tag_t tag = next_tag();
      ucs_status_ptr_t const recv = ucp_tag_recv_nbx(e.to.worker, target.at(), length, tag, kAll, &none);
      ucs_status_ptr_t const send = ucp_tag_send_nbx(e.from.ep, source.at(), length, tag, &none);
      EXPECT_EQ(ended_elsewhere(recv), UCS_OK) << "the receive";
      EXPECT_EQ(ended_elsewhere(send), UCS_OK) << "the send";
      if (stuck) break;
      EXPECT_TRUE(target.holds(source.written()));
    }
  }
  stop = true;
  other.join();
}

// ------------------------------------------------------------------------------------------------ active messages

struct CudaAm : CudaBetween {};
THALWEG_BETWEEN_PEERS(CudaAm);

constexpr unsigned kId = 3;

/// The data of b's last message, which stays until it is received.
struct Inbox {
  int count = 0;
  Bytes header;
  void* data = nullptr;
  size_t length = 0;
  bool announced = false;

  static ucs_status_t handle(void* arg, const void* header, size_t header_length, void* data, size_t length,
                             const ucp_am_recv_param_t* param) {
    Inbox& self = *static_cast<Inbox*>(arg);
    const auto* const first = static_cast<const unsigned char*>(header);
    ++self.count;
    self.header.assign(first, first + header_length);
    self.data = data;
    self.length = length;
    self.announced = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    EXPECT_TRUE(self.announced || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0);
    return UCS_INPROGRESS;
  }
  void set(Ends& e) { EXPECT_EQ(set_am_handler(e.to.worker, kId, handle, this, UCP_AM_FLAG_PERSISTENT_DATA), UCS_OK); }
};

/// Sends an active message, and waits for its handler. flags: UCP_AM_SEND_FLAG_*.
bool send_active(Ends& e, Inbox& inbox, const Buffer& from, bool declared, uint32_t flags, ucs_status_ptr_t* send) {
  const int before = inbox.count;
  const Bytes header = fresh(19);
  const ucp_request_param_t param = param_of(from.place(), declared, flags);
  *send = ucp_am_send_nbx(e.from.ep, kId, header.data(), header.size(), from.at(), from.length(), &param);
  if (!posted(*send, "the active message")) return false;
  if (!happens(e, [&] { return inbox.count != before; }, "the handler's call")) return false;
  EXPECT_EQ(inbox.count, before + 1);
  EXPECT_EQ(inbox.header, header);
  EXPECT_EQ(inbox.length, from.length());
  if (flags != 0) {
    EXPECT_EQ(inbox.announced, flags == UCP_AM_SEND_FLAG_RNDV);
  }
  if (inbox.announced) return true;
  EXPECT_EQ(std::memcmp(inbox.data, from.written().data(), from.length()), 0) << "in the library's memory";
  return true;
}

void active_each_way(Peers peers, uint32_t flags) {
  Ends e(peers);
  Inbox inbox;
  inbox.set(e);
  each(kLengths, [&](const Case& c) {
    Buffer from(c.from, c.length), to(c.to, c.length);
    ucs_status_ptr_t send = nullptr;
    if (!send_active(e, inbox, from, c.declared, flags, &send)) return;
    const ucp_request_param_t param = param_of(c.to, c.declared);
    EXPECT_EQ(ended(e, ucp_am_recv_data_nbx(e.to.worker, inbox.data, to.at(), c.length, &param)), UCS_OK) << "the receive";
    EXPECT_EQ(ended(e, send), UCS_OK) << "the send";
    if (stuck) return;
    EXPECT_TRUE(to.holds(from.written())) << (inbox.announced ? "announced" : "handed out");
    EXPECT_TRUE(from.untouched()) << "what was sent";
  });
}

TEST_P(CudaAm, DataOfEveryLengthEachWay) { active_each_way(GetParam(), 0); }

TEST_P(CudaAm, AnnouncedDataIsReceivedEachWay) { active_each_way(GetParam(), UCP_AM_SEND_FLAG_RNDV); }

TEST_P(CudaAm, EagerDataIsHandedOutEachWay) { active_each_way(GetParam(), UCP_AM_SEND_FLAG_EAGER); }

TEST_P(CudaAm, DataIntoPieces) {
  Ends e(GetParam());
  Inbox inbox;
  inbox.set(e);
  for (const uint32_t flags : {uint32_t{UCP_AM_SEND_FLAG_EAGER}, uint32_t{UCP_AM_SEND_FLAG_RNDV}}) {
    each(kLengthsInPieces, [&](const Case& c) {
      SCOPED_TRACE(flags == UCP_AM_SEND_FLAG_RNDV ? "announced" : "eager");
      Buffer from(c.from, c.length), to(c.to, room_for(c.length));
      auto pieces = pieces_of(to, c.length);
      ucs_status_ptr_t send = nullptr;
      if (!send_active(e, inbox, from, c.declared, flags, &send)) return;
      const ucp_request_param_t param = pieces_param(c.to, c.declared);
      EXPECT_EQ(ended(e, ucp_am_recv_data_nbx(e.to.worker, inbox.data, pieces.data(), kPieces, &param)), UCS_OK);
      EXPECT_EQ(ended(e, send), UCS_OK);
      if (stuck) return;
      EXPECT_TRUE(to.holds(from.written(), pieces));
    });
  }
}

TEST_P(CudaAm, AnnouncedDataThatIsReleasedEndsItsSend) {
  Ends e(GetParam());
  Inbox inbox;
  inbox.set(e);
  for (const size_t length : kLengths) {
    SCOPED_TRACE(std::to_string(length) + " bytes");
    Buffer from(Place::device, length);
    ucs_status_ptr_t send = nullptr;
    if (!send_active(e, inbox, from, true, UCP_AM_SEND_FLAG_RNDV, &send)) return;
    ucp_am_data_release(e.to.worker, inbox.data);
    EXPECT_EQ(ended(e, send), UCS_OK);
    if (stuck) return;
    EXPECT_TRUE(from.untouched());
  }
}

// ------------------------------------------------------------------------------------------------ streams

struct CudaStream : CudaBetween {};
THALWEG_BETWEEN_PEERS(CudaStream);

TEST_P(CudaStream, EveryLengthArrivesEachWay) {
  Ends e(GetParam());
  each(kLengths, [&](const Case& c) {
    for (const First first : {First::receive, First::send}) {
      if (stuck) return;
      SCOPED_TRACE(name_of(first));
      Buffer from(c.from, c.length), to(c.to, c.length);
      const ucp_request_param_t sending = param_of(c.from, c.declared);
      const ucp_request_param_t receiving = param_of(c.to, c.declared, UCP_STREAM_RECV_FLAG_WAITALL);
      size_t length = 0;
      const auto receive = [&] { return ucp_stream_recv_nbx(e.to.ep, to.at(), c.length, &length, &receiving); };
      ucs_status_ptr_t recv = first == First::receive ? receive() : nullptr;
      if (!posted(recv, "the receive")) return;
      ucs_status_ptr_t const send = ucp_stream_send_nbx(e.from.ep, from.at(), c.length, &sending);
      if (!posted(send, "the send")) return;
      if (first == First::send) {
        progress_some(e);
        recv = receive();
      }
      EXPECT_EQ(ended(e, recv), UCS_OK) << "the receive";
      EXPECT_EQ(ended(e, send), UCS_OK) << "the send";
      if (stuck) return;
      EXPECT_TRUE(to.holds(from.written()));
      EXPECT_TRUE(from.untouched()) << "what was sent";
    }
  });
}

TEST_P(CudaStream, BytesThatAreSentInPartsIntoPiecesOfSeveralAllocations) {
  Ends e(GetParam());
  constexpr size_t kHalf = 40000;
  for (const bool declared : {false, true}) {
    Buffer from(Place::device, 2 * kHalf), first(Place::device, kHalf, 3), second(Place::device, kHalf);
    ucp_dt_iov_t pieces[] = {{second.at(), kHalf}, {first.at(), kHalf}};
    ucp_request_param_t receiving = pieces_param(Place::device, declared);
    receiving.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    receiving.flags = UCP_STREAM_RECV_FLAG_WAITALL;
    const ucp_request_param_t sending = param_of(Place::device, declared);
    size_t length = 0, sent = 0;
    ucs_status_ptr_t const recv = ucp_stream_recv_nbx(e.to.ep, pieces, 2, &length, &receiving);
    if (!posted(recv, "the receive")) return;
    for (const size_t part : {size_t{1}, size_t{1000}, size_t{60000}, 2 * kHalf - 61001}) {
      EXPECT_EQ(ended(e, ucp_stream_send_nbx(e.from.ep, from.at(sent), part, &sending)), UCS_OK) << part << " bytes";
      sent += part;
    }
    EXPECT_EQ(ended(e, recv), UCS_OK);
    if (stuck) return;
    EXPECT_TRUE(second.holds(from.written(0, kHalf)));
    EXPECT_TRUE(first.holds(from.written(kHalf, kHalf)));
  }
}

TEST_P(CudaStream, TheLibrarysMemoryHasWhatADeviceSent) {
  Ends e(GetParam());
  const ucp_request_param_t none = nothing();
  for (const size_t length : kLengths) {
    SCOPED_TRACE(std::to_string(length) + " bytes");
    Buffer from(Place::device, length);
    ucs_status_ptr_t const send = ucp_stream_send_nbx(e.from.ep, from.at(), length, &none);
    if (!posted(send, "the send")) return;
    Bytes got;
    const auto all_is_here = [&] {
      size_t n = 0;
      ucs_status_ptr_t const data = ucp_stream_recv_data_nb(e.to.ep, &n);
      if (data == nullptr) return got.size() >= length;
      if (!posted(data, "ucp_stream_recv_data_nb")) return true;
      const auto* const bytes = static_cast<const unsigned char*>(data);
      got.insert(got.end(), bytes, bytes + n);
      ucp_stream_data_release(e.to.ep, data);
      return got.size() >= length;
    };
    if (!happens(e, all_is_here, "the arrival of all bytes")) return;
    EXPECT_EQ(ended(e, send), UCS_OK);
    EXPECT_EQ(got.size(), length);
    EXPECT_TRUE(got == from.written());
  }
}

}  // namespace
