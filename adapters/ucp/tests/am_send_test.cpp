// SPDX-License-Identifier: Apache-2.0
// Protocols that the sender of an active message asks for.
#include "world.hpp"

using namespace ucp_test;

namespace {

struct Got {
  std::string header;
  std::vector<unsigned char> data;
  uint64_t attributes = 0;
  void* kept = nullptr;
  int calls = 0;
  static ucs_status_t handle(void* arg, const void* header, size_t header_length, void* data, size_t length,
                             const ucp_am_recv_param_t* param) {
    auto& self = *static_cast<Got*>(arg);
    ++self.calls;
    self.header.assign(static_cast<const char*>(header), header_length);
    self.attributes = param->recv_attr;
    self.data.clear();
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
    const auto* const bytes = static_cast<const unsigned char*>(data);
    self.data.assign(bytes, bytes + length);
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) == 0) return UCS_OK;
    self.kept = data;
    return UCS_INPROGRESS;
  }
};

void set(ucp_worker_h worker, unsigned id, uint32_t flags, Got& got) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                     UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  param.id = id;
  param.cb = Got::handle;
  param.arg = &got;
  param.flags = flags;
  ASSERT_EQ(ucp_worker_set_am_recv_handler(worker, &param), UCS_OK);
}

TEST(Am, EagerMessagesOfAnyLengthComeWithTheirData) {
  World w;
  w.connect();
  Got got;
  for (const unsigned id : {3u, 4000u}) {
    for (const uint32_t kept : {0u, uint32_t{UCP_AM_FLAG_PERSISTENT_DATA}}) {
      set(w.b.worker, id, kept, got);
      for (const size_t n : {size_t{0}, size_t{100}, size_t{65280}, size_t{65281}, size_t{3000001}}) {
        for (const uint32_t reply : {0u, uint32_t{UCP_AM_SEND_FLAG_REPLY}}) {
          const auto out = random_bytes(n);
          const ucp_request_param_t param = flags(UCP_AM_SEND_FLAG_EAGER | reply);
          const int before = got.calls;
          ucs_status_ptr_t send = ucp_am_send_nbx(w.a.ep, id, "header", 6, out.data(), n, &param);
          ASSERT_FALSE(UCS_PTR_IS_ERR(send)) << n;
          EXPECT_TRUE(w.until([&] { return got.calls == before + 1; }));
          EXPECT_EQ(w.end(send), UCS_OK);
          EXPECT_EQ(got.header, "header");
          EXPECT_EQ(got.data, out) << n;
          EXPECT_EQ(got.attributes & UCP_AM_RECV_ATTR_FLAG_RNDV, 0u);
          EXPECT_EQ((got.attributes & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0, reply != 0);
          if (got.kept != nullptr) {
            EXPECT_TRUE(n == 0 || std::memcmp(got.kept, out.data(), n) == 0);
            ucp_am_data_release(w.b.worker, got.kept);
            got.kept = nullptr;
          }
        }
      }
    }
  }
}

TEST(Am, AnEagerMessageOfPiecesComesWhole) {
  World w;
  w.connect();
  Got got;
  set(w.b.worker, 3, 0, got);
  auto front = random_bytes(50000), back = random_bytes(90000);
  ucp_dt_iov_t iov[2] = {{front.data(), front.size()}, {back.data(), back.size()}};
  ucp_request_param_t param = flags(UCP_AM_SEND_FLAG_EAGER);
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  param.datatype = ucp_dt_make_iov();
  ucs_status_ptr_t send = ucp_am_send_nbx(w.a.ep, 3, nullptr, 0, iov, 2, &param);
  ASSERT_FALSE(UCS_PTR_IS_ERR(send));
  EXPECT_TRUE(w.until([&] { return got.calls == 1; }));
  EXPECT_EQ(w.end(send), UCS_OK);
  front.insert(front.end(), back.begin(), back.end());
  EXPECT_EQ(got.data, front);
  if (got.kept != nullptr) ucp_am_data_release(w.b.worker, got.kept);
}

TEST(Am, BothProtocolsAtOnceAreRefused) {
  World w;
  w.connect();
  const ucp_request_param_t param = flags(UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV);
  char byte = 0;
  EXPECT_EQ(UCS_PTR_RAW_STATUS(ucp_am_send_nbx(w.a.ep, 1, nullptr, 0, &byte, 1, &param)), UCS_ERR_INVALID_PARAM);
}

}  // namespace
