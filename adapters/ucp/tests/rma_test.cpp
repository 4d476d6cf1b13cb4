// SPDX-License-Identifier: Apache-2.0
// Memory, keys, puts, gets, atomics, flushes.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "world.hpp"

using namespace ucp_test;

namespace {

/// A region of b that a has a key of.
struct Region {
  World& w;
  ucp_mem_h memory = nullptr;
  ucp_rkey_h key = nullptr;
  unsigned char* base = nullptr;
  uint64_t address = 0;

  Region(World& world, void* given, size_t length, unsigned flags) : w(world) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.address = given;
    params.length = length;
    params.flags = flags;
    EXPECT_EQ(ucp_mem_map(w.b.context, &params, &memory), UCS_OK);
    ucp_mem_attr_t attr{};
    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH;
    EXPECT_EQ(ucp_mem_query(memory, &attr), UCS_OK);
    EXPECT_EQ(attr.length, length);
    base = static_cast<unsigned char*>(attr.address);
    address = reinterpret_cast<uint64_t>(base);
    void* packed = nullptr;
    size_t size = 0;
    EXPECT_EQ(ucp_rkey_pack(w.b.context, memory, &packed, &size), UCS_OK);
    EXPECT_EQ(ucp_ep_rkey_unpack(w.a.ep, packed, &key), UCS_OK);
    ucp_rkey_buffer_release(packed);
  }
  ~Region() {
    ucp_rkey_destroy(key);
    EXPECT_EQ(ucp_mem_unmap(w.b.context, memory), UCS_OK);
  }
};

ucs_status_t flush(World& w) {
  const ucp_request_param_t none = nothing();
  return w.end(ucp_worker_flush_nbx(w.a.worker, &none));
}

void put_and_get(World& w, Region& region, size_t length) {
  const ucp_request_param_t none = nothing();
  for (const size_t n : {size_t{1}, size_t{8}, size_t{1000}, size_t{70001}, length - 3}) {
    const auto out = random_bytes(n);
    std::vector<unsigned char> in(n);
    std::memset(region.base, 0xEE, length);
    EXPECT_EQ(w.end(ucp_put_nbx(w.a.ep, out.data(), n, region.address + 2, region.key, &none)), UCS_OK);
    EXPECT_EQ(flush(w), UCS_OK);
    EXPECT_EQ(std::memcmp(region.base + 2, out.data(), n), 0) << n;
    EXPECT_TRUE(region.base[1] == 0xEE && region.base[2 + n] == 0xEE);
    EXPECT_EQ(w.end(ucp_get_nbx(w.a.ep, in.data(), n, region.address + 2, region.key, &none)), UCS_OK);
    EXPECT_EQ(in, out);
    // without requests: the flush covers gets, too
    std::fill(in.begin(), in.end(), 0);
    EXPECT_GE(ucp_get_nbi(w.a.ep, in.data(), n, region.address + 2, region.key), 0);
    EXPECT_EQ(flush(w), UCS_OK);
    EXPECT_EQ(in, out);
    const auto again = random_bytes(n);
    EXPECT_GE(ucp_put_nbi(w.a.ep, again.data(), n, region.address + 2, region.key), 0);
    const ucp_request_param_t param = nothing();
    EXPECT_EQ(w.end(ucp_ep_flush_nbx(w.a.ep, &param)), UCS_OK);
    EXPECT_EQ(std::memcmp(region.base + 2, again.data(), n), 0);
  }
  char byte = 0;
  EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_put_nbx(w.a.ep, &byte, 1, region.address + length, region.key, &none)),
            UCS_ERR_INVALID_ADDR);
  EXPECT_EQ(ucp_get_nbi(w.a.ep, &byte, 1, region.address - 1, region.key), UCS_ERR_INVALID_ADDR);
}

