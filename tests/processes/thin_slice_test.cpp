// SPDX-License-Identifier: Apache-2.0
// One put with a signal, one record, one protocol entry (put_mapped), three triggers, two processes:
//   host    step: the caller's stores into shared memory
//   queue   lower: a queue's copy onto device memory imported from the other process
//   kernel  bind: the host-side twin of thalweg::device::put_signal
// The owner of the memory is a forked child; keys and descriptors travel over a socket pair, the expected bytes too.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "devices/emulated/emulated.hpp"
#include "memory/registry.hpp"
#include "memory/signal.hpp"
#include "plans/trigger.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kIncarnation = 0x7157;
constexpr size_t kGuard = 333;
constexpr size_t kSizes[] = {1, 8, 4099, (1u << 20) + 3};
constexpr size_t kArea = (1u << 20) + 3 + 2 * kGuard;

enum class Memory { shared, device };

/// What the owner offers; descriptors follow: of the signal's segment and, when the data is in shared memory, of the data's.
struct Offer {
  uint8_t data_key[TW_KEY_MAX], signal_key[TW_KEY_MAX];
  uint64_t data_segment_length, signal_segment_length;
  ExportHandle device;
};

bool send_all(int fd, const void* data, size_t n) {
  for (size_t done = 0; done < n;) {
    const ssize_t k = write(fd, static_cast<const char*>(data) + done, n - done);
    if (k <= 0) return false;
    done += static_cast<size_t>(k);
  }
  return true;
}
bool receive_all(int fd, void* data, size_t n) {
  for (size_t done = 0; done < n;) {
    const ssize_t k = read(fd, static_cast<char*>(data) + done, n - done);
    if (k <= 0) return false;
    done += static_cast<size_t>(k);
  }
  return true;
}
bool send_fd(int socket, int fd) {
  char byte = 'f';
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, 0) == 1;
}
UniqueFd receive_fd(int socket) {
  char byte = 0;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return {};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

// ------------------------------------------------------------------------------------------------ the owner (child)

/// Waits for the signal, then compares the whole area with what it should be. 0: right; else which check failed.
int own(int socket, Memory kind) {
  Registry registry(kIncarnation);
  SignalPool pool(registry);
  std::unique_ptr<emulated::EmulatedDevice> device;
  tw_memory* memory = nullptr;
  Offer offer{};
  UniqueFd data_fd;
  std::byte* area = nullptr;
  int raw = -1;
  size_t length = 0;
  if (kind == Memory::shared) {
    if (registry.allocate(kArea, 0, false, &memory) != TW_OK) return 10;
    if (registry.segment_fd(memory->segment_id, &raw, &length) != TW_OK) return 11;
    data_fd = UniqueFd(raw);
    offer.data_segment_length = length;
    area = memory->address;
  } else {
    uint64_t address = 0;
    std::vector<ExportedMemory> exported;
    if (emulated::EmulatedDevice::open(3, {}, &device) != TW_OK) return 12;
    if (device->allocate(MemoryKind::emulated, kArea, &address) != TW_OK) return 12;
    if (device->export_memory(address, kArea, kIncarnation, &exported) != TW_OK) return 13;
    MemoryOrigin origin;
    origin.kind = MemoryKind::emulated;
    origin.device = 3;
    std::memcpy(origin.device_uuid, device->uuid().data(), 16);
    if (registry.register_memory(reinterpret_cast<void*>(address), kArea, 0, &memory, origin) != TW_OK) return 14;
    offer.device = exported[0].handle;
    area = device->translate(address, kArea);
  }
  tw_signal* signal = nullptr;
  KeyBody key;
  size_t key_length = TW_KEY_MAX;
  if (pool.create(TW_SIGNAL_ADD, 0, &signal) != TW_OK || pool.export_signal(signal, &key) != TW_OK) return 15;
  if (write_key(key, offer.signal_key, &key_length) != TW_OK) return 16;
  if (registry.export_range(memory, 0, 0, TW_MEMORY_WRITE, &key) != TW_OK) return 17;
  key_length = TW_KEY_MAX;
  if (write_key(key, offer.data_key, &key_length) != TW_OK) return 18;
  if (registry.segment_fd(signal->memory->segment_id, &raw, &length) != TW_OK) return 19;
  const UniqueFd signal_fd(raw);
  offer.signal_segment_length = length;
  if (!send_all(socket, &offer, sizeof offer) || !send_fd(socket, signal_fd.get())) return 20;
  if (kind == Memory::shared && !send_fd(socket, data_fd.get())) return 20;

  std::vector<std::byte> expected(kArea);
  for (uint64_t count = 1; count <= std::size(kSizes); ++count) {
    if (!receive_all(socket, expected.data(), kArea)) return 21;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (signal_test(*signal, TW_COMPARE_GE, count) != TW_OK) {
      if (std::chrono::steady_clock::now() > end) return 22;
      std::this_thread::yield();
    }
    if (signal_read(*signal) != count) return 23;
    if (std::memcmp(area, expected.data(), kArea) != 0) return 24;
    char done = 'd';
    if (!send_all(socket, &done, 1)) return 25;
  }
  pool.destroy(signal);
  return 0;
}

// ------------------------------------------------------------------------------------------------ the writer (parent)

class ThinSlice : public ::testing::Test {
 protected:
  void start(Memory kind) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    child_ = fork();  // before this test makes a thread
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      close(pair[0]);
      _exit(own(pair[1], kind));
    }
    close(pair[1]);
    socket_ = UniqueFd(pair[0]);
    Offer offer;
    ASSERT_TRUE(receive_all(socket_.get(), &offer, sizeof offer));
    UniqueFd signal = receive_fd(socket_.get());
    ASSERT_TRUE(signal);
    peer_.state = TW_OK;
    peer_.identity.incarnation = kIncarnation;
    target_.peer = signal_.peer = &peer_;
    ASSERT_EQ(parse_key(offer.data_key, sizeof offer.data_key, &target_.key), TW_OK);
    ASSERT_EQ(parse_key(offer.signal_key, sizeof offer.signal_key, &signal_.key), TW_OK);
    ASSERT_EQ(Segment::open(std::move(signal), offer.signal_segment_length, &signal_segment_), TW_OK);
    map(signal_, signal_segment_, signal_mapping_);
    if (kind == Memory::shared) {
      UniqueFd data = receive_fd(socket_.get());
      ASSERT_TRUE(data);
      ASSERT_EQ(Segment::open(std::move(data), offer.data_segment_length, &data_segment_), TW_OK);
      map(target_, data_segment_, data_mapping_);
    } else {
      emulated::Options options;
      options.task_delay_ns = 100'000;  // well behind the host
      ASSERT_EQ(emulated::EmulatedDevice::open(3, options, &device_), TW_OK);
      ASSERT_EQ(device_->register_host(signal_segment_.data(), signal_segment_.size()), TW_OK);
      ExportedMemory exported{offer.device, {}};
      uint64_t address = 0;
      ASSERT_EQ(device_->import_memory({&exported, 1}, &address), TW_OK);
      target_.device_import = reinterpret_cast<void*>(address);
    }
    for (std::byte& b : image_) b = std::byte{0};
  }
  static void map(RemoteRegion& region, const Segment& segment, Mapping& mapping) {
    mapping.address = segment.data();
    mapping.length = segment.size();
    mapping.users = 1;
    region.mapping = &mapping;
    region.mapped = segment.data() + region.key.segment_offset;
  }
  /// Fresh random bytes for one put of `length`; tells the owner what its memory must look like afterwards.
  OpDesc prepare(size_t length) {
    source_.resize(length + 1);
    for (std::byte& b : source_) b = static_cast<std::byte>(random_());
    const size_t offset = random_() % (kArea - length + 1);
    std::copy_n(source_.data() + 1, length, image_.data() + offset);
    EXPECT_TRUE(send_all(socket_.get(), image_.data(), kArea));
    OpDesc op;
    op.verb = Verb::put;
    op.peer = &peer_;
    op.address = source_.data() + 1;  // odd
    op.length = length;
    op.remote = &target_;
    op.remote_offset = offset;
    op.signal = &signal_;
    op.signal_op = TW_SIGNAL_ADD;
    op.signal_value = 1;
    return op;
  }
  /// The owner has seen the signal and found every byte right.
  void confirmed() {
    pollfd ready{socket_.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 40'000), 1);
    char done = 0;
    ASSERT_TRUE(receive_all(socket_.get(), &done, 1)) << "the owner found a difference or did not see the signal";
  }
  void finish() {
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, 0), child_);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }

  pid_t child_ = -1;
  UniqueFd socket_;
  Peer peer_;
  RemoteRegion target_, signal_;
  Segment data_segment_, signal_segment_;
  Mapping data_mapping_, signal_mapping_;
  std::unique_ptr<emulated::EmulatedDevice> device_;
  std::vector<std::byte> source_, image_ = std::vector<std::byte>(kArea);
  std::mt19937_64 random_{std::random_device{}()};
};

