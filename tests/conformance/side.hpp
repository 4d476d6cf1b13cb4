// SPDX-License-Identifier: Apache-2.0
// One of the two sides of a conformance pair: both sides run the same script of a row with their rank.
#pragma once
#include <thalweg/thalweg.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace conformance {

enum class Shape : uint8_t { contiguous, strided1, strided2, strided3, subarray, list, callbacks, count };
const char* shape_name(Shape shape);

/// A row: what is run. Plain data, sent to the other side.
struct Row {
  char operation[24];
  uint64_t size;  // wanted payload bytes; a layout may round it
  uint64_t seed;
  Shape local, remote;   // of the sender or initiator / of the receiver or target
  uint8_t place[2];      // of the buffers of rank 0, of rank 1: index for place_name
  uint8_t asynchronous;  // requests polled together instead of waited for one by one
  uint8_t end;           // no more rows
  uint8_t routes;        // what explain says is held against what moves (routes.hpp); not where devices are made to fail
  uint8_t unused;
};

/// Where buffers lie: "plain" (malloc), "host" (of tw_memory_allocate), then places of devices: of THALWEG_CONFORMANCE_DEVICE
/// ("cuda", on a machine with two GPUs, "cuda:0": all on one; by default "emulated").
constexpr uint8_t kPlain = 0, kLibrary = 1, kPinned = 2, kFirstDevice = 3, kPlaces = 8;
const char* place_name(unsigned place);

/// Thrown by a side whose check failed; the text names what.
struct Failure {
  std::string text;
};
[[noreturn]] void failed(const char* format, ...) __attribute__((format(printf, 1, 2)));
void check(bool ok, const char* what);
void must(tw_status status, const char* what);

class Side {
 public:
  Side(tw_context* context, int rank, uint32_t threads = TW_THREADS_SINGLE);
  /// The other rank within the worker of `first`, over its connection to itself. To be used by another thread.
  Side(Side& first, int rank);
  ~Side();
  Side(const Side&) = delete;
  /// Exchanges worker addresses over a socket (-1: connects to itself) and connects by the transport.
  void connect(int socket, const char* transport, bool tls);
  void wait(tw_request request);
  void wait_all(std::vector<tw_request>& requests);
  tw_status wait_status(tw_request request, tw_recv_info* info = nullptr);
  void send_control(const void* data, size_t length);
  void receive_control(void* data, size_t length);
  void barrier();
  void alive() const;  // fails when the other side is gone
  void look() const;   // the same with progress: where a row computes for long
  void await(tw_signal* signal, uint32_t compare, uint64_t value) const;  // while it is there
  bool shares_context() const { return !owner_; }                         // both ranks are of one worker

  tw_context* context;
  tw_worker* worker = nullptr;
  tw_endpoint* endpoint = nullptr;
  int rank;

 private:
  bool owner_ = true;
};

/// A buffer with a layout: random payload, poison everywhere else, guards around, an odd start. Of memory that the host does
/// not touch it keeps a shadow.
class Payload {
 public:
  Payload(Side& side, Shape shape, uint64_t size, unsigned place, uint64_t seed);
  ~Payload();
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;
  unsigned char* address() const { return memory_start_ + start_; }
  size_t bytes() const { return bytes_; }              // moved
  const tw_layout* layout() const { return layout_; }  // null: contiguous
  tw_memory* memory() const { return memory_; }
  uint64_t offset() const { return start_; }  // of address() in memory()
  size_t span() const { return span_; }
  void fill(uint64_t seed);
  void poison();
  /// The first `length` payload bytes are those of fill(seed); everything else is poison.
  void verify(uint64_t seed, size_t length) const;
  /// Everything that is not payload is poison.
  void verify_outside() const;

 private:
  /// Consecutive bytes of the payload, from address().
  struct Run {
    size_t offset, length;
  };
  void shape(Shape shape, uint64_t size);
  /// The functions of a layout of callbacks over this payload, in memory that the host touches.
  struct Calls;
  void draw(uint64_t seed, size_t length, unsigned char* to) const;
  void push() const;  // the shadow to the memory
  void pull() const;
  tw_context* context_;
  tw_memory* memory_ = nullptr;
  tw_layout* layout_ = nullptr;
  std::vector<Run> runs_;  // in packed order
  std::vector<unsigned char> plain_;
  unsigned char* data_ = nullptr;          // what the host touches: the memory, or its shadow
  unsigned char* memory_start_ = nullptr;  // what operations name
  size_t total_ = 0, start_ = 0, span_ = 0, bytes_ = 0;
};

constexpr unsigned kMany = 5;  // operations in flight when asynchronous
inline unsigned many(const Row& r) { return r.asynchronous ? kMany : 1; }
/// The sizes of both sides agree: what a layout rounds, the other side rounds to.
uint64_t agreed_size(Side& side, const Row& r);
/// One for each operation of a row.
struct Payloads {
  std::vector<std::unique_ptr<Payload>> items;
  Payloads(Side& side, const Row& r, Shape shape, uint64_t size);
  Payload& operator[](size_t i) { return *items[i]; }
};

/// What an atomic operation (TW_ATOMIC_*) makes of a word.
uint64_t apply(uint32_t op, uint64_t old, uint64_t operand, uint64_t compare);

/// Runs one row on this side. Throws Failure.
void run_row(Side& side, const Row& row);
/// Names of the operations and whether the target side may have a layout.
enum class Devices : uint8_t { none, all };            // what of their memory
enum class Callbacks : uint8_t { none, local, both };  // sides that may have a layout of callbacks: the sender's or initiator's
enum class Rows : uint8_t { all, few, fewest };        // few: what sizes and kinds of memory change is tested by the others
struct Operation {
  const char* name;
  bool layouts;
  bool remote_layout;
  size_t size_limit;
  void (*run)(Side&, const Row&);
  Devices devices = Devices::all;
  Rows rows = Rows::all;
  Callbacks callbacks = Callbacks::none;
};
void add_triggered(std::vector<Operation>& all);             // triggered.cpp
void add_triggered_words(std::vector<Operation>& all);       // triggered_words.cpp
void add_triggered_chains(std::vector<Operation>& all);      // triggered_chains.cpp
void add_triggered_reductions(std::vector<Operation>& all);  // triggered_reduce.cpp
void add_windows(std::vector<Operation>& all);               // windows_rows.cpp
const std::vector<Operation>& operations();

}  // namespace conformance