template <class Word>
void atomics(World& w, Region& region) {
  Word* const word = reinterpret_cast<Word*>(region.base + 64);
  const uint64_t at = region.address + 64;
  ucp_request_param_t fetch{};
  fetch.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  fetch.datatype = ucp_dt_make_contig(sizeof(Word));
  const auto op = [&](ucp_atomic_op_t code, Word operand, Word reply) {
    fetch.reply_buffer = &reply;
    EXPECT_EQ(w.end(ucp_atomic_op_nbx(w.a.ep, code, &operand, 1, at, region.key, &fetch)), UCS_OK);
    return reply;
  };
  *word = 12;
  EXPECT_EQ(op(UCP_ATOMIC_OP_ADD, 3, 0), Word{12});
  EXPECT_EQ(op(UCP_ATOMIC_OP_AND, 14, 0), Word{15});
  EXPECT_EQ(op(UCP_ATOMIC_OP_OR, 1, 0), Word{14});
  EXPECT_EQ(op(UCP_ATOMIC_OP_XOR, 5, 0), Word{15});
  EXPECT_EQ(op(UCP_ATOMIC_OP_SWAP, 100, 0), Word{10});
  EXPECT_EQ(op(UCP_ATOMIC_OP_CSWAP, 99, 7), Word{100});  // compares with 99: nothing changes
  EXPECT_EQ(op(UCP_ATOMIC_OP_CSWAP, 100, 7), Word{100});
  EXPECT_EQ(*word, Word{7});
  EXPECT_EQ(ucp_atomic_post(w.a.ep, UCP_ATOMIC_POST_OP_ADD, 5, sizeof(Word), at, region.key), UCS_OK);
  EXPECT_EQ(flush(w), UCS_OK);
  EXPECT_EQ(*word, Word{12});
  Word result = 77;  // what is swapped in
  EXPECT_EQ(w.end(ucp_atomic_fetch_nb(w.a.ep, UCP_ATOMIC_FETCH_OP_CSWAP, 12, &result, sizeof result, at, region.key,
                                      [](void*, ucs_status_t) {})),
            UCS_OK);
  EXPECT_EQ(result, Word{12});
  EXPECT_EQ(*word, Word{77});
}

/// By a load and store, where the peer's memory is mapped: not over tcp.
void store_there(Region& region, size_t at) {
  void* there = nullptr;
  const char* const transports = std::getenv("UCX_TLS");
  if (transports != nullptr && std::strcmp(transports, "tcp") == 0) {
    EXPECT_EQ(ucp_rkey_ptr(region.key, region.address + at, &there), UCS_ERR_UNREACHABLE);
    return;
  }
  ASSERT_EQ(ucp_rkey_ptr(region.key, region.address + at, &there), UCS_OK);
  static_cast<unsigned char*>(there)[0] = 0x77;
  EXPECT_EQ(region.base[at], 0x77);
}

TEST(Rma, OfMemoryThatTheLibraryAllocates) {
  World w;
  w.connect();
  constexpr size_t kLength = 500000;
  Region region(w, nullptr, kLength, UCP_MEM_MAP_ALLOCATE);
  put_and_get(w, region, kLength);
  atomics<uint32_t>(w, region);
  atomics<uint64_t>(w, region);
  store_there(region, 100);
}

TEST(Rma, OfTheUsersMemory) {
  World w;
  w.connect();
  constexpr size_t kLength = 500000;
  auto memory = random_bytes(kLength + 64);
  unsigned char* const aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  Region region(w, aligned, kLength, 0);
  EXPECT_EQ(region.base, aligned);
  put_and_get(w, region, kLength);
  atomics<uint32_t>(w, region);
  atomics<uint64_t>(w, region);
}

