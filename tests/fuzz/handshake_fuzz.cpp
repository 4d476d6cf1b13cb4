// SPDX-License-Identifier: Apache-2.0
// The handshake against arbitrary bytes. The first byte: role, and whether the input is the stream itself or is xored into the stream
// of a genuine other side. One input of 64 runs under TLS, which takes ten times as long and is parsed by OpenSSL. A stranger is never
// let in, a changed byte is always noticed, and nothing is read behind the fixed sizes.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>

#include "security/handshake.hpp"
#include "security/handshake_wire.hpp"

using namespace thalweg::impl;
using Want = Handshake::Want;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

struct Pair {
  int a = -1, b = -1;
  Pair() {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    a = ends[0];
    b = ends[1];
  }
  ~Pair() {
    close(a);
    close(b);
  }
};

bool over(Want want) { return want == Want::done || want == Want::failed; }

const JobKey& key() {
  static const JobKey made = [] {
    JobKey fresh;
    require(JobKey::load("the fuzzer does not know this", 29, nullptr, &fresh) == TW_OK);
    return fresh;
  }();
  return made;
}

DialTarget meant() { return DialTarget::of_worker(1, 2); }
bool is_meant(const DialTarget& target) { return target == meant(); }

// The input is what the stranger sends, in pieces whose sizes it chooses too.
void stranger(Role role, bool tls, std::span<const uint8_t> input) {
  Pair pair;
  const auto made = role == Role::client ? std::make_unique<Handshake>(key(), 3, tls, meant())
                                         : std::make_unique<Handshake>(key(), 3, tls, is_meant);
  Handshake& handshake = *made;
  Want want = handshake.advance(pair.b);
  size_t sent = 0;
  while (!input.empty() && !over(want)) {
    const size_t n = std::min<size_t>(input.size() - 1, 1 + input[0] % 64);
    input = input.subspan(1);
    const ssize_t written = n ? send(pair.a, input.data(), n, MSG_NOSIGNAL) : 0;
    sent += written > 0 ? size_t(written) : 0;
    input = input.subspan(n);
    want = handshake.advance(pair.b);
  }
  if (!over(want)) {
    shutdown(pair.a, SHUT_WR);
    want = handshake.advance(pair.b);
  }
  require(want == Want::failed && is_error(handshake.status()) && handshake.refusal() != Refusal::none);
  int left = 0;
  require(ioctl(pair.b, FIONREAD, &left) == 0);
  if (!tls) require(sent - size_t(left) <= sizeof(handshake_wire::Hello) + sizeof(handshake_wire::AuthenticationResult));
}

// Moves what has come from one socket to the other, xored with the input. Returns whether anything came, or its end; *changed: a byte of
// it was.
bool relay(int from, int to, std::span<const uint8_t>* input, bool* changed) {
  uint8_t bytes[8192];
  const ssize_t n = recv(from, bytes, sizeof bytes, 0);
  for (ssize_t i = 0; i < n && !input->empty(); ++i) {
    bytes[i] ^= input->front();
    *changed |= input->front() != 0;
    *input = input->subspan(1);
  }
  if (n > 0) send(to, bytes, size_t(n), MSG_NOSIGNAL);
  if (n == 0) shutdown(to, SHUT_WR);
  return n >= 0;
}

void between_friends(bool tls, std::span<const uint8_t> input) {
  Pair left, right;  // client - left - relay - right - server
  Handshake client(key(), 5, tls, meant());
  Handshake server(key(), 7, tls, is_meant);
  Want want_client = Want::read;
  Want want_server = Want::read;
  bool to_server = false;
  bool to_client = false;
  bool moves = true;  // when nothing does, both wait for more
  for (int i = 0; i < 24 && moves && !(over(want_client) && over(want_server)); ++i) {
    if (!over(want_client)) want_client = client.advance(left.a);
    if (want_client == Want::failed) shutdown(left.a, SHUT_WR);
    moves = relay(left.b, right.a, &input, &to_server);
    if (!over(want_server)) want_server = server.advance(right.b);
    if (want_server == Want::failed) shutdown(right.b, SHUT_WR);
    moves |= relay(right.a, left.b, &input, &to_client);
  }
  if (!to_server && !to_client) require(want_client == Want::done && want_server == Want::done);
  if (tls) return;  // TLS ignores some bytes of its records by rule
  if (to_server) require(want_server != Want::done && want_client != Want::done);
  if (to_client) require(want_client != Want::done);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> input(data + 1, size - 1);
  // By a sum, so that what is made from an input with TLS rarely has it too.
  const bool tls = std::accumulate(data, data + size, 0u) % 64 == 63;
  if (data[0] & 4) {
    between_friends(tls, input);
  } else {
    stranger(data[0] & 1 ? Role::client : Role::server, tls, input);
  }
  return 0;
}