TEST_F(ThinSlice, HostTriggerStoresIntoSharedMemory) {
  ASSERT_NO_FATAL_FAILURE(start(Memory::shared));
  for (size_t length : kSizes) {
    OpRun run;
    run.own = prepare(length);
    run.op = &run.own;
    run.protocol = &kPutMapped;
    ASSERT_EQ(run.protocol->step(run), TW_OK);
    ASSERT_NO_FATAL_FAILURE(confirmed());
  }
  finish();
}

TEST_F(ThinSlice, QueueTriggerCopiesOntoTheOtherProcesssDevice) {
  ASSERT_NO_FATAL_FAILURE(start(Memory::device));
  std::unique_ptr<Queue> queue;
  ASSERT_EQ(device_->make_queue(&queue), TW_OK);
  for (size_t length : kSizes) {
    const OpDesc op = prepare(length);
    ASSERT_EQ(device_->register_host(source_.data(), source_.size()), TW_OK);
    ASSERT_EQ(trigger_queue(op, kPutMapped, *queue), TW_OK);
    ASSERT_NO_FATAL_FAILURE(confirmed());
    ASSERT_EQ(device_->unregister_host(source_.data()), TW_OK);
  }
  EXPECT_EQ(queue->synchronize(), TW_OK);
  finish();
}

