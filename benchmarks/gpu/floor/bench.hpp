// SPDX-License-Identifier: Apache-2.0
// What the floors share: devices, memory that is given back, verified payload, medians, the table.
//
// A floor is what the devices' layer (src/devices) gives without any protocol. Every measurement ends with a look at the
// payload; a wrong byte ends the section with an error.
#pragma once
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "devices/cuda/backend.hpp"
#include "devices/cuda/device.hpp"

namespace thalweg::floors {

using namespace impl;

inline constexpr unsigned kSectionSeconds = 10;  // more: the section hangs

double now_us();
double median(std::vector<double> values);
/// Throws with the library's text.
void must(Status status, const char* what);
void must_raw(cuda::CuResult result, const char* what);
[[noreturn]] void give_up(const std::string& why);

/// "test,variant,size": one number.
class Table {
 public:
  /// peer: whose number it is.
  void add(const std::string& test, const std::string& variant, uint64_t size, double value, const char* unit,
           const char* peer = "floor");
  void note(const std::string& text);
  bool write(const char* path) const;

 private:
  struct Row {
    std::string test, variant;
    uint64_t size;
    double value;
    const char *unit, *peer;
  };
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
};

/// Device or pinned memory for as long as it lives.
class Memory {
 public:
  Memory(Device& device, MemoryKind kind, size_t length);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint64_t at() const { return address_; }
  size_t length() const { return length_; }
  std::byte* host() const { return reinterpret_cast<std::byte*>(address_); }
  uint64_t* word() const { return reinterpret_cast<uint64_t*>(address_); }

 private:
  Device& device_;
  size_t length_;
  uint64_t address_ = 0;
};

struct Bench {
  cuda::DriverApi driver;  // a second table of the same functions, for raw calls
  void* library = nullptr;
  std::unique_ptr<cuda::CudaBackend> backend;
  std::vector<Device*> devices;
  Table table;
  bool quick = false;

  Bench();
  Device& near() { return *devices.front(); }
  Device& far() { return *devices[devices.size() > 1 ? 1 : 0]; }
  cuda::CuContext context(Device& device);
  template <typename Function>
  Function* symbol(const char* name) {
    void* found = raw_symbol(name);
    if (found == nullptr) give_up(std::string("no ") + name);
    return reinterpret_cast<Function*>(found);
  }
  unsigned times(unsigned full) const { return quick ? (full + 9) / 10 : full; }

 private:
  void* raw_symbol(const char* name);
};

std::unique_ptr<Queue> make_queue(Device& device);
std::unique_ptr<Event> make_event(Device& device);
/// Until the event is done: at most some seconds.
void wait_for(Event& event);
void wait_for(const uint64_t* word, uint64_t value);

/// Fresh random bytes.
void fill(Device& device, uint64_t address, size_t length);
/// Compares two ranges of device memory by way of pinned memory; ends the section when they differ.
void expect_equal(Device& left_device, uint64_t left, Device& right_device, uint64_t right, size_t length);

/// Runs the variants turn by turn, so that whatever else happens on the machine meets all of them; adds their medians.
struct Variant {
  std::string name;
  std::function<double()> run;  // microseconds
};
void race(Bench& bench, const std::string& test, uint64_t size, unsigned turns, const std::vector<Variant>& variants,
          double bytes_for_bandwidth = 0);

// ---- sections
void identify_costs(Bench& bench);
void call_costs(Bench& bench);
void one_way(Bench& bench);
void windows(Bench& bench);
void both_ways(Bench& bench);
void faces(Bench& bench);
void blocks(Bench& bench);
void host_copies(Bench& bench);
void graphs(Bench& bench);
void processes(Bench& bench);
void killed_exporter(Bench& bench);
/// What the other process does until its socket ends.
int serve(int socket);

}  // namespace thalweg::floors