TEST(Rma, AllocatedWhereTheUserSays) {
  World w;
  w.connect();
  constexpr size_t kLength = 1 << 20;
  void* const where = mmap(nullptr, kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // a free place
  ASSERT_NE(where, MAP_FAILED);
  munmap(where, kLength);
  {
    Region region(w, where, kLength, UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED);
    EXPECT_EQ(region.base, where);
    put_and_get(w, region, kLength);
    store_there(region, 9);
  }
  EXPECT_EQ(mmap(where, kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), where)
      << "it is free again";
  munmap(where, kLength);
}

/// Of a device's memory the address is not the user's to choose.
TEST(Rma, OnlyHostMemoryIsAllocatedWhereTheUserSays) {
  World w;
  constexpr size_t kLength = 1 << 20;
  void* const where = mmap(nullptr, kLength, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // a free place
  ASSERT_NE(where, MAP_FAILED);
  munmap(where, kLength);
  for (const ucs_memory_type_t type : {UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_CUDA_MANAGED}) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                        UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.address = where;
    params.length = kLength;
    params.flags = UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED;
    params.memory_type = type;
    ucp_mem_h memory = nullptr;
    EXPECT_EQ(ucp_mem_map(w.a.context, &params, &memory), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(memory, nullptr);
  }
}

TEST(Rma, NothingRegisteredHasAKeyAsWell) {
  World w;
  w.connect();
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  ucp_mem_h memory = nullptr;
  ASSERT_EQ(ucp_mem_map(w.b.context, &params, &memory), UCS_OK);
  void* packed = nullptr;
  size_t size = 0;
  ucp_rkey_h key = nullptr;
  ASSERT_EQ(ucp_rkey_pack(w.b.context, memory, &packed, &size), UCS_OK);
  ASSERT_EQ(ucp_ep_rkey_unpack(w.a.ep, packed, &key), UCS_OK);
  char byte = 0;
  EXPECT_EQ(ucp_put_nbi(w.a.ep, &byte, 1, 0, key), UCS_ERR_INVALID_ADDR);
  ucp_rkey_destroy(key);
  ucp_rkey_buffer_release(packed);
  EXPECT_EQ(ucp_mem_unmap(w.b.context, memory), UCS_OK);
}

TEST(Rma, AFenceKeepsTheOrder) {
  World w;
  w.connect();
  std::vector<unsigned char> memory(200000 + 8);
  auto* const flag = reinterpret_cast<volatile unsigned char*>(memory.data() + 200000);
  Region region(w, memory.data(), memory.size(), 0);
  for (unsigned char round = 1; round < 100; ++round) {
    const std::vector<unsigned char> out(200000, round);
    EXPECT_GE(ucp_put_nbi(w.a.ep, out.data(), out.size(), region.address, region.key), 0);
    EXPECT_EQ(ucp_worker_fence(w.a.worker), UCS_OK);
    EXPECT_GE(ucp_put_nbi(w.a.ep, &round, 1, region.address + 200000, region.key), 0);
    ASSERT_TRUE(w.until([&] { return *flag == round; }));
    ASSERT_TRUE(std::all_of(memory.begin(), memory.begin() + 200000, [&](unsigned char byte) { return byte == round; }));
    EXPECT_EQ(flush(w), UCS_OK);
  }
}

TEST(Rma, AKeyThatSaysMoreThanItOpensIsRefused) {
  World w;
  w.connect();
  Region region(w, nullptr, 4096, UCP_MEM_MAP_ALLOCATE);
  void* packed = nullptr;
  size_t size = 0;
  ASSERT_EQ(ucp_rkey_pack(w.b.context, region.memory, &packed, &size), UCS_OK);
  // The header: magic, length of the key, address, bytes.
  const uint64_t much = uint64_t{1} << 40, high = ~uint64_t{0} - 100;
  std::vector<char> longer(static_cast<char*>(packed), static_cast<char*>(packed) + size), wrapped = longer;
  ucp_rkey_buffer_release(packed);
  std::memcpy(longer.data() + 16, &much, sizeof much);
  std::memcpy(wrapped.data() + 8, &high, sizeof high);
  ucp_rkey_h key = nullptr;
  EXPECT_EQ(ucp_ep_rkey_unpack(w.a.ep, longer.data(), &key), UCS_ERR_INVALID_PARAM);
  EXPECT_EQ(ucp_ep_rkey_unpack(w.a.ep, wrapped.data(), &key), UCS_ERR_INVALID_PARAM);
}

TEST(Rma, AFlushEndsAfterAForcedCloseBesideIt) {
  World w;
  w.connect();
  constexpr size_t kLength = 16 << 20;
  std::vector<unsigned char> memory(kLength, 3), in(kLength);
  Region region(w, memory.data(), kLength, 0);
  const ucp_ep_h first = w.a.ep;
  w.a.connect(w.b);  // another one, to the same peer
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t get = ucp_get_nbx(w.a.ep, in.data(), kLength, region.address, region.key, &none);
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
  const ucs_status_t ended = w.end(get);
  EXPECT_TRUE(ended == UCS_OK || ended == UCS_ERR_CANCELED) << ended;
  EXPECT_EQ(w.end(ucp_ep_flush_nbx(first, &none)), UCS_OK);
  w.a.ep = first;
}

TEST(Rma, AFlushWaitsForGets) {
  World w;
  w.connect();
  constexpr size_t kLength = 8 << 20;
  auto memory = random_bytes(kLength);
  Region region(w, memory.data(), kLength, 0);
  const ucp_request_param_t none = nothing();
  for (const bool all : {false, true}) {  // of the worker
    for (const bool asked : {false, true}) {
      std::vector<unsigned char> in(kLength);
      ucs_status_ptr_t get = nullptr;
      if (asked) {
        get = ucp_get_nbx(w.a.ep, in.data(), kLength, region.address, region.key, &none);
      } else {
        EXPECT_GE(ucp_get_nbi(w.a.ep, in.data(), kLength, region.address, region.key), 0);
      }
      ucs_status_ptr_t flush = all ? ucp_worker_flush_nbx(w.a.worker, &none) : ucp_ep_flush_nbx(w.a.ep, &none);
      EXPECT_EQ(w.end(flush), UCS_OK);
      EXPECT_TRUE(in == memory) << "the flush came first";
      if (UCS_PTR_IS_PTR(get)) {
        EXPECT_EQ(ucp_request_check_status(get), UCS_OK);
        ucp_request_free(get);
      }
    }
  }
}

/// Of memory of b that is not mapped any more.
ucp_rkey_h stale_key(World& w, std::vector<unsigned char>& memory) {
  const Region gone(w, memory.data(), memory.size(), 0);
  void* packed = nullptr;
  size_t size = 0;
  ucp_rkey_h stale = nullptr;
  EXPECT_EQ(ucp_rkey_pack(w.b.context, gone.memory, &packed, &size), UCS_OK);
  EXPECT_EQ(ucp_ep_rkey_unpack(w.a.ep, packed, &stale), UCS_OK);
  ucp_rkey_buffer_release(packed);
  return stale;
}

TEST(Rma, AFlushTellsOfAGetThatFailed) {
  World w;
  w.connect();
  std::vector<unsigned char> memory(32 << 20), out(32 << 20);
  Region good(w, memory.data(), memory.size(), 0);
  std::vector<unsigned char> other(4096), in(4096);
  ucp_rkey_h const stale = stale_key(w, other);
  const auto at = reinterpret_cast<uint64_t>(other.data());
  const ucs_status_t begun = ucp_get_nbi(w.a.ep, in.data(), in.size(), at, stale);
  for (int i = 0; i < 200000; ++i) w.progress();
  EXPECT_GE(ucp_put_nbi(w.a.ep, out.data(), out.size(), good.address, good.key), 0);
  const ucs_status_t told = flush(w);  // by a flush that is under way for a put
  EXPECT_TRUE(begun < 0 || told < 0) << "the get's failure was told by nothing";

  EXPECT_EQ(flush(w), UCS_OK) << "and once only";
  ucp_rkey_destroy(stale);
}

ucs_status_t map(ucp_context_h context, uint64_t fields, const ucp_mem_map_params_t& given, ucp_mem_h* memory) {
  ucp_mem_map_params_t params = given;
  params.field_mask = fields;
  return ucp_mem_map(context, &params, memory);
}

TEST(Rma, MappingRefusesWhatItDoesNotKnow) {
  World w;
  constexpr uint64_t kWhere = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  alignas(4096) static char bytes[8192];
  ucp_mem_h memory = nullptr;
  ucp_mem_map_params_t params{};
  params.address = bytes;
  params.length = 100;
  EXPECT_EQ(map(w.a.context, UCP_MEM_MAP_PARAM_FIELD_ADDRESS, params, &memory), UCS_ERR_INVALID_PARAM) << "no length";
  params.prot = 1u << 20;
  EXPECT_EQ(map(w.a.context, kWhere | UCP_MEM_MAP_PARAM_FIELD_PROT, params, &memory), UCS_ERR_UNSUPPORTED);
  params.memory_type = UCS_MEMORY_TYPE_ROCM;
  EXPECT_EQ(map(w.a.context, kWhere | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE, params, &memory), UCS_ERR_UNSUPPORTED);
  params.flags = UCP_MEM_MAP_FIXED;
  params.address = bytes + 1;
  EXPECT_EQ(map(w.a.context, kWhere | UCP_MEM_MAP_PARAM_FIELD_FLAGS, params, &memory), UCS_ERR_INVALID_PARAM);
}

TEST(Rma, MemoryWithoutRemoteAccessIsOutOfReach) {
  World w;
  w.connect();
  uint64_t word = 5, in = 0;
  ucp_mem_map_params_t params{};
  params.address = &word;
  params.length = sizeof word;
  params.prot = UCP_MEM_MAP_PROT_LOCAL_READ;
  ucp_mem_h memory = nullptr;
  ASSERT_EQ(map(w.b.context, UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_PROT,
                params, &memory),
            UCS_OK);
  void* packed = nullptr;
  size_t size = 0;
  ucp_rkey_h key = nullptr;
  ASSERT_EQ(ucp_rkey_pack(w.b.context, memory, &packed, &size), UCS_OK);
  ASSERT_EQ(ucp_ep_rkey_unpack(w.a.ep, packed, &key), UCS_OK);
  EXPECT_EQ(ucp_get_nbi(w.a.ep, &in, sizeof in, reinterpret_cast<uint64_t>(&word), key), UCS_ERR_INVALID_ADDR);
  ucp_rkey_destroy(key);
  ucp_rkey_buffer_release(packed);
  EXPECT_EQ(ucp_mem_unmap(w.b.context, memory), UCS_OK);
}

TEST(Rma, FlagsThatNoneHasAreRefused) {
  World w;
  w.connect();
  uint64_t word = 0;
  Region region(w, &word, sizeof word, 0);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = 1u << 29;
  EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_put_nbx(w.a.ep, &word, 8, region.address, region.key, &param)), UCS_ERR_UNSUPPORTED);
  EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_get_nbx(w.a.ep, &word, 8, region.address, region.key, &param)), UCS_ERR_UNSUPPORTED);
}

