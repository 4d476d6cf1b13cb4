// SPDX-License-Identifier: Apache-2.0
// The host's half of a kernel's end of a channel that is not mapped (tcp, another machine, a device and a host). The code sends, posts and
// takes as at a mapped end. Its words are in pinned memory, and the host is at their other side: what the code asks for there becomes
// tagged messages of the proxy's worker, as a plan's carried steps are (plan_proxied.hpp), so anything may be at the peer's end.
//
// Life: open() -> watched: the proxy's thread calls look() -> end(): the code has ended, and what it sent is on its way -> over(): no
// operation uses the memory any more.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <thalweg/device/channel_steps.hpp>

#include "plans/channel.hpp"
#include "plans/proxied.hpp"

namespace thalweg::impl {

class CarriedEnd : public Watched {
 public:
  ~CarriedEnd() override;
  CarriedEnd(const CarriedEnd&) = delete;
  CarriedEnd& operator=(const CarriedEnd&) = delete;
  /// Makes what the code works on. Memory is pinned for it, so not under Proxy::mutex().
  virtual Status open() = 0;
  /// What is to be said of it beside why there is one.
  virtual std::string describe() const { return ""; }
  /// Of the SendEnd or RecvEnd, in the executor's memory.
  uint64_t address() const { return end_; }
  /// The code has ended: what it stored is here. Not under Proxy::mutex().
  void end();
  /// What still waits for the peer. After end().
  void cancel();
  bool over() const;
  /// over(), within so many ns.
  bool await_over(uint64_t ns) const;

 protected:
  /// The n-th message, in slot n % kSlots.
  struct Operation {
    CarriedEnd* end = nullptr;
    uint64_t n = 0;
    tw_request request = TW_REQUEST_NONE;
    std::atomic<bool> running{false};  // its status and text are written before it is not any more
    Status status = TW_OK;
    std::string why = {};
  };
  CarriedEnd(Proxy& proxy, Channel& channel, Executor& executor);
  Operation& operation(uint64_t n) { return operations_[n % device::kSlots]; }
  /// Of the channel's epoch: false when that is over.
  bool alive() const;
  /// Posts an operation with the n-th message's tag; the rest of `op` is filled in.
  void start(uint64_t n, OpDesc& op);
  /// The n-th one was completed. Any thread, maybe under the worker's lock.
  virtual void completed(uint64_t n) = 0;
  /// Ends the channel if an operation has failed.
  void report_failures();
  Status allocate_words(size_t end_length, size_t words);
  tw_endpoint& endpoint() const { return *peer_->endpoint; }

  Proxy& proxy_;
  Channel& channel_;  // until end()
  Executor& executor_;
  const std::shared_ptr<ProxyPeer> peer_;
  const uint32_t epoch_;
  const uint64_t number_;
  uint64_t end_ = 0, words_ = 0;

 private:
  static void on_complete(void* arg, tw_request request, tw_status status, const tw_recv_info* info);
  void finish(Operation& one, Status status, const char* why);
  size_t end_length_ = 0, words_length_ = 0;
  std::array<Operation, device::kSlots> operations_;
  std::atomic<bool> failed_{false};
};

/// The code sends into bounce buffers; each is posted again when its message has been sent.
class CarriedSend final : public CarriedEnd {
 public:
  /// message_bytes: of each bounce buffer.
  CarriedSend(Proxy& proxy, Channel& channel, Executor& executor, uint64_t message_bytes);
  ~CarriedSend() override;
  Status open() override;
  bool look() override;
  std::string describe() const override;
  std::string why_truncated() const;

 private:
  void completed(uint64_t) override {}
  Status fill_in();
  void send(uint64_t n);
  const uint64_t message_bytes_, stride_, depth_;
  uint64_t bounces_ = 0, table_ = 0;
  device::RecvEnd mine_{};  // of the host, which receives what the code sends
};

/// The code's posts are receives into its own buffers.
class CarriedRecv final : public CarriedEnd {
 public:
  struct Buffer {
    uint64_t address, length;
    const Layout* layout;  // null: contiguous; retained
  };
  CarriedRecv(Proxy& proxy, Channel& channel, Executor& executor) : CarriedEnd(proxy, channel, executor) {}
  ~CarriedRecv() override;
  Status open() override;
  bool look() override;
  /// What the code calls `number`. Before open().
  void add(uint16_t number, const Buffer& buffer);

 private:
  void completed(uint64_t n) override;
  bool receive(uint64_t n, uint64_t number);
  std::vector<std::pair<uint16_t, Buffer>> buffers_;
  device::SendEnd mine_{};  // of the host, which gives the code what it takes
  uint64_t next_ = 0;
};

}  // namespace thalweg::impl
