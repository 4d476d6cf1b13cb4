// SPDX-License-Identifier: Apache-2.0
#include "side.hpp"
#include "../fixtures/rooms.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace conformance {
namespace {

constexpr size_t kGuard = 128;
constexpr unsigned char kPoison = 0xC3;
constexpr uint64_t kControlTag = 0xfffe000000000000ull;

unsigned char pattern(uint64_t seed, size_t position) {
  uint64_t x = seed + position * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  return static_cast<unsigned char>(x >> 40);
}

void socket_all(int fd, void* data, size_t n, bool out) {
  auto* p = static_cast<char*>(data);
  while (n > 0) {
    ssize_t k = out ? ::write(fd, p, n) : ::read(fd, p, n);
    if (k <= 0) failed("the other side is gone");
    p += k;
    n -= static_cast<size_t>(k);
  }
}

}  // namespace

const char* shape_name(Shape s) {
  static const char* names[] = {"contiguous", "strided1", "strided2", "strided3", "subarray", "list", "callbacks"};
  return names[static_cast<int>(s)];
}

void failed(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  throw Failure{text};
}

void check(bool ok, const char* what) {
  if (!ok) failed("%s", what);
}
void must(tw_status s, const char* what) {
  if (s < 0) failed("%s: %s: %s", what, tw_status_name(s), tw_last_error());
}

Side::Side(tw_context* c, int r, uint32_t threads) : context(c), rank(r) {
  tw_worker_options options = TW_WORKER_OPTIONS_INIT;
  options.threads = threads;
  must(tw_worker_create(context, &options, &worker), "tw_worker_create");
}

Side::Side(Side& first, int r)
    : context(first.context), worker(first.worker), endpoint(first.endpoint), rank(r), owner_(false) {}

Side::~Side() {
  if (!owner_) return;
  if (endpoint) (void)tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, nullptr);
  if (worker) tw_worker_destroy(worker);
}

void Side::connect(int socket, const char* transport, bool tls) {
  struct {
    uint64_t length;
    unsigned char bytes[kAddressRoom];
  } mine{}, theirs{};
  size_t length = kAddressRoom;
  must(tw_worker_address(worker, mine.bytes, &length), "tw_worker_address");
  mine.length = length;
  if (socket >= 0) {
    socket_all(socket, &mine, sizeof mine, true);
    socket_all(socket, &theirs, sizeof theirs, false);
  } else {
    theirs = mine;  // to oneself
  }
  tw_endpoint_options o = TW_ENDPOINT_OPTIONS_INIT;
  o.transport = transport;
  o.tls = tls;
  must(tw_connect(worker, theirs.bytes, theirs.length, &o, &endpoint), "tw_connect");
  must(tw_endpoint_wait(endpoint, 20000000000ull), "connecting");
  if (transport && std::strcmp(tw_endpoint_transport(endpoint), transport) != 0)
    failed("asked for %s, got %s", transport, tw_endpoint_transport(endpoint));
}

tw_status Side::wait_status(tw_request request, tw_recv_info* info) {
  if (request == TW_REQUEST_NONE) return TW_OK;
  tw_status st = TW_ERR_TIMED_OUT;
  for (int step = 0; step < 600 && st == TW_ERR_TIMED_OUT; ++step) {
    st = tw_request_wait(request, 100000000ull);
    // A receive from anyone outlives its sender: give it up when the only sender is gone.
    if (st == TW_ERR_TIMED_OUT && tw_endpoint_state(endpoint) < 0) (void)tw_request_cancel(request);
  }
  if (st == TW_ERR_TIMED_OUT) failed("an operation did not complete within a minute");
  if (info) must(tw_request_info(request, info), "tw_request_info");
  must(tw_request_release(request), "tw_request_release");
  if (tw_request_test(request) != TW_ERR_HANDLE) failed("a released request can still be tested");
  return st;
}

void Side::wait(tw_request request) { must(wait_status(request), "request"); }

