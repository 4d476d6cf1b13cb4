// SPDX-License-Identifier: Apache-2.0
// Memory that is allocated here is the library's, so peers on this machine map it. UCX lets the caller say where (FIXED: symmetric
// heaps): then the same pages are mapped there a second time.
#include "memory.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <thalweg/places.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "context.hpp"
#include "endpoint.hpp"
#include "status.hpp"

namespace thalweg::ucx {

ucs_memory_type_t type_at(const void* address) {
  tw_memory_info info = TW_MEMORY_INFO_INIT;
  if (address == nullptr || tw_memory_query(address, &info) != TW_OK) return UCS_MEMORY_TYPE_HOST;
  switch (info.kind) {
    case TW_MEMORY_DEVICE:
    case TW_MEMORY_POOL:
    case TW_MEMORY_VMM:
      return UCS_MEMORY_TYPE_CUDA;
    case TW_MEMORY_MANAGED:
      return UCS_MEMORY_TYPE_CUDA_MANAGED;
    default:
      return UCS_MEMORY_TYPE_HOST;
  }
}

bool is_device_memory(const void* address) {
  tw_memory_info info = TW_MEMORY_INFO_INIT;
  return address != nullptr && tw_memory_query(address, &info) == TW_OK && info.host_access == 0;
}

}  // namespace thalweg::ucx

using namespace thalweg::ucx;

namespace {

constexpr uint64_t kParams = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                             UCP_MEM_MAP_PARAM_FIELD_PROT | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
constexpr unsigned kFlags = UCP_MEM_MAP_NONBLOCK | UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED
#if THALWEG_HAS_UCP_MEM_MAP_SYMMETRIC_RKEY
                            | UCP_MEM_MAP_SYMMETRIC_RKEY
#endif
#if THALWEG_HAS_UCP_MEM_MAP_LOCK
                            | UCP_MEM_MAP_LOCK
#endif
    ;

constexpr uint64_t kConnecting = 10'000'000'000;  // ns; as long as connecting may take
constexpr unsigned kProtections =
    UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE | UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE;

/// The parameters, with UCX's defaults for what is left out.
struct Wish {
  void* address = nullptr;
  size_t length = 0;
  unsigned flags = 0;
  unsigned prot = 0;
  ucs_memory_type_t type = UCS_MEMORY_TYPE_UNKNOWN;
};

Wish read(const ucp_mem_map_params_t& params) {
  Wish wish;
  const uint64_t mask = params.field_mask;
  if ((mask & UCP_MEM_MAP_PARAM_FIELD_ADDRESS) != 0) wish.address = params.address;
  if ((mask & UCP_MEM_MAP_PARAM_FIELD_LENGTH) != 0) wish.length = params.length;
  if ((mask & UCP_MEM_MAP_PARAM_FIELD_FLAGS) != 0) wish.flags = params.flags;
  if ((mask & UCP_MEM_MAP_PARAM_FIELD_PROT) != 0) wish.prot = params.prot;
  if ((mask & UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE) != 0) wish.type = params.memory_type;
  // UCX's rule: without an address the memory is allocated.
  const bool given = (mask & UCP_MEM_MAP_PARAM_FIELD_ADDRESS) != 0 && params.address != nullptr;
  if (!given) wish.flags |= UCP_MEM_MAP_ALLOCATE;
  return wish;
}

bool is_page(const void* address) {
  return address != nullptr && reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)) == 0;
}

