// SPDX-License-Identifier: Apache-2.0
#include "pair.hpp"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace perf {

void (*before_failing)() = nullptr;

[[noreturn]] void die(const char* what, tw_status status) {
  end_with(std::string(what) + ": " + tw_status_name(status) + ": " + tw_last_error());
}

[[noreturn]] void end_with(const std::string& text) {
  std::fprintf(stderr, "thalweg perf: %s\n", text.c_str());
  std::fflush(stdout);
  if (before_failing != nullptr) before_failing();
  _exit(3);
}

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

uint64_t thread_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

void pin_to_core(unsigned core) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  unsigned wanted = core % static_cast<unsigned>(CPU_COUNT(&allowed));
  for (int c = 0; c < CPU_SETSIZE; ++c) {
    if (!CPU_ISSET(c, &allowed) || wanted-- != 0) continue;
    CPU_ZERO(&one);
    CPU_SET(c, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

namespace {
void transfer_all(int fd, void* data, size_t length, bool writing) {
  auto* p = static_cast<char*>(data);
  while (length > 0) {
    ssize_t n = writing ? ::write(fd, p, length) : ::read(fd, p, length);
    if (n <= 0) {
      std::fprintf(stderr, "thalweg perf: the other process is gone\n");
      _exit(3);
    }
    p += n;
    length -= static_cast<size_t>(n);
  }
}
}  // namespace

Pair::Pair(const Options& options, tw_context* ctx, int r) : context(ctx), rank(r), sleep(options.sleep), tls_(options.tls) {
  tw_worker_options o = TW_WORKER_OPTIONS_INIT;
  if (options.progress_thread) o.progress = TW_PROGRESS_THREAD;
  must(tw_worker_create(context, &o, &worker), "tw_worker_create");
}

Pair::~Pair() {
  if (endpoint) (void)tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr);
  if (worker) tw_worker_destroy(worker);
}

std::vector<unsigned char> address_of(tw_worker* worker) {
  size_t size = 0;
  must(tw_worker_address(worker, nullptr, &size), "tw_worker_address");
  std::vector<unsigned char> address(size);
  must(tw_worker_address(worker, address.data(), &size), "tw_worker_address");
  return address;
}

void Pair::connect_local(int socket, const char* transport) {
  std::vector<unsigned char> mine = address_of(worker), theirs;
  uint64_t length = mine.size(), their_length = 0;
  transfer_all(socket, &length, sizeof length, true);
  transfer_all(socket, mine.data(), mine.size(), true);
  transfer_all(socket, &their_length, sizeof their_length, false);
  theirs.resize(their_length);
  transfer_all(socket, theirs.data(), theirs.size(), false);
  tw_endpoint_options o = endpoint_options();
  o.transport = std::strcmp(transport, "auto") == 0 ? nullptr : transport;
  must(tw_connect(worker, theirs.data(), theirs.size(), &o, &endpoint), "tw_connect");
  finish_connecting();
}

void Pair::connect_to(const std::string& host) {
  const tw_endpoint_options o = endpoint_options();
  std::string address = host.find(':') == std::string::npos ? host + ":27182" : host;
  must(tw_connect_to(worker, address.c_str(), &o, &endpoint), "tw_connect_to");
  finish_connecting();
}

void Pair::accept_from(tw_listener* listener) {
  tw_connection_request* request = nullptr;
  tw_status st;
  while ((st = tw_listener_next(listener, &request)) == TW_AGAIN) (void)tw_worker_wait(worker, 1000000000ull);
  must(st, "tw_listener_next");
  tw_endpoint_options o = endpoint_options();
  o.tls = 0;  // the client's word
  must(tw_accept(request, &o, &endpoint), "tw_accept");
  finish_connecting();
}

tw_endpoint_options Pair::endpoint_options() {
  tw_endpoint_options o = TW_ENDPOINT_OPTIONS_INIT;
  o.tls = tls_;
  o.on_lost = lost;
  o.arg = this;
  return o;
}

/// Not every wait of a test would end: those of any source, handlers, signals, memory that is polled.
void Pair::lost(void* pair, tw_endpoint*, tw_status why) {
  if (!static_cast<Pair*>(pair)->talking_ || why == TW_ERR_CLOSED) return;  // it has said that it goes, behind its last order
  end_with(std::string("the other process is gone: ") + tw_status_name(why));
}

void Pair::finish_connecting() {
  must(tw_endpoint_wait(endpoint, 20000000000ull), "connecting");
  talking_ = true;
}

void Pair::progress() {
  if (tw_worker_progress(worker) == 0 && sleep) (void)tw_worker_wait(worker, 100000000ull);
}

void Pair::wait(tw_request request) {
  if (request == TW_REQUEST_NONE) return;
  tw_status st;
  while ((st = tw_request_test(request)) == TW_IN_PROGRESS) progress();
  if (st < 0) {
    std::fprintf(stderr, "thalweg perf: request: %s\n", tw_request_message(request));
    _exit(3);
  }
  (void)tw_request_release(request);
}

void Pair::send(const void* data, size_t length, uint64_t tag) {
  tw_request r = TW_REQUEST_NONE;
  must(tw_send(endpoint, data, length, tag, nullptr, &r), "tw_send");
  wait(r);
}

tw_request Pair::post_receive(void* data, size_t length, uint64_t tag) {
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.source = endpoint;  // so that its loss ends the wait
  tw_request r = TW_REQUEST_NONE;
  must(tw_recv(worker, data, length, tag, ~0ull, &o, &r), "tw_recv");
  return r;
}

void Pair::receive(void* data, size_t length, uint64_t tag) { wait(post_receive(data, length, tag)); }

void Pair::sync() {
  char byte = 0;
  if (rank == 0) {
    send(&byte, 1, kAckTag);
    receive(&byte, 1, kAckTag);
  } else {
    receive(&byte, 1, kAckTag);
    send(&byte, 1, kAckTag);
  }
}

namespace {

/// "name   1234 ns  note" of a table's line -> the name, and microseconds.
std::string read_line(const std::string& line, double* us) {
  const size_t end = std::min(line.find(" ns"), line.size()), digits = line.rfind(' ', end - 1);
  if (end != line.size() && digits != std::string::npos) *us = std::strtod(line.c_str() + digits, nullptr) / 1e3;
  return line.substr(0, line.find("  "));
}

unsigned ordinal_of(const std::string& memory) {
  const size_t colon = memory.find(':');
  return colon == std::string::npos ? 0 : static_cast<unsigned>(std::atoi(memory.c_str() + colon + 1));
}

/// For a message explain has a table with the way for each kind of memory that may receive it: selects one.
std::string receiver_of(const std::string& here, const std::string& there) {
  if (there == "pinned") return "pinned library memory";
  if (!on_device(there)) return there == "host" ? "library memory" : "ordinary memory";
  const bool pool = there.find("pool") != std::string::npos || there.find("managed") != std::string::npos;
  const bool same = on_device(here) && ordinal_of(here) == ordinal_of(there);
  if (pool) return std::string("pool or managed memory of ") + (same ? "the same device" : "another device");
  return same ? "the same device's memory" : "another device's memory";
}

}  // namespace

std::string Pair::route(const char* verb, const Order& order, const void* local, tw_remote_memory* remote) {
  const std::string transport = tw_endpoint_transport(endpoint);
  char buffer[16384];
  size_t length = sizeof buffer;
  predicted_us = 0;
  if (tw_endpoint_explain_buffer(endpoint, verb, local, order.size, remote, nullptr, buffer, &length) < 0) return transport;
  const std::string text = buffer;
  // explain's last lines name the winner; messages from a device have a table for each kind of memory that may receive them.
  const std::string receiver = receiver_of(order.memory[rank], order.memory[rank == 0]);
  const std::string says = "way into " + receiver + ": ";
  const size_t table = text.find("\ninto " + receiver + ":\n");
  size_t mark = text.find("\n* ", table == std::string::npos ? 0 : table);
  const std::string marked =
      mark == std::string::npos ? "" : read_line(text.substr(mark + 3, text.find('\n', mark + 1) - mark - 3), &predicted_us);
  if (table != std::string::npos) {
    const size_t said = text.find(says);
    if (said == std::string::npos) return transport + " " + marked;
    const size_t from = said + says.size();
    const std::string way = text.substr(from, text.find_first_of(",\n", from) - from);
    mark = text.find("  " + way, table);
    if (marked.rfind(way, 0) == 0 || mark == std::string::npos) return transport + " " + marked;
    return transport + " " + read_line(text.substr(mark + 2, text.find('\n', mark) - mark - 2), &predicted_us);
  }
  if (on_device(order.memory[rank == 0]) && text.find(says) != std::string::npos) predicted_us = 0;  // of host memory alone
  mark = text.find("chosen: ");
  if (mark == std::string::npos) return transport;
  mark += 8;
  return transport + " " + text.substr(mark, text.find('\n', mark) - mark);
}

}  // namespace perf
