// SPDX-License-Identifier: Apache-2.0
// Plans that an emulated device runs, in another process's host memory: what is mapped and pinned there for the device, how
// it is given back, and what happens when the owner releases it, or dies, while a plan is prepared.
#include <gtest/gtest.h>
#include <thalweg/plans.h>
#include <thalweg/thalweg.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

[[maybe_unused]] const int kDevices = setenv("THALWEG_EMULATED", "devices=2", 1);
constexpr size_t kLength = 100'003, kGuard = 61, kAll = kLength + 2 * kGuard, kSignalAt = (kAll + 7) / 8 * 8;
constexpr uint64_t kLimit = 20'000'000'000;
constexpr SideOptions kOwner{.threads = TW_THREADS_MULTI, .progress = TW_PROGRESS_THREAD};

uint64_t sum_of(const void* bytes, size_t length) {
  uint64_t sum = 0xcbf29ce484222325;
  for (size_t i = 0; i < length; ++i) sum = (sum ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3;
  return sum;
}

/// Memory of the library's, or of its own that is registered, with a signal of its own beside it. Commands: see below.
const Role kRole("owner", [](Pipe& pipe) {
  Side side(kOwner);
  pipe.send(side.address());
  const bool library = pipe.receive() == "library";
  std::vector<unsigned char> plain(library ? 0 : kSignalAt + 8);
  tw_memory* memory = nullptr;
  const tw_status made = library ? tw_memory_allocate(side.context, kSignalAt + 8, nullptr, &memory)
                                 : tw_memory_register(side.context, plain.data(), plain.size(), nullptr, &memory);
  if (made != TW_OK) return 1;
  auto* bytes = static_cast<unsigned char*>(tw_memory_address(memory));
  std::memset(bytes, 0x5a, kAll);
  tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
  options.kind = std::string(pipe.receive()) == "add" ? TW_SIGNAL_ADD : TW_SIGNAL_SET;
  tw_signal* signal = nullptr;
  if (tw_signal_create(side.worker, &options, &signal) != TW_OK) return 2;
  for (const bool of_signal : {false, true}) {
    std::string key(kKeyRoom, '\0');
    size_t length = key.size();
    const tw_status status = of_signal ? tw_signal_export(signal, key.data(), &length)
                                       : tw_memory_export_range(memory, 0, kAll, 0, key.data(), &length);
    if (status != TW_OK) return 3;
    pipe.send(key);
  }
  for (std::string command = pipe.receive(); command != ""; command = pipe.receive()) {
    if (command == "sum") {
      pipe.send(std::to_string(sum_of(bytes, kAll)));
    } else if (command == "signal") {
      pipe.send(std::to_string(tw_signal_read(signal)));
    } else if (command == "release") {
      const auto before = now_ns();
      const tw_status status = tw_memory_release(memory);
      pipe.send(std::to_string(status) + " " + std::to_string((now_ns() - before) / 1'000'000));
      if (tw_memory_allocate(side.context, kSignalAt + 8, nullptr, &memory) != TW_OK) return 4;
      bytes = static_cast<unsigned char*>(tw_memory_address(memory));
      std::memset(bytes, 0xa5, kAll);
    }
  }
  (void)tw_signal_destroy(signal);
  (void)tw_memory_release(memory);
  return 0;
});

/// Receives on a channel, by a device, into pinned host memory; says what has come.
const Role kReceiver("receiver", [](Pipe& pipe) {
  Side side(kOwner);
  pipe.send(side.address());
  tw_endpoint* const endpoint = side.connect(pipe.receive());
  tw_memory_options where = TW_MEMORY_OPTIONS_INIT;
  where.place = "pinned";
  tw_memory* memory = nullptr;
  if (tw_memory_allocate(side.context, kAll, &where, &memory) != TW_OK) return 1;
  auto* const bytes = static_cast<unsigned char*>(tw_memory_address(memory));
  std::memset(bytes, 0x5a, kAll);
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = "emulated:1";
  options.timeout_ns = kLimit;
  tw_plan* plan = nullptr;
  if (tw_plan_create(side.context, &options, &plan) != TW_OK) return 2;
  if (tw_plan_recv(plan, endpoint, bytes + kGuard, kLength, 1, nullptr, nullptr) != TW_OK) return 3;
  if (tw_plan_prepare(plan, kLimit) != TW_OK) return 4;
  for (std::string command = pipe.receive(); command == "run"; command = pipe.receive()) {
    if (tw_plan_run(plan, kLimit) != TW_OK) return 5;
    pipe.send(std::to_string(sum_of(bytes, kAll)));
  }
  if (tw_plan_destroy(plan) != TW_OK || tw_memory_release(memory) != TW_OK) return 6;
  return tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr) == TW_OK ? 0 : 7;
});

