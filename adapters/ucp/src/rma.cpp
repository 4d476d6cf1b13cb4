// SPDX-License-Identifier: Apache-2.0
// Puts, gets and atomics.
#include <cstring>

#include "datatype.hpp"
#include "endpoint.hpp"
#include "memory.hpp"
#include "request.hpp"
#include "status.hpp"

namespace thalweg::ucx {
namespace {

/// Where in the key's region; UCS_ERR_INVALID_ADDR: outside. What is of length 0 is nowhere.
ucs_status_t offset_of(const ucp_rkey& key, uint64_t address, size_t length, uint64_t* offset) {
  *offset = address - key.address;
  if (address >= key.address && *offset <= key.length && length <= key.length - *offset && key.memory != nullptr) return UCS_OK;
  return length == 0 ? UCS_OK : UCS_ERR_INVALID_ADDR;
}

struct Target {
  ucp_ep& ep;
  ucp_rkey& key;
  uint64_t address;
};

/// The request of a one-sided operation, counted.
Request* take_for(ucp_ep& ep, const Wanted& wanted, RequestKind kind) {
  Request* const request = take(*ep.worker, wanted, kind);
  if (request == nullptr) return nullptr;
  request->endpoint = &ep;
  ++ep.pending;
  ep.peer->one_sided = ep.peer->unflushed = true;
  return request;
}

/// Its bytes come back: flushes wait for it.
void enter_ledger(Request& request) {
  Peer* const peer = request.endpoint->peer;
  request.fetches = true;
  request.peer = peer;
  request.peer_id = peer->id;
  request.get = peer->gets.begin();
}

enum class Verb { put, get };

ucs_status_ptr_t transfer(Verb verb, const Target& target, void* buffer, size_t count, ucp_datatype_t datatype,
                          const Wanted& wanted, const char* function) {
  Local local;
  if (ucs_status_t s = no_connection(target.ep); s != UCS_OK) return pointer_of(s);
  if (ucs_status_t s = describe(function, datatype, buffer, count, &local); s != UCS_OK) return pointer_of(s);
  uint64_t offset = 0;
  if (ucs_status_t s = offset_of(target.key, target.address, local.length, &offset); s != UCS_OK) {
    if (local.made != nullptr) tw_layout_destroy(local.made);
    tell("%s: %zu bytes at %#llx are outside of the key's region", function, local.length,
         static_cast<unsigned long long>(target.address));
    return pointer_of(s);
  }
  Request* const request = take_for(target.ep, wanted, verb == Verb::put ? kPut : kGet);
  if (request == nullptr) return no_memory(local);
  request->layout = local.made;
  request->buffer = place_of(local);
  local.call.outcome = &request->unpacked;
  if (verb == Verb::get) enter_ledger(*request);
  const tw_op_options* const options = options_for(*request, local.layout, 0);
  tw_endpoint* const endpoint = target.ep.endpoint;
  tw_status status = TW_OK;
  if (local.length != 0 || local.layout != nullptr) {
    status = verb == Verb::put
                 ? tw_put(endpoint, local.buffer, local.length, target.key.memory, offset, options, &request->operation)
                 : tw_get(endpoint, local.buffer, local.length, target.key.memory, offset, options, &request->operation);
  }
  return posted(*request, status, wanted, function);
}

/// Without a request of the user's: the flush reports it. Contiguous.
ucs_status_t put_untold(const Target& target, const void* buffer, size_t length, const char* function) {
  uint64_t offset = 0;
  if (ucs_status_t s = no_connection(target.ep); s != UCS_OK) return s;
  if (ucs_status_t s = offset_of(target.key, target.address, length, &offset); s != UCS_OK) return s;
  if (length == 0) return UCS_OK;
  target.ep.peer->one_sided = target.ep.peer->unflushed = true;
  const tw_status status = tw_put(target.ep.endpoint, buffer, length, target.key.memory, offset, nullptr, nullptr);
  return status >= 0 ? status_of(status) : failed(function, status);
}

/// The same of a get, whose request the user does not see.
ucs_status_t get_untold(const Target& target, void* buffer, size_t length, const char* function) {
  const ucs_status_ptr_t result = transfer(Verb::get, target, buffer, length, kBytes, Wanted{}, function);
  if (!UCS_PTR_IS_PTR(result)) return UCS_PTR_RAW_STATUS(result);
  ucp_request_free(result);
  return UCS_INPROGRESS;
}

// ------------------------------------------------------------------------------------------------ atomics

struct Atomic {
  uint32_t op = TW_ATOMIC_ADD;
  size_t size = 8;
  uint64_t operand = 0;
  uint64_t compare = 0;
  void* result = nullptr;  // NULL: not fetched
};

/// At an address in any memory.
ucs_status_t read_word(ucp_worker& worker, const char* function, const void* from, size_t size, uint64_t* word) {
  *word = 0;
  if (is_device_memory(from)) return copy(worker, function, word, {from, size});
  std::memcpy(word, from, size);
  return UCS_OK;
}

ucs_status_t check_size(size_t size, const char* function) {
  if (size == 4 || size == 8) return UCS_OK;
  return unsupported(function, "an atomic operation on other than 4 or 8 bytes", "use 32 or 64 bits");
}

ucs_status_ptr_t atomic(const Target& target, const Atomic& atomic, const Wanted& wanted, const char* function) {
  uint64_t offset = 0;
  if (ucs_status_t s = no_connection(target.ep); s != UCS_OK) return pointer_of(s);
  if (ucs_status_t s = check_size(atomic.size, function); s != UCS_OK) return pointer_of(s);
  if (ucs_status_t s = offset_of(target.key, target.address, atomic.size, &offset); s != UCS_OK) return pointer_of(s);
  Request* const request = take_for(target.ep, wanted, kAtomic);
  if (request == nullptr) return pointer_of(UCS_ERR_NO_MEMORY);
  if (atomic.result != nullptr) enter_ledger(*request);
  const tw_status status = tw_atomic(target.ep.endpoint, atomic.op, target.key.memory, offset, atomic.size, atomic.operand,
                                     atomic.compare, atomic.result, options_for(*request, nullptr, 0), &request->operation);
  return posted(*request, status, wanted, function);
}

bool take_op(ucp_atomic_op_t op, Atomic* into) {
  constexpr uint32_t kOps[] = {TW_ATOMIC_ADD, TW_ATOMIC_SWAP, TW_ATOMIC_CSWAP, TW_ATOMIC_AND, TW_ATOMIC_OR, TW_ATOMIC_XOR};
  static_assert(UCP_ATOMIC_OP_ADD == 0 && UCP_ATOMIC_OP_SWAP == 1 && UCP_ATOMIC_OP_CSWAP == 2 && UCP_ATOMIC_OP_AND == 3 &&
                UCP_ATOMIC_OP_OR == 4 && UCP_ATOMIC_OP_XOR == 5);
  if (op >= UCP_ATOMIC_OP_LAST) return false;
  into->op = kOps[op];
  return true;
}

bool take_op(ucp_atomic_fetch_op_t op, Atomic* into) {
  static_assert(UCP_ATOMIC_FETCH_OP_FADD == 0 && UCP_ATOMIC_FETCH_OP_SWAP == 1 && UCP_ATOMIC_FETCH_OP_CSWAP == 2 &&
                UCP_ATOMIC_FETCH_OP_FAND == 3 && UCP_ATOMIC_FETCH_OP_FOR == 4 && UCP_ATOMIC_FETCH_OP_FXOR == 5);
  constexpr ucp_atomic_op_t kOps[] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP,
                                      UCP_ATOMIC_OP_AND, UCP_ATOMIC_OP_OR,   UCP_ATOMIC_OP_XOR};
  return op < UCP_ATOMIC_FETCH_OP_LAST && take_op(kOps[op], into);
}

/// A value, and where the old one goes. Of a compare-and-swap the value is what is compared, and the new one lies where the old one goes.
ucs_status_t take_values(ucp_worker& worker, const char* function, const void* value, void* result, Atomic* into) {
  if (is_device_memory(result))
    return unsupported(function, "an old value that goes to memory of a device", "take it into memory of the host");
  into->result = result;
  if (ucs_status_t s = read_word(worker, function, value, into->size, &into->operand); s != UCS_OK) return s;
  if (into->op != TW_ATOMIC_CSWAP) return UCS_OK;
  into->compare = into->operand;
  return read_word(worker, function, result, into->size, &into->operand);
}

/// The older blocking functions: `word` is the operand.
ucs_status_t fetch(const Target& target, Atomic one, const char* function) {
  const Hold hold(*target.ep.worker);
  return wait_for(*target.ep.worker, atomic(target, one, Wanted{}, function));
}

}  // namespace
}  // namespace thalweg::ucx

