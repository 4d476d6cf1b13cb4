// SPDX-License-Identifier: Apache-2.0
#include "datatype.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "memory.hpp"
#include "status.hpp"
#include "worker.hpp"

namespace thalweg::ucx {

char empty_buffer[8];

struct Generic {
  ucp_generic_dt_ops_t ops;
  void* context;
  tw_layout* layout;
};

namespace {

/// One operation's use of a generic datatype. UCX's users may pack and unpack whole elements only, and UCX sends what one call packed as
/// one piece. Thalweg cuts anywhere: what does not fit where a fragment ends is packed into `rest`, and goes from there; what is
/// no whole element where one ends is kept in `carry` until the next one. An element is at most kElement bytes.
struct Use {
  static constexpr size_t kElement = 64;
  const ucp_generic_dt_ops_t* ops;
  void* state;
  size_t rest_at = 0, rest_end = 0;
  std::byte rest[256];
  uint64_t carry_offset = 0;
  size_t carried = 0;
  std::byte carry[kElement];
  ucs_status_t* outcome;
  ucs_status_t why = UCS_OK;  // the user's last word about bytes that it did not take

  size_t take_rest(void* dest, size_t max_length) {
    const size_t n = std::min(max_length, rest_end - rest_at);
    std::memcpy(dest, rest + rest_at, n);
    rest_at += n;
    return n;
  }
};

tw_status start(void* arg, const void* buffer, size_t, int direction, void** state) {
  const auto& generic = *static_cast<const Generic*>(arg);
  const auto& call = *static_cast<const GenericCall*>(buffer);
  auto* const use = new (std::nothrow) Use;
  if (use == nullptr) return TW_ERR_NO_MEMORY;
  use->ops = &generic.ops;
  use->outcome = direction == TW_LAYOUT_UNPACK ? call.outcome : nullptr;
  use->state = direction == TW_LAYOUT_PACK ? generic.ops.start_pack(generic.context, call.buffer, call.count)
                                           : generic.ops.start_unpack(generic.context, call.buffer, call.count);
  *state = use;
  return TW_OK;
}

size_t packed_size(void* state) {
  const Use& use = *static_cast<Use*>(state);
  return use.ops->packed_size(use.state);
}

int64_t pack(void* state, uint64_t offset, void* dest, size_t max_length) {
  Use& use = *static_cast<Use*>(state);
  if (use.rest_at != use.rest_end) return static_cast<int64_t>(use.take_rest(dest, max_length));
  const size_t packed = use.ops->pack(use.state, offset, dest, max_length);
  if (packed != 0 || max_length >= sizeof use.rest) return static_cast<int64_t>(packed);
  use.rest_at = 0;
  use.rest_end = use.ops->pack(use.state, offset, use.rest, sizeof use.rest);
  return static_cast<int64_t>(use.take_rest(dest, max_length));
}

bool unpack_whole(Use& use, uint64_t offset, const void* source, size_t length) {
  const ucs_status_t status = use.ops->unpack(use.state, offset, source, length);
  if (status != UCS_OK) use.why = status;
  return status == UCS_OK;
}

/// Completes the element that was carried over. *used: how many bytes of the source went there.
bool finish_carry(Use& use, const std::byte* source, size_t length, size_t* used) {
  for (size_t n = 1; n <= length && use.carried < Use::kElement; ++n) {
    use.carry[use.carried++] = source[n - 1];
    if (!unpack_whole(use, use.carry_offset, use.carry, use.carried)) continue;
    use.carried = 0;
    *used = n;
    return true;
  }
  *used = length;
  return use.carried < Use::kElement;  // else no such element: an error
}

/// Unpacks what are whole elements, and carries the others over. What may be carried is copied first: over shared memory the sender
/// can still change it.
bool unpack_most(Use& use, uint64_t offset, const std::byte* source, size_t length) {
  std::byte tail[Use::kElement - 1];
  const size_t last = std::min(length, sizeof tail);
  std::memcpy(tail, source + length - last, last);
  if (unpack_whole(use, offset, source, length)) return true;
  for (size_t cut = 1; cut <= last; ++cut) {
    if (cut != length && !unpack_whole(use, offset, source, length - cut)) continue;
    use.carry_offset = offset + length - cut;
    use.carried = cut;
    std::memcpy(use.carry, tail + last - cut, cut);
    return true;
  }
  return false;
}

tw_status fail_unpack(Use& use) {
  if (use.outcome != nullptr) *use.outcome = use.why;
  return use.why == UCS_ERR_NO_MEMORY ? TW_ERR_NO_MEMORY : TW_ERR_INVALID;
}

tw_status unpack(void* state, uint64_t offset, const void* source, size_t length) {
  Use& use = *static_cast<Use*>(state);
  const auto* const bytes = static_cast<const std::byte*>(source);
  size_t used = 0;
  if (use.carried != 0 && !finish_carry(use, bytes, length, &used)) return fail_unpack(use);
  if (used == length || unpack_most(use, offset + used, bytes + used, length - used)) return TW_OK;
  return fail_unpack(use);
}

void finish_use(void* state) {
  Use* const use = static_cast<Use*>(state);
  if (use->carried != 0) {  // the message ends within an element, or the user refused its end
    tell("unpack of a generic datatype did not take the last %zu bytes of a message (%d)", use->carried, use->why);
    if (use->outcome != nullptr) *use->outcome = use->why != UCS_OK ? use->why : UCS_ERR_INVALID_PARAM;
  }
  use->ops->finish(use->state);
  delete use;
}

void destroyed(void* arg) { delete static_cast<Generic*>(arg); }

Generic* generic_of(ucp_datatype_t datatype) {
  return reinterpret_cast<Generic*>(datatype & ~static_cast<ucp_datatype_t>(UCP_DATATYPE_CLASS_MASK));
}

/// A list is of one kind: a device moves all of it, or this CPU does.
ucs_status_t check_kinds(const char* function, const ucp_dt_iov_t* iov, size_t count) {
  bool of_host = false, of_device = false;
  for (size_t i = 0; i < count; ++i) {
    if (iov[i].length != 0) (is_device_memory(iov[i].buffer) ? of_device : of_host) = true;
  }
  if (!of_host || !of_device) return UCS_OK;
  return unsupported(function, "a list (UCP_DATATYPE_IOV) with memory of the host and of a device",
                     "pass a list for each of them");
}

ucs_status_t describe_iov(const char* function, const ucp_dt_iov_t* iov, size_t count, Local* into) {
  uintptr_t base = UINTPTR_MAX;
  size_t total = 0, used = 0;
  for (size_t i = 0; i < count; ++i) {
    if (iov[i].length == 0) continue;
    base = std::min(base, reinterpret_cast<uintptr_t>(iov[i].buffer));
    total += iov[i].length;
    ++used;
  }
  into->length = total;
  if (used == 0) return UCS_OK;
  into->buffer = reinterpret_cast<void*>(base);
  if (used == 1) return UCS_OK;
  if (ucs_status_t s = check_kinds(function, iov, count); s != UCS_OK) return s;
  std::vector<tw_piece> pieces;
  pieces.reserve(used);
  for (size_t i = 0; i < count; ++i) {
    if (iov[i].length != 0) pieces.push_back({reinterpret_cast<uintptr_t>(iov[i].buffer) - base, iov[i].length});
  }
  const tw_status status = tw_layout_pieces(pieces.data(), pieces.size(), &into->made);
  into->layout = into->made;
  return status == TW_OK ? UCS_OK : failed(function, status);
}

ucs_status_t refuse(const char* function) {
  return unsupported(function, "a datatype that is neither contiguous, iov nor generic",
                     "describe the buffer as UCP_DATATYPE_IOV");
}

size_t total_of(const ucp_dt_iov_t* iov, size_t count) {
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) total += iov[i].length;
  return total;
}

ucs_status_t unpack_generic(const Generic& generic, void* buffer, size_t count, Span from) {
  void* const state = generic.ops.start_unpack(generic.context, buffer, count);
  ucs_status_t status = UCS_ERR_MESSAGE_TRUNCATED;
  if (from.length <= generic.ops.packed_size(state)) {
    status = from.length != 0 ? generic.ops.unpack(state, 0, from.address, from.length) : UCS_OK;
  }
  generic.ops.finish(state);
  return status;
}

}  // namespace