/// This process: a device's plan, and what it needs.
struct Putter {
  explicit Putter(bool library = true, const char* kind = "set", const char* transport = nullptr)
      : child("owner"), side(SideOptions{.transports = transport}) {
    endpoint = side.connect(child.receive());
    child.send(library ? "library" : "registered");
    child.send(kind);
    const std::string key = child.receive(), word = child.receive();
    EXPECT_EQ(tw_memory_import(endpoint, key.data(), key.size(), &remote), TW_OK) << tw_last_error();
    EXPECT_EQ(tw_signal_import(endpoint, word.data(), word.size(), &signal), TW_OK) << tw_last_error();
    tw_memory_options where = TW_MEMORY_OPTIONS_INIT;
    where.place = "emulated:0";
    EXPECT_EQ(tw_memory_allocate(side.context, 2 * kLength, &where, &memory), TW_OK) << tw_last_error();
    address = static_cast<unsigned char*>(tw_memory_address(memory));
    image.assign(kAll, '\x5a');
  }
  ~Putter() {
    if (plan != nullptr) {
      EXPECT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error();
    }
    tw_remote_signal_release(signal);
    tw_remote_memory_release(remote);
    (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
    (void)tw_memory_release(memory);
  }
  /// Puts the first half of the local memory with a signal, and gets it back into the other half.
  void make(uint32_t op = TW_SIGNAL_SET) {
    tw_plan_options options = TW_PLAN_OPTIONS_INIT;
    options.timeout_ns = kLimit;
    ASSERT_EQ(tw_plan_create(side.context, &options, &plan), TW_OK) << tw_last_error();
    tw_op_options with = TW_OP_OPTIONS_INIT;
    with.signal = signal;
    with.signal_op = op;
    with.signal_value = 1;
    with.increment = op == TW_SIGNAL_SET ? 1 : 0;  // it says the number of the run
    uint32_t put = 0;
    ASSERT_EQ(tw_plan_put(plan, endpoint, address, kLength, remote, kGuard, &with, &put), TW_OK) << tw_last_error();
    tw_op_options then = TW_OP_OPTIONS_INIT;
    then.after_steps = &put;
    then.after_count = 1;
    ASSERT_EQ(tw_plan_get(plan, endpoint, address + kLength, kLength, remote, kGuard, &then, nullptr), TW_OK);
  }
  std::string explain() const {
    std::string text(1u << 16, '\0');
    size_t size = text.size();
    EXPECT_EQ(tw_plan_explain(plan, text.data(), &size), TW_OK) << tw_last_error();
    return text.c_str();
  }
  /// A run with fresh bytes; both copies of them are where they belong, and nothing else has changed.
  void run(bool owned = true) {
    const std::string data = random_bytes(kLength), blank(kLength, '\0');
    ASSERT_EQ(tw_memory_copy(side.context, address, data.data(), kLength), TW_OK);
    ASSERT_EQ(tw_memory_copy(side.context, address + kLength, blank.data(), kLength), TW_OK);
    ASSERT_EQ(tw_plan_run(plan, kLimit), TW_OK) << tw_last_error();
    std::string back(kLength, '\0');
    ASSERT_EQ(tw_memory_copy(side.context, back.data(), address + kLength, kLength), TW_OK);
    EXPECT_TRUE(back == data);
    if (!owned) return;
    image.replace(kGuard, kLength, data);
    child.send("sum");
    EXPECT_EQ(child.receive(), std::to_string(sum_of(image.data(), image.size())));
    child.send("signal");
    EXPECT_EQ(child.receive(), std::to_string(++runs));
  }
  static uint32_t kind_of(const void* at) {
    tw_memory_info info = TW_MEMORY_INFO_INIT;
    EXPECT_EQ(tw_memory_query(at, &info), TW_OK) << tw_last_error();
    return info.kind;
  }
  void* mapped() const {
    void* at = nullptr;
    EXPECT_EQ(tw_remote_memory_map(remote, &at), TW_OK) << tw_last_error();
    return at;
  }

  Child child;
  Side side;
  tw_endpoint* endpoint = nullptr;
  tw_remote_memory* remote = nullptr;
  tw_remote_signal* signal = nullptr;
  tw_memory* memory = nullptr;
  unsigned char* address = nullptr;
  tw_plan* plan = nullptr;
  std::string image;
  uint64_t runs = 0;
};

TEST(PreparedHost, ADevicesPlanReachesWhatItsOwnerAllocatedWithTheLibrary) {
  Putter one;
  one.make();
  ASSERT_EQ(tw_plan_prepare(one.plan, kLimit), TW_OK) << tw_last_error();
  const std::string text = one.explain();
  EXPECT_EQ(text.find("by the host"), std::string::npos) << text;
  EXPECT_NE(text.find("* pinned here for the device"), std::string::npos) << text;
  for (int i = 0; i < 5; ++i) one.run();
}

TEST(PreparedHost, ThePinEndsWithWhoeverUsesTheMapping) {
  Putter one;
  one.make();
  void* const at = one.mapped();
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(Putter::kind_of(at), uint32_t{TW_MEMORY_HOST});
  ASSERT_EQ(tw_plan_prepare(one.plan, kLimit), TW_OK) << tw_last_error();
  EXPECT_EQ(Putter::kind_of(at), uint32_t{TW_MEMORY_PINNED});
  one.run();
  ASSERT_EQ(tw_plan_destroy(std::exchange(one.plan, nullptr)), TW_OK) << tw_last_error();
  EXPECT_EQ(Putter::kind_of(at), uint32_t{TW_MEMORY_PINNED}) << "as long as it is mapped: the next plan needs it again";
  one.child.send("release");
  one.child.receive();
  tw_remote_memory_release(std::exchange(one.remote, nullptr));
  EXPECT_TRUE(progress_until(one.side.worker, [&] { return Putter::kind_of(at) == TW_MEMORY_HOST; }));
}

TEST(PreparedHost, TheOwnersReleaseDoesNotWaitForAPlanAndNothingElseIsHit) {
  Putter one;
  one.make();
  ASSERT_EQ(tw_plan_prepare(one.plan, kLimit), TW_OK) << tw_last_error();
  one.run();
  one.child.send("release");
  const std::string answer = one.child.receive();
  EXPECT_EQ(answer.substr(0, answer.find(' ')), std::to_string(TW_OK));
  EXPECT_LT(std::stoul(answer.substr(answer.find(' '))), 4000u);
  one.run(false);  // pages that no other process has
  one.child.send("sum");
  EXPECT_EQ(one.child.receive(), std::to_string(sum_of(std::string(kAll, '\xa5').data(), kAll)));
  EXPECT_TRUE(progress_until(one.side.worker, [&] {
    const tw_status status = tw_plan_prepare(one.plan, kLimit);
    return status == TW_ERR_STALE;
  })) << tw_last_error();
}

TEST(PreparedHost, AnOwnerThatDiesLeavesAPlanThatEnds) {
  Putter one;
  one.make();
  ASSERT_EQ(tw_plan_prepare(one.plan, kLimit), TW_OK) << tw_last_error();
  one.run();
  one.child.kill();
  one.run(false);
  EXPECT_TRUE(progress_until(one.side.worker, [&] { return tw_endpoint_state(one.endpoint) == TW_ERR_PEER_LOST; }));
  one.run(false);  // the mapping stays for its users
  EXPECT_EQ(tw_plan_prepare(one.plan, kLimit), TW_ERR_PEER_LOST) << tw_last_error();
}

/// Every prepare finds what the one before it has pinned, or pins it anew.
TEST(PreparedHost, PreparedAgainAndAgain) {
  Putter one;
  one.make();
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(tw_plan_prepare(one.plan, kLimit), TW_OK) << tw_last_error();
    one.runs = 0;  // its signal begins anew
    one.run();
    one.run();
  }
}

