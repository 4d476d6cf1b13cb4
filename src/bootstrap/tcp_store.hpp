// SPDX-License-Identifier: Apache-2.0
// The client of the TCP store. Every call that is under way has an authenticated connection of its own, taken from a small
// pool: a thread that waits for a key does not keep another from putting it.
#pragma once
#include "base/socket_address.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/store.hpp"
#include "bootstrap/store_server.hpp"
#include "bootstrap/store_wire.hpp"
#include "security/handshake.hpp"

namespace thalweg::impl {

class TcpStore final : public Store {
 public:
  /// Tries until a server answers or the time-out passes: ranks may start in any order, and its name may be unknown meanwhile.
  static Status open(const std::string& address, const StoreOptions& options, std::unique_ptr<Store>* out);
  static Status serve(const std::string& address, const StoreOptions& options, std::unique_ptr<Store>* out);
  ~TcpStore() override;
  Status finish() override;

 protected:
  Status do_put(const std::string& key, const void* value, size_t length) override;
  Status do_get(const std::string& key, Bytes* out) override;
  Status do_wait(const std::string& key, const Deadline& deadline, Bytes* out) override;
  Status do_erase(const std::string& key) override;

 private:
  using Store::Store;
  using Connection = std::unique_ptr<SetupChannel>;
  Status request(store_wire::Op op, const std::string& key, const void* value, size_t length, const Deadline& deadline,
                 Bytes* out);
  Status connect(const Deadline& deadline, Connection* out);
  std::vector<SocketAddress> known_candidates();
  Status look_up(std::vector<SocketAddress>* candidates);
  Status connect_to_one_of(const std::vector<SocketAddress>& candidates, const Deadline& deadline, Connection* out);
  Status connect_once(const SocketAddress& address, const Deadline& deadline, Connection* out);
  Status take_connection(const Deadline& deadline, Connection* out);
  void give_back(Connection connection);

  AddressText server_address_;
  std::unique_ptr<StoreServer> server_;  // "serve:" only
  std::mutex mutex_;
  std::vector<Connection> idle_;
  std::vector<SocketAddress> candidates_;  // of the server's name, by the last look-up that found any
};

}  // namespace thalweg::impl