using namespace thalweg::ucx;

namespace {

constexpr uint32_t kFields = kCommonFields | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS;

ucp_datatype_t datatype_of(const ucp_request_param_t& param) {
  return (param.op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0 ? param.datatype : kBytes;
}

/// No flags belong to these functions.
ucs_status_t check(const char* function, const ucp_request_param_t& param, uint32_t known) {
  if (ucs_status_t s = check_fields(function, param, known); s != UCS_OK) return s;
  if ((param.op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) == 0) [[likely]]
    return UCS_OK;
  return check_mask(function, "flags", param.flags, 0);
}

void* untyped(const void* buffer) { return const_cast<void*>(buffer); }

}  // namespace

extern "C" {

ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void* buffer, size_t count, uint64_t remote_addr, ucp_rkey_h rkey,
                             const ucp_request_param_t* param) {
  if (ucs_status_t s = check("ucp_put_nbx", *param, kFields); s != UCS_OK) return pointer_of(s);
  const Hold hold(*ep->worker);
  return transfer(Verb::put, {*ep, *rkey, remote_addr}, untyped(buffer), count, datatype_of(*param), wanted_send(*param),
                  "ucp_put_nbx");
}

ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void* buffer, size_t count, uint64_t remote_addr, ucp_rkey_h rkey,
                             const ucp_request_param_t* param) {
  if (ucs_status_t s = check("ucp_get_nbx", *param, kFields); s != UCS_OK) return pointer_of(s);
  const Hold hold(*ep->worker);
  return transfer(Verb::get, {*ep, *rkey, remote_addr}, buffer, count, datatype_of(*param), wanted_send(*param), "ucp_get_nbx");
}