void Side::wait_all(std::vector<tw_request>& requests) {
  for (uint64_t spins = 0;; ++spins) {
    size_t index = 0;
    tw_status st = tw_request_test_any(requests.data(), requests.size(), &index);
    bool any = std::any_of(requests.begin(), requests.end(), [](tw_request r) { return r != TW_REQUEST_NONE; });
    if (!any) return;
    if (st == TW_IN_PROGRESS) {
      if (tw_worker_progress(worker) == 0 && spins % 64 == 0) (void)tw_worker_wait(worker, 1000000);
      continue;
    }
    wait(requests[index]);
    requests[index] = TW_REQUEST_NONE;
  }
}

void Side::send_control(const void* data, size_t length) {
  must(tw_send_blocking(endpoint, data, length, kControlTag + static_cast<uint64_t>(rank)), "control send");
}

void Side::receive_control(void* data, size_t length) {
  tw_request request = TW_REQUEST_NONE;
  must(tw_recv(worker, data, length, kControlTag + static_cast<uint64_t>(!rank), ~0ull, nullptr, &request), "control receive");
  must(wait_status(request), "control receive");
}

void Side::alive() const { must(tw_endpoint_state(endpoint), "the endpoint"); }

void Side::look() const {
  tw_worker_progress(worker);
  alive();
}

void Side::await(tw_signal* signal, uint32_t compare, uint64_t value) const {
  for (int step = 0; step < 600; ++step) {
    const tw_status status = tw_signal_wait(signal, value, compare, 100'000'000);
    if (status != TW_ERR_TIMED_OUT) return must(status, "tw_signal_wait");
    alive();
  }
  failed("the signal did not come within a minute");
}

void Side::barrier() {
  char byte = 0;
  send_control(&byte, 1);
  receive_control(&byte, 1);
}

const char* place_name(unsigned place) {
  static const std::string device =
      std::getenv("THALWEG_CONFORMANCE_DEVICE") != nullptr ? std::getenv("THALWEG_CONFORMANCE_DEVICE") : "emulated";
  static const char* const kEmulated[kPlaces] = {"plain",      "host",           "pinned",          "emulated:0",
                                                 "emulated:1", "emulated-vmm:0", "emulated-pool:1", "emulated-managed:0"};
  static const char* const kCuda[kPlaces] = {"plain", "host", "pinned", "cuda:0", "cuda:1", "vmm:0", "pool:1", "managed:0"};
  static const char* const kOne[kPlaces] = {"plain", "host", "pinned", "cuda:0", "cuda:0", "vmm:0", "pool:0", "managed:0"};
  return (device == "cuda" ? kCuda : device == "cuda:0" ? kOne : kEmulated)[place];
}

Payload::Payload(Side& side, Shape s, uint64_t size, unsigned place, uint64_t seed) : context_(side.context) {
  start_ = kGuard + seed % 61;  // odd alignments
  shape(s, size);
  total_ = start_ + span_ + kGuard;
  if (place != kPlain) {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place_name(place);
    must(tw_memory_allocate(side.context, total_, &options, &memory_), "tw_memory_allocate");
    data_ = memory_start_ = static_cast<unsigned char*>(tw_memory_address(memory_));
  }
  if (place == kPlain || place >= kPinned) {
    plain_.resize(total_);
    data_ = plain_.data();
  }
  if (place == kPlain) {
    memory_start_ = data_;
    must(tw_memory_register(side.context, data_, total_, nullptr, &memory_), "tw_memory_register");
  }
  poison();
}

Payload::~Payload() {
  (void)tw_memory_release(memory_);
  if (layout_) tw_layout_destroy(layout_);
}

struct Payload::Calls {
  Payload& payload;
  uint64_t at = 0;  // what is packed or unpacked next

