// SPDX-License-Identifier: Apache-2.0
// The script of each operation. Rank 0 sends or initiates, rank 1 receives or is the target; both verify.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>

#include "../fixtures/rooms.hpp"
#include "routes.hpp"
#include "side.hpp"

namespace conformance {
namespace {

constexpr uint64_t kTag = 0x1234500000000000ull;
void expect(const tw_recv_info& info, Side& side, uint64_t tag, uint64_t immediate, size_t length) {
  check(info.endpoint == side.endpoint, "the wrong sender in the receive info");
  check(info.tag == tag, "the wrong tag in the receive info");
  check(info.immediate == immediate, "the wrong immediate in the receive info");
  if (info.length != length) failed("length %zu in the receive info, wanted %zu", info.length, length);
}

void send_messages(Side& side, const Row& r, uint32_t flags, Routes* routes = nullptr) {
  Payloads out(side, r, r.local, r.size);
  std::vector<tw_request> requests(many(r), TW_REQUEST_NONE);
  for (unsigned i = 0; i < many(r); ++i) {
    out[i].fill(r.seed + i);
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.flags = flags;
    o.layout = out[i].layout();
    o.immediate = r.seed ^ i;
    if (routes != nullptr) routes->expect("send", out[i].address(), out[i].bytes(), nullptr, &o);
    must(tw_send(side.endpoint, out[i].address(), out[i].bytes(), kTag + i, &o, &requests[i]), "tw_send");
  }
  side.wait_all(requests);
  for (unsigned i = 0; i < many(r); ++i) out[i].verify(r.seed + i, out[i].bytes());
}

void receive_messages(Side& side, const Row& r, uint64_t mask, bool from_source, bool late) {
  uint64_t size = agreed_size(side, r);
  Payloads in(side, r, r.remote, size);
  std::vector<tw_request> requests(many(r), TW_REQUEST_NONE);
  if (late) side.barrier();  // the messages are unexpected by now
  for (unsigned i = 0; i < many(r); ++i) {
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.layout = in[i].layout();
    o.source = from_source ? side.endpoint : nullptr;
    must(tw_recv(side.worker, in[i].address(), in[i].bytes(), kTag + i, mask, &o, &requests[i]), "tw_recv");
  }
  for (unsigned i = 0; i < many(r); ++i) {
    tw_recv_info info{};
    tw_status st = side.wait_status(requests[i], &info);
    if (st != TW_ERR_TRUNCATED) must(st, "receive");
    expect(info, side, kTag + i, r.seed ^ i, size);
    if (in[i].bytes() < size)
      check(st == TW_ERR_TRUNCATED, "a short buffer was not reported as truncated");
    else
      must(st, "receive");
    in[i].verify(r.seed + i, std::min<uint64_t>(size, in[i].bytes()));
  }
}

void send_receive(Side& side, const Row& r) {
  Routes routes(side, r, Routes::Kind::messages);
  if (side.rank == 0)
    send_messages(side, r, 0, &routes);
  else
    receive_messages(side, r, ~0ull, false, false);
  routes.check();
}

void synchronous(Side& side, const Row& r) {
  Routes routes(side, r, Routes::Kind::messages);
  if (side.rank == 0)
    send_messages(side, r, TW_OP_SYNC, &routes);
  else
    receive_messages(side, r, ~0ull, true, false);
  routes.check();
}

/// Messages of one tag class arrive before any receive is posted; wildcard receives take them in order.
void unexpected(Side& side, const Row& r) {
  Routes routes(side, r, Routes::Kind::messages);
  if (side.rank == 0) {
    Payloads out(side, r, r.local, r.size);
    std::vector<tw_request> requests(many(r), TW_REQUEST_NONE);
    for (unsigned i = 0; i < many(r); ++i) {
      out[i].fill(r.seed + i);
      tw_op_options o = TW_OP_OPTIONS_INIT;
      o.layout = out[i].layout();
      o.immediate = r.seed ^ i;
      routes.expect("send", out[i].address(), out[i].bytes(), nullptr, &o);
      must(tw_send(side.endpoint, out[i].address(), out[i].bytes(), kTag + i, &o, &requests[i]), "tw_send");
    }
    side.barrier();
    side.wait_all(requests);
  } else {
    receive_messages(side, r, ~0xffffull, false, true);
  }
  routes.check();
}

void truncated(Side& side, const Row& r) {
  uint64_t size = std::max<uint64_t>(r.size, 2);
  Row full = r;
  full.size = size;
  if (side.rank == 0) return send_messages(side, full, 0);
  Payload in(side, Shape::contiguous, agreed_size(side, full) / 2, r.place[1], r.seed);
  for (unsigned i = 0; i < many(r); ++i) {
    in.poison();
    tw_request request = TW_REQUEST_NONE;
    must(tw_recv(side.worker, in.address(), in.bytes(), kTag + i, ~0ull, nullptr, &request), "tw_recv");
    tw_recv_info info{};
    tw_status st = side.wait_status(request, &info);
    must(st == TW_ERR_TRUNCATED ? TW_OK : st, "receive");
    check(st == TW_ERR_TRUNCATED, "a short buffer was not reported as truncated");
    expect(info, side, kTag + i, r.seed ^ i, agreed_size(side, full));
    in.verify_outside();  // the content itself is unspecified
  }
}

void probe(Side& side, const Row& r) {
  if (side.rank == 0) return send_messages(side, r, 0);
  uint64_t size = agreed_size(side, r);
  Payloads in(side, r, r.remote, size);
  for (unsigned n = 0; n < many(r); ++n) {
    tw_recv_info info{};
    tw_message* message = nullptr;
    tw_status st;
    while ((st = tw_probe(side.worker, kTag, ~0xffull, nullptr, &info, n % 2 ? &message : nullptr)) == TW_ERR_NO_MATCH) {
      side.alive();
      (void)tw_worker_wait(side.worker, 1000000);
    }
    must(st, "tw_probe");
    unsigned i = static_cast<unsigned>(info.tag - kTag);
    check(i == n, "probe did not find the earliest message");
    expect(info, side, kTag + i, r.seed ^ i, size);
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.layout = in[i].layout();
    tw_request request = TW_REQUEST_NONE;
    if (message)
      must(tw_message_recv(message, in[i].address(), in[i].bytes(), &o, &request), "tw_message_recv");
    else
      must(tw_recv(side.worker, in[i].address(), in[i].bytes(), info.tag, ~0ull, &o, &request), "tw_recv");
    tw_status end = side.wait_status(request);
    if (in[i].bytes() >= size) must(end, "receive");
    in[i].verify(r.seed + i, std::min<uint64_t>(size, in[i].bytes()));
  }
}

/// Of an active message: row and number, and with long ones random bytes up to a border of what the library does.
std::vector<unsigned char> header_of(const Row& r, uint64_t i, bool longer) {
  static constexpr size_t kLengths[] = {255,   256,   257,    300,    4000,   16384,   65279,  65280,
                                        65281, 65536, 131072, 262144, 262145, 1048575, 1048576};
  const uint64_t numbers[2] = {r.seed, i};
  std::mt19937_64 random(r.seed ^ (i << 32));
  std::vector<unsigned char> header(longer ? kLengths[random() % std::size(kLengths)] : sizeof numbers);
  for (unsigned char& byte : header) byte = static_cast<unsigned char>(random());
  std::memcpy(header.data(), numbers, sizeof numbers);
  return header;
}

struct Arrived {
  Side* side;
  const Row* row;
  Payloads* in;
  bool keep, longer;
  std::string problem;
  std::vector<tw_am_data*> kept;
  std::vector<tw_request> requests;
  std::atomic<unsigned> count{0};  // of those handled: the handler may run in the other rank's thread
};

tw_status on_message(void* arg, const tw_am_message* m) {
  auto* a = static_cast<Arrived*>(arg);
  const std::vector<unsigned char> header = header_of(*a->row, a->count, a->longer);
  if (m->header_length != header.size() || std::memcmp(m->header, header.data(), header.size()) != 0)
    a->problem = "wrong header";
  if (m->endpoint != a->side->endpoint) a->problem = "wrong reply endpoint";
  if (a->keep) {
    a->kept.push_back(m->descriptor);
    ++a->count;
    return TW_IN_PROGRESS;
  }
  Payload& in = (*a->in)[a->count];
  tw_op_options o = TW_OP_OPTIONS_INIT;
  o.layout = in.layout();
  tw_request request = TW_REQUEST_NONE;
  if (tw_am_recv(m->descriptor, in.address(), in.bytes(), &o, &request) < 0) a->problem = tw_last_error();
  a->requests.push_back(request);
  ++a->count;
  return TW_IN_PROGRESS;
}

void active(Side& side, const Row& r, uint32_t flags, bool keep, bool longer = false) {
  constexpr uint16_t id = 77;
  Routes routes(side, r, Routes::Kind::messages);
  if (side.rank == 0) {
    side.barrier();
    Payloads out(side, r, r.local, r.size);
    std::vector<tw_request> requests(many(r), TW_REQUEST_NONE);
    for (uint64_t i = 0; i < many(r); ++i) {
      out[i].fill(r.seed + i);
      std::vector<unsigned char> header = header_of(r, i, longer);
      tw_op_options o = TW_OP_OPTIONS_INIT;
      o.flags = flags;
      o.layout = out[i].layout();
      routes.expect("am", out[i].address(), out[i].bytes(), nullptr, &o);
      must(tw_am_send(side.endpoint, id, header.data(), header.size(), out[i].address(), out[i].bytes(), &o, &requests[i]),
           "tw_am_send");
      std::fill(header.begin(), header.end(), 0);  // it was copied
    }
    side.wait_all(requests);
    side.barrier();
    return routes.check();
  }
  uint64_t size = agreed_size(side, r);
  Payloads in(side, r, r.remote, size);
  Arrived a{&side, &r, &in, keep, longer, {}, {}, {}, {}};
  must(tw_am_register(side.worker, id, on_message, &a), "tw_am_register");
  side.barrier();
  for (; a.count < many(r); side.alive()) (void)tw_worker_wait(side.worker, 1000000);
  for (size_t i = 0; i < a.kept.size(); ++i) {
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.layout = in[i].layout();
    a.requests.push_back(TW_REQUEST_NONE);
    must(tw_am_recv(a.kept[i], in[i].address(), in[i].bytes(), &o, &a.requests.back()), "tw_am_recv");
  }
  for (size_t i = 0; i < a.requests.size(); ++i) {
    tw_status st = side.wait_status(a.requests[i]);
    if (in[i].bytes() >= size) must(st, "tw_am_recv");
  }
  if (!a.problem.empty()) failed("%s", a.problem.c_str());
  for (unsigned i = 0; i < many(r); ++i) in[i].verify(r.seed + i, std::min<uint64_t>(size, in[i].bytes()));
  must(tw_am_register(side.worker, id, nullptr, nullptr), "tw_am_register");
  side.barrier();
  routes.check();
}
void active_message(Side& side, const Row& r) { active(side, r, 0, false); }
void active_kept(Side& side, const Row& r) { active(side, r, 0, true); }
void active_rendezvous(Side& side, const Row& r) { active(side, r, TW_OP_RENDEZVOUS, true); }
void active_headers(Side& side, const Row& r) { active(side, r, 0, r.seed % 2 == 0, true); }

void byte_stream(Side& side, const Row& r) {
  uint64_t size = std::max<uint64_t>(r.size, 1);
  Payload data(side, Shape::contiguous, size, r.place[side.rank], r.seed);
  Routes routes(side, r, Routes::Kind::one_sided);
  for (unsigned i = 0; i < many(r); ++i) {
    if (side.rank == 0) {
      data.fill(r.seed + i);
      tw_request request = TW_REQUEST_NONE;
      routes.expect("bytes", data.address(), size, nullptr, nullptr);
      must(tw_bytes_send(side.endpoint, data.address(), size, nullptr, &request), "tw_bytes_send");
      side.wait(request);
      continue;
    }
    data.poison();
    for (uint64_t got = 0; got < size;) {
      tw_op_options o = TW_OP_OPTIONS_INIT;
      o.flags = i % 2 ? TW_OP_WAIT_ALL : 0;
      tw_request request = TW_REQUEST_NONE;
      tw_recv_info info{};
      must(tw_bytes_recv(side.endpoint, data.address() + got, size - got, &o, &request), "tw_bytes_recv");
      must(side.wait_status(request, &info), "tw_bytes_recv");
      check(info.length > 0 && info.length <= size - got, "a stream receive of an impossible length");
      got += info.length;
    }
    data.verify(r.seed + i, size);
  }
  side.barrier();
  routes.check();
}

/// Rank 1 exposes payloads and a signal; rank 0 imports them.
struct Exposed {
  struct Card {
    uint64_t key_length[kMany + 1], offset[kMany];
    unsigned char key[kMany + 1][kKeyRoom];
  } card{};
  Side& side;
  tw_signal* signal = nullptr;
  tw_remote_signal* remote_signal = nullptr;
  std::vector<tw_remote_memory*> remote;
  Exposed(Side& s, Payloads* targets, unsigned n, uint32_t kind) : side(s) {
    if (side.rank == 1) {
      tw_signal_options so = TW_SIGNAL_OPTIONS_INIT;
      so.kind = kind;
      must(tw_signal_create(side.worker, &so, &signal), "tw_signal_create");
      for (unsigned i = 0; i < n; ++i) {
        size_t length = kKeyRoom;
        must(tw_memory_export((*targets)[i].memory(), card.key[i], &length), "tw_memory_export");
        card.key_length[i] = length;
        card.offset[i] = (*targets)[i].offset();
      }
      size_t length = kKeyRoom;
      must(tw_signal_export(signal, card.key[kMany], &length), "tw_signal_export");
      card.key_length[kMany] = length;
      side.send_control(&card, sizeof card);
      return;
    }
    side.receive_control(&card, sizeof card);
    for (unsigned i = 0; i < n; ++i) {
      remote.push_back(nullptr);
      must(tw_memory_import(side.endpoint, card.key[i], card.key_length[i], &remote.back()), "tw_memory_import");
    }
    must(tw_signal_import(side.endpoint, card.key[kMany], card.key_length[kMany], &remote_signal), "tw_signal_import");
  }
  ~Exposed() {
    for (tw_remote_memory* m : remote) tw_remote_memory_release(m);
    if (remote_signal) tw_remote_signal_release(remote_signal);
    if (signal) (void)tw_signal_destroy(signal);
  }
};

enum class Notice { flush, remote, signal, after_all };

void put(Side& side, const Row& r, Notice notice) {
  Routes routes(side, r, Routes::Kind::one_sided);
  uint64_t size = agreed_size(side, r);
  Payloads targets(side, r, side.rank == 1 ? r.remote : r.local, side.rank == 1 ? size : r.size);
  Exposed x(side, &targets, many(r), notice == Notice::signal ? TW_SIGNAL_ADD : TW_SIGNAL_SET);
  Payload shape(side, r.remote, size, kPlain, r.seed);  // the initiator's idea of the target's layout
  if (shape.bytes() != size) {
    side.barrier();
    return;
  }
  if (side.rank == 1) {
    if (notice == Notice::signal) x.side.await(x.signal, TW_COMPARE_GE, many(r));
    if (notice == Notice::after_all) x.side.await(x.signal, TW_COMPARE_EQ, 4711);
    if (notice == Notice::flush || notice == Notice::remote) side.barrier();
    for (unsigned i = 0; i < many(r); ++i) targets[i].verify(r.seed + i, size);
    routes.check();
    return side.barrier();
  }
  std::vector<tw_request> requests(many(r), TW_REQUEST_NONE);
  for (unsigned i = 0; i < many(r); ++i) {
    targets[i].fill(r.seed + i);
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.layout = targets[i].layout();
    o.remote_layout = shape.layout();
    if (notice == Notice::remote) o.flags = TW_OP_REMOTE;
    if (notice == Notice::signal) {
      o.signal = x.remote_signal;
      o.signal_op = TW_SIGNAL_ADD;
      o.signal_value = 1;
    }
    routes.expect("put", targets[i].address(), size, x.remote[i], &o);
    must(tw_put(side.endpoint, targets[i].address(), size, x.remote[i], x.card.offset[i], &o, &requests[i]), "tw_put");
  }
  if (notice == Notice::after_all) {
    tw_op_options o = TW_OP_OPTIONS_INIT;
    o.flags = TW_OP_AFTER_ALL;
    requests.push_back(TW_REQUEST_NONE);
    must(tw_signal_post(x.remote_signal, 4711, &o, &requests.back()), "tw_signal_post");
  }
  side.wait_all(requests);
  if (notice == Notice::flush) {
    tw_request request = TW_REQUEST_NONE;
    must(r.seed & 1 ? tw_endpoint_flush(side.endpoint, &request) : tw_worker_flush(side.worker, &request), "flush");
    side.wait(request);
  }
  if (notice == Notice::flush || notice == Notice::remote) side.barrier();
  routes.check();
  side.barrier();
}
void put_flush(Side& s, const Row& r) { put(s, r, Notice::flush); }
void put_remote(Side& s, const Row& r) { put(s, r, Notice::remote); }
void put_signal(Side& s, const Row& r) { put(s, r, Notice::signal); }
void put_after_all(Side& s, const Row& r) { put(s, r, Notice::after_all); }

void get(Side& side, const Row& r) {
  Routes routes(side, r, Routes::Kind::one_sided);
  uint64_t size = agreed_size(side, r);
  Payloads mine(side, r, side.rank == 1 ? r.remote : r.local, side.rank == 1 ? size : r.size);
  if (side.rank == 1)
    for (unsigned i = 0; i < many(r); ++i) mine[i].fill(r.seed + i);
  Exposed x(side, &mine, many(r), TW_SIGNAL_SET);
  Payload shape(side, r.remote, size, kPlain, r.seed);
  if (shape.bytes() == size && side.rank == 0) {
    std::vector<tw_request> requests(many(r), TW_REQUEST_NONE);
    for (unsigned i = 0; i < many(r); ++i) {
      tw_op_options o = TW_OP_OPTIONS_INIT;
      o.layout = mine[i].layout();
      o.remote_layout = shape.layout();
      routes.expect("get", mine[i].address(), size, x.remote[i], &o);
      must(tw_get(side.endpoint, mine[i].address(), size, x.remote[i], x.card.offset[i], &o, &requests[i]), "tw_get");
    }
    side.wait_all(requests);
    for (unsigned i = 0; i < many(r); ++i) mine[i].verify(r.seed + i, size);
  }
  side.barrier();
  routes.check();
}

/// The payload as blocks of a length that the size makes odd, put into or got from the other side's in reverse order.
void blocks(Side& side, const Row& r, bool put) {
  const size_t length = static_cast<size_t>(std::max<uint64_t>(1, r.size / 23)), count = static_cast<size_t>(r.size / length);
  Payload mine(side, Shape::contiguous, r.size, r.place[side.rank], r.seed);
  const bool source = (side.rank == 0) == put;
  Routes routes(side, r, Routes::Kind::one_sided);
  if (source) mine.fill(r.seed);
  struct {
    uint64_t length, whole_length;
    unsigned char bytes[24 + kKeyRoom + 2 * 32], whole[kKeyRoom];
  } key{};
  if (count > 0) {
    const tw_block_range ranges[] = {{mine.memory(), nullptr, mine.offset(), 0, (count + 1) / 2},
                                     {mine.memory(), nullptr, mine.offset() + (count + 1) / 2 * length, 0, count / 2}};
    tw_blocks* local = nullptr;
    must(tw_blocks_create(side.context, ranges, count > 1 ? 2 : 1, length, &local), "tw_blocks_create");
    if (side.rank == 1) {
      key.length = sizeof key.bytes;
      must(tw_blocks_export(local, 0, key.bytes, &key.length), "tw_blocks_export");
      key.whole_length = sizeof key.whole;
      must(tw_memory_export(mine.memory(), key.whole, &key.whole_length), "tw_memory_export");
      side.send_control(&key, sizeof key);
      tw_notification news{};
      for (unsigned i = 0; i < many(r);) {
        const tw_status st = tw_worker_next_notification(side.worker, &news);
        i += st == TW_OK ? 1 : 0;
        if (st == TW_AGAIN) side.alive();
        if (st == TW_AGAIN && tw_worker_progress(side.worker) == 0) (void)tw_worker_wait(side.worker, 1000000);
      }
      check(news.endpoint == side.endpoint && news.length == 8, "another notification than was sent");
    } else {
      side.receive_control(&key, sizeof key);
      tw_remote_blocks* remote = nullptr;
      must(tw_blocks_import(side.endpoint, key.bytes, key.length, &remote), "tw_blocks_import");
      tw_remote_memory* whole = nullptr;  // for explain
      must(tw_memory_import(side.endpoint, key.whole, key.whole_length, &whole), "tw_memory_import");
      std::vector<uint64_t> index(count);
      for (size_t i = 0; i < count; ++i) index[i] = count - 1 - i;
      tw_blocks_options o = TW_BLOCKS_OPTIONS_INIT;
      o.notify = TW_NOTIFY_QUEUE;
      o.notification = &r.seed;
      o.notification_length = 8;
      std::vector<tw_request> requests(many(r), TW_REQUEST_NONE);
      for (tw_request& request : requests) {
        routes.expect(put ? "put_blocks" : "get_blocks", mine.address(), count * length, whole, nullptr);
        must((put ? tw_put_blocks : tw_get_blocks)(side.endpoint, local, index.data(), remote, index.data(), count, &o,
                                                   &request),
             "tw_put_blocks");
      }
      side.wait_all(requests);
      tw_remote_memory_release(whole);
      tw_remote_blocks_release(remote);
    }
    tw_blocks_destroy(local);
  }
  mine.verify(r.seed, source ? r.size : count * length);
  side.barrier();
  routes.check();
}
void put_blocks(Side& s, const Row& r) { blocks(s, r, true); }
void get_blocks(Side& s, const Row& r) { blocks(s, r, false); }

/// Every operator in both widths, fetching and not, against a word kept here.
void atomics(Side& side, const Row& r) {
  for (size_t width : {size_t{4}, size_t{8}}) {
    Routes routes(side, r, Routes::Kind::one_sided);
    tw_memory* memory = nullptr;
    alignas(8) unsigned char plain[24] = {};
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place_name(r.place[1]);
    if (r.place[1] != kPlain)
      must(tw_memory_allocate(side.context, 24, &options, &memory), "tw_memory_allocate");
    else
      must(tw_memory_register(side.context, plain, 24, nullptr, &memory), "tw_memory_register");
    struct {
      uint64_t length;
      unsigned char bytes[kKeyRoom];
    } key{};
    uint64_t mask = width == 4 ? 0xffffffffull : ~0ull, word = r.seed & mask, final = 0;
    unsigned char words[24] = {};
    std::memcpy(words + 8, &word, width);
    must(tw_memory_copy(side.context, tw_memory_address(memory), words, sizeof words), "tw_memory_copy");
    if (side.rank == 1) {
      size_t length = kKeyRoom;
      must(tw_memory_export(memory, key.bytes, &length), "tw_memory_export");
      key.length = length;
      side.send_control(&key, sizeof key);
      side.receive_control(&word, sizeof word);
      must(tw_memory_copy(side.context, words, tw_memory_address(memory), sizeof words), "tw_memory_copy");
      std::memcpy(&final, words + 8, width);
      if (final != word)
        failed("%zu-byte word is %llx, wanted %llx", width, (unsigned long long) final, (unsigned long long)word);
      std::memcpy(&final, words, 8);
      check(final == 0, "an atomic touched its neighbour");
    } else {
      side.receive_control(&key, sizeof key);
      tw_remote_memory* remote = nullptr;
      must(tw_memory_import(side.endpoint, key.bytes, key.length, &remote), "tw_memory_import");
      for (uint32_t step = 0; step < 24; ++step) {
        uint32_t op = step % 6;
        bool fetch = (step / 6) % 2 == 0 || op == TW_ATOMIC_SWAP;
        uint64_t operand = (r.seed * (step + 3)) & mask, compare = step % 12 < 6 ? word : ~word & mask, old = 0;
        tw_request request = TW_REQUEST_NONE;
        routes.expect("atomic", nullptr, width, remote, nullptr);
        must(tw_atomic(side.endpoint, op, remote, 8, width, operand, compare, fetch ? &old : nullptr, nullptr, &request),
             "tw_atomic");
        side.wait(request);
        if (fetch && old != word)
          failed("fetched %llx, wanted %llx (op %u)", (unsigned long long)old, (unsigned long long)word, op);
        word = apply(op, word, operand, compare) & mask;
      }
      tw_request request = TW_REQUEST_NONE;
      must(tw_endpoint_flush(side.endpoint, &request), "tw_endpoint_flush");
      side.wait(request);
      side.send_control(&word, sizeof word);
      tw_remote_memory_release(remote);
    }
    routes.check();
    side.barrier();
    must(tw_memory_release(memory), "tw_memory_release");
  }
}

}  // namespace

const std::vector<Operation>& operations() {
  static constexpr size_t big = ~size_t{0};
  static const std::vector<Operation> all = [] {
    std::vector<Operation> made = {
        {"send", true, true, big, send_receive, Devices::all, Rows::all, Callbacks::both},
        {"synchronous_send", true, true, big, synchronous, Devices::all, Rows::all, Callbacks::both},
        {"unexpected", true, true, big, unexpected, Devices::all, Rows::all, Callbacks::both},
        {"truncated", true, false, big, truncated, Devices::all, Rows::all, Callbacks::local},
        {"probe", true, true, big, probe, Devices::all, Rows::all, Callbacks::both},
        {"active_message", true, true, big, active_message, Devices::all, Rows::all, Callbacks::both},
        {"active_kept", true, true, big, active_kept, Devices::all, Rows::all, Callbacks::both},
        {"active_rendezvous", true, true, big, active_rendezvous, Devices::all, Rows::all, Callbacks::both},
        {"active_headers", true, true, big, active_headers, Devices::all, Rows::all, Callbacks::both},
        {"byte_stream", false, false, big, byte_stream, Devices::none},
        {"put_flush", true, true, big, put_flush, Devices::all, Rows::all, Callbacks::local},
        {"put_remote", true, true, big, put_remote, Devices::all, Rows::all, Callbacks::local},
        {"put_signal", true, true, big, put_signal, Devices::all, Rows::all, Callbacks::local},
        {"put_after_all", true, true, big, put_after_all, Devices::all, Rows::all, Callbacks::local},
        {"get", true, true, big, get, Devices::all, Rows::all, Callbacks::local},
        {"put_blocks", false, false, big, put_blocks},
        {"get_blocks", false, false, big, get_blocks},
        {"atomics", false, false, 8, atomics}};
    add_triggered(made);
    add_triggered_words(made);
    add_triggered_chains(made);
    add_triggered_reductions(made);
    add_windows(made);
    return made;
  }();
  return all;
}

void run_row(Side& side, const Row& row) {
  for (const Operation& o : operations()) {
    if (std::strcmp(o.name, row.operation) == 0) return o.run(side, row);
  }
  failed("no operation %s", row.operation);
}

}  // namespace conformance