TEST_F(ThinSlice, KernelTwinStoresIntoSharedMemory) {
  ASSERT_NO_FATAL_FAILURE(start(Memory::shared));
  for (size_t length : kSizes) {
    DeviceDesc desc;
    ASSERT_EQ(trigger_kernel(prepare(length), kPutMapped, &desc), TW_OK);
    device::run_copy(device::Block(), desc.step, 0);
    ASSERT_NO_FATAL_FAILURE(confirmed());
  }
  finish();
}

TEST_F(ThinSlice, KernelTwinOnAQueueStoresOntoTheOtherProcesssDevice) {
  ASSERT_NO_FATAL_FAILURE(start(Memory::device));
  std::unique_ptr<Queue> queue;
  ASSERT_EQ(device_->make_queue(&queue), TW_OK);
  for (size_t length : kSizes) {
    DeviceDesc desc;
    ASSERT_EQ(trigger_kernel(prepare(length), kPutMapped, &desc), TW_OK);
    const auto twin = [this, desc] {
      device::Step put = desc.step;  // a twin reaches device memory through the device's own mapping
      put.to.base = reinterpret_cast<uintptr_t>(device_->translate(put.to.base, put.bytes));
      device::run_copy(device::Block(), put, 0);
    };
    ASSERT_EQ(static_cast<emulated::EmulatedQueue&>(*queue).launch_twin(twin), TW_OK);
    ASSERT_NO_FATAL_FAILURE(confirmed());
  }
  EXPECT_EQ(queue->synchronize(), TW_OK);
  finish();
}

TEST(Triggers, EmptyCellsAreRefusedByName) {
  OpDesc op;
  op.verb = Verb::put;
  std::unique_ptr<emulated::EmulatedDevice> device;
  ASSERT_EQ(emulated::EmulatedDevice::open(0, {}, &device), TW_OK);
  std::unique_ptr<Queue> queue;
  ASSERT_EQ(device->make_queue(&queue), TW_OK);
  DeviceDesc desc;
  EXPECT_EQ(trigger_queue(op, kPutFrames, *queue), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(last_error()).find("put_frames"), std::string::npos);
  EXPECT_NE(std::string(last_error()).find("queue"), std::string::npos);
  EXPECT_EQ(trigger_kernel(op, kPutFrames, &desc), TW_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(last_error()).find("kernel"), std::string::npos);
  EXPECT_EQ(trigger_queue(op, kGetMapped, *queue), TW_ERR_INVALID);
}

}  // namespace
}  // namespace thalweg::impl