  static tw_status start(void* of, const void* buffer, size_t length, int, void** state) {
    Payload& payload = *static_cast<Payload*>(of);
    if (buffer != payload.address() || (length != 0 && length != payload.bytes_)) return TW_ERR_INVALID;
    *state = new Calls{payload};
    return TW_OK;
  }
  static size_t packed_size(void* state) { return static_cast<Calls*>(state)->payload.bytes_; }
  static void finish(void* state) { delete static_cast<Calls*>(state); }
  /// Less than it may, now and then.
  static int64_t pack(void* state, uint64_t offset, void* to, size_t most) {
    const size_t n = most > 1000 ? most - most % 1000 : most;
    const bool good = static_cast<Calls*>(state)->walk(offset, static_cast<unsigned char*>(to), n, true);
    return good ? static_cast<int64_t>(n) : int64_t{TW_ERR_INVALID};
  }
  static tw_status unpack(void* state, uint64_t offset, const void* from, size_t n) {
    auto* const bytes = static_cast<unsigned char*>(const_cast<void*>(from));
    return static_cast<Calls*>(state)->walk(offset, bytes, n, false) ? TW_OK : TW_ERR_INVALID;
  }
  bool walk(uint64_t offset, unsigned char* bytes, size_t n, bool out) {
    if (offset != at || n == 0 || n > payload.bytes_ - at) return false;  // each byte once, and in order
    at += n;
    for (const Run& run : payload.runs_) {
      if (n == 0) break;
      if (offset >= run.length) {
        offset -= run.length;
        continue;
      }
      const size_t some = std::min<size_t>(n, run.length - offset);
      unsigned char* const here = payload.address() + run.offset + offset;
      std::memcpy(out ? bytes : here, out ? here : bytes, some);
      bytes += some;
      n -= some;
      offset = 0;
    }
    return n == 0;
  }
};

/// Makes the layout and, independently of it, the list of offsets that it must move.
void Payload::shape(Shape s, uint64_t size) {
  auto blocks = [&](uint64_t each) { return std::max<uint64_t>(1, size / each); };
  if (s == Shape::contiguous) {
    if (size > 0) runs_.push_back({0, size});
  } else if (s == Shape::strided1) {
    uint64_t block = 13, count = blocks(block);
    int64_t stride = 29;
    must(tw_layout_strided(1, block, &count, &stride, &layout_), "tw_layout_strided");
    for (uint64_t c = 0; c < count; ++c) runs_.push_back({c * 29, block});
  } else if (s == Shape::strided2 || s == Shape::strided3) {
    uint64_t block = 8, n1 = 3, n2 = s == Shape::strided3 ? 2 : 1, count[3] = {n1, blocks(block * n1 * n2), n2};
    int64_t stride[3] = {16, 64, static_cast<int64_t>(count[1] * 64 + 7)};
    must(tw_layout_strided(s == Shape::strided3 ? 3 : 2, block, count, stride, &layout_), "tw_layout_strided");
    for (uint64_t k = 0; k < n2; ++k)
      for (uint64_t j = 0; j < count[1]; ++j)
        for (uint64_t i = 0; i < n1; ++i) runs_.push_back({k * static_cast<uint64_t>(stride[2]) + j * 64 + i * 16, block});
  } else if (s == Shape::subarray) {
    uint64_t rows = blocks(4 * 5), array[3] = {2, rows + 2, 9}, extent[3] = {1, rows, 5}, from[3] = {1, 1, 2};
    must(tw_layout_subarray(3, array, extent, from, 4, TW_ORDER_C, &layout_), "tw_layout_subarray");
    for (uint64_t r = 0; r < rows; ++r) runs_.push_back({((array[1] + 1 + r) * 9 + 2) * 4, 20});
  } else if (s == Shape::callbacks) {
    uint64_t at = 3;
    for (uint64_t left = std::max<uint64_t>(size, 1), n = 0; left > 0; left -= n) {
      n = std::min(left, 7 + size / 61);
      runs_.push_back({at, n});
      at += n + 11;
    }
    std::reverse(runs_.begin(), runs_.end());
    tw_layout_callbacks_options functions = TW_LAYOUT_CALLBACKS_OPTIONS_INIT;
    functions.arg = this;
    functions.start = &Calls::start;
    functions.packed_size = &Calls::packed_size;
    functions.pack = &Calls::pack;
    functions.unpack = &Calls::unpack;
    functions.finish = &Calls::finish;
    must(tw_layout_callbacks(&functions, &layout_), "tw_layout_callbacks");
  } else {
    std::vector<tw_piece> pieces;
    uint64_t at = 5;
    for (uint64_t left = std::max<uint64_t>(size, 1), k = 0; left > 0; ++k) {
      uint64_t n = std::min(left, std::max<uint64_t>(1 + k * 7 % 50, size / 512));
      pieces.push_back({at, n});
      at += n + 3;
      left -= n;
    }
    std::reverse(pieces.begin(), pieces.end());  // not in order of address
    must(tw_layout_pieces(pieces.data(), pieces.size(), &layout_), "tw_layout_pieces");
    for (const tw_piece& p : pieces) runs_.push_back({p.offset, p.length});
  }
  for (const Run& run : runs_) {
    bytes_ += run.length;
    span_ = std::max(span_, run.offset + run.length);
  }
  if (layout_ && s != Shape::callbacks)
    check(tw_layout_bytes(layout_) == bytes_, "tw_layout_bytes disagrees with the reference");
}