ucs_status_t check(const ucp_mem_map_params_t& params, const Wish& wish) {
  if (ucs_status_t s = check_mask("ucp_mem_map", "field_mask", params.field_mask, kParams); s != UCS_OK) return s;
  if (ucs_status_t s = check_mask("ucp_mem_map", "flags", wish.flags, kFlags); s != UCS_OK) return s;
  if (ucs_status_t s = check_mask("ucp_mem_map", "prot", wish.prot, kProtections); s != UCS_OK) return s;
  if ((params.field_mask & UCP_MEM_MAP_PARAM_FIELD_LENGTH) == 0) {
    tell("ucp_mem_map: UCP_MEM_MAP_PARAM_FIELD_LENGTH is missing");
    return UCS_ERR_INVALID_PARAM;
  }
  if ((wish.flags & UCP_MEM_MAP_FIXED) != 0 && !is_page(wish.address)) {
    tell("ucp_mem_map: UCP_MEM_MAP_FIXED needs the address of a page, not %p", wish.address);
    return UCS_ERR_INVALID_PARAM;
  }
  const bool there = (wish.flags & UCP_MEM_MAP_ALLOCATE) != 0 && (wish.flags & UCP_MEM_MAP_FIXED) != 0;
  if (there && wish.type != UCS_MEMORY_TYPE_HOST && wish.type != UCS_MEMORY_TYPE_UNKNOWN) {
    return unsupported("ucp_mem_map", "UCP_MEM_MAP_FIXED with UCP_MEM_MAP_ALLOCATE of memory that is not the host's",
                       "let the library choose the address, or map memory that you have allocated");
  }
  switch (wish.type) {
    case UCS_MEMORY_TYPE_HOST:
    case UCS_MEMORY_TYPE_CUDA:
    case UCS_MEMORY_TYPE_CUDA_MANAGED:
    case UCS_MEMORY_TYPE_UNKNOWN:
      return UCS_OK;
    default:
      return unsupported("ucp_mem_map", "memory of other devices than CUDA's", "use memory of the host or of a CUDA device");
  }
}

bool is_hidden(unsigned prot) {
  return prot != 0 && (prot & (UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE)) == 0;
}

uint32_t access_of(unsigned prot) {
  if (prot == 0) return TW_MEMORY_ALL;
  uint32_t access = 0;
  if ((prot & UCP_MEM_MAP_PROT_REMOTE_READ) != 0) access |= TW_MEMORY_READ;
  if ((prot & UCP_MEM_MAP_PROT_REMOTE_WRITE) != 0) access |= TW_MEMORY_WRITE | TW_MEMORY_ATOMIC;
  // 0 means all to Thalweg; memory that peers may not reach is given to none: is_hidden().
  return access == 0 ? uint32_t{TW_MEMORY_READ} : access;
}