ucs_status_ptr_t no_memory(Local& local) {
  if (local.made != nullptr) tw_layout_destroy(local.made);
  local.made = nullptr;
  return pointer_of(UCS_ERR_NO_MEMORY);
}

ucs_status_t copy(ucp_worker& worker, const char* function, void* to, Span from) {
  if (from.length == 0) return UCS_OK;
  const tw_status status = tw_memory_copy(worker.context.context, to, from.address, from.length);
  return status == TW_OK ? UCS_OK : failed(function, status);
}

ucs_status_t unpack_all(ucp_worker& worker, const char* function, ucp_datatype_t datatype, void* buffer, size_t count,
                        Span from) {
  const ucp_datatype_t kind = datatype & UCP_DATATYPE_CLASS_MASK;
  if (kind == UCP_DATATYPE_GENERIC) return unpack_generic(*generic_of(datatype), buffer, count, from);
  if (kind == UCP_DATATYPE_CONTIG) {
    if (from.length > count * (datatype >> UCP_DATATYPE_SHIFT)) return UCS_ERR_MESSAGE_TRUNCATED;
    return copy(worker, function, buffer, from);
  }
  if (kind != UCP_DATATYPE_IOV) return refuse(function);
  const auto* iov = static_cast<const ucp_dt_iov_t*>(buffer);
  if (from.length > total_of(iov, count)) return UCS_ERR_MESSAGE_TRUNCATED;
  const auto* at = static_cast<const std::byte*>(from.address);
  for (size_t left = from.length; left != 0; ++iov) {
    const size_t n = std::min(iov->length, left);
    if (ucs_status_t s = copy(worker, function, iov->buffer, {at, n}); s != UCS_OK) return s;
    at += n;
    left -= n;
  }
  return UCS_OK;
}