ucs_status_ptr_t ucp_put_nb(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr, ucp_rkey_h rkey,
                            ucp_send_callback_t cb) {
  const Hold hold(*ep->worker);
  return transfer(Verb::put, {*ep, *rkey, remote_addr}, untyped(buffer), length, kBytes, wanted_send(cb), "ucp_put_nb");
}

ucs_status_ptr_t ucp_get_nb(ucp_ep_h ep, void* buffer, size_t length, uint64_t remote_addr, ucp_rkey_h rkey,
                            ucp_send_callback_t cb) {
  const Hold hold(*ep->worker);
  return transfer(Verb::get, {*ep, *rkey, remote_addr}, buffer, length, kBytes, wanted_send(cb), "ucp_get_nb");
}

ucs_status_t ucp_put_nbi(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr, ucp_rkey_h rkey) {
  const Hold hold(*ep->worker);
  return put_untold({*ep, *rkey, remote_addr}, buffer, length, "ucp_put_nbi");
}

ucs_status_t ucp_get_nbi(ucp_ep_h ep, void* buffer, size_t length, uint64_t remote_addr, ucp_rkey_h rkey) {
  const Hold hold(*ep->worker);
  return get_untold({*ep, *rkey, remote_addr}, buffer, length, "ucp_get_nbi");
}

ucs_status_t ucp_put(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr, ucp_rkey_h rkey) {
  const Hold hold(*ep->worker);
  return wait_for(*ep->worker,
                  transfer(Verb::put, {*ep, *rkey, remote_addr}, untyped(buffer), length, kBytes, Wanted{}, "ucp_put"));
}

ucs_status_t ucp_get(ucp_ep_h ep, void* buffer, size_t length, uint64_t remote_addr, ucp_rkey_h rkey) {
  const Hold hold(*ep->worker);
  return wait_for(*ep->worker, transfer(Verb::get, {*ep, *rkey, remote_addr}, buffer, length, kBytes, Wanted{}, "ucp_get"));
}

// ------------------------------------------------------------------------------------------------ atomics

