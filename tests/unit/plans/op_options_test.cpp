// SPDX-License-Identifier: Apache-2.0
// Options that a call does not take are refused by name, whoever takes options; nothing of them is ignored.
#include <gtest/gtest.h>
#include <thalweg/thalweg.hpp>

#include <cstring>
#include <functional>
#include <string>

namespace {

using Call = std::function<tw_status(const tw_op_options*)>;

struct OpOptions : testing::Test {
  OpOptions() { endpoint.wait(); }
  static thalweg::ContextOptions settings() {
    thalweg::ContextOptions options;
    options.job_key = "thalweg-unit-test-job-key-of-32-b";
    options.job_key_length = 32;
    options.transports = "self";
    return options;
  }
  /// Refused, with the call's and the option's name.
  static void refuses(const Call& call, const char* name, const char* option, const tw_op_options& options) {
    SCOPED_TRACE(std::string(name) + " with " + option);
    ASSERT_EQ(call(&options), TW_ERR_INVALID);
    EXPECT_NE(std::strstr(tw_last_error(), name), nullptr) << tw_last_error();
    EXPECT_NE(std::strstr(tw_last_error(), option), nullptr) << tw_last_error();
  }
  template <class T>
  static tw_op_options with(T tw_op_options::*field, std::type_identity_t<T> value) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.*field = value;
    return options;
  }

  thalweg::Context context{settings()};
  thalweg::Worker worker{context};
  thalweg::Endpoint endpoint = worker.connect(worker.address());
  thalweg::Memory memory = context.allocate(64);
  thalweg::RemoteMemory remote = endpoint.import_memory(memory.key());
  thalweg::Signal signal = worker.signal();
  thalweg::RemoteSignal remote_signal = endpoint.import_signal(signal.key());
  thalweg::Counter counter = worker.counter();
  char bytes[8] = {};
  tw_request request = TW_REQUEST_NONE;
};

TEST_F(OpOptions, CallsTakeNoOptionsOfPlans) {
  const uint32_t step = 0;
  tw_op_options ordered = with(&tw_op_options::after_steps, &step);
  ordered.after_count = 1;
  const std::pair<const char*, Call> calls[] = {
      {"tw_send", [&](auto* o) { return tw_send(endpoint, bytes, 8, 1, o, &request); }},
      {"tw_recv", [&](auto* o) { return tw_recv(worker.get(), bytes, 8, 1, 0, o, &request); }},
      {"tw_probe", [&](auto* o) { return tw_probe(worker.get(), 1, 0, o, nullptr, nullptr); }},
      {"tw_am_send", [&](auto* o) { return tw_am_send(endpoint, 1, nullptr, 0, bytes, 8, o, &request); }},
      {"tw_bytes_send", [&](auto* o) { return tw_bytes_send(endpoint, bytes, 8, o, &request); }},
      {"tw_bytes_recv", [&](auto* o) { return tw_bytes_recv(endpoint, bytes, 8, o, &request); }},
      {"tw_put", [&](auto* o) { return tw_put(endpoint, bytes, 8, remote.get(), 0, o, &request); }},
      {"tw_get", [&](auto* o) { return tw_get(endpoint, bytes, 8, remote.get(), 0, o, &request); }},
      {"tw_atomic",
       [&](auto* o) { return tw_atomic(endpoint, TW_ATOMIC_ADD, remote.get(), 0, 8, 1, 0, nullptr, o, &request); }},
      {"tw_signal_post", [&](auto* o) { return tw_signal_post(remote_signal.get(), 1, o, &request); }},
  };
  for (const auto& [name, call] : calls) {
    refuses(call, name, "`increment`", with(&tw_op_options::increment, 1));
    refuses(call, name, "`after_steps`", ordered);
    refuses(call, name, "`after`", with(&tw_op_options::after, static_cast<const void*>(&step)));  // no kind
    refuses(call, name, "`reserved`", with(&tw_op_options::reserved, 1));
    EXPECT_EQ(request, TW_REQUEST_NONE);
  }
  EXPECT_EQ(signal.read(), 0u) << "nothing was posted";
}

