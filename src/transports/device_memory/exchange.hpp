// SPDX-License-Identifier: Apache-2.0
// Device memory that the two processes of a link have of each other. How requests and answers travel is the transport's
// (DeviceChannel); what they say, and who waits for what, is the same for all that can pass descriptors.
//
// Owner: lend() sends handles, a release asks for them back, "dropped" (or the end of the peer's side) says that the peer's
// drivers have let go. Importer: take_pieces() imports, close() and close_link() end it, release() calls the drivers as soon as
// no work uses the memory; then the owner is told. A side that ends its link closes it only after its last import, and before
// that reads what the other says about its own loans.
//
// Threads: the service thread, except where a comment says "any thread".
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/event_loop.hpp"
#include "memory/registry.hpp"
#include "transports/device_memory/answer.hpp"
#include "transports/device_memory/imports.hpp"
#include "transports/device_memory/loans.hpp"

namespace thalweg::impl {

/// To the peer. request: {u64 segment}; pieces: answer.hpp; dropped: {u64 segment}, the importer has no import of it any more.
enum class DeviceMemoryMessage : uint8_t { request, pieces, dropped };

/// One link's end, as its transport makes it.
class DeviceChannel : public DeviceSource {
 public:
  virtual bool attached() const = 0;  // the peer may still be told something
  virtual void send(DeviceMemoryMessage message, const void* bytes, size_t length, std::vector<UniqueFd>&& fds) = 0;
  /// What request() asked for is in the cache, or why it is not.
  virtual void imported(uint64_t segment, Device& device, Status status, std::string why) = 0;
  /// The peer breaks the rules: the link ends.
  virtual void violated(const char* why) = 0;
  /// Keeps the end alive in callbacks of the loop.
  virtual std::shared_ptr<DeviceChannel> self() = 0;
};

/// A part of the channel that it is made with.
class DeviceExchange {
 public:
  /// `link`: its name in the cache. `incarnation`: of the peer's process, which must be the exporter.
  DeviceExchange(DeviceChannel& channel, DeviceImports& imports, EventLoop* loop, Registry* registry, uint64_t link,
                 uint64_t incarnation)
      : channel_(channel), imports_(imports), loop_(loop), registry_(registry), link_(link), incarnation_(incarnation) {}

  // ---- the owner's side
  void lend(uint64_t segment);  // the peer asks for it
  void settle(uint64_t segment) { loans_.settle(segment); }
  void settle_all() { loans_.settle_all(); }
  bool refuse() { return loans_.refuse(); }                           // any thread: lends nothing more. True: something is lent
  bool lends(uint64_t segment) const { return loans_.has(segment); }  // any thread
  /// Any thread: until the peer has nothing of the segment (0: of any); false: the time is over.
  bool await_dropped(uint64_t segment, const Deadline& deadline) {
    return segment != 0 ? loans_.await(segment, deadline) : loans_.await_all(deadline);
  }

  // ---- the importer's side
  void request(uint64_t segment, Device& device);  // any thread
  /// came: TW_ERR_NO_DESCRIPTORS: they came without their descriptors, because this process is out of them.
  void take_pieces(std::span<const std::byte> bytes, std::vector<UniqueFd>&& fds, Status came);
  void close(uint64_t segment);  // its owner takes it back
  void close_link();
  bool holds_any() const { return imports_.holds_any(channel_); }
  /// A segment of which no import is left, unless one was asked for.
  void tell_if_dropped(uint64_t segment);

 private:
  void import(Device& device, std::vector<ExportedMemory> pieces);
  void release();
  DeviceImports::Source source(uint64_t segment) { return {channel_.self(), segment}; }

  DeviceChannel& channel_;
  DeviceImports& imports_;
  EventLoop* const loop_;
  Registry* const registry_;
  const uint64_t link_, incarnation_;
  struct Asked {
    uint64_t segment;
    Device* device;
  };
  std::vector<Asked> asked_;
  DeviceAssembly assembly_;
  DeviceLoans loans_;
};

}  // namespace thalweg::impl
