// SPDX-License-Identifier: Apache-2.0
// A worker that arms has nothing to tell: what ended in a call of the user's wakes nobody.
#include "world.hpp"

using namespace ucp_test;

namespace {

constexpr ucp_tag_t kAll = ~ucp_tag_t{0};

/// Both sides have spoken, and nothing is left to do.
void settle(World& w) {
  const ucp_request_param_t none = nothing();
  char byte = 0;
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, &byte, 1, 9, &none);
  EXPECT_EQ(w.end(ucp_tag_recv_nbx(w.b.worker, &byte, 1, 9, kAll, &none)), UCS_OK);
  EXPECT_EQ(w.end(send), UCS_OK);
}

/// A message that waits for its receiver, and a worker that may sleep.
ucs_status_ptr_t wait_for_a_receiver(World& w, const std::vector<unsigned char>& out) {
  const ucp_request_param_t none = nothing();
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
  EXPECT_TRUE(UCS_PTR_IS_PTR(send));
  EXPECT_TRUE(w.until([&] { return ucp_worker_arm(w.a.worker) == UCS_OK; }));
  EXPECT_EQ(ucp_request_check_status(send), UCS_INPROGRESS);
  return send;
}

/// By progress of this side alone, as one that sleeps and is woken does it.
ucs_status_t end_alone(Side& side, ucs_status_ptr_t request) {
  for (int i = 0; i < 1000 && ucp_request_check_status(request) == UCS_INPROGRESS; ++i) {
    if (ucp_worker_arm(side.worker) == UCS_OK) break;  // asleep
    ucp_worker_progress(side.worker);
  }
  return ucp_request_check_status(request);
}

TEST(Sleep, AForcedCloseTellsOfItsSendsBeforeTheWorkerSleeps) {
  World w;
  w.connect();
  settle(w);
  const auto out = random_bytes(5000000);
  ucs_status_ptr_t send = wait_for_a_receiver(w, out);
  (void)ucp_ep_close_nb(w.a.ep, UCP_EP_CLOSE_MODE_FORCE);
  EXPECT_EQ(end_alone(w.a, send), UCS_ERR_CANCELED);
  ucp_request_free(send);
}

TEST(Sleep, ACanceledReceiveIsToldBeforeTheWorkerSleeps) {
  World w;
  w.connect();
  settle(w);
  const ucp_request_param_t none = nothing();
  char byte = 0;
  ucs_status_ptr_t recv = ucp_tag_recv_nbx(w.a.worker, &byte, 1, 1, kAll, &none);
  ucp_request_cancel(w.a.worker, recv);
  EXPECT_EQ(ucp_request_check_status(recv), UCS_INPROGRESS) << "told in the call";
  EXPECT_EQ(end_alone(w.a, recv), UCS_ERR_CANCELED);
  ucp_request_free(recv);
}

TEST(Sleep, ACanceledSendIsToldBeforeTheWorkerSleeps) {
  World w;
  w.a.connect(w.b);  // not connected yet: the send can be canceled
  const ucp_request_param_t none = nothing();
  const auto out = random_bytes(5000000);
  ucs_status_ptr_t send = ucp_tag_send_nbx(w.a.ep, out.data(), out.size(), 1, &none);
  ASSERT_TRUE(UCS_PTR_IS_PTR(send));
  ucp_request_cancel(w.a.worker, send);
  EXPECT_EQ(end_alone(w.a, send), UCS_ERR_CANCELED);
  ucp_request_free(send);
}

}  // namespace
