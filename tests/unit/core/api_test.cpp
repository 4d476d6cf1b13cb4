// SPDX-License-Identifier: Apache-2.0
// The C interface's checks: bad input is refused before anything moves, with a text; and the C++ view.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <thalweg/thalweg.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../../fixtures/rooms.hpp"
#include "memory/signal.hpp"

namespace {

constexpr char kKey[] = "a secret of more than sixteen bytes";

thalweg::ContextOptions test_options() {
  thalweg::ContextOptions options;
  options.job_key = kKey;
  options.job_key_length = sizeof kKey;
  return options;
}

class Api : public testing::Test {
 protected:
  thalweg::Context context{test_options()};
  thalweg::Worker worker{context};
};

TEST_F(Api, InfoSaysWhatWasFound) {
  const std::string info = context.info();
  for (const char* part : {"\"version\"", "\"transports\"", "\"self\"", "\"shm\"", "\"tcp\"", "\"memlock\"", "\"nofile\"",
                           "\"ptrace\"", "\"membarrier\""}) {
    EXPECT_NE(info.find(part), std::string::npos) << part << " in " << info;
  }
  char small[4];
  size_t length = sizeof small;
  EXPECT_EQ(tw_context_info(context.get(), small, &length), TW_ERR_INVALID);
  EXPECT_GT(length, 100u);
}

/// Programs know no sizes: they ask, and get what they asked for. Too little room is refused, with the size.
TEST_F(Api, SizesOfKeysAndAddressesAreAsked) {
  const thalweg::Memory memory = context.allocate(100);
  const thalweg::Signal signal = worker.signal();
  const auto ask = [](size_t room, auto call) {
    size_t size = 0;
    EXPECT_EQ(call(nullptr, &size), TW_OK) << tw_last_error();
    EXPECT_GT(size, 0u);
    EXPECT_LE(size, room);  // tests/fixtures/rooms.hpp
    std::vector<unsigned char> bytes(size + 1, 0xa5);
    size_t less = size - 1;
    EXPECT_LT(call(bytes.data(), &less), TW_OK);
    EXPECT_EQ(less, size);
    size_t more = size + 1;
    EXPECT_EQ(call(bytes.data(), &more), TW_OK) << tw_last_error();
    EXPECT_EQ(more, size);
    EXPECT_EQ(bytes[size], 0xa5);
  };
  ask(kKeyRoom, [&](void* key, size_t* size) { return tw_memory_export(memory.get(), key, size); });
  ask(kKeyRoom, [&](void* key, size_t* size) { return tw_memory_export_range(memory.get(), 1, 5, 0, key, size); });
  ask(kKeyRoom, [&](void* key, size_t* size) { return tw_signal_export(signal.get(), key, size); });
  EXPECT_EQ(signal.get()->rkeys.size(), 1u) << "what is refused makes no key";
  ask(kAddressRoom, [&](void* address, size_t* size) { return tw_worker_address(worker.get(), address, size); });
}

TEST_F(Api, NullsAreRefused) {
  tw_request request;
  tw_endpoint* endpoint = nullptr;
  EXPECT_EQ(tw_context_create(nullptr, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_send(nullptr, "x", 1, 1, nullptr, &request), TW_ERR_INVALID);
  EXPECT_EQ(tw_recv(nullptr, nullptr, 0, 0, 0, nullptr, &request), TW_ERR_INVALID);
  EXPECT_EQ(tw_recv(worker.get(), nullptr, 5, 0, 0, nullptr, &request), TW_ERR_INVALID);
  char byte;
  EXPECT_EQ(tw_recv(worker.get(), &byte, 1, 0, 0, nullptr, nullptr), TW_ERR_INVALID);
  EXPECT_EQ(tw_connect(worker.get(), "rubbish", 7, nullptr, &endpoint), TW_ERR_INVALID);
  EXPECT_EQ(tw_connect_to(worker.get(), "no port", nullptr, &endpoint), TW_ERR_INVALID);
  EXPECT_EQ(tw_connect_to(worker.get(), "host:0", nullptr, &endpoint), TW_ERR_INVALID);
  EXPECT_STRNE(tw_last_error(), "");
}

TEST_F(Api, OptionsOfOlderCallersAreFilledUp) {
  tw_worker_options old = TW_WORKER_OPTIONS_INIT;
  old.size = offsetof(tw_worker_options, unexpected_budget);
  old.unexpected_budget = 1;  // behind the caller's size: not read
  tw_worker* made = nullptr;
  ASSERT_EQ(tw_worker_create(context.get(), &old, &made), TW_OK);
  tw_worker_destroy(made);
  old = TW_WORKER_OPTIONS_INIT;
  old.threads = 77;
  EXPECT_EQ(tw_worker_create(context.get(), &old, &made), TW_ERR_INVALID);
}

/// Their fields would be ignored without a word.
TEST_F(Api, OptionsWithoutASizeAreRefused) {
  const auto expect_told = [](tw_status status) {
    EXPECT_EQ(status, TW_ERR_INVALID);
    EXPECT_NE(std::strstr(tw_last_error(), "TW_..._OPTIONS_INIT"), nullptr) << tw_last_error();
  };
  tw_context_options of_context{};
  tw_context* made = nullptr;
  expect_told(tw_context_create(&of_context, &made));
  tw_worker_options of_worker{};
  tw_worker* other = nullptr;
  expect_told(tw_worker_create(context.get(), &of_worker, &other));
  tw_memory_options of_memory{};
  tw_memory* memory = nullptr;
  expect_told(tw_memory_allocate(context.get(), 100, &of_memory, &memory));
  tw_op_options of_receive{};
  of_receive.size = sizeof of_receive.size;  // nor one that ends behind itself
  tw_request request = TW_REQUEST_NONE;
  char byte = 0;
  expect_told(tw_recv(worker.get(), &byte, 1, 0, 0, &of_receive, &request));
  EXPECT_TRUE(made == nullptr && other == nullptr && memory == nullptr && request == TW_REQUEST_NONE);
}

TEST(ApiContext, UnknownTransportIsNamed) {
  thalweg::ContextOptions options = test_options();
  options.transports = "self,carrier-pigeon";
  try {
    thalweg::Context context(options);
    FAIL();
  } catch (const thalweg::Error& error) {
    EXPECT_EQ(error.status(), TW_ERR_INVALID);
    EXPECT_NE(std::string(error.what()).find("carrier-pigeon"), std::string::npos);
  }
}

TEST(ApiContext, TransportsMayBeRestricted) {
  thalweg::ContextOptions options = test_options();
  options.transports = "self";
  thalweg::Context context(options);
  thalweg::Worker worker(context);
  auto endpoint = worker.connect(worker.address());
  EXPECT_EQ(endpoint.transport(), "self");
  thalweg::EndpointOptions forced;
  forced.transport = "tcp";
  EXPECT_THROW(worker.connect(worker.address(), forced), thalweg::Error);
}

TEST(ApiContext, ShortKeyIsRefused) {
  thalweg::ContextOptions options;
  options.job_key = "short";
  options.job_key_length = 5;
  EXPECT_THROW(thalweg::Context{options}, thalweg::Error);
}

TEST_F(Api, SpansAndRequests) {
  auto endpoint = worker.connect(worker.address());
  endpoint.wait();
  const std::vector<int> out{1, 2, 3, 4, 5};
  std::array<int, 5> in{};
  thalweg::Request send, receive;
  ASSERT_EQ(worker.recv(in, 3, receive), TW_IN_PROGRESS);
  ASSERT_GE(endpoint.send(out, 3, send), 0);
  EXPECT_EQ(receive.wait(), TW_OK);
  EXPECT_EQ(send.wait(), TW_OK);
  EXPECT_EQ(receive.info().length, sizeof in);
  EXPECT_EQ(std::vector<int>(in.begin(), in.end()), out);
  const tw_request number = receive.number();
  receive.reset();
  EXPECT_EQ(tw_request_test(number), TW_ERR_HANDLE);
  EXPECT_EQ(endpoint.close(), TW_OK);
}

/// A deadline that has passed gives a negative duration, which is none, and not the number that means for ever.
TEST_F(Api, ATimeThatIsOverIsNotForEver) {
  using namespace std::chrono_literals;
  thalweg::Endpoint endpoint = worker.connect(worker.address());
  endpoint.wait(10s);
  char to[8];
  thalweg::Request request;
  ASSERT_EQ(worker.recv(thalweg::Bytes(to, sizeof to), 5, request), TW_IN_PROGRESS);
  EXPECT_EQ(request.wait(-1ms), TW_ERR_TIMED_OUT);
  EXPECT_EQ(request.wait(0ms), TW_ERR_TIMED_OUT);
  const thalweg::Signal signal = worker.signal();
  EXPECT_EQ(signal.wait(1, TW_COMPARE_GE, -5s), TW_ERR_TIMED_OUT);
}

TEST_F(Api, ReleasedMemoryIsToldOfAndIsNoMore) {
  thalweg::Memory memory = context.allocate(100);
  ASSERT_NE(memory.get(), nullptr);
  EXPECT_EQ(memory.release(), TW_OK) << tw_last_error();
  EXPECT_EQ(memory.get(), nullptr);
  EXPECT_EQ(memory.release(), TW_OK);
}

TEST_F(Api, KeysAndBounds) {
  auto endpoint = worker.connect(worker.address());
  thalweg::Memory memory = context.allocate(4096);
  EXPECT_THROW(memory.key(4000, 200, 0), thalweg::Error);
  auto remote = endpoint.import_memory(memory.key(8, 100, 0));
  EXPECT_EQ(remote.size(), 100u);
  char bytes[128] = {};
  thalweg::Request request;
  EXPECT_EQ(endpoint.put(thalweg::ConstBytes(bytes, 101), remote, 0, request), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(endpoint.put(thalweg::ConstBytes(bytes, 1), remote, 100, request), TW_ERR_OUT_OF_BOUNDS);
  EXPECT_EQ(endpoint.atomic(TW_ATOMIC_ADD, remote, 4, 8, 1, 0, nullptr, request), TW_ERR_MISALIGNED);
  EXPECT_EQ(endpoint.atomic(99, remote, 0, 8, 1, 0, nullptr, request), TW_ERR_INVALID);
  EXPECT_EQ(endpoint.atomic(TW_ATOMIC_ADD, remote, 0, 3, 1, 0, nullptr, request), TW_ERR_INVALID);
  EXPECT_THROW(endpoint.import_signal(memory.key()), thalweg::Error);
  ASSERT_GE(endpoint.put(thalweg::ConstBytes("guarded!", 8), remote, 92, request), 0);
  EXPECT_EQ(request.wait(), TW_OK);
  EXPECT_EQ(endpoint.flush(request) < 0, false);
  EXPECT_EQ(request.wait(), TW_OK);
  EXPECT_EQ(std::memcmp(memory.as<char>().data() + 100, "guarded!", 8), 0);
  EXPECT_EQ(memory.as<char>()[108], 0);
}

/// A word of 4 bytes would drop the high bits.
TEST_F(Api, OperandsFitTheirWord) {
  auto endpoint = worker.connect(worker.address());
  thalweg::Memory memory = context.allocate(64);
  auto remote = endpoint.import_memory(memory.key());
  thalweg::Request request;
  auto* const word = memory.as<uint32_t>().data();
  const auto run = [&](uint32_t op, size_t size, uint64_t operand, uint64_t compare) -> tw_status {
    const tw_status status = endpoint.atomic(op, remote, 0, size, operand, compare, nullptr, request);
    if (status < 0) return status;
    if (const tw_status ended = request.wait(); ended != TW_OK) return ended;
    if (const tw_status flushing = endpoint.flush(request); flushing < 0) return flushing;
    return request.wait();
  };
  constexpr uint64_t kWide = (uint64_t{1} << 40) + 3;
  for (const uint64_t wrong : {kWide, uint64_t{1} << 32, ~uint64_t{0} << 32, uint64_t{0xFFFFFFFF7FFFFFFF}}) {
    EXPECT_EQ(run(TW_ATOMIC_ADD, 4, wrong, 0), TW_ERR_INVALID) << wrong;
    EXPECT_NE(std::strstr(tw_last_error(), "does not fit a word of 4 bytes"), nullptr) << tw_last_error();
    EXPECT_EQ(run(TW_ATOMIC_CSWAP, 4, 0, wrong), TW_ERR_INVALID) << wrong;
  }
  EXPECT_EQ(word[0], 0u);
  EXPECT_EQ(run(TW_ATOMIC_ADD, 4, UINT32_MAX, kWide), TW_OK) << "nothing is compared: " << tw_last_error();
  EXPECT_EQ(word[0], UINT32_MAX);
  EXPECT_EQ(run(TW_ATOMIC_ADD, 4, static_cast<uint64_t>(int64_t{-5}), 0), TW_OK) << tw_last_error();
  EXPECT_EQ(word[0], UINT32_MAX - 5);
  EXPECT_EQ(run(TW_ATOMIC_CSWAP, 4, static_cast<uint64_t>(int64_t{INT32_MIN}), static_cast<uint64_t>(int64_t{-6})), TW_OK)
      << tw_last_error();
  EXPECT_EQ(word[0], 0x80000000u);
  EXPECT_EQ(word[1], 0u);
  EXPECT_EQ(run(TW_ATOMIC_SWAP, 8, kWide, 0), TW_OK) << tw_last_error();
  EXPECT_EQ(memory.as<uint64_t>()[0], kWide);
}

TEST_F(Api, LayoutAndLengthMustAgree) {
  auto endpoint = worker.connect(worker.address());
  const uint64_t count[] = {4};
  const int64_t stride[] = {16};
  thalweg::Layout layout = thalweg::Layout::strided(8, count, stride);
  EXPECT_EQ(layout.bytes(), 32u);
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.layout = layout.get();
  char buffer[64] = {};
  tw_request request;
  EXPECT_EQ(tw_send(endpoint.get(), buffer, 31, 1, &options, &request), TW_ERR_INVALID);
  EXPECT_EQ(tw_bytes_send(endpoint.get(), buffer, 0, &options, &request), TW_ERR_UNSUPPORTED);
}

TEST_F(Api, AReceiveIntoPiecesThatOverlapIsRefused) {
  auto endpoint = worker.connect(worker.address());
  const uint64_t count[] = {4, 3};
  const int64_t rows[] = {7},
                columns[] = {8, 31};  // blocks of 8 bytes: rows overlap; the last of a column reaches into the next
  char buffer[128] = {};
  for (const unsigned dimensions : {1u, 2u}) {
    const int64_t* const stride = dimensions == 1 ? rows : columns;
    thalweg::Layout layout = thalweg::Layout::strided(8, {count, dimensions}, {stride, dimensions});
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.layout = layout.get();
    tw_request request = TW_REQUEST_NONE;
    ASSERT_EQ(tw_recv(worker.get(), buffer, 0, 1, ~0ull, &options, &request), TW_ERR_INVALID);
    EXPECT_NE(std::strstr(tw_last_error(), "overlap"), nullptr) << tw_last_error();
    EXPECT_GE(tw_send(endpoint.get(), buffer, 0, 1, &options, &request), TW_OK) << "fine to send from";
    tw_message* message = nullptr;
    for (int i = 0; i < 100'000 && tw_probe(worker.get(), 1, ~0ull, nullptr, nullptr, &message) == TW_ERR_NO_MATCH; ++i) {
      tw_worker_progress(worker.get());
    }
    ASSERT_NE(message, nullptr);
    tw_request late = TW_REQUEST_NONE;
    EXPECT_EQ(tw_message_recv(message, buffer, 0, &options, &late), TW_ERR_INVALID);
    EXPECT_EQ(tw_message_recv(message, buffer, sizeof buffer, nullptr, &late), TW_IN_PROGRESS) << "it is still there";
    EXPECT_EQ(tw_request_finish(late), TW_OK);
    EXPECT_EQ(request == TW_REQUEST_NONE ? TW_OK : tw_request_finish(request), TW_OK);
  }
}

TEST_F(Api, TruncatedSaysBothLengths) {
  auto endpoint = worker.connect(worker.address());
  endpoint.wait();
  char message[100] = {}, buffer[30];
  tw_request request = TW_REQUEST_NONE;
  ASSERT_GE(tw_send(endpoint.get(), message, sizeof message, 1, nullptr, &request), TW_OK);
  EXPECT_EQ(tw_recv_blocking(worker.get(), buffer, sizeof buffer, 1, ~0ull, nullptr), TW_ERR_TRUNCATED);
  EXPECT_NE(std::strstr(tw_last_error(), "message of 100 bytes for a buffer of 30 bytes"), nullptr) << tw_last_error();
  tw_request receive = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker.get(), buffer, sizeof buffer, 1, ~0ull, nullptr, &receive), TW_IN_PROGRESS);
  ASSERT_GE(tw_send(endpoint.get(), message, 99, 1, nullptr, &request), TW_OK);
  EXPECT_EQ(tw_request_finish(receive), TW_ERR_TRUNCATED);
  EXPECT_NE(std::strstr(tw_last_error(), "message of 99 bytes for a buffer of 30 bytes"), nullptr) << tw_last_error();
}

TEST_F(Api, SignalsAreFixedInKind) {
  auto endpoint = worker.connect(worker.address());
  endpoint.wait();
  thalweg::Signal signal = worker.signal(TW_SIGNAL_ADD, 5);
  auto remote = endpoint.import_signal(signal.key());
  EXPECT_EQ(remote.post(7), TW_OK);
  EXPECT_EQ(signal.wait(12), TW_OK);
  EXPECT_EQ(signal.wait(13, TW_COMPARE_GE, std::chrono::milliseconds(5)), TW_ERR_TIMED_OUT);
  thalweg::Memory memory = context.allocate(64);
  auto target = endpoint.import_memory(memory.key());
  thalweg::Request request;
  EXPECT_EQ(endpoint.put(thalweg::ConstBytes("x", 1), target, 0, request, thalweg::OpOptions().signal(remote, 0)),
            TW_ERR_INVALID);
}

TEST_F(Api, ClosedHandleIsAnErrorNotACrash) {
  tw_endpoint* endpoint = nullptr;
  const std::string address = worker.address();
  ASSERT_EQ(tw_connect(worker.get(), address.data(), address.size(), nullptr, &endpoint), TW_OK);
  ASSERT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr), TW_OK);
  tw_request request;
  EXPECT_EQ(tw_send(endpoint, "x", 1, 1, nullptr, &request), TW_ERR_HANDLE);
  EXPECT_EQ(tw_endpoint_state(endpoint), TW_ERR_HANDLE);
  EXPECT_STREQ(tw_endpoint_transport(endpoint), "");
}

