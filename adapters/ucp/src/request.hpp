// SPDX-License-Identifier: Apache-2.0
// Requests. UCX's handle points behind the library's part and to the user's:
//
//     [ Request, kRequestBytes ][ the user's request_size bytes ]
//                               ^ handle
//
// Requests of a worker come from its pool, where request_init is called once for each place and request_cleanup when the worker ends.
// The user may bring the memory instead (ucp_request_param_t.request): then the part before the handle is all there is.
//
// Life: take() -> posted with Request::ended as callback -> finish(), from progress: status, the user's callback -> back to
// the pool by ucp_request_free, which may also come first (then no callback, and it goes back when it ends).
#pragma once
#include <thalweg/thalweg.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <vector>

#include "status.hpp"
#include "ucx.hpp"

namespace thalweg::ucx {

struct Peer;
struct Request;

union Callback {
  void* any;
  ucp_send_callback_t send;
  ucp_send_nbx_callback_t send_nbx;
  ucp_tag_recv_callback_t recv;
  ucp_tag_recv_nbx_callback_t recv_nbx;
  ucp_stream_recv_callback_t stream;
  ucp_stream_recv_nbx_callback_t stream_nbx;
  ucp_am_recv_data_nbx_callback_t am_nbx;
};

/// What a callback gets of a request that has ended.
struct Ended {
  Callback callback;
  void* user_data;
  ucp_tag_recv_info_t info;
  ucs_status_t status;
  void* handle;
};
using Invoke = void (*)(const Ended& ended);  // calls the user's callback, by its kind

/// In the order in which take() fills it: neighbours that it sets to zero are one store.
struct Request {
  std::atomic<ucs_status_t> status;  // UCS_INPROGRESS until it has ended
  uint8_t kind;                      // RequestKind, for ucp_request_query
  uint8_t memory;                    // ucs_memory_type_t that the user declared; UCS_MEMORY_TYPE_UNKNOWN: it lies at `buffer`
  bool pooled;                       // goes back to the worker's pool
  bool released;                     // the user has freed it already
  bool muted;                        // and wants no callback
  bool fetches;                      // is in the ledger
  bool told;                         // its end comes by the worker's queue, not by a callback
  bool in_later;                     // its end waits for progress, with `outcome`
  ucs_status_t unpacked;             // what a generic datatype said of the bytes that it got
  ucs_status_t outcome;              // of finish_later
  bool calling;  // it has ended, and its callback runs before `status` shows that; no longer when it is posted anew
  ucp_worker* worker;
  ucp_ep* endpoint;   // counted in its `pending`; NULL: of none (receives)
  tw_layout* layout;  // made for this operation
  tw_request operation;
  void* extra;               // of its kind: a close's endpoint, a stream's receive
  ucp_tag_recv_info_t info;  // receives; of others the length
  Invoke invoke;             // NULL: no callback
  Callback callback;
  void* user_data;
  const void* buffer;  // the user's, for ucp_request_query; NULL: none, or a generic datatype's
  Request* next;       // in the pool, or among those that wait for progress
  uint64_t get;        // its number in the peer's ledger
  Peer* peer;          // whose ledger; it may be gone, or another one at the same place: see peer_id
  uint64_t peer_id;
};
inline constexpr size_t kRequestBytes = 160;
static_assert(sizeof(Request) <= kRequestBytes && kRequestBytes % 16 == 0);

inline void* handle_of(Request& request) { return reinterpret_cast<std::byte*>(&request) + kRequestBytes; }
inline Request& request_of(void* handle) {
  return *reinterpret_cast<Request*>(static_cast<std::byte*>(handle) - kRequestBytes);
}

enum RequestKind : uint8_t {
  kTagSend,
  kTagRecv,
  kAmSend,
  kAmRecv,
  kStreamSend,
  kStreamRecv,
  kPut,
  kGet,
  kAtomic,
  kFlush,
  kClose
};

/// What a caller wants of a request: the fields of ucp_request_param_t that all operations share.
struct Wanted {
  void* memory = nullptr;  // the user's request
  Invoke invoke = nullptr;
  void* callback = nullptr;
  void* user_data = nullptr;
  bool no_immediate = false;
  ucs_memory_type_t memory_type = UCS_MEMORY_TYPE_UNKNOWN;
};

void call_send_nbx(const Ended& ended);
void call_recv_nbx(const Ended& ended);
/// Of a parameter block.
inline Wanted wanted(const ucp_request_param_t& param, Invoke invoke) {
  Wanted wanted;
  const uint32_t mask = param.op_attr_mask;
  if ((mask & UCP_OP_ATTR_FIELD_REQUEST) != 0) wanted.memory = param.request;
  if ((mask & UCP_OP_ATTR_FIELD_CALLBACK) != 0) {
    std::memcpy(&wanted.callback, &param.cb, sizeof wanted.callback);
    wanted.invoke = wanted.callback != nullptr ? invoke : nullptr;
  }
  if ((mask & UCP_OP_ATTR_FIELD_USER_DATA) != 0) wanted.user_data = param.user_data;
  if ((mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) != 0) wanted.memory_type = param.memory_type;
  wanted.no_immediate = (mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL) != 0;
  return wanted;
}
/// The callback is one of senders (status, user data).
inline Wanted wanted_send(const ucp_request_param_t& param) { return wanted(param, call_send_nbx); }
inline Wanted wanted_recv(const ucp_request_param_t& param) { return wanted(param, call_recv_nbx); }
Wanted wanted_stream(const ucp_request_param_t& param);
Wanted wanted_am(const ucp_request_param_t& param);
/// Of the older functions, whose callback has no user data. They never ask for a request when an operation is complete, except receives.
Wanted wanted_send(ucp_send_callback_t callback);
Wanted wanted_recv(ucp_tag_recv_callback_t callback);
Wanted wanted_stream(ucp_stream_recv_callback_t callback);

/// A request of a worker's pool.
class Pool {
 public:
  explicit Pool(const ucp_context& context);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool();
  /// False: get() would ask for memory.
  bool has_free() const { return free_ != nullptr; }
  /// False: get() has none to give, and no memory for more.
  bool reserve() { return free_ != nullptr || grow(); }
  Request* get() {
    if (free_ == nullptr && !grow()) return nullptr;
    Request* const request = free_;
    free_ = request->next;
    return request;
  }
  /// Each request that was ever taken from it.
  template <class Visit>
  void each(const Visit& visit) {
    for (std::byte* chunk : chunks_) {
      for (size_t i = 0; i < kAtOnce; ++i) visit(*reinterpret_cast<Request*>(chunk + i * stride_));
    }
  }
  void put(Request& request) {
    request.next = free_;
    free_ = &request;
  }