/// Keeps the place that the user named free until the pages are mapped there. What lies there already is not replaced.
class Place {
 public:
  Place(void* where, size_t length) : where_(where), length_(length) {
    if (!is_page(where)) return;
    kept_ = mmap(where, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == where;
  }
  ~Place() {
    if (kept_) munmap(where_, length_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  bool kept() const { return kept_; }

  /// The library's pages there, too.
  bool take(ucp_mem& memory) {
    // By the system call: libucm, which consumers have loaded, puts a function of its own before mremap that loses the last argument.
    if (syscall(SYS_mremap, memory.address, 0ul, length_, MREMAP_MAYMOVE | MREMAP_FIXED, where_) == -1) return false;
    kept_ = false;
    memory.address = where_;
    memory.fixed = true;
    return true;
  }

 private:
  void* where_;
  size_t length_;
  bool kept_ = false;
};

const char* place_of(ucs_memory_type_t type) {
  switch (type) {
    case UCS_MEMORY_TYPE_CUDA:
      return "cuda";
    case UCS_MEMORY_TYPE_CUDA_MANAGED:
      return "managed";
    default:
      return nullptr;
  }
}

ucs_status_t allocate(ucp_context& context, const Wish& wish, ucp_mem& memory) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.access = access_of(wish.prot);
  options.place = place_of(wish.type);
  const tw_status status = tw_memory_allocate(context.context, wish.length, &options, &memory.memory);
  if (status != TW_OK) return failed("ucp_mem_map", status);
  memory.address = tw_memory_address(memory.memory);
  return UCS_OK;
}

ucs_status_t allocate_there(ucp_context& context, const Wish& wish, ucp_mem& memory) {
  Place place(wish.address, wish.length);
  if (!place.kept()) {
    tell("ucp_mem_map: UCP_MEM_MAP_FIXED at %p: no address of a page, or something is mapped in its %zu bytes", wish.address,
         wish.length);
    return UCS_ERR_INVALID_ADDR;
  }
  if (ucs_status_t s = allocate(context, wish, memory); s != UCS_OK) return s;
  if (place.take(memory)) return UCS_OK;
  (void)tw_memory_release(memory.memory);
  return UCS_ERR_NO_MEMORY;
}

ucs_status_t attach(ucp_context& context, const Wish& wish, ucp_mem& memory) {
  tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
  options.access = access_of(wish.prot);
  const tw_status status = tw_memory_register(context.context, wish.address, wish.length, &options, &memory.memory);
  memory.address = wish.address;
  return status == TW_OK ? UCS_OK : failed("ucp_mem_map", status);
}

ucs_status_t pack(const ucp_mem& memory, void** buffer, size_t* size) {
  const bool opens = memory.memory != nullptr && !memory.hidden;
  KeyHeader header{};
  std::memcpy(header.magic, kKeyMagic, sizeof kKeyMagic);
  header.address = reinterpret_cast<uint64_t>(memory.address);
  header.bytes = opens ? memory.length : 0;
  size_t key = 0;
  if (opens) {
    if (const tw_status s = tw_memory_export(memory.memory, nullptr, &key); s < 0) return failed("ucp_rkey_pack", s);
  }
  auto* const bytes = static_cast<std::byte*>(std::malloc(sizeof header + key));
  if (bytes == nullptr) return UCS_ERR_NO_MEMORY;
  if (opens) {
    const tw_status status = tw_memory_export(memory.memory, bytes + sizeof header, &key);
    if (status < 0) {
      std::free(bytes);
      return failed("ucp_rkey_pack", status);
    }
  }
  header.length = static_cast<uint32_t>(key);
  std::memcpy(bytes, &header, sizeof header);
  *buffer = bytes;
  *size = sizeof header + key;
  return UCS_OK;
}

}  // namespace

extern "C" {

ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t* params, ucp_mem_h* memh_p) {
  if (context == nullptr || params == nullptr || memh_p == nullptr) return UCS_ERR_INVALID_PARAM;
  const Wish wish = read(*params);
  if (ucs_status_t s = check(*params, wish); s != UCS_OK) return s;
  auto memory = std::make_unique<ucp_mem>();
  memory->length = wish.length;
  memory->address = wish.address;
  memory->hidden = is_hidden(wish.prot);
  if (wish.length != 0) {
    const bool own = (wish.flags & UCP_MEM_MAP_ALLOCATE) != 0, fixed = (wish.flags & UCP_MEM_MAP_FIXED) != 0;
    const ucs_status_t status = !own    ? attach(*context, wish, *memory)
                                : fixed ? allocate_there(*context, wish, *memory)
                                        : allocate(*context, wish, *memory);
    if (status != UCS_OK) return status;
  }
  memory->type = wish.type != UCS_MEMORY_TYPE_UNKNOWN ? wish.type : type_at(memory->address);
  *memh_p = memory.release();
  return UCS_OK;
}

ucs_status_t ucp_mem_unmap(ucp_context_h, ucp_mem_h memh) {
  if (memh == nullptr) return UCS_ERR_INVALID_PARAM;
  if (memh->memory != nullptr) {
    const tw_status status = tw_memory_release(memh->memory);
    if (status != TW_OK) return failed("ucp_mem_unmap", status);
  }
  if (memh->fixed) munmap(memh->address, memh->length);
  delete memh;
  return UCS_OK;
}

ucs_status_t ucp_mem_query(const ucp_mem_h memh, ucp_mem_attr_t* attr) {
  if (memh == nullptr || attr == nullptr) return UCS_ERR_INVALID_PARAM;
  constexpr uint64_t kKnown = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH | UCP_MEM_ATTR_FIELD_MEM_TYPE;
  if (ucs_status_t s = check_mask("ucp_mem_query", "field_mask", attr->field_mask, kKnown); s != UCS_OK) return s;
  if ((attr->field_mask & UCP_MEM_ATTR_FIELD_ADDRESS) != 0) attr->address = memh->address;
  if ((attr->field_mask & UCP_MEM_ATTR_FIELD_LENGTH) != 0) attr->length = memh->length;
  if ((attr->field_mask & UCP_MEM_ATTR_FIELD_MEM_TYPE) != 0) attr->mem_type = memh->type;
  return UCS_OK;
}

ucs_status_t ucp_mem_advise(ucp_context_h, ucp_mem_h, ucp_mem_advise_params_t* params) {
  constexpr uint64_t kAdvice =
      UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS | UCP_MEM_ADVISE_PARAM_FIELD_LENGTH | UCP_MEM_ADVISE_PARAM_FIELD_ADVICE;
  if (params == nullptr) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = check_mask("ucp_mem_advise", "field_mask", params->field_mask, kAdvice); s != UCS_OK) return s;
  if ((params->field_mask & kAdvice) != kAdvice) return UCS_ERR_INVALID_PARAM;
  if (params->advice == UCP_MADV_NORMAL) return UCS_OK;
  if (params->advice != UCP_MADV_WILLNEED) return UCS_ERR_INVALID_PARAM;
  // Whole pages around it; advice may be ignored, so nothing fails.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(params->address) / page * page;
  madvise(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(params->address) + params->length - first, MADV_WILLNEED);
  return UCS_OK;
}