TEST_F(Api, ExplainNamesTheTransport) {
  auto endpoint = worker.connect(worker.address());
  endpoint.wait();
  EXPECT_NE(endpoint.explain("send", 8).find("self"), std::string::npos);
  EXPECT_THROW(endpoint.explain("teleport", 8), thalweg::Error);
}

/// Also where there is no buffer: flags are of the operation.
TEST_F(Api, ExplainTakesTheOptionsOfAnOperationWithoutABuffer) {
  auto endpoint = worker.connect(worker.address());
  endpoint.wait();
  tw_op_options options = TW_OP_OPTIONS_INIT;
  const auto explain = [&] {
    char text[8192];
    size_t size = sizeof text;
    EXPECT_EQ(tw_endpoint_explain_buffer(endpoint.get(), "am", nullptr, 1 << 20, nullptr, &options, text, &size), TW_OK);
    return std::string(text);
  };
  EXPECT_EQ(explain().find("chosen: refused"), std::string::npos);
  options.flags = TW_OP_EAGER;
  EXPECT_NE(explain().find("chosen: refused"), std::string::npos);
}

TEST_F(Api, WakeIsNotLostAndDescriptorsAgree) {
  worker.wake();
  EXPECT_EQ(worker.wait(std::chrono::seconds(10)), TW_OK);
  EXPECT_EQ(worker.wait(std::chrono::milliseconds(5)), TW_ERR_TIMED_OUT);
  worker.wake();
  EXPECT_EQ(worker.arm(), TW_ERR_BUSY);
  EXPECT_EQ(worker.arm(), TW_OK);
}