 private:
  static constexpr size_t kAtOnce = 64;  // requests that it grows by
  bool grow();
  const ucp_context& context_;
  size_t stride_;
  Request* free_ = nullptr;
  std::vector<std::byte*> chunks_;
};

/// A request ready to be posted; NULL: no memory. (worker.hpp)
inline Request* take(ucp_worker& worker, const Wanted& wanted, RequestKind kind);
/// Back, as if it had not been taken: the operation was refused, or is complete.
void give_back(Request& request);
/// Has its operation ended, which its `status` does not show yet?
inline bool over(const Request& request) { return request.in_later || request.calling; }
inline bool is_under_way(const Request& request) {
  return request.status.load(std::memory_order_relaxed) == UCS_INPROGRESS && !over(request);
}
/// It has ended: status, layout, the endpoint's count, the user's callback. From progress, under the worker's lock.
void finish(Request& request, ucs_status_t status);
/// tw_callback of operations whose arg is a Request.
void ended(void* arg, tw_request operation, tw_status status, const tw_recv_info* info);
/// The same of a contiguous receive with a callback of ucp_tag_recv_nbx.
void ended_receive(void* arg, tw_request operation, tw_status status, const tw_recv_info* info);
/// What posting returned, as nbx functions return it. An operation that is complete ends in the next progress where the
/// caller takes no NULL.
ucs_status_ptr_t posted(Request& request, tw_status status, const Wanted& wanted, const char* function);
/// The status of an operation that was refused, told unless the endpoint's error handler tells it.
ucs_status_t refused(tw_status status, const char* function);
/// Its end waits for the next progress.
void finish_later(Request& request, ucs_status_t status);
/// The operation was posted without a callback and is under way: its end comes by the worker's queue.
ucs_status_t tell_end(Request& request);

/// Fields that no operation may pass (FORCE_IMM_CMPL, later UCX's): UCS_ERR_UNSUPPORTED, told. known: those of the function.
inline constexpr uint32_t kCommonFields =
    UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
    UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FLAG_FAST_CMPL | UCP_OP_ATTR_FLAG_MULTI_SEND;
ucs_status_t check_fields(const char* function, const ucp_request_param_t& param, uint32_t known);
/// The same of its flags, where it has some.
inline ucs_status_t check_flags(const char* function, const ucp_request_param_t& param, uint32_t known) {
  return (param.op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) != 0 ? check_mask(function, "flags", param.flags, known) : UCS_OK;
}

}  // namespace thalweg::ucx