ucs_status_ptr_t ucp_atomic_op_nbx(ucp_ep_h ep, ucp_atomic_op_t opcode, const void* buffer, size_t count, uint64_t remote_addr,
                                   ucp_rkey_h rkey, const ucp_request_param_t* param) {
  constexpr uint32_t kKnown = kFields | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  if (ucs_status_t s = check("ucp_atomic_op_nbx", *param, kKnown); s != UCS_OK) return pointer_of(s);
  Atomic one;
  const bool typed = (param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0;
  one.size = typed ? param->datatype >> UCP_DATATYPE_SHIFT : 0;
  if (!typed || count != 1 || (param->datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG || !take_op(opcode, &one)) {
    return pointer_of(UCS_ERR_INVALID_PARAM);
  }
  if (ucs_status_t s = check_size(one.size, "ucp_atomic_op_nbx"); s != UCS_OK) return pointer_of(s);
  void* const result = (param->op_attr_mask & UCP_OP_ATTR_FIELD_REPLY_BUFFER) != 0 ? param->reply_buffer : nullptr;
  if (result == nullptr && (opcode == UCP_ATOMIC_OP_SWAP || opcode == UCP_ATOMIC_OP_CSWAP)) {
    return pointer_of(UCS_ERR_INVALID_PARAM);
  }
  const Hold hold(*ep->worker);
  if (ucs_status_t s = take_values(*ep->worker, "ucp_atomic_op_nbx", buffer, result, &one); s != UCS_OK) return pointer_of(s);
  return atomic({*ep, *rkey, remote_addr}, one, wanted_send(*param), "ucp_atomic_op_nbx");
}

ucs_status_ptr_t ucp_atomic_fetch_nb(ucp_ep_h ep, ucp_atomic_fetch_op_t opcode, uint64_t value, void* result, size_t op_size,
                                     uint64_t remote_addr, ucp_rkey_h rkey, ucp_send_callback_t cb) {
  if (ucs_status_t s = check_size(op_size, "ucp_atomic_fetch_nb"); s != UCS_OK) return pointer_of(s);
  Atomic one;
  one.size = op_size;
  if (result == nullptr || !take_op(opcode, &one)) return pointer_of(UCS_ERR_INVALID_PARAM);
  const Hold hold(*ep->worker);
  if (ucs_status_t s = take_values(*ep->worker, "ucp_atomic_fetch_nb", &value, result, &one); s != UCS_OK) return pointer_of(s);
  return atomic({*ep, *rkey, remote_addr}, one, wanted_send(cb), "ucp_atomic_fetch_nb");
}

ucs_status_t ucp_atomic_post(ucp_ep_h ep, ucp_atomic_post_op_t opcode, uint64_t value, size_t op_size, uint64_t remote_addr,
                             ucp_rkey_h rkey) {
  constexpr uint32_t kOps[] = {TW_ATOMIC_ADD, TW_ATOMIC_AND, TW_ATOMIC_OR, TW_ATOMIC_XOR};
  static_assert(UCP_ATOMIC_POST_OP_ADD == 0 && UCP_ATOMIC_POST_OP_AND == 1 && UCP_ATOMIC_POST_OP_OR == 2 &&
                UCP_ATOMIC_POST_OP_XOR == 3);
  if (opcode >= UCP_ATOMIC_POST_OP_LAST) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = check_size(op_size, "ucp_atomic_post"); s != UCS_OK) return s;
  uint64_t offset = 0;
  const Hold hold(*ep->worker);
  if (ucs_status_t s = no_connection(*ep); s != UCS_OK) return s;
  if (ucs_status_t s = offset_of(*rkey, remote_addr, op_size, &offset); s != UCS_OK) return s;
  ep->peer->one_sided = ep->peer->unflushed = true;
  const uint64_t operand = op_size == sizeof(uint32_t) ? static_cast<uint32_t>(value) : value;  // UCX reads no more of it
  const tw_status status =
      tw_atomic(ep->endpoint, kOps[opcode], rkey->memory, offset, op_size, operand, 0, nullptr, nullptr, nullptr);
  return status >= 0 ? UCS_OK : failed("ucp_atomic_post", status);
}

ucs_status_t ucp_atomic_add32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey) {
  return ucp_atomic_post(ep, UCP_ATOMIC_POST_OP_ADD, add, sizeof add, remote_addr, rkey);
}
ucs_status_t ucp_atomic_add64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey) {
  return ucp_atomic_post(ep, UCP_ATOMIC_POST_OP_ADD, add, sizeof add, remote_addr, rkey);
}
ucs_status_t ucp_atomic_fadd32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey, uint32_t* result) {
  return fetch({*ep, *rkey, remote_addr}, {TW_ATOMIC_ADD, 4, add, 0, result}, "ucp_atomic_fadd32");
}
ucs_status_t ucp_atomic_fadd64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey, uint64_t* result) {
  return fetch({*ep, *rkey, remote_addr}, {TW_ATOMIC_ADD, 8, add, 0, result}, "ucp_atomic_fadd64");
}
ucs_status_t ucp_atomic_swap32(ucp_ep_h ep, uint32_t swap, uint64_t remote_addr, ucp_rkey_h rkey, uint32_t* result) {
  return fetch({*ep, *rkey, remote_addr}, {TW_ATOMIC_SWAP, 4, swap, 0, result}, "ucp_atomic_swap32");
}
ucs_status_t ucp_atomic_swap64(ucp_ep_h ep, uint64_t swap, uint64_t remote_addr, ucp_rkey_h rkey, uint64_t* result) {
  return fetch({*ep, *rkey, remote_addr}, {TW_ATOMIC_SWAP, 8, swap, 0, result}, "ucp_atomic_swap64");
}
ucs_status_t ucp_atomic_cswap32(ucp_ep_h ep, uint32_t compare, uint32_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                                uint32_t* result) {
  return fetch({*ep, *rkey, remote_addr}, {TW_ATOMIC_CSWAP, 4, swap, compare, result}, "ucp_atomic_cswap32");
}
ucs_status_t ucp_atomic_cswap64(ucp_ep_h ep, uint64_t compare, uint64_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                                uint64_t* result) {
  return fetch({*ep, *rkey, remote_addr}, {TW_ATOMIC_CSWAP, 8, swap, compare, result}, "ucp_atomic_cswap64");
}

}  // extern "C"