void ucp_mem_print_info(const char*, ucp_context_h, FILE* stream) {
  std::fprintf(stream, "#\n# UCP memory: allocated by thalweg, mapped by peers on this machine\n#\n");
}

// ------------------------------------------------------------------------------------------------ keys

ucs_status_t ucp_rkey_pack(ucp_context_h, ucp_mem_h memh, void** rkey_buffer_p, size_t* size_p) {
  if (memh == nullptr || rkey_buffer_p == nullptr || size_p == nullptr) return UCS_ERR_INVALID_PARAM;
  return pack(*memh, rkey_buffer_p, size_p);
}

void ucp_rkey_buffer_release(void* rkey_buffer) { std::free(rkey_buffer); }

#if THALWEG_HAS_ucp_memh_pack
ucs_status_t ucp_memh_pack(ucp_mem_h memh, const ucp_memh_pack_params_t* params, void** buffer_p, size_t* buffer_size_p) {
  if (memh == nullptr || params == nullptr || buffer_p == nullptr || buffer_size_p == nullptr) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = check_mask("ucp_memh_pack", "field_mask", params->field_mask, UCP_MEMH_PACK_PARAM_FIELD_FLAGS);
      s != UCS_OK) {
    return s;
  }
  const uint64_t flags = (params->field_mask & UCP_MEMH_PACK_PARAM_FIELD_FLAGS) != 0 ? params->flags : 0;
  if ((flags & UCP_MEMH_PACK_FLAG_EXPORT) != 0) {
    return unsupported("ucp_memh_pack", "UCP_MEMH_PACK_FLAG_EXPORT", "pack a key for peers instead, without that flag");
  }
  if (ucs_status_t s = check_mask("ucp_memh_pack", "flags", flags, 0); s != UCS_OK) return s;
  return pack(*memh, buffer_p, buffer_size_p);
}

void ucp_memh_buffer_release(void* buffer, const ucp_memh_buffer_release_params_t*) { std::free(buffer); }
#endif

