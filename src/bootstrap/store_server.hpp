// SPDX-License-Identifier: Apache-2.0
// The server behind "serve:host:port": one epoll thread, every client authenticated, memory bounded per client and in all.
#pragma once
#include <memory>
#include <string>

#include "base/socket_address.hpp"
#include "base/status.hpp"
#include "security/job_key.hpp"
#include "security/refusals.hpp"

namespace thalweg::impl {

struct StoreServerOptions {
  bool tls = false;  // clients without TLS are refused; those with it are always welcome
  uint64_t handshake_timeout_ns = 5'000'000'000;
  size_t max_strangers = 128;  // connections that have not proven the key yet; beyond them the oldest goes
  size_t max_clients = 8192;
  uint64_t max_bytes = 512u << 20;     // of all keys and values
  uint64_t linger_ns = 2'000'000'000;  // how long stop() waits for clients to leave
};

class StoreServer {
 public:
  static Status start(const AddressText& address, const JobKey& key, const StoreServerOptions& options,
                      std::unique_ptr<StoreServer>* out);
  /// Takes no new clients, gives those there are linger_ns to read their answers and leave, then closes them.
  ~StoreServer();
  /// Takes no new clients, and drops who has not proved to be one. Have all left, within this time?
  bool drain(uint64_t ns);
  uint16_t port() const;
  /// The address where it listens; the first, when THALWEG_INTERFACES allows several.
  std::string host() const;
  const RefusalCounters& refusals() const;

 private:
  struct State;
  explicit StoreServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace thalweg::impl
