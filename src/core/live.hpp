// SPDX-License-Identifier: Apache-2.0
// The live socket of a context: a unix socket beside those of connection set-up, which answers a line with the context's counters as a line
// of JSON (`thalweg top`). Only processes of the same user, and root's, are answered.
//
// All of it is on the service thread, which never waits for a client: few at a time, short requests, and an answer that is not read is
// kept for a while and then dropped with its client. THALWEG_LIVE=0: no such socket.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

struct tw_context;

namespace thalweg::impl {

class Live {
 public:
  static constexpr const char* kEnding = ".live";
  static constexpr size_t kClients = 8;
  static constexpr size_t kLongestRequest = 64;  // bytes

  explicit Live(tw_context& context) : context_(context) {}
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  /// Begins to listen. An error makes the context no worse: there is nothing to see then. Any thread.
  Status open();
  /// Ends everything; waits. Before the service thread stops.
  void close();

 private:
  struct Client {
    UniqueFd socket;
    std::string asked;   // of the next request
    std::string answer;  // what is left of it
    size_t sent = 0;
    uint64_t timer = 0;
    bool last = false;  // it is closed behind this answer
  };

  void incoming();
  void look_again();
  void ready(int fd, uint32_t events);
  bool read(Client& client);
  bool write(Client& client);
  bool request(Client& client);
  void rest(Client& client);
  void drop(int fd);
  const std::string& snapshot();

  tw_context& context_;
  UniqueFd socket_;
  std::string path_;
  std::map<int, std::unique_ptr<Client>> clients_;  // by descriptor
  std::string snapshot_;
  uint64_t made_ = 0;   // when
  uint64_t pause_ = 0;  // timer, while the socket is not looked at
};

}  // namespace thalweg::impl
