// SPDX-License-Identifier: Apache-2.0
// Windows in memory of a CUDA device: puts, gets, atomics; and what is told about such memory.
#include "cuda.hpp"

using namespace ucp_test;

namespace {

// ------------------------------------------------------------------------------------------------ windows

struct CudaMemory : CudaBetween {};
THALWEG_BETWEEN_PEERS(CudaMemory);

/// A range of b's memory that a has a key of. type: what is declared; UCS_MEMORY_TYPE_UNKNOWN: nothing.
struct Window {
  Ends& e;
  ucp_mem_h memory = nullptr;
  ucp_rkey_h key = nullptr;
  ucp_mem_attr_t attr{};

  Window(Ends& ends, void* given, size_t length, ucs_memory_type_t type, unsigned flags = 0) : e(ends) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    if (type != UCS_MEMORY_TYPE_UNKNOWN) params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.address = given;
    params.length = length;
    params.flags = flags;
    params.memory_type = type;
    EXPECT_EQ(ucp_mem_map(e.to.context, &params, &memory), UCS_OK);
    if (memory == nullptr) return;
    attr.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH | UCP_MEM_ATTR_FIELD_MEM_TYPE;
    EXPECT_EQ(ucp_mem_query(memory, &attr), UCS_OK);
    EXPECT_EQ(attr.length, length);
    void* packed = nullptr;
    size_t size = 0;
    EXPECT_EQ(ucp_rkey_pack(e.to.context, memory, &packed, &size), UCS_OK);
    if (packed == nullptr) return;
    EXPECT_EQ(ucp_ep_rkey_unpack(e.from.ep, packed, &key), UCS_OK);
    ucp_rkey_buffer_release(packed);
  }
  ~Window() {
    if (stuck) return;
    if (key != nullptr) ucp_rkey_destroy(key);
    if (memory == nullptr) return;
    EXPECT_EQ(ucp_mem_unmap(e.to.context, memory), UCS_OK);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  uint64_t at(size_t offset = 0) const { return reinterpret_cast<uint64_t>(attr.address) + offset; }
};

enum class Verb { put, put_nbi, get, get_nbi };

const char* name_of(Verb verb) {
  switch (verb) {
    case Verb::put:
      return "ucp_put_nbx";
    case Verb::put_nbi:
      return "ucp_put_nbi";
    case Verb::get:
      return "ucp_get_nbx";
    case Verb::get_nbi:
      return "ucp_get_nbi";
  }
  return "";
}

/// Between the start of a buffer here and a place in the window; then a flush.
void transfer(Ends& e, Verb verb, const Buffer& local, size_t length, const Window& window, size_t offset, bool declared) {
  const ucp_request_param_t param = param_of(local.place(), declared);
  const uint64_t there = window.at(offset);
  switch (verb) {
    case Verb::put:
      EXPECT_EQ(ended(e, ucp_put_nbx(e.from.ep, local.at(), length, there, window.key, &param)), UCS_OK);
      break;
    case Verb::put_nbi:
      EXPECT_GE(ucp_put_nbi(e.from.ep, local.at(), length, there, window.key), 0);
      break;
    case Verb::get:
      EXPECT_EQ(ended(e, ucp_get_nbx(e.from.ep, local.at(), length, there, window.key, &param)), UCS_OK);
      break;
    case Verb::get_nbi:
      EXPECT_GE(ucp_get_nbi(e.from.ep, local.at(), length, there, window.key), 0);
  }
  EXPECT_EQ(flush(e), UCS_OK) << "the flush";
}

/// Each verb between a buffer here and the middle of a window, whose memory is registered, not allocated here.
void put_and_get(Ends& e, const Case& c) {
  constexpr size_t kInto = 7, kBeside = 19;
  for (const Verb verb : {Verb::put, Verb::put_nbi, Verb::get, Verb::get_nbi}) {
    if (stuck) return;
    SCOPED_TRACE(name_of(verb));
    const bool puts = verb == Verb::put || verb == Verb::put_nbi;
    Buffer local(puts ? c.from : c.to, c.length), there(puts ? c.to : c.from, c.length + kBeside);
    const ucs_memory_type_t type = type_of(there.place());
    const Window window(e, there.at(), there.length(), c.declared ? type : UCS_MEMORY_TYPE_UNKNOWN);
    if (window.key == nullptr) return;
    EXPECT_EQ(window.attr.address, there.at());
    EXPECT_EQ(window.attr.mem_type, type);
    transfer(e, verb, local, c.length, window, kInto, c.declared);
    if (stuck) return;
    EXPECT_TRUE(puts ? there.holds(local.written(), kInto) : there.untouched()) << "the window";
    EXPECT_TRUE(puts ? local.untouched() : local.holds(there.written(kInto, c.length))) << "the buffer here";
  }
}

TEST_P(CudaMemory, PutsAndGetsOfEveryLengthEachWay) {
  Ends e(GetParam());
  each(kLengths, [&](const Case& c) { put_and_get(e, c); });
}

TEST_P(CudaMemory, PutsAndGetsOfPieces) {
  Ends e(GetParam());
  each(kLengthsInPieces, [&](const Case& c) {
    for (const bool puts : {true, false}) {
      if (stuck) return;
      SCOPED_TRACE(puts ? "put" : "get");
      Buffer local(puts ? c.from : c.to, room_for(c.length)), there(puts ? c.to : c.from, c.length);
      const auto pieces = pieces_of(local, c.length);
      const Window window(e, there.at(), c.length, UCS_MEMORY_TYPE_UNKNOWN);
      if (window.key == nullptr) return;
      const ucp_request_param_t param = pieces_param(local.place(), c.declared);
      EXPECT_EQ(ended(e, puts ? ucp_put_nbx(e.from.ep, pieces.data(), kPieces, window.at(), window.key, &param)
                              : ucp_get_nbx(e.from.ep, const_cast<ucp_dt_iov_t*>(pieces.data()), kPieces, window.at(),
                                            window.key, &param)),
                UCS_OK);
      EXPECT_EQ(flush(e), UCS_OK);
      if (stuck) return;
      EXPECT_TRUE(puts ? there.holds(gathered(local, pieces)) : there.untouched()) << "the window";
      EXPECT_TRUE(puts ? local.untouched() : local.holds(there.written(), pieces)) << "the pieces here";
    }
  });
}

TEST_P(CudaMemory, WhatIsOutsideOfAWindowIsRefused) {
  Ends e(GetParam());
  Buffer local(Place::device, 64), there(Place::device, 1000);
  const Window window(e, there.at(), 1000, UCS_MEMORY_TYPE_UNKNOWN);
  ASSERT_NE(window.key, nullptr);
  const ucp_request_param_t none = nothing();
  for (const uint64_t at : {window.at() - 1, window.at() + 1000, window.at() + 1000 - 63}) {
    EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_put_nbx(e.from.ep, local.at(), 64, at, window.key, &none)), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_get_nbx(e.from.ep, local.at(), 64, at, window.key, &none)), UCS_ERR_INVALID_ADDR);
  }
  EXPECT_EQ(flush(e), UCS_OK);
  EXPECT_TRUE(there.untouched());
  EXPECT_TRUE(local.untouched());
}