TEST(Rma, KeysMayBeUsedWhileAnotherThreadProgresses) {
  World w(UCS_THREAD_MODE_MULTI);
  w.connect();
  Region region(w, nullptr, 4096, UCP_MEM_MAP_ALLOCATE);
  void* packed = nullptr;
  size_t size = 0;
  ASSERT_EQ(ucp_rkey_pack(w.b.context, region.memory, &packed, &size), UCS_OK);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) w.progress();
  });
  for (int i = 0; i < 500; ++i) {
    ucp_rkey_h key = nullptr;
    void* there = nullptr;
    EXPECT_EQ(ucp_ep_rkey_unpack(w.a.ep, packed, &key), UCS_OK);
    const ucs_status_t status = ucp_rkey_ptr(key, region.address, &there);
    EXPECT_TRUE(status == UCS_OK || status == UCS_ERR_UNREACHABLE);
    ucp_rkey_destroy(key);
  }
  stop = true;
  other.join();
  ucp_rkey_buffer_release(packed);
}

/// A handler that opens the key that comes with a message, and asks for a pointer.
struct Asker {
  World& w;
  uint64_t address;
  ucp_rkey_h key = nullptr;
  ucs_status_t status = UCS_INPROGRESS;
  static ucs_status_t handle(void* arg, const void*, size_t, void* data, size_t, const ucp_am_recv_param_t*) {
    auto& self = *static_cast<Asker*>(arg);
    EXPECT_EQ(ucp_ep_rkey_unpack(self.w.a.ep, data, &self.key), UCS_OK);
    void* at = nullptr;
    self.status = ucp_rkey_ptr(self.key, self.address, &at);
    return UCS_OK;
  }
};