TEST_F(OpOptions, CallsTakeTheirOwnOnly) {
  const Call send = [&](auto* o) { return tw_send(endpoint, bytes, 8, 1, o, &request); };
  refuses(send, "tw_send", "`signal`", with(&tw_op_options::signal, remote_signal.get()));
  refuses(send, "tw_send", "`source`", with(&tw_op_options::source, endpoint.get()));
  refuses(send, "tw_send", "`notify`", with(&tw_op_options::notify, TW_NOTIFY_QUEUE));
  refuses(send, "tw_send", "TW_OP_REMOTE", with(&tw_op_options::flags, TW_OP_SYNC | TW_OP_REMOTE));
  refuses(send, "tw_send", "bit 31", with(&tw_op_options::flags, 1u << 31));
  const Call put = [&](auto* o) { return tw_put(endpoint, bytes, 8, remote.get(), 0, o, &request); };
  refuses(put, "tw_put", "`immediate`", with(&tw_op_options::immediate, 5));
  refuses(put, "tw_put", "`handler`", with(&tw_op_options::handler, 5));
  refuses(put, "tw_put", "signal_value", with(&tw_op_options::signal_value, 5));
  refuses(put, "tw_put", "TW_OP_SYNC", with(&tw_op_options::flags, TW_OP_SYNC));
  const Call get = [&](auto* o) { return tw_get(endpoint, bytes, 8, remote.get(), 0, o, &request); };
  refuses(get, "tw_get", "`signal`", with(&tw_op_options::signal, remote_signal.get()));
  const Call tell = [&](auto* o) { return tw_request_tell(TW_REQUEST_NONE, o); };
  refuses(tell, "tw_request_tell", "`source`", with(&tw_op_options::source, endpoint.get()));
}

TEST_F(OpOptions, StepsTakeNoOptionsOfCalls) {
  thalweg::Plan plan(context);
  thalweg::Queue queue(context);
  tw_completion record{};
  const std::pair<const char*, Call> calls[] = {
      {"tw_plan_send", [&](auto* o) { return tw_plan_send(plan.get(), endpoint, bytes, 8, 1, o, nullptr); }},
      {"tw_plan_recv", [&](auto* o) { return tw_plan_recv(plan.get(), endpoint, bytes, 8, 1, o, nullptr); }},
      {"tw_plan_put", [&](auto* o) { return tw_plan_put(plan.get(), endpoint, bytes, 8, remote.get(), 0, o, nullptr); }},
      {"tw_plan_get", [&](auto* o) { return tw_plan_get(plan.get(), endpoint, bytes, 8, remote.get(), 0, o, nullptr); }},
      {"tw_plan_signal", [&](auto* o) { return tw_plan_signal(plan.get(), remote_signal.get(), 1, o, nullptr); }},
      {"tw_plan_copy", [&](auto* o) { return tw_plan_copy(plan.get(), bytes, bytes + 4, 4, o, nullptr); }},
      {"tw_send_on", [&](auto* o) { return tw_send_on(queue.get(), endpoint, bytes, 8, 1, o); }},
      {"tw_put_on", [&](auto* o) { return tw_put_on(queue.get(), endpoint, bytes, 8, remote.get(), 0, o); }},
      {"tw_signal_on", [&](auto* o) { return tw_signal_on(queue.get(), remote_signal.get(), 1, o); }},
  };
  const auto callback = [](void*, tw_request, tw_status, const tw_recv_info*) {};
  const uint32_t step = 0;
  tw_op_options old = with(&tw_op_options::after, static_cast<const void*>(&step));  // what `after` was in steps
  old.after_count = 1;
  for (const auto& [name, call] : calls) {
    refuses(call, name, "`callback`", with(&tw_op_options::callback, callback));
    refuses(call, name, "`counter`", with(&tw_op_options::counter, counter.get()));
    refuses(call, name, "`record`", with(&tw_op_options::record, &record));
    refuses(call, name, "`notify`", with(&tw_op_options::notify, TW_NOTIFY_QUEUE));
    refuses(call, name, "`source`", with(&tw_op_options::source, endpoint.get()));
    refuses(call, name, "`after`", with(&tw_op_options::after_kind, TW_AFTER_STREAM));
    refuses(call, name, "TW_OP_NO_WAIT", with(&tw_op_options::flags, TW_OP_NO_WAIT));
    EXPECT_EQ(call(&old), TW_ERR_INVALID);
  }
  const Call send = calls[0].second, send_on = calls[6].second;
  refuses(send, "tw_plan_send", "`increment`", with(&tw_op_options::increment, 1));
  refuses(send, "tw_plan_send", "`signal`", with(&tw_op_options::signal, remote_signal.get()));
  refuses(calls[2].second, "tw_plan_put", "`increment`", with(&tw_op_options::increment, 1));  // no signal
  refuses(send, "after_steps", "NULL", with(&tw_op_options::after_count, 1));
  refuses(send_on, "tw_send_on", "`after_steps`", with(&tw_op_options::after_count, 1));
  EXPECT_EQ(plan.copy(bytes, thalweg::ConstBytes(bytes, 8)).last(), 0u) << "no step was added";
}

