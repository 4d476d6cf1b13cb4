// SPDX-License-Identifier: Apache-2.0
// A peer that sends another worker's address as its own, which no user of ucp.h can; and endpoints whose connection this side has ended.
#include <gtest/gtest.h>

#include <vector>

#include "../world.hpp"
#include "endpoint.hpp"
#include "worker.hpp"

using namespace ucp_test;

namespace {

/// The operation's end, with all of these progressing.
ucs_status_t end(const std::vector<Side*>& sides, ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_RAW_STATUS(request);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (ucp_request_check_status(request) == UCS_INPROGRESS && std::chrono::steady_clock::now() < limit) {
    for (Side* side : sides) ucp_worker_progress(side->worker);
  }
  const ucs_status_t status = ucp_request_check_status(request);
  ucp_request_free(request);
  return status;
}

TEST(Impostor, DoesNotEndTheConnectionOfTheWorkerWhoseNameItUses) {
  Side receiver, honest, liar;
  const std::vector<Side*> all{&receiver, &honest, &liar};
  const ucp_request_param_t none = nothing();
  const auto out = random_bytes(5000000);
  std::vector<unsigned char> in(out.size());
  honest.connect(receiver);
  ucs_status_ptr_t send = ucp_tag_send_nbx(honest.ep, out.data(), 1, 1, &none);
  EXPECT_EQ(end(all, ucp_tag_recv_nbx(receiver.worker, in.data(), 1, 1, ~ucp_tag_t{0}, &none)), UCS_OK);
  EXPECT_EQ(end(all, send), UCS_OK);

  liar.worker->address = honest.worker->address;
  liar.connect(receiver);
  EXPECT_EQ(end(all, ucp_stream_send_nbx(liar.ep, out.data(), 1, &none)), UCS_OK);
  for (int i = 0; i < 20'000; ++i) {
    for (Side* side : all) ucp_worker_progress(side->worker);
  }
  send = ucp_tag_send_nbx(honest.ep, out.data(), out.size(), 2, &none);
  EXPECT_EQ(end(all, ucp_tag_recv_nbx(receiver.worker, in.data(), in.size(), 2, ~ucp_tag_t{0}, &none)), UCS_OK);
  EXPECT_EQ(end(all, send), UCS_OK);
  EXPECT_EQ(in, out);
  // And it may still be answered.
  receiver.connect(honest);
  send = ucp_tag_send_nbx(receiver.ep, out.data(), 1000, 3, &none);
  EXPECT_EQ(end(all, ucp_tag_recv_nbx(honest.worker, in.data(), 1000, 3, ~ucp_tag_t{0}, &none)), UCS_OK);
  EXPECT_EQ(end(all, send), UCS_OK);
}

/// What is posted to it is told why, as its error handler is.
TEST(Broken, EndpointsSayWhyTheirConnectionHasEnded) {
  World w;
  w.connect();
  const ucp_request_param_t none = nothing();
  uint64_t word = 0;
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, &word, sizeof word, 1, &none);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &word, sizeof word, 1, ~ucp_tag_t{0}, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
  thalweg::ucx::break_connection(*w.a.ep->peer, UCS_ERR_NO_MEMORY);
  EXPECT_EQ(w.end(ucp_tag_send_nbx(w.a.ep, &word, sizeof word, 1, &none)), UCS_ERR_NO_MEMORY);
  EXPECT_EQ(w.end(ucp_tag_send_sync_nbx(w.a.ep, &word, sizeof word, 1, &none)), UCS_ERR_NO_MEMORY);
  EXPECT_EQ(w.end(ucp_am_send_nbx(w.a.ep, 1, &word, sizeof word, nullptr, 0, &none)), UCS_ERR_NO_MEMORY);
  EXPECT_EQ(w.end(ucp_stream_send_nbx(w.a.ep, &word, sizeof word, &none)), UCS_ERR_NO_MEMORY);
  EXPECT_EQ(w.end(ucp_ep_flush_nbx(w.a.ep, &none)), UCS_ERR_NO_MEMORY);
  EXPECT_EQ(w.end(ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
}

}  // namespace