TEST_F(Api, AWakeOutlivesAWaitForARequest) {
  char byte = 0;
  tw_request request = TW_REQUEST_NONE;
  ASSERT_EQ(tw_recv(worker.get(), &byte, 1, 7, ~0ull, nullptr, &request), TW_IN_PROGRESS);
  worker.wake();
  EXPECT_EQ(tw_request_wait(request, 50'000'000), TW_ERR_TIMED_OUT);
  EXPECT_EQ(worker.wait(std::chrono::seconds(10)), TW_OK);
  worker.wake();
  EXPECT_EQ(tw_request_wait(request, 50'000'000), TW_ERR_TIMED_OUT);
  EXPECT_EQ(worker.arm(), TW_ERR_BUSY);
  EXPECT_EQ(worker.arm(), TW_OK);
  EXPECT_EQ(tw_request_wait(request, 50'000'000), TW_ERR_TIMED_OUT);
  EXPECT_EQ(worker.wait(std::chrono::milliseconds(5)), TW_ERR_TIMED_OUT);
  EXPECT_EQ(tw_request_cancel(request), TW_OK);
  EXPECT_EQ(tw_request_release(request), TW_OK);
}

/// The child reads what the parent stores after the fork, and the parent what the child stores.
TEST_F(Api, AllocatedMemoryStaysSharedWithAForkedChild) {
  std::mt19937_64 random(std::random_device{}());
  thalweg::Memory memory = context.allocate(3 * 4096);
  const std::span<uint64_t> words = memory.as<uint64_t>();
  const size_t half = words.size() / 2;
  std::vector<uint64_t> before(words.size()), key(half);
  for (uint64_t& word : before) word = random();
  for (uint64_t& word : key) word = random();
  std::copy(before.begin(), before.end(), words.begin());
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    if (read(go[0], &byte, 1) != 1) _exit(2);
    for (size_t i = 0; i < half; ++i) words[half + i] = words[i] ^ key[i];
    _exit(0);
  }
  std::vector<uint64_t> late(half);
  for (uint64_t& word : late) word = random();
  std::copy(late.begin(), late.end(), words.begin());
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  for (size_t i = 0; i < half; ++i) ASSERT_EQ(words[half + i], late[i] ^ key[i]) << i;
  close(go[0]);
  close(go[1]);
}