ucs_status_t describe(const char* function, ucp_datatype_t datatype, const void* buffer, size_t count, Local* into) {
  into->buffer = empty_buffer;
  switch (datatype & UCP_DATATYPE_CLASS_MASK) {
    case UCP_DATATYPE_CONTIG:
      into->length = count * (datatype >> UCP_DATATYPE_SHIFT);
      if (into->length != 0) into->buffer = const_cast<void*>(buffer);
      return UCS_OK;
    case UCP_DATATYPE_IOV:
      return describe_iov(function, static_cast<const ucp_dt_iov_t*>(buffer), count, into);
    case UCP_DATATYPE_GENERIC:
      into->call = {const_cast<void*>(buffer), count, nullptr};
      into->buffer = &into->call;
      into->layout = generic_of(datatype)->layout;
      return UCS_OK;
    default:
      return refuse(function);
  }
}

}  // namespace thalweg::ucx

using namespace thalweg::ucx;

extern "C" {

ucs_status_t ucp_dt_create_generic(const ucp_generic_dt_ops_t* ops, void* context, ucp_datatype_t* datatype_p) {
  if (ops == nullptr || datatype_p == nullptr) return UCS_ERR_INVALID_PARAM;
  auto* const generic = new (std::nothrow) Generic{*ops, context, nullptr};
  if (generic == nullptr) return UCS_ERR_NO_MEMORY;
  tw_layout_callbacks_options options = TW_LAYOUT_CALLBACKS_OPTIONS_INIT;
  options.arg = generic;
  options.start = start;
  options.packed_size = packed_size;
  options.pack = pack;
  options.unpack = unpack;
  options.finish = finish_use;
  options.destroy = destroyed;
  const tw_status status = tw_layout_callbacks(&options, &generic->layout);
  if (status != TW_OK) {
    delete generic;
    return failed("ucp_dt_create_generic", status);
  }
  static_assert(alignof(Generic) > UCP_DATATYPE_CLASS_MASK);
  *datatype_p = reinterpret_cast<ucp_datatype_t>(generic) | UCP_DATATYPE_GENERIC;
  return UCS_OK;
}

void ucp_dt_destroy(ucp_datatype_t datatype) {
  if ((datatype & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_GENERIC) tw_layout_destroy(generic_of(datatype)->layout);
}

#if THALWEG_HAS_ucp_dt_query
ucs_status_t ucp_dt_query(ucp_datatype_t datatype, ucp_datatype_attr_t* attr) {
  if (attr == nullptr) return UCS_ERR_INVALID_PARAM;
  constexpr uint64_t kKnown =
      UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE | UCP_DATATYPE_ATTR_FIELD_BUFFER | UCP_DATATYPE_ATTR_FIELD_COUNT;
  if (ucs_status_t s = check_mask("ucp_dt_query", "field_mask", attr->field_mask, kKnown); s != UCS_OK) return s;
  if ((attr->field_mask & UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE) == 0) return UCS_OK;
  const void* const buffer = (attr->field_mask & UCP_DATATYPE_ATTR_FIELD_BUFFER) != 0 ? attr->buffer : nullptr;
  const size_t count = (attr->field_mask & UCP_DATATYPE_ATTR_FIELD_COUNT) != 0 ? attr->count : 1;
  if ((datatype & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_IOV) {
    attr->packed_size = total_of(static_cast<const ucp_dt_iov_t*>(buffer), count);
    return UCS_OK;
  }
  if ((datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_GENERIC) {
    Local local;
    const ucs_status_t status = describe("ucp_dt_query", datatype, buffer, count, &local);
    attr->packed_size = local.length;
    return status;
  }
  const Generic& generic = *generic_of(datatype);
  void* const state = generic.ops.start_pack(generic.context, buffer, count);
  attr->packed_size = generic.ops.packed_size(state);
  generic.ops.finish(state);
  return UCS_OK;
}
#endif

}  // extern "C"
