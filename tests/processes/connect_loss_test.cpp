// SPDX-License-Identifier: Apache-2.0
// The end of connections: graceful and forced closes, kill -9 of the peer with every kind of operation pending, reconnecting,
// forked children, wrong keys and strangers while traffic goes on, sleeping workers.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

const Role kEcho("echo", [](Pipe& pipe) {
  Side side;
  pipe.send(side.address());
  tw_endpoint* last = serve_echo(side.worker);
  (void)tw_endpoint_close(last, TW_CLOSE_GRACEFUL, nullptr);
  return 0;
});

/// Connects back by address, exports memory, then never progresses again.
const Role kDeaf("deaf", [](Pipe& pipe) {
  Side side;
  pipe.send(side.address());
  tw_memory* memory = nullptr;
  static char plain[1 << 20];
  if (tw_memory_register(side.context, plain, sizeof plain, nullptr, &memory) != TW_OK) return 1;
  char key[kKeyRoom];
  size_t length = sizeof key;
  if (tw_memory_export(memory, key, &length) != TW_OK) return 2;
  char hello = 0;
  tw_recv_info info{};
  if (tw_recv_blocking(side.worker, &hello, 1, 1, UINT64_MAX, &info) != TW_OK) return 3;
  if (tw_send_blocking(info.endpoint, key, length, 2) != TW_OK) return 4;
  progress_until(side.worker, [&] { return pipe.readable(); });
  pause();
  return 0;
});

/// Receives one message, and ends its worker without closing anything.
const Role kPassing("passing", [](Pipe& pipe) {
  Side side;
  pipe.send(side.address());
  char byte = 0;
  if (tw_recv_blocking(side.worker, &byte, 1, 1, UINT64_MAX, nullptr) != TW_OK) return 1;
  return 0;
});

class Loss : public testing::TestWithParam<const char*> {};