/// A thread with a worker of its own watches a request of another thread's worker from before it ends, and then sees what was
/// received without any other synchronisation.
TEST_F(Api, ARequestMayBeTestedFromAThreadThatUsesAnotherWorker) {
  constexpr int kRounds = 200;
  thalweg::Worker other(context);
  auto mine = worker.connect(worker.address());
  mine.wait();
  std::mt19937_64 random(std::random_device{}());
  std::vector<uint64_t> out(kRounds), in(kRounds, 0);
  for (uint64_t& word : out) word = random() | 1;
  std::vector<std::atomic<tw_request>> shown(kRounds);
  std::vector<std::atomic<int>> state(kRounds);  // 1: seen in progress, 2: seen complete
  int wrong = 0;
  std::thread watcher([&] {
    auto own = other.connect(other.address());
    own.wait();
    for (int i = 0; i < kRounds; ++i) {
      while (shown[i] == TW_REQUEST_NONE) std::this_thread::yield();
      wrong += tw_request_test(shown[i]) != TW_IN_PROGRESS;
      state[i] = 1;
      uint64_t echo = 0;
      thalweg::Request receive, send;
      wrong += other.recv(std::span(&echo, 1), 9, receive) != TW_IN_PROGRESS;
      wrong += own.send(std::span(&out[i], 1), 9, send) < 0;
      wrong += receive.wait() != TW_OK || send.wait() != TW_OK || echo != out[i];
      tw_status status = TW_IN_PROGRESS;
      while ((status = tw_request_test(shown[i])) == TW_IN_PROGRESS) std::this_thread::yield();
      wrong += status != TW_OK || in[i] != out[i];
      tw_recv_info info{};
      wrong += tw_request_info(shown[i], &info) != TW_OK || info.tag != uint64_t(i) || info.length != sizeof out[i];
      state[i] = 2;
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    thalweg::Request receive, send;
    EXPECT_EQ(worker.recv(std::span(&in[i], 1), uint64_t(i), receive), TW_IN_PROGRESS);
    shown[i] = receive.number();
    while (state[i] < 1) worker.progress();
    EXPECT_GE(mine.send(std::span(&out[i], 1), uint64_t(i), send), 0);
    EXPECT_EQ(send.wait(), TW_OK);
    while (state[i] < 2) worker.progress();
    EXPECT_EQ(receive.wait(), TW_OK);
  }
  watcher.join();
  EXPECT_EQ(wrong, 0);
}

#ifndef NDEBUG
TEST_F(Api, TwoThreadsInASingleThreadedWorkerAreTold) {
  std::thread sleeper([this] {
    while (worker.wait(std::chrono::seconds(20)) == TW_ERR_THREAD) {  // this thread may be the one that comes second
    }
  });
  tw_status seen = TW_OK;
  while (seen != TW_ERR_THREAD) {  // until the other is inside
    seen = tw_worker_arm(worker.get());
    std::this_thread::yield();
  }
  EXPECT_NE(std::string(tw_last_error()).find("TW_THREADS_MULTI"), std::string::npos);
  worker.wake();
  sleeper.join();
  EXPECT_NE(worker.arm(), TW_ERR_THREAD);
}
#endif

}  // namespace
