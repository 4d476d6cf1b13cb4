// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "datatype.hpp"
#include "status.hpp"

namespace thalweg::ucx {
namespace {

constexpr unsigned kWaitAll = UCP_STREAM_RECV_FLAG_WAITALL;

/// A posted receive: where the next byte goes.
struct Receive {
  Peer* peer;
  const char* function;
  ucs_status_t status = UCS_OK;  // of its copies
  std::vector<ucp_dt_iov_t> pieces;
  size_t piece = 0, offset = 0;
  size_t filled = 0, total = 0;
  size_t element = 1;
  bool all = false;

  bool complete() const { return filled == total || (!all && filled != 0 && filled % element == 0); }
  void take(const std::byte* from, size_t length) {
    filled += length;
    while (length != 0) {
      const ucp_dt_iov_t& at = pieces[piece];
      const size_t n = std::min(length, at.length - offset);
      const ucs_status_t copied = copy(*peer->worker, function, static_cast<std::byte*>(at.buffer) + offset, {from, n});
      if (copied != UCS_OK) status = copied;
      from += n;
      length -= n;
      offset += n;
      if (offset == at.length) {
        ++piece;
        offset = 0;
      }
    }
  }
};

Receive& receive_of(Request& request) { return *static_cast<Receive*>(request.extra); }

StreamState& stream_of(Peer& peer) {
  if (peer.stream == nullptr) peer.stream.reset(new StreamState(peer.worker));
  return *peer.stream;
}

void end_receive(Request& request, ucs_status_t status) {
  auto* const receive = &receive_of(request);
  request.info.length = receive->filled;
  request.extra = nullptr;
  delete receive;
  finish(request, status);
}

void end_receive_later(Request& request, ucs_status_t status) {
  const std::unique_ptr<Receive> receive(&receive_of(request));
  request.info.length = receive->filled;
  request.extra = nullptr;
  finish_later(request, status);
}

void pump(Peer& peer);

void step_later(Peer& peer) {
  peer.worker->streams.push_back(&peer);
  peer.worker->chores = true;
}

/// Bytes of the stream cannot be had, and those behind them have no meaning without: the connection ends.
void break_stream(Peer& peer, ucs_status_t why, size_t length) {
  tell("%zu bytes of a stream could not be received (%d): its connection ends", length, why);
  stream_of(peer).broken = why;
  step_later(peer);
}

/// A chunk's bytes on their way into memory of ours.
struct Load {
  Peer* peer;
  ucp_worker* worker;
  AmData* data;
};

void loaded(void* arg, tw_request, tw_status status, const tw_recv_info*) {
  const std::unique_ptr<Load> load(static_cast<Load*>(arg));
  const bool alive = !load->worker->ending && load->worker->peers.contains(load->peer) && load->peer->stream != nullptr;
  Chunk* chunk = nullptr;
  if (alive && !load->peer->stream->chunks.empty()) chunk = &load->peer->stream->chunks.front();
  if (chunk == nullptr || chunk->data != load->data) return free_data(*load->data);  // lost meanwhile
  if (status != TW_OK) {
    free_data(*std::exchange(chunk->data, nullptr));
    const bool lost = status == TW_ERR_PEER_LOST || status == TW_ERR_CLOSED;  // which lose_stream() tells
    if (!lost) break_stream(*load->peer, status_of(status), chunk->length);
    return;
  }
  chunk->here = true;
  if (load->worker->holding != 0) return step_later(*load->peer);  // receives that end call the user
  pump(*load->peer);
}

/// Fetches the first chunk.
void load(Peer& peer, Chunk& chunk) {
  if (chunk.descriptor == nullptr || stream_of(peer).broken != UCS_OK) return;
  AmData* const data = make_data(chunk.length, 1);
  auto* const arg = data != nullptr ? new (std::nothrow) Load{&peer, peer.worker, data} : nullptr;
  if (arg == nullptr) {
    if (data != nullptr) free_data(*data);
    return break_stream(peer, UCS_ERR_NO_MEMORY, chunk.length);
  }
  chunk.data = data;
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.callback = loaded;
  options.arg = arg;
  tw_am_data* const descriptor = std::exchange(chunk.descriptor, nullptr);
  const tw_status status = tw_am_recv(descriptor, address_of(*data), chunk.length, &options, nullptr);
  if (status == TW_IN_PROGRESS) return;
  if (status < 0) (void)tw_am_release(descriptor);  // it could not be asked for
  loaded(arg, TW_REQUEST_NONE, status, nullptr);
}

/// From the chunks that are here to the receives that are posted, in order.
void pump(Peer& peer) {
  const ucp_worker& worker = *peer.worker;
  const uint64_t id = peer.id;
  StreamState& stream = stream_of(peer);
  while (!stream.receives.empty() && !stream.chunks.empty()) {
    Chunk& chunk = stream.chunks.front();
    if (!chunk.here) return load(peer, chunk);
    Request& request = *stream.receives.front();
    Receive& receive = receive_of(request);
    const size_t n = std::min(chunk.length - chunk.used, receive.total - receive.filled);
    receive.take(static_cast<std::byte*>(address_of(*chunk.data)) + chunk.used, n);
    chunk.used += n;
    if (chunk.used == chunk.length) {
      free_data(*chunk.data);
      stream.chunks.pop_front();
    }
    if (!receive.complete()) continue;
    stream.receives.pop_front();
    end_receive(request, receive.status);
    if (!is_alive(worker, &peer, id)) return;  // its callback closed the last endpoint
  }
}

/// Bytes that are here during the handler, while receives wait and nothing is before them. Returns how many were taken.
size_t take_at_once(Peer& peer, const std::byte* from, size_t length) {
  StreamState& stream = stream_of(peer);
  size_t taken = 0;
  while (taken < length && !stream.receives.empty()) {
    Request& request = *stream.receives.front();
    Receive& receive = receive_of(request);
    const size_t n = std::min(length - taken, receive.total - receive.filled);
    receive.take(from + taken, n);
    taken += n;
    if (!receive.complete()) continue;
    stream.receives.pop_front();
    end_receive_later(request, receive.status);  // its callback may do what a handler may not
  }
  return taken;
}

tw_status on_bytes(void* arg, const tw_am_message* message) {
  auto& worker = *static_cast<ucp_worker*>(arg);
  if (worker.ending || message->length == 0) return TW_OK;
  if (const auto* const known = static_cast<Peer*>(tw_endpoint_user(message->endpoint)); known != nullptr && known->unread) {
    return TW_OK;
  }
  ucp_ep* const handle = handle_of(worker, message->endpoint);
  if (handle == nullptr) return TW_OK;
  Peer& peer = *handle->peer;
  StreamState& stream = stream_of(peer);
  size_t taken = 0;
  if (message->data != nullptr && stream.chunks.empty()) {
    taken = take_at_once(peer, static_cast<const std::byte*>(message->data), message->length);
  }
  if (taken == message->length || stream.broken != UCS_OK) return TW_OK;
  if (taken == 0) {
    stream.chunks.push_back({message->descriptor, nullptr, message->length, 0, false});
    if (!stream.receives.empty() && stream.chunks.size() == 1) {
      step_later(peer);
    }
    return TW_IN_PROGRESS;
  }
  AmData* const rest = make_data(message->length - taken, 1);
  if (rest == nullptr) {
    break_stream(peer, UCS_ERR_NO_MEMORY, message->length - taken);
    return TW_OK;
  }
  std::memcpy(address_of(*rest), static_cast<const std::byte*>(message->data) + taken, message->length - taken);
  stream.chunks.push_back({nullptr, rest, message->length - taken, 0, true});
  return TW_OK;
}

ucs_status_t describe_receive(ucp_datatype_t datatype, void* buffer, size_t count, Receive* receive, const char* function) {
  if ((datatype & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_CONTIG) {
    receive->element = std::max<size_t>(datatype >> UCP_DATATYPE_SHIFT, 1);
    receive->total = count * receive->element;
    receive->pieces.push_back({buffer, receive->total});
    return UCS_OK;
  }
  if ((datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_IOV) {
    return unsupported(function, "a generic datatype in a stream", "receive bytes and unpack them");
  }
  const auto* const iov = static_cast<const ucp_dt_iov_t*>(buffer);
  for (size_t i = 0; i < count; ++i) {
    if (iov[i].length == 0) continue;
    receive->pieces.push_back(iov[i]);
    receive->total += iov[i].length;
  }
  return UCS_OK;
}

ucs_status_ptr_t recv(ucp_ep& ep, void* buffer, size_t count, ucp_datatype_t datatype, bool all, size_t* length,
                      const Wanted& wanted, const char* function) {
  if (ep.closed) return pointer_of(UCS_ERR_NOT_CONNECTED);
  if (const ucs_status_t why = no_connection(ep); why != UCS_OK) return pointer_of(why);
  ep.peer->unread = false;  // by a reply endpoint, where the user has closed all others
  auto receive = std::make_unique<Receive>();
  receive->peer = ep.peer;
  receive->function = function;
  receive->all = all;
  if (ucs_status_t s = describe_receive(datatype, buffer, count, receive.get(), function); s != UCS_OK) return pointer_of(s);
  StreamState& stream = stream_of(*ep.peer);
  if (stream.broken != UCS_OK) return pointer_of(stream.broken);
  // What is here already.
  while (stream.receives.empty() && !stream.chunks.empty() && stream.chunks.front().here && receive->filled < receive->total) {
    Chunk& chunk = stream.chunks.front();
    const size_t n = std::min(chunk.length - chunk.used, receive->total - receive->filled);
    receive->take(static_cast<std::byte*>(address_of(*chunk.data)) + chunk.used, n);
    chunk.used += n;
    if (chunk.used != chunk.length) continue;
    free_data(*chunk.data);
    stream.chunks.pop_front();
  }
  const bool complete = receive->total == 0 || receive->complete();
  if (complete && length != nullptr) *length = receive->filled;
  if (receive->status != UCS_OK) return pointer_of(receive->status);
  if (complete && !wanted.no_immediate) return nullptr;
  Request* const request = take(*ep.worker, wanted, kStreamRecv);
  if (request == nullptr) return pointer_of(UCS_ERR_NO_MEMORY);
  if (complete) {
    request->info.length = receive->filled;
    finish_later(*request, UCS_OK);
    return handle_of(*request);
  }
  request->buffer = receive->pieces.front().buffer;
  request->extra = receive.release();
  request->endpoint = &ep;
  ++ep.pending;
  stream.receives.push_back(request);
  if (stream.receives.size() == 1 && !stream.chunks.empty()) load(*ep.peer, stream.chunks.front());
  return handle_of(*request);
}

ucs_status_ptr_t send(ucp_ep& ep, const void* buffer, size_t count, ucp_datatype_t datatype, const Wanted& wanted,
                      const char* function) {
  Local local;
  if (ucs_status_t s = describe(function, datatype, buffer, count, &local); s != UCS_OK) return pointer_of(s);
  Request* const request = take(*ep.worker, wanted, kStreamSend);
  if (request == nullptr) return no_memory(local);
  request->layout = local.made;
  request->buffer = place_of(local);
  request->endpoint = &ep;
  ++ep.pending;
  const tw_op_options* const options = options_for(*request, local.layout, 0);
  const tw_status status =
      tw_am_send(ep.endpoint, kStreamId, nullptr, 0, local.buffer, local.length, options, &request->operation);
  return posted(*request, status, wanted, function);
}

}  // namespace

namespace {

/// Those that are being fetched are freed by loaded().
void drop_chunks(StreamState& stream) {
  for (Chunk& chunk : stream.chunks) {
    if (chunk.data != nullptr && chunk.here) free_data(*chunk.data);
    // Thalweg keeps it beyond the connection, up to the worker's end.
    if (chunk.descriptor != nullptr && !stream.worker->ending) (void)tw_am_release(chunk.descriptor);
  }
  stream.chunks.clear();
}

}  // namespace

void drop_stream(Peer& peer) {
  peer.unread = true;
  if (peer.stream != nullptr) drop_chunks(*peer.stream);
}

void destroy(StreamState* stream) {
  drop_chunks(*stream);
  for (const auto& [address, data] : stream->lent) free_data(*data);
  for (Request* request : stream->receives) delete &receive_of(*request);
  delete stream;
}

ucs_status_t open_stream_handlers(ucp_worker& worker) {
  const tw_status status = tw_am_register(worker.worker, kStreamId, on_bytes, &worker);
  return status == TW_OK ? UCS_OK : failed("ucp_worker_create", status);
}

void lose_stream(Peer& peer) {
  if (peer.stream == nullptr) return;
  ucp_worker& worker = *peer.worker;
  const uint64_t id = peer.id;
  const ucs_status_t why = peer.why;
  // A callback may cancel other receives, and close the last endpoint.
  while (is_alive(worker, &peer, id) && !peer.stream->receives.empty()) {
    Request* const request = peer.stream->receives.front();
    peer.stream->receives.pop_front();
    end_receive(*request, why);
  }
}

unsigned load_streams(ucp_worker& worker) {
  const std::vector<Peer*> streams = std::exchange(worker.streams, {});
  for (Peer* peer : streams) {
    if (!worker.peers.contains(peer) || peer->stream == nullptr || peer->lost) continue;
    if (peer->stream->broken != UCS_OK) {
      break_connection(*peer, peer->stream->broken);
    } else {
      pump(*peer);
    }
  }
  return static_cast<unsigned>(streams.size());
}

void cancel_receives(Peer& peer, const ucp_ep* endpoint) {
  if (peer.stream == nullptr) return;
  std::erase_if(peer.stream->receives, [&](Request* request) {
    if (endpoint != nullptr && request->endpoint != endpoint) return false;
    end_receive_later(*request, UCS_ERR_CANCELED);
    return true;
  });
}

void cancel_stream(Request& request) {
  if (request.extra == nullptr) return;  // has ended; the next progress tells
  StreamState& stream = stream_of(*receive_of(request).peer);
  if (receive_of(request).filled != 0) return;  // too late
  std::erase(stream.receives, &request);
  end_receive_later(request, UCS_ERR_CANCELED);
}

}  // namespace thalweg::ucx

using namespace thalweg::ucx;

extern "C" {

ucs_status_ptr_t ucp_stream_send_nbx(ucp_ep_h ep, const void* buffer, size_t count, const ucp_request_param_t* param) {
  constexpr uint32_t kKnown = kCommonFields | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS;
  if (ucs_status_t s = check_fields("ucp_stream_send_nbx", *param, kKnown); s != UCS_OK) return pointer_of(s);
  if (ucs_status_t s = check_flags("ucp_stream_send_nbx", *param, 0); s != UCS_OK) return pointer_of(s);
  const ucp_datatype_t datatype = (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0 ? param->datatype : kBytes;
  const Hold hold(*ep->worker);
  return send(*ep, buffer, count, datatype, wanted_send(*param), "ucp_stream_send_nbx");
}

ucs_status_ptr_t ucp_stream_send_nb(ucp_ep_h ep, const void* buffer, size_t count, ucp_datatype_t datatype,
                                    ucp_send_callback_t cb, unsigned flags) {
  if (ucs_status_t s = check_mask("ucp_stream_send_nb", "flags", flags, 0); s != UCS_OK) return pointer_of(s);
  const Hold hold(*ep->worker);
  return send(*ep, buffer, count, datatype, wanted_send(cb), "ucp_stream_send_nb");
}

ucs_status_ptr_t ucp_stream_recv_nbx(ucp_ep_h ep, void* buffer, size_t count, size_t* length,
                                     const ucp_request_param_t* param) {
  constexpr uint32_t kKnown =
      kCommonFields | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_RECV_INFO;
  if (ucs_status_t s = check_fields("ucp_stream_recv_nbx", *param, kKnown); s != UCS_OK) return pointer_of(s);
  const ucp_datatype_t datatype = (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0 ? param->datatype : kBytes;
  const unsigned flags = (param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) != 0 ? param->flags : 0;
  if (ucs_status_t s = check_mask("ucp_stream_recv_nbx", "flags", flags, kWaitAll); s != UCS_OK) return pointer_of(s);
  const Hold hold(*ep->worker);
  size_t received = 0;
  ucs_status_ptr_t const request =
      recv(*ep, buffer, count, datatype, (flags & kWaitAll) != 0, &received, wanted_stream(*param), "ucp_stream_recv_nbx");
  if (request != nullptr) return request;
  if (length != nullptr) *length = received;
  if ((param->op_attr_mask & UCP_OP_ATTR_FIELD_RECV_INFO) != 0) *param->recv_info.length = received;
  return nullptr;
}

ucs_status_ptr_t ucp_stream_recv_nb(ucp_ep_h ep, void* buffer, size_t count, ucp_datatype_t datatype,
                                    ucp_stream_recv_callback_t cb, size_t* length, unsigned flags) {
  if (ucs_status_t s = check_mask("ucp_stream_recv_nb", "flags", flags, kWaitAll); s != UCS_OK) return pointer_of(s);
  const Hold hold(*ep->worker);
  return recv(*ep, buffer, count, datatype, (flags & kWaitAll) != 0, length, wanted_stream(cb), "ucp_stream_recv_nb");
}

ucs_status_ptr_t ucp_stream_recv_data_nb(ucp_ep_h ep, size_t* length) {
  const Hold hold(*ep->worker);
  if (ep->peer == nullptr) return pointer_of(no_connection(*ep));
  ep->peer->unread = false;  // as a receive
  StreamState& stream = stream_of(*ep->peer);
  if (stream.chunks.empty()) return ep->peer->lost ? pointer_of(ep->peer->why) : nullptr;
  Chunk chunk = stream.chunks.front();
  if (!chunk.here) {
    load(*ep->peer, stream.chunks.front());
    chunk = stream.chunks.front();
    if (stream.broken != UCS_OK) return pointer_of(stream.broken);
    if (!chunk.here) return chunk.data == nullptr && ep->peer->lost ? pointer_of(ep->peer->why) : nullptr;  // after progress
  }
  stream.chunks.pop_front();
  void* const address = static_cast<std::byte*>(address_of(*chunk.data)) + chunk.used;
  stream.lent[address] = chunk.data;
  *length = chunk.length - chunk.used;
  return address;
}

void ucp_stream_data_release(ucp_ep_h ep, void* data) {
  const Hold hold(*ep->worker);
  if (ep->peer == nullptr || ep->peer->stream == nullptr) return;
  StreamState& stream = *ep->peer->stream;
  const auto at = stream.lent.find(data);
  if (at == stream.lent.end()) return;
  free_data(*at->second);
  stream.lent.erase(at);
}

ssize_t ucp_stream_worker_poll(ucp_worker_h worker, ucp_stream_poll_ep_t* poll_eps, size_t max_eps, unsigned flags) {
  if (ucs_status_t s = check_mask("ucp_stream_worker_poll", "flags", flags, 0); s != UCS_OK) return s;
  const Hold hold(*worker);
  size_t count = 0;
  for (Peer* peer : worker->peers) {
    if (count == max_eps) break;
    if (peer->stream == nullptr || peer->stream->chunks.empty()) continue;
    const auto open = std::find_if(peer->handles.begin(), peer->handles.end(), [](const ucp_ep* one) { return !one->closed; });
    if (open != peer->handles.end()) poll_eps[count++] = {*open, (*open)->user_data, 0, {}};
  }
  return static_cast<ssize_t>(count);
}

}  // extern "C"