#if THALWEG_HAS_ucp_rkey_compare
ucs_status_t ucp_rkey_compare(ucp_worker_h, ucp_rkey_h rkey1, ucp_rkey_h rkey2, const ucp_rkey_compare_params_t* params,
                              int* result) {
  if (rkey1 == nullptr || rkey2 == nullptr || params == nullptr || result == nullptr) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = check_mask("ucp_rkey_compare", "field_mask", params->field_mask, 0); s != UCS_OK) return s;
  // An order of what the keys reach, not of their ways: two keys of one region are equal.
  const auto order = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
  *result = order(rkey1->endpoint, rkey2->endpoint);
  if (*result == 0) *result = order(rkey1->address, rkey2->address);
  if (*result == 0) *result = order(rkey1->length, rkey2->length);
  return UCS_OK;
}
#endif

ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void* rkey_buffer, ucp_rkey_h* rkey_p) {
  if (ep == nullptr || rkey_buffer == nullptr || rkey_p == nullptr) return UCS_ERR_INVALID_PARAM;
  KeyHeader header;
  std::memcpy(&header, rkey_buffer, sizeof header);
  if (std::memcmp(header.magic, kKeyMagic, sizeof kKeyMagic) != 0 || header.length > kMaxKey) {
    return unsupported("ucp_ep_rkey_unpack", "a key of another UCX", "let all processes use the same libucp");
  }
  const Hold hold(*ep->worker);
  if (ep->peer == nullptr) return UCS_ERR_NOT_CONNECTED;
  auto key = std::make_unique<ucp_rkey>();
  key->worker = ep->worker;
  key->endpoint = ep->endpoint;
  key->peer = ep->peer;
  key->peer_id = ep->peer->id;
  key->address = header.address;
  key->length = header.bytes;
  if (header.length != 0) {
    const auto* const bytes = static_cast<const std::byte*>(rkey_buffer) + sizeof header;
    const tw_status status = tw_memory_import(ep->endpoint, bytes, header.length, &key->memory);
    if (status != TW_OK) return failed("ucp_ep_rkey_unpack", status);
  }
  // The header is the peer's word; Thalweg's key is what the mapping has been checked against.
  if (header.bytes != tw_remote_memory_length(key->memory) || header.bytes > UINT64_MAX - header.address) {
    tw_remote_memory_release(key->memory);
    tell("ucp_ep_rkey_unpack: the key says %llu bytes at %#llx, which is not what it opens",
         static_cast<unsigned long long>(header.bytes), static_cast<unsigned long long>(header.address));
    return UCS_ERR_INVALID_PARAM;
  }
  *rkey_p = key.release();
  return UCS_OK;
}

ucs_status_t ucp_rkey_ptr(ucp_rkey_h rkey, uint64_t raddr, void** addr_p) {
  if (rkey == nullptr || addr_p == nullptr) return UCS_ERR_INVALID_PARAM;
  const Hold hold(*rkey->worker);
  if (raddr < rkey->address || raddr - rkey->address >= rkey->length) return UCS_ERR_INVALID_ADDR;
  if (!is_alive(*rkey->worker, rkey->peer, rkey->peer_id) || rkey->peer->lost) return UCS_ERR_UNREACHABLE;
  void* base = nullptr;
  // It waits for the owner's answer, and progresses meanwhile; the peer's loss ends it.
  const HoldBack held(*rkey->worker);
  // Not for ever where there is no progress: in a handler, before the peer has answered.
  if (tw_endpoint_wait(rkey->endpoint, kConnecting) != TW_OK) return UCS_ERR_UNREACHABLE;
  // Where it is not mapped that is no failure: users ask in order to find out.
  if (tw_remote_memory_map(rkey->memory, &base) != TW_OK) return UCS_ERR_UNREACHABLE;
  *addr_p = static_cast<std::byte*>(base) + (raddr - rkey->address);
  return UCS_OK;
}

void ucp_rkey_destroy(ucp_rkey_h rkey) {
  if (rkey == nullptr) return;
  const Hold hold(*rkey->worker);
  if (rkey->memory != nullptr) tw_remote_memory_release(rkey->memory);
  delete rkey;
}

}  // extern "C"
