// SPDX-License-Identifier: Apache-2.0
// Memory that this CPU cannot load, of an emulated device: no user of ucp.h can allocate it.
#include <gtest/gtest.h>
#include <thalweg/places.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "../world.hpp"
#include "context.hpp"

using namespace ucp_test;

namespace {

/// Before the first context: back ends are opened once.
const int emulated = setenv("THALWEG_EMULATED", "devices=1", 0);

uint64_t random_word() {
  static std::mt19937_64 random{std::random_device{}()};
  return random();
}

/// Of a device, with random bytes.
struct DeviceBytes {
  tw_context* const context;
  tw_memory* memory = nullptr;
  std::vector<unsigned char> written;
  DeviceBytes(Side& side, size_t length) : context(side.context->context), written(random_bytes(length)) {
    EXPECT_EQ(emulated, 0);
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = "emulated";
    EXPECT_EQ(tw_memory_allocate(context, length, &options, &memory), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_memory_copy(context, at(), written.data(), length), TW_OK) << tw_last_error();
  }
  ~DeviceBytes() { EXPECT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error(); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  unsigned char* at(size_t offset = 0) const { return static_cast<unsigned char*>(tw_memory_address(memory)) + offset; }
  std::vector<unsigned char> read() const {
    std::vector<unsigned char> bytes(written.size());
    EXPECT_EQ(tw_memory_copy(context, bytes.data(), at(), bytes.size()), TW_OK) << tw_last_error();
    return bytes;
  }
  uint64_t word(size_t offset) const {
    uint64_t word = 0;
    std::memcpy(&word, written.data() + offset, sizeof word);
    return word;
  }
};

/// A range of b's memory that a has a key of.
struct Window {
  World& w;
  ucp_mem_h memory = nullptr;
  ucp_rkey_h key = nullptr;
  Window(World& world, void* at, size_t length) : w(world) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = at;
    params.length = length;
    EXPECT_EQ(ucp_mem_map(w.b.context, &params, &memory), UCS_OK);
    void* packed = nullptr;
    size_t size = 0;
    EXPECT_EQ(ucp_rkey_pack(w.b.context, memory, &packed, &size), UCS_OK);
    EXPECT_EQ(ucp_ep_rkey_unpack(w.a.ep, packed, &key), UCS_OK);
    ucp_rkey_buffer_release(packed);
  }
  ~Window() {
    ucp_rkey_destroy(key);
    EXPECT_EQ(ucp_mem_unmap(w.b.context, memory), UCS_OK);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
};

ucp_request_param_t words(void* reply) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  param.datatype = ucp_dt_make_contig(sizeof(uint64_t));
  param.reply_buffer = reply;
  return param;
}

TEST(DeviceMemory, AtomicsTakeTheirOperandFromThere) {
  World w;
  w.connect();
  DeviceBytes device(w.a, 24);
  alignas(64) uint64_t there[3] = {1, random_word(), 3};
  const Window window(w, there, sizeof there);
  const uint64_t at = reinterpret_cast<uint64_t>(&there[1]);
  uint64_t expected = there[1], reply = 0;
  const auto op = [&](ucp_atomic_op_t code, size_t offset) {
    const ucp_request_param_t param = words(&reply);
    EXPECT_EQ(w.end(ucp_atomic_op_nbx(w.a.ep, code, device.at(offset), 1, at, window.key, &param)), UCS_OK);
  };
  op(UCP_ATOMIC_OP_ADD, 0);
  EXPECT_EQ(reply, expected);
  expected += device.word(0);
  EXPECT_EQ(there[1], expected);
  op(UCP_ATOMIC_OP_SWAP, 8);
  EXPECT_EQ(reply, expected);
  EXPECT_EQ(there[1], device.word(8));
  reply = random_word();  // what is swapped in
  const uint64_t other = reply;
  op(UCP_ATOMIC_OP_CSWAP, 8);
  EXPECT_EQ(reply, device.word(8));
  EXPECT_EQ(there[1], other);
  EXPECT_EQ(there[0], 1u);
  EXPECT_EQ(there[2], 3u);
  EXPECT_EQ(device.read(), device.written);
}

TEST(DeviceMemory, AtomicsGiveNoOldValueThere) {
  World w;
  w.connect();
  DeviceBytes device(w.a, 8);
  alignas(64) uint64_t there = random_word();
  const uint64_t before = there, operand = random_word();
  const Window window(w, &there, sizeof there);
  const uint64_t at = reinterpret_cast<uint64_t>(&there);
  for (const ucp_atomic_op_t code : {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP}) {
    const ucp_request_param_t param = words(device.at());
    EXPECT_EQ(w.end(ucp_atomic_op_nbx(w.a.ep, code, &operand, 1, at, window.key, &param)), UCS_ERR_UNSUPPORTED);
  }
  EXPECT_EQ(w.end(ucp_atomic_fetch_nb(w.a.ep, UCP_ATOMIC_FETCH_OP_CSWAP, before, device.at(), 8, at, window.key,
                                      [](void*, ucs_status_t) {})),
            UCS_ERR_UNSUPPORTED);
  EXPECT_EQ(there, before);
  EXPECT_EQ(device.read(), device.written);
}

TEST(DeviceMemory, AListOfItAndOfHostMemoryIsRefused) {
  World w;
  w.connect();
  constexpr size_t kLength = 1000;
  DeviceBytes device(w.a, kLength);
  std::vector<unsigned char> host = random_bytes(kLength), there = random_bytes(2 * kLength);
  const std::vector<unsigned char> host_before = host, there_before = there;
  const Window window(w, there.data(), there.size());
  ucp_request_param_t lists{};
  lists.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
  lists.datatype = ucp_dt_make_iov();
  const ucp_dt_iov_t in_host{host.data(), kLength}, in_device{device.at(), kLength}, nothing_at_all{nullptr, 0};
  for (const auto& list : {std::vector{in_host, in_device}, std::vector{in_device, nothing_at_all, in_host}}) {
    const auto refused = [&](ucs_status_ptr_t request) { EXPECT_EQ(w.end(request), UCS_ERR_UNSUPPORTED); };
    const auto at = reinterpret_cast<uint64_t>(there.data());
    std::vector<ucp_dt_iov_t> into = list;
    refused(ucp_tag_send_nbx(w.a.ep, list.data(), list.size(), 1, &lists));
    refused(ucp_tag_recv_nbx(w.a.worker, into.data(), into.size(), 1, ~ucp_tag_t{0}, &lists));
    refused(ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, list.data(), list.size(), &lists));
    refused(ucp_stream_send_nbx(w.a.ep, list.data(), list.size(), &lists));
    refused(ucp_put_nbx(w.a.ep, list.data(), list.size(), at, window.key, &lists));
    refused(ucp_get_nbx(w.a.ep, into.data(), into.size(), at, window.key, &lists));
  }
  EXPECT_EQ(host, host_before);
  EXPECT_EQ(there, there_before);
  EXPECT_EQ(device.read(), device.written);
  // One of the device's alone is taken.
  const std::vector<ucp_dt_iov_t> pieces{{device.at(500), 500}, {device.at(), 500}};
  EXPECT_EQ(
      w.end(ucp_put_nbx(w.a.ep, pieces.data(), pieces.size(), reinterpret_cast<uint64_t>(there.data()), window.key, &lists)),
      UCS_OK);
  const ucp_request_param_t none = nothing();
  EXPECT_EQ(w.end(ucp_ep_flush_nbx(w.a.ep, &none)), UCS_OK);
  std::vector<unsigned char> expected(device.written.begin() + 500, device.written.end());
  expected.insert(expected.end(), device.written.begin(), device.written.begin() + 500);
  there.resize(kLength);
  EXPECT_EQ(there, expected);
}

}  // namespace