TEST_P(CudaMemory, ADevicesWindowHasNoPointerForTheHost) {
  Ends e(GetParam());
  Buffer there(Place::device, 4096);
  const Window window(e, there.at(), 4096, UCS_MEMORY_TYPE_CUDA);
  ASSERT_NE(window.key, nullptr);
  void* pointer = nullptr;
  EXPECT_EQ(ucp_rkey_ptr(window.key, window.at(), &pointer), UCS_ERR_UNREACHABLE);
}

/// Bytes of the library's memory, by the driver.
Bytes bytes_at(uint64_t address, size_t length) {
  Bytes bytes(length);
  must(driver().copy_out(bytes.data(), address, length), "cuMemcpyDtoH");
  return bytes;
}

/// Of a window whose contents are `all`.
void put_and_get_allocated(Ends& e, const Window& window, Bytes& all, Place place, size_t length) {
  constexpr size_t kInto = 9;
  const Buffer out(place, length), in(place, length);
  transfer(e, Verb::put, out, length, window, kInto, true);
  if (stuck) return;
  const Bytes sent = out.written();
  std::copy(sent.begin(), sent.end(), all.begin() + static_cast<ptrdiff_t>(kInto));
  const Bytes have = bytes_at(window.at(), all.size());
  EXPECT_TRUE(have == all) << difference(have, all, 0, all.size());
  transfer(e, Verb::get, in, length, window, kInto, true);
  if (stuck) return;
  EXPECT_TRUE(in.holds(sent));
}