void Payload::push() const {
  if (data_ != memory_start_) must(tw_memory_copy(context_, memory_start_, data_, total_), "tw_memory_copy");
}

void Payload::pull() const {
  if (data_ != memory_start_) must(tw_memory_copy(context_, data_, memory_start_, total_), "tw_memory_copy");
}

void Payload::poison() {
  std::memset(data_, kPoison, total_);
  push();
}

/// What fill(seed) puts into the first `length` payload bytes, at their places in `to`.
void Payload::draw(uint64_t seed, size_t length, unsigned char* to) const {
  size_t at = 0;
  for (const Run& run : runs_) {
    if (at >= length) return;
    const size_t n = std::min(run.length, length - at);
    unsigned char* const out = to + start_ + run.offset;
    for (size_t i = 0; i < n; ++i) out[i] = pattern(seed, at + i);
    at += n;
  }
}

void Payload::fill(uint64_t seed) {
  draw(seed, bytes_, data_);
  push();
}

void Payload::verify(uint64_t seed, size_t length) const {
  pull();
  std::vector<unsigned char> wanted(total_, kPoison);
  draw(seed, length, wanted.data());
  if (std::memcmp(wanted.data(), data_, total_) == 0) return;
  size_t at = static_cast<size_t>(std::mismatch(wanted.begin(), wanted.end(), data_).first - wanted.begin());
  failed("byte %zd of %zu (span %zu) is %02x, wanted %02x%s", static_cast<ssize_t>(at) - static_cast<ssize_t>(start_), bytes_,
         span_, data_[at], wanted[at], wanted[at] == kPoison ? " (untouched)" : "");
}

void Payload::verify_outside() const {
  pull();
  std::vector<unsigned char> seen(data_, data_ + total_);
  for (const Run& run : runs_) std::memset(seen.data() + start_ + run.offset, kPoison, run.length);
  const auto written = std::find_if(seen.begin(), seen.end(), [](unsigned char byte) { return byte != kPoison; });
  if (written != seen.end()) {
    failed("byte %zd outside the buffer was written", written - seen.begin() - static_cast<ssize_t>(start_));
  }
}

uint64_t agreed_size(Side& side, const Row& r) {
  if (r.local == Shape::contiguous) return r.size;
  Payload probe(side, r.local, r.size, kPlain, r.seed);
  return probe.bytes();
}

Payloads::Payloads(Side& side, const Row& r, Shape shape, uint64_t size) {
  for (unsigned i = 0; i < many(r); ++i)
    items.push_back(std::make_unique<Payload>(side, shape, size, r.place[side.rank], r.seed + i));
}

uint64_t apply(uint32_t op, uint64_t old, uint64_t operand, uint64_t compare) {
  switch (op) {
    case TW_ATOMIC_ADD:
      return old + operand;
    case TW_ATOMIC_AND:
      return old & operand;
    case TW_ATOMIC_OR:
      return old | operand;
    case TW_ATOMIC_XOR:
      return old ^ operand;
    case TW_ATOMIC_SWAP:
      return operand;
    default:
      return old == compare ? operand : old;
  }
}

}  // namespace conformance