TEST(Rma, AHandlerThatAsksForAPointerDoesNotWait) {
  World w;
  w.connect();
  Region region(w, nullptr, 1 << 16, UCP_MEM_MAP_ALLOCATE);
  Asker asker{w, region.address};
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = 1;
  param.cb = Asker::handle;
  param.arg = &asker;
  ASSERT_EQ(ucp_worker_set_am_recv_handler(w.a.worker, &param), UCS_OK);
  void* packed = nullptr;
  size_t size = 0;
  ASSERT_EQ(ucp_rkey_pack(w.b.context, region.memory, &packed, &size), UCS_OK);
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t send = ucp_am_send_nbx(w.b.ep, 1, nullptr, 0, packed, size, &none);
  EXPECT_TRUE(w.until([&] { return asker.status != UCS_INPROGRESS; }));
  EXPECT_TRUE(asker.status == UCS_ERR_UNREACHABLE || asker.status == UCS_OK) << asker.status;
  EXPECT_EQ(w.end(send), UCS_OK);
  ucp_rkey_buffer_release(packed);
  const char* const tls = std::getenv("UCX_TLS");
  if (tls == nullptr || std::string(tls) != "tcp") {
    void* at = nullptr;
    EXPECT_EQ(ucp_rkey_ptr(asker.key, region.address, &at), UCS_OK) << "outside of handlers it waits";
  }
  ucp_rkey_destroy(asker.key);
}

TEST(Rma, AFlushTellsOfAPutThatFailedAndWhoseRequestWasFreed) {
  World w;
  w.connect();
  std::vector<unsigned char> other(1 << 20), out(1 << 20);
  ucp_rkey_h const stale = stale_key(w, other);
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t put = ucp_put_nbx(w.a.ep, out.data(), out.size(), reinterpret_cast<uint64_t>(other.data()), stale, &none);
  if (UCS_PTR_IS_PTR(put)) ucp_request_free(put);
  const bool refused = UCS_PTR_IS_ERR(put);
  EXPECT_TRUE(refused || flush(w) < 0) << "the put's failure was told by nothing";
  EXPECT_EQ(flush(w), UCS_OK) << "and once only";
  ucp_rkey_destroy(stale);
}

}  // namespace