TEST_P(Loss, EveryPendingOperationEndsWithPeerLost) {
  Child child("deaf");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  ASSERT_EQ(tw_send_blocking(endpoint, "x", 1, 1), TW_OK);
  char key[kKeyRoom];
  tw_recv_info info{};
  ASSERT_EQ(tw_recv_blocking(side.worker, key, sizeof key, 2, UINT64_MAX, &info), TW_OK);
  tw_remote_memory* remote = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, key, info.length, &remote), TW_OK) << tw_last_error();
  child.send("be deaf");
  while (child.readable()) {
  }
  usleep(20'000);  // the child leaves its progress loop; what it still answers is finished below before the kill

  std::vector<std::string> buffers;
  std::vector<std::pair<std::string, tw_request>> pending;
  auto add = [&](const char* what, tw_status status, tw_request request) {
    ASSERT_GE(status, 0) << what << ": " << tw_last_error();
    if (status == TW_IN_PROGRESS) pending.emplace_back(what, request);
  };
  for (int i = 0; i < 12; ++i) buffers.push_back(random_bytes(1 << 20));
  tw_op_options sync = TW_OP_OPTIONS_INIT, source = TW_OP_OPTIONS_INIT, remote_done = TW_OP_OPTIONS_INIT;
  sync.flags = TW_OP_SYNC;
  source.source = endpoint;
  remote_done.flags = TW_OP_REMOTE;
  tw_request r = 0;
  add("sync send", tw_send(endpoint, buffers[0].data(), 8, 77, &sync, &r), r);
  add("rendezvous", tw_send(endpoint, buffers[1].data(), 1 << 20, 78, nullptr, &r), r);
  add("receive", tw_recv(side.worker, buffers[2].data(), 100, 79, UINT64_MAX, &source, &r), r);
  add("bytes", tw_bytes_recv(endpoint, buffers[3].data(), 100, nullptr, &r), r);
  add("am", tw_am_send(endpoint, 3, "h", 1, buffers[4].data(), 1 << 20, nullptr, &r), r);
  uint64_t old = 0;
  add("fetching atomic", tw_atomic(endpoint, TW_ATOMIC_ADD, remote, 0, 8, 1, 0, &old, nullptr, &r), r);
  add("remote put", tw_put(endpoint, buffers[5].data(), 4096, remote, 4096, &remote_done, &r), r);
  add("get", tw_get(endpoint, buffers[6].data(), 100'000, remote, 0, nullptr, &r), r);
  add("flush", tw_endpoint_flush(endpoint, &r), r);
  const size_t before = pending.size();
  ASSERT_GE(before, 4u);
  for (int i = 0; i < 1000; ++i) tw_worker_progress(side.worker);

  child.kill();
  const uint64_t killed = now_ns();
  ASSERT_TRUE(progress_until(
      side.worker,
      [&] {
        for (auto& [what, request] : pending) {
          if (tw_request_test(request) == TW_IN_PROGRESS) return false;
        }
        return true;
      },
      5'000'000'000))
      << "something still pends";
  EXPECT_LT(now_ns() - killed, 2'000'000'000u);
  size_t lost = 0;
  for (auto& [what, request] : pending) {
    const tw_status status = tw_request_finish(request);
    lost += status == TW_ERR_PEER_LOST;
    EXPECT_TRUE(status == TW_ERR_PEER_LOST || status == TW_OK) << what << ": " << tw_status_name(status);
  }
  EXPECT_GE(lost, 4u);
  EXPECT_EQ(tw_endpoint_state(endpoint), TW_ERR_PEER_LOST);
  EXPECT_EQ(tw_send(endpoint, "y", 1, 1, nullptr, &r), TW_ERR_PEER_LOST);
  tw_remote_memory_release(remote);
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr), TW_OK);

  // The worker goes on with others.
  Child other("echo");
  tw_endpoint* fresh = side.connect(other.receive(), GetParam());
  EXPECT_TRUE(echo(side.worker, fresh, 70'000, 5));
}

TEST_P(Loss, CallbackOnceAndReconnect) {
  Side side;
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  static std::vector<tw_status> calls;
  calls.clear();
  options.on_lost = [](void*, tw_endpoint*, tw_status why) { calls.push_back(why); };
  options.transport = GetParam();
  Child child("echo");
  const std::string address = child.receive();
  tw_endpoint* endpoint = nullptr;
  ASSERT_EQ(tw_connect(side.worker, address.data(), address.size(), &options, &endpoint), TW_OK);
  EXPECT_TRUE(echo(side.worker, endpoint, 100, 1));
  child.kill();
  ASSERT_TRUE(progress_until(side.worker, [&] { return !calls.empty(); }, 5'000'000'000));
  for (int i = 0; i < 100; ++i) tw_worker_progress(side.worker);
  EXPECT_EQ(calls, std::vector<tw_status>{TW_ERR_PEER_LOST});
  EXPECT_EQ(tw_endpoint_state(endpoint), TW_ERR_PEER_LOST);
  EXPECT_NE(std::string(tw_last_error()), "");
  // The dead one's address gives a clear error, a new process a fresh link.
  tw_endpoint* dead = side.connect(address, GetParam());
  const tw_status why = tw_endpoint_wait(dead, 12'000'000'000);
  EXPECT_TRUE(why == TW_ERR_UNREACHABLE || why == TW_ERR_STALE) << tw_status_name(why);
  Child again("echo");
  tw_endpoint* fresh = side.connect(again.receive(), GetParam());
  EXPECT_TRUE(echo(side.worker, fresh, 5000, 2));
}

TEST_P(Loss, GracefulCloseDeliversAndReconnects) {
  Child child("echo");
  Side side;
  const std::string address = child.receive();
  for (int round = 0; round < 10; ++round) {
    tw_endpoint* endpoint = side.connect(address, GetParam());
    EXPECT_TRUE(echo(side.worker, endpoint, 3000 + size_t(round), 1)) << round;
    ASSERT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr), TW_OK) << tw_last_error();
    tw_request unused;
    EXPECT_LT(tw_send(endpoint, "a", 1, 1, nullptr, &unused), 0);
  }
  tw_endpoint* last = side.connect(address, GetParam());
  ASSERT_EQ(tw_send_blocking(last, "", 0, kStop), TW_OK);
  ASSERT_EQ(tw_endpoint_close(last, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
  EXPECT_EQ(child.join(), 0);
}

TEST_P(Loss, AWorkerThatIsDestroyedIsNotOneThatCrashed) {
  Child child("passing");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  ASSERT_EQ(tw_send_blocking(endpoint, "x", 1, 1), TW_OK);
  EXPECT_TRUE(progress_until(side.worker, [&] { return tw_endpoint_state(endpoint) != TW_OK; }));
  EXPECT_EQ(tw_endpoint_state(endpoint), TW_ERR_CLOSED);
  EXPECT_STREQ(tw_last_error(), "the peer closed the endpoint");
  EXPECT_EQ(child.join(), 0);
}

TEST_P(Loss, ForcedCloseDoesNotWait) {
  Child child("deaf");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  const std::string big = random_bytes(8 << 20);
  tw_request send = TW_REQUEST_NONE;
  ASSERT_EQ(tw_send(endpoint, big.data(), big.size(), 99, nullptr, &send), TW_IN_PROGRESS);
  tw_request closed = TW_REQUEST_NONE;
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, &closed), TW_OK);
  EXPECT_EQ(tw_request_finish(send), TW_ERR_CLOSED);
}

TEST_P(Loss, ForkedChildIsRefusedAndHurtsNobody) {
  Child child("echo");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  EXPECT_TRUE(echo(side.worker, endpoint, 100, 1));
  tw_memory* memory = nullptr;
  ASSERT_EQ(tw_memory_allocate(side.context, 4096, nullptr, &memory), TW_OK);
  tw_signal* signal = nullptr;
  ASSERT_EQ(tw_signal_create(side.worker, nullptr, &signal), TW_OK);
  tw_layout* layout = nullptr;
  const uint64_t two = 2;
  const int64_t apart = 2;
  ASSERT_EQ(tw_layout_strided(1, 1, &two, &apart, &layout), TW_OK);
  char kept = 0;
  tw_request pending = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(side.worker, &kept, 1, 77, ~0ull, nullptr, &pending), TW_IN_PROGRESS);
  const pid_t forked = fork();
  if (forked == 0) {
    tw_request request;
    char byte = 0;
    int wrong = 0;
    wrong += tw_request_test(pending) != TW_ERR_FORKED;
    wrong += tw_request_wait(pending, TW_FOREVER) != TW_ERR_FORKED;
    wrong += tw_send(endpoint, "x", 1, 1, nullptr, &request) != TW_ERR_FORKED;
    wrong += tw_recv(side.worker, &byte, 1, 0, 0, nullptr, &request) != TW_ERR_FORKED;
    wrong += tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr) != TW_ERR_FORKED;
    wrong += tw_worker_progress(side.worker) != 0;
    size_t length = 0;
    wrong += tw_context_info(side.context, nullptr, &length) != TW_ERR_FORKED;
    wrong += tw_memory_export(memory, nullptr, &length) != TW_ERR_FORKED;
    wrong += tw_memory_release(memory) != TW_ERR_FORKED;
    wrong += tw_signal_reset(signal, 7) != TW_ERR_FORKED;
    wrong += tw_signal_wait(signal, 0, TW_COMPARE_EQ, 0) != TW_ERR_FORKED;
    wrong += tw_signal_destroy(signal) != TW_ERR_FORKED;
    {
      Side own;  // the child's own objects are as good as anybody's; the parent's layout is not for them
      tw_endpoint* self = own.connect(own.address(), "self");
      tw_op_options options = TW_OP_OPTIONS_INIT;
      options.layout = layout;
      const char from[4] = "abc";
      char to[4] = "";
      wrong += tw_send(self, from, 0, 1, &options, &request) != TW_ERR_FORKED;
      wrong += tw_recv(own.worker, to, sizeof to, 1, ~0ull, nullptr, &request) != TW_IN_PROGRESS;
      wrong += tw_send_blocking(self, from, sizeof from, 1) != TW_OK;
      wrong += tw_request_finish(request) != TW_OK || std::memcmp(from, to, sizeof to) != 0;
      (void)tw_endpoint_close(self, TW_CLOSE_FORCE, nullptr);
    }
    tw_worker_destroy(side.worker);
    tw_context_destroy(side.context);
    _exit(wrong);
  }
  int status = 0;
  waitpid(forked, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(tw_signal_read(signal), 0u);
  EXPECT_EQ(tw_signal_destroy(signal), TW_OK);
  EXPECT_EQ(tw_memory_release(memory), TW_OK);
  tw_layout_destroy(layout);
  EXPECT_TRUE(echo(side.worker, endpoint, 100'000, 2));
}

INSTANTIATE_TEST_SUITE_P(Transports, Loss, testing::Values("shm", "tcp"), [](const auto& i) { return std::string(i.param); });

TEST(Security, AnotherJobKeyIsRefusedAndCounted) {
  SideOptions other;
  other.key = "quite another secret, also long";
  Side a, b(other);
  for (const char* transport : {"shm", "tcp"}) {
    tw_endpoint* endpoint = b.connect(a.address(), transport);
    EXPECT_EQ(tw_endpoint_wait(endpoint, 10'000'000'000), TW_ERR_AUTHENTICATION) << tw_last_error();
    (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
  }
  // The client may hear the outcome before the server has counted it.
  char text[1 << 16];
  EXPECT_TRUE(progress_until(
      a.worker,
      [&] {
        size_t length = sizeof text;
        EXPECT_EQ(tw_context_counters(a.context, text, &length), TW_OK);
        return std::string(text).find("\"authentication\": 2") != std::string::npos;
      },
      5'000'000'000))
      << text;
}

int raw_connection(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

TEST(Security, StrangersDoNotDisturbTraffic) {
  Child child("echo");
  SideOptions options;
  options.handshake_timeout_ns = 2'000'000'000;
  Side side(options);
  tw_endpoint* endpoint = side.connect(child.receive());
  tw_listener* listener = nullptr;
  ASSERT_EQ(tw_listen(side.worker, "127.0.0.1:0", nullptr, &listener), TW_OK);
  const uint16_t port = tw_listener_port(listener);
  std::atomic<bool> stop{false};
  std::thread strangers([&] {
    std::vector<int> silent;
    for (int i = 0; i < 600; ++i) {  // more silent ones than a door has places
      const int fd = raw_connection(port);
      if (fd < 0) continue;
      if (i % 3 == 0) {
        silent.push_back(fd);  // says nothing: bounded in number and time
        continue;
      }
      const std::string noise = random_bytes(size_t(i) % 200);
      if (i % 3 == 1 && send(fd, noise.data(), noise.size(), MSG_NOSIGNAL) < 0) perror("send");
      close(fd);
    }
    // Every silent one is closed by the server within the time-out.
    for (const int fd : silent) {
      pollfd one{fd, POLLIN, 0};
      EXPECT_EQ(poll(&one, 1, 20000), 1) << "a silent stranger was kept";
      close(fd);
    }
    stop = true;
  });
  int echoes = 0;
  while (!stop) {
    EXPECT_TRUE(echo(side.worker, endpoint, 2000, 3));
    ++echoes;
  }
  strangers.join();
  EXPECT_GT(echoes, 10);
  char text[1 << 16];
  size_t length = sizeof text;
  ASSERT_EQ(tw_context_counters(side.context, text, &length), TW_OK);
  EXPECT_EQ(std::string(text).find("\"malformed\": 0,"), std::string::npos) << text;
  EXPECT_EQ(std::string(text).find("\"overload\": 0"), std::string::npos) << text;
  tw_listener_close(listener);
}

class Sleep : public testing::TestWithParam<const char*> {};

TEST_P(Sleep, WaitWakesForMessagesAndWake) {
  Child child("echo");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  EXPECT_TRUE(echo(side.worker, endpoint, 10, 1));
  while (tw_worker_progress(side.worker) != 0) {
  }
  EXPECT_EQ(tw_worker_wait(side.worker, 30'000'000), TW_ERR_TIMED_OUT);
  std::string in(3000, '\0'), out = random_bytes(3000);
  for (int i = 0; i < 50; ++i) {
    tw_request receive = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(side.worker, in.data(), in.size(), 4, UINT64_MAX, nullptr, &receive), TW_IN_PROGRESS);
    ASSERT_EQ(tw_send_blocking(endpoint, out.data(), out.size(), 4), TW_OK);
    while (tw_request_test(receive) == TW_IN_PROGRESS) ASSERT_EQ(tw_worker_wait(side.worker, 10'000'000'000), TW_OK);
    EXPECT_EQ(tw_request_finish(receive), TW_OK);
    EXPECT_EQ(in, out);
  }
  std::thread waker([&] { (void)tw_worker_wake(side.worker); });
  EXPECT_EQ(tw_worker_wait(side.worker, 10'000'000'000), TW_OK);
  waker.join();
}

TEST_P(Sleep, ArmedDescriptorBecomesReadable) {
  Child child("echo");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  EXPECT_TRUE(echo(side.worker, endpoint, 10, 1));
  int fd = -1;
  ASSERT_EQ(tw_worker_fd(side.worker, &fd), TW_OK);
  for (int i = 0; i < 50; ++i) {
    uint64_t in = 0, out = uint64_t(i) * 977;
    tw_request receive = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(side.worker, &in, 8, 4, UINT64_MAX, nullptr, &receive), TW_IN_PROGRESS);
    ASSERT_EQ(tw_send_blocking(endpoint, &out, 8, 4), TW_OK);
    while (tw_request_test(receive) == TW_IN_PROGRESS) {
      const tw_status armed = tw_worker_arm(side.worker);
      if (armed == TW_OK) {
        pollfd one{fd, POLLIN, 0};
        ASSERT_EQ(poll(&one, 1, 10'000), 1) << "asleep for ever in round " << i;
      } else {
        ASSERT_EQ(armed, TW_ERR_BUSY);
      }
      tw_worker_progress(side.worker);
    }
    EXPECT_EQ(tw_request_finish(receive), TW_OK);
    EXPECT_EQ(in, out);
  }
}

/// Peers of other processes may say that this worker is awake: its owner looks now and then, whatever they say.
TEST_P(Sleep, NoArmedDescriptorSleepsLongWherePeersShareTheDoorbell) {
  Child child("echo");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  EXPECT_TRUE(echo(side.worker, endpoint, 10, 1));
  int fd = -1;
  ASSERT_EQ(tw_worker_fd(side.worker, &fd), TW_OK);
  const bool shares = std::string(GetParam()) == "shm";
  for (int round = 0; round < 3; ++round) {
    while (tw_worker_arm(side.worker) == TW_ERR_BUSY) tw_worker_progress(side.worker);
    pollfd one{fd, POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, shares ? 10'000 : 300), shares ? 1 : 0);
    EXPECT_EQ(tw_worker_wait(side.worker, 20'000'000), TW_ERR_TIMED_OUT);  // its own sleep, behind an alarm that rang
    EXPECT_EQ(poll(&one, 1, 0), 0);
  }
}

TEST_P(Sleep, ProgressThreadServesBothSides) {
  SideOptions options;
  options.progress = TW_PROGRESS_THREAD;
  Side a(options), b(options);
  tw_endpoint* endpoint = a.connect(b.address(), GetParam());
  for (int i = 0; i < 20; ++i) {
    const std::string out = random_bytes(size_t(1) << i);
    std::string in(out.size(), '\0');
    tw_request receive = TW_REQUEST_NONE, send = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(b.worker, in.data(), in.size(), 8, UINT64_MAX, nullptr, &receive), TW_IN_PROGRESS);
    ASSERT_GE(tw_send(endpoint, out.data(), out.size(), 8, nullptr, &send), 0);
    EXPECT_EQ(tw_request_finish(receive), TW_OK);
    EXPECT_EQ(tw_request_finish(send), TW_OK);
    EXPECT_EQ(in, out);
    if (i % 5 == 0) usleep(20'000);  // long enough for the threads to fall asleep
  }
}
INSTANTIATE_TEST_SUITE_P(Transports, Sleep, testing::Values("shm", "tcp"), [](const auto& i) { return std::string(i.param); });

}  // namespace