TEST_P(CudaMemory, OfADeviceThatTheLibraryAllocates) {
  Ends e(GetParam());
  constexpr size_t kLength = (5 << 20) + 11;
  for (const ucs_memory_type_t type : {UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_CUDA_MANAGED}) {
    const Window window(e, nullptr, kLength, type, UCP_MEM_MAP_ALLOCATE);
    ASSERT_NE(window.key, nullptr) << type;
    ASSERT_NE(window.attr.address, nullptr) << type;
    EXPECT_EQ(window.attr.mem_type, type);
    const Buffer whole(Place::host, kLength);  // its contents are undefined until this
    transfer(e, Verb::put, whole, kLength, window, 0, false);
    Bytes all = whole.written();
    for (const Place place : {Place::host, Place::device}) {
      for (const size_t length : kLengths) {
        if (stuck) return;
        SCOPED_TRACE(text_of({place, type == UCS_MEMORY_TYPE_CUDA ? Place::device : Place::managed, length, true}));
        put_and_get_allocated(e, window, all, place, length);
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------ atomics

/// Words of a device, at an offset of a window.
template <class Word>
class Words {
 public:
  Words(Ends& e, const Window& window, size_t offset) : e_(e), window_(window), at_(window.at(offset)) {}

  ucs_status_t op(ucp_atomic_op_t code, Word operand, Word* reply) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    if (reply != nullptr) param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    param.datatype = ucp_dt_make_contig(sizeof(Word));
    param.reply_buffer = reply;
    return ended(e_, ucp_atomic_op_nbx(e_.from.ep, code, &operand, 1, at_, window_.key, &param));
  }
  void fetches(ucp_atomic_op_t code, Word operand, Word reply, Word old) {
    if (stuck) return;
    EXPECT_EQ(op(code, operand, &reply), UCS_OK) << "operation " << code << " of " << sizeof(Word) << " bytes";
    EXPECT_EQ(reply, old) << "operation " << code << " of " << sizeof(Word) << " bytes";
  }
  Word now() const {
    Word word = 0;
    const Bytes bytes = bytes_at(at_, sizeof word);
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  }

 private:
  Ends& e_;
  const Window& window_;
  uint64_t at_;
};

template <class Word>
Bytes bytes_of(Word word) {
  Bytes bytes(sizeof word);
  std::memcpy(bytes.data(), &word, sizeof word);
  return bytes;
}

/// False: this build has no kernels, without which such an atomic is refused and nothing moves.
template <class Word>
bool atomics(Ends& e, Buffer& there, const Window& window, size_t offset) {
  Words<Word> word(e, window, offset);
  there.set(bytes_of<Word>(12), offset);
  Word reply = 0;
  const ucs_status_t first = word.op(UCP_ATOMIC_OP_ADD, 3, &reply);
  if (first == UCS_ERR_UNSUPPORTED) {
    EXPECT_TRUE(there.untouched());
    return false;
  }
  EXPECT_EQ(first, UCS_OK);
  EXPECT_EQ(reply, Word{12});
  word.fetches(UCP_ATOMIC_OP_AND, 14, 0, 15);
  word.fetches(UCP_ATOMIC_OP_OR, 1, 0, 14);
  word.fetches(UCP_ATOMIC_OP_XOR, 5, 0, 15);
  const Word high = static_cast<Word>(~Word{0} - 20);
  word.fetches(UCP_ATOMIC_OP_SWAP, high, 0, 10);
  word.fetches(UCP_ATOMIC_OP_CSWAP, 99, 7, high);  // compares with 99: nothing changes
  word.fetches(UCP_ATOMIC_OP_CSWAP, high, 7, high);
  if (stuck) return true;
  EXPECT_EQ(word.now(), Word{7});
  EXPECT_EQ(word.op(UCP_ATOMIC_OP_ADD, 30, nullptr), UCS_OK);
  EXPECT_EQ(ucp_atomic_post(e.from.ep, UCP_ATOMIC_POST_OP_ADD, 5, sizeof(Word), window.at(offset), window.key), UCS_OK);
  EXPECT_EQ(flush(e), UCS_OK);
  if (stuck) return true;
  EXPECT_TRUE(there.holds(bytes_of<Word>(42), offset)) << "a word of " << sizeof(Word) << " bytes, or what is beside it";
  return true;
}

TEST_P(CudaMemory, AtomicsOnADevicesWords) {
  Ends e(GetParam());
  Buffer there(Place::device, 256);
  const Window window(e, there.at(), 256, UCS_MEMORY_TYPE_UNKNOWN);
  ASSERT_NE(window.key, nullptr);
  const bool ran = atomics<uint32_t>(e, there, window, 68) && atomics<uint64_t>(e, there, window, 128);
  if (!ran) GTEST_SKIP() << "libthalweg was built without CUDA kernels";
}

TEST_P(CudaMemory, AnAtomicsOldValueDoesNotGoToADevice) {
  Ends e(GetParam());
  Buffer there(Place::device, 64), old(Place::device, 8);
  const Window window(e, there.at(), 64, UCS_MEMORY_TYPE_UNKNOWN);
  ASSERT_NE(window.key, nullptr);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  param.datatype = ucp_dt_make_contig(8);
  param.reply_buffer = old.at();
  const uint64_t operand = 1;
  EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_atomic_op_nbx(e.from.ep, UCP_ATOMIC_OP_ADD, &operand, 1, window.at(), window.key, &param)),
            UCS_ERR_UNSUPPORTED);
  EXPECT_EQ(flush(e), UCS_OK);
  EXPECT_TRUE(there.untouched());
  EXPECT_TRUE(old.untouched());
}

// ------------------------------------------------------------------------------------------------ what is told, and the rest

struct CudaQuery : Cuda {};

TEST_F(CudaQuery, TheContextTakesMemoryOfCuda) {
  Side side;
  ucp_context_attr_t attr{};
  attr.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  ASSERT_EQ(ucp_context_query(side.context, &attr), UCS_OK);
  for (const Place place : {Place::host, Place::device, Place::managed}) {
    EXPECT_NE(attr.memory_types & UCS_BIT(type_of(place)), 0u) << name_of(place);
  }
}

TEST_F(CudaQuery, AMappingsTypeIsWhatLiesThere) {
  Ends e(Peers::contexts);
  for (const Place place : {Place::host, Place::device, Place::managed}) {
    for (const bool declared : {false, true}) {
      SCOPED_TRACE(std::string(name_of(place)) + (declared ? ", declared" : ""));
      Buffer there(place, 5000);
      const Window window(e, there.at(), 5000, declared ? type_of(place) : UCS_MEMORY_TYPE_UNKNOWN);
      EXPECT_EQ(window.attr.mem_type, type_of(place));
      EXPECT_EQ(window.attr.address, there.at());
    }
  }
}

/// The type of one that does not end by itself; it is canceled.
void is_told(Ends& e, ucs_status_ptr_t request, ucs_memory_type_t type, const char* what) {
  ASSERT_TRUE(UCS_PTR_IS_PTR(request)) << what;
  EXPECT_EQ(memory_type_of(request), type) << what;
  ucp_request_cancel(e.from.worker, request);
  EXPECT_EQ(ended(e, request), UCS_ERR_CANCELED) << what;
}

TEST_F(CudaQuery, ARequestsTypeIsWhatWasDeclaredElseWhatLiesThere) {
  Ends e(Peers::contexts);
  for (const Place place : {Place::host, Place::device, Place::managed}) {
    SCOPED_TRACE(name_of(place));
    Buffer in(place, 4096);
    ucp_request_param_t param = param_of(place, false);
    is_told(e, ucp_tag_recv_nbx(e.from.worker, in.at(), 8, 1, kAll, &param), type_of(place), "a receive");
    is_told(e, ucp_stream_recv_nbx(e.from.ep, in.at(), 8, nullptr, &param), type_of(place), "a stream's receive");
    auto pieces = pieces_of(in, 4000);
    ucp_request_param_t listed = pieces_param(place, false);
    is_told(e, ucp_tag_recv_nbx(e.from.worker, pieces.data(), kPieces, 1, kAll, &listed), type_of(place), "pieces");
    param = param_of(Place::device, true);
    is_told(e, ucp_tag_recv_nbx(e.from.worker, in.at(), 8, 1, kAll, &param), UCS_MEMORY_TYPE_CUDA, "declared CUDA");
    param = param_of(Place::host, true);
    is_told(e, ucp_tag_recv_nbx(e.from.worker, in.at(), 8, 1, kAll, &param), UCS_MEMORY_TYPE_HOST, "declared host");
    EXPECT_TRUE(in.untouched());
  }
}

}  // namespace