/// A caller that was compiled when the struct ended earlier: what it does not have is off.
TEST_F(OpOptions, ShorterOnesAreFilledUp) {
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.size = offsetof(tw_op_options, increment);
  std::memset(&options.increment, 0xff, sizeof options - offsetof(tw_op_options, increment));
  EXPECT_EQ(tw_signal_post(remote_signal.get(), 7, &options, nullptr), TW_OK) << tw_last_error();
  EXPECT_EQ(signal.wait(7), TW_OK);
}

/// Copies of C++ options name their own steps.
TEST_F(OpOptions, CopiesNameTheirOwnSteps) {
  thalweg::OpOptions copy;
  {
    const thalweg::OpOptions made = thalweg::OpOptions().after({3, 4}).increment(2);
    copy = made;
    const thalweg::OpOptions another(made);
    EXPECT_NE(made.get()->after_steps, another.get()->after_steps);
  }
  ASSERT_EQ(copy.get()->after_count, 2u);
  EXPECT_EQ(copy.get()->after_steps[1], 4u);
  EXPECT_EQ(copy.get()->increment, 2u);
}

/// The destructors cannot say that operations will end in it.
TEST_F(OpOptions, WhatOperationsEndInSaysThatItIsBusy) {
  thalweg::CompletionQueue queue = worker.completion_queue();
  const auto pending = [&](uint64_t tag, const tw_op_options& options) {
    ASSERT_EQ(tw_recv(worker.get(), bytes, sizeof bytes, tag, UINT64_MAX, &options, &request), TW_IN_PROGRESS);
  };
  pending(1, with(&tw_op_options::queue, queue.get()));
  const tw_request first = request;
  pending(2, with(&tw_op_options::counter, counter.get()));
  const tw_request second = request;
  pending(3, with(&tw_op_options::done, signal.get()));
  EXPECT_EQ(queue.destroy(), TW_ERR_BUSY);
  EXPECT_EQ(counter.destroy(), TW_ERR_BUSY);
  EXPECT_EQ(signal.destroy(), TW_ERR_BUSY);
  EXPECT_NE(signal.get(), nullptr);
  for (const tw_request one : {first, second, request}) {
    ASSERT_EQ(tw_request_cancel(one), TW_OK);
    EXPECT_EQ(tw_request_finish(one), TW_ERR_CANCELED);
  }
  tw_completion entry[2];
  EXPECT_EQ(queue.poll(entry).size(), 1u);
  EXPECT_EQ(queue.destroy(), TW_OK);
  EXPECT_EQ(counter.destroy(), TW_OK);
  EXPECT_EQ(signal.destroy(), TW_OK);
  EXPECT_EQ(signal.get(), nullptr);
  EXPECT_EQ(signal.destroy(), TW_OK) << "there is none any more";
}

}  // namespace