TEST(PreparedHost, AChannelsBufferMayBeThere) {
  Child child("receiver");
  Side side(kOwner);
  const std::string address = child.receive();
  child.send(side.address());
  tw_endpoint* const endpoint = side.connect(address);
  tw_memory_options where = TW_MEMORY_OPTIONS_INIT;
  where.place = "emulated:0";
  tw_memory* memory = nullptr;
  ASSERT_EQ(tw_memory_allocate(side.context, kLength, &where, &memory), TW_OK) << tw_last_error();
  tw_plan* plan = nullptr;
  ASSERT_EQ(tw_plan_create(side.context, nullptr, &plan), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_send(plan, endpoint, tw_memory_address(memory), kLength, 1, nullptr, nullptr), TW_OK) << tw_last_error();
  ASSERT_EQ(tw_plan_prepare(plan, kLimit), TW_OK) << tw_last_error();
  std::string text(1u << 14, '\0');
  size_t size = text.size();
  ASSERT_EQ(tw_plan_explain(plan, text.data(), &size), TW_OK) << tw_last_error();
  EXPECT_NE(text.find("mapped, way: push"), std::string::npos) << text;
  for (int i = 0; i < 5; ++i) {
    const std::string data = random_bytes(kLength), guard(kGuard, '\x5a'), all = guard + data + guard;
    ASSERT_EQ(tw_memory_copy(side.context, tw_memory_address(memory), data.data(), kLength), TW_OK);
    child.send("run");
    ASSERT_EQ(tw_plan_run(plan, kLimit), TW_OK) << tw_last_error();
    EXPECT_EQ(child.receive(), std::to_string(sum_of(all.data(), all.size())));
  }
  EXPECT_EQ(tw_plan_destroy(plan), TW_OK) << tw_last_error();
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  EXPECT_EQ(tw_memory_release(memory), TW_OK) << tw_last_error();
  (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
}

/// What the device cannot do there: the text says which memory, and why.
TEST(PreparedHost, WhatIsCarriedSaysWhy) {
  struct Case {
    bool library;
    const char *kind, *transport, *why;
  };
  for (const Case& c :
       {Case{true, "add", nullptr, "no atomics on host memory"},
        Case{false, "set", nullptr, "not memory of tw_memory_allocate"}, Case{true, "set", "tcp", "another machine"}}) {
    SCOPED_TRACE(c.why);
    Putter one(c.library, c.kind, c.transport);
    one.make(std::strcmp(c.kind, "add") == 0 ? TW_SIGNAL_ADD : TW_SIGNAL_SET);
    ASSERT_EQ(tw_plan_prepare(one.plan, kLimit), TW_OK) << tw_last_error();
    const std::string text = one.explain();
    EXPECT_NE(text.find("by the host"), std::string::npos) << text;
    EXPECT_NE(text.find(c.why), std::string::npos) << text;
    for (int i = 0; i < 3; ++i) one.run();
  }
}

}  // namespace
