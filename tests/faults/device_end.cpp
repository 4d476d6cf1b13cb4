// SPDX-License-Identifier: Apache-2.0
#include "device_end.hpp"
#include "../fixtures/rooms.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "devices/emulated/emulated.hpp"
#include "devices/registry.hpp"

namespace thalweg::faults {
namespace {

constexpr uint64_t kPatience = 30'000'000'000;  // nanoseconds: longer is hanging
constexpr unsigned char kPoison = 0xC3;

std::vector<impl::emulated::EmulatedDevice*> devices() {
  std::vector<impl::emulated::EmulatedDevice*> all;
  for (impl::Device* device : impl::list_devices(nullptr)) {
    if (auto* const one = dynamic_cast<impl::emulated::EmulatedDevice*>(device)) all.push_back(one);
  }
  return all;
}

std::vector<unsigned char> payload_of(uint64_t seed, size_t length) {
  std::mt19937_64 random(seed);
  std::vector<unsigned char> bytes((length + 7) / 8 * 8);
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  bytes.resize(length);
  return bytes;
}

}  // namespace

void demand(bool holds, const std::string& what) {
  if (!holds) throw Wrong(what);
}
void must(tw_status status, const char* what) {
  demand(status >= 0, std::string(what) + ": " + tw_status_name(status) + ": " + tw_last_error());
}

size_t holdings() {
  size_t all = 0;
  for (const auto* device : devices()) all += device->holdings();
  return all;
}

void End::inject(uint32_t nth) const {
  const bool here = row.one_process ? rank == 0 : row.fails == rank;
  if (row.one_process && rank != 0) return;
  for (auto* device : devices()) {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      const bool fails = here && row.fails != kNobody && kind == row.kind;
      device->faults().inject(static_cast<Operation>(kind), fails ? nth : 0);
    }
  }
}

void End::arm() {
  swap("ready");
  if (armed_) return;  // the second time nothing fails
  inject(row.nth);
  swap("armed");
}

tw_status End::agree(tw_status mine) {
  const tw_status theirs = std::atoi(swap(std::to_string(mine)).c_str());
  if (!armed_) {
    for (auto* device : devices()) {
      for (size_t kind = 0; kind < kKinds; ++kind)
        calls[kind] = std::max(calls[kind], device->faults().calls(static_cast<Operation>(kind)));
    }
    swap("counted");
    inject(0);
    swap("sound");
  }
  armed_ = true;
  return theirs;
}

End::End(const Row& of, unsigned r, test::Pipe& pipe) : row(of), rank(r), pipe_(pipe) {
  tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
  options.job_key = "thalweg-unit-test-job-key-of-32-b";
  options.job_key_length = 32;
  must(tw_context_create(&options, &context), "tw_context_create");
  must(tw_worker_create(context, nullptr, &worker), "tw_worker_create");
  connect();
  make_buffer();
}

End::~End() {
  if (endpoint != nullptr) (void)tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr);
  if (worker != nullptr) tw_worker_destroy(worker);
  if (memory != nullptr) (void)tw_memory_release(memory);
  if (layout_ != nullptr) tw_layout_destroy(layout_);
  if (context != nullptr) tw_context_destroy(context);
}

void End::connect() {
  std::string mine(kAddressRoom, '\0');
  size_t length = mine.size();
  must(tw_worker_address(worker, mine.data(), &length), "tw_worker_address");
  mine.resize(length);
  const std::string theirs = swap(mine);
  tw_endpoint_options options = TW_ENDPOINT_OPTIONS_INIT;
  options.transport = row.transport;
  must(tw_connect(worker, theirs.data(), theirs.size(), &options, &endpoint), "tw_connect");
  must(tw_endpoint_wait(endpoint, kPatience), "tw_endpoint_wait");
  demand(std::strcmp(tw_endpoint_transport(endpoint), row.transport) == 0, "another transport than the row's");
}

void End::make_buffer() {
  if (row.rows) {
    const uint64_t rows = std::max<uint64_t>(row.size / kRow, 1);
    const int64_t stride = kStride;
    must(tw_layout_strided(1, kRow, &rows, &stride, &layout_), "tw_layout_strided");
    for (uint64_t i = 0; i < rows * kRow; ++i) offsets_.push_back(static_cast<uint32_t>(i / kRow * kStride + i % kRow));
  } else {
    for (uint64_t i = 0; i < row.size; ++i) offsets_.push_back(static_cast<uint32_t>(i));
  }
  total_ = 2 * kGuard + offsets_.back() + 1;
  if (std::strcmp(row.place[rank], "plain") == 0) {
    plain_.resize(total_);
    start_ = plain_.data();
    must(tw_memory_register(context, start_, total_, nullptr, &memory), "tw_memory_register");
  } else {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = row.place[rank];
    must(tw_memory_allocate(context, total_, &options, &memory), "tw_memory_allocate");
    start_ = static_cast<unsigned char*>(tw_memory_address(memory));
  }
}

tw_op_options End::options() const {
  tw_op_options made = TW_OP_OPTIONS_INIT;
  made.layout = layout_;
  return made;
}

std::vector<unsigned char> End::load() {
  std::vector<unsigned char> bytes(total_);
  must(tw_memory_copy(context, bytes.data(), start_, total_), "reading the buffer");
  return bytes;
}

void End::store(const std::vector<unsigned char>& bytes) {
  must(tw_memory_copy(context, start_, bytes.data(), total_), "filling the buffer");
}

void End::fill(uint64_t seed) {
  std::vector<unsigned char> bytes(total_, kPoison);
  const std::vector<unsigned char> payload = payload_of(seed, offsets_.size());
  for (size_t i = 0; i < payload.size(); ++i) bytes[kGuard + offsets_[i]] = payload[i];
  store(bytes);
}

void End::poison() { store(std::vector<unsigned char>(total_, kPoison)); }

void End::verify(uint64_t seed, bool whole, const char* what) {
  std::vector<unsigned char> bytes = load();
  const std::vector<unsigned char> payload = payload_of(seed, offsets_.size());
  size_t wrong = 0;
  for (size_t i = 0; i < payload.size(); ++i) {
    unsigned char& byte = bytes[kGuard + offsets_[i]];
    wrong += byte != payload[i] ? 1 : 0;
    byte = kPoison;
  }
  demand(!whole || wrong == 0, std::string(what) + ": " + std::to_string(wrong) + " bytes are wrong");
  const bool kept = std::all_of(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte == kPoison; });
  demand(kept, std::string(what) + ": something around the payload was touched");
}

void End::progress_until(const char* what, const std::function<bool()>& done) {
  demand(test::progress_until(worker, done, kPatience), std::string("hangs: ") + what);
}

std::string End::swap(const std::string& mine) {
  pipe_.send(mine);
  if (worker != nullptr) progress_until("the other end", [&] { return pipe_.readable(); });
  const std::string theirs = pipe_.receive();
  demand(!theirs.empty(), "the other end is gone");
  if (theirs.size() == sizeof(Outcome)) {  // out of turn
    Outcome outcome;
    std::memcpy(&outcome, theirs.data(), sizeof outcome);
    throw Wrong(std::string("the other end gave up: ") + outcome.wrong);
  }
  return theirs;
}

tw_status End::note(tw_status status) {
  if (status < 0 && error.empty()) error = tw_last_error();
  return status;
}

tw_status End::wait(tw_request request) {
  if (request == TW_REQUEST_NONE) return TW_OK;
  progress_until("an operation", [&] { return tw_request_test(request) != TW_IN_PROGRESS; });
  const tw_status status = tw_request_test(request);
  if (status < 0 && error.empty()) error = tw_request_message(request);
  must(tw_request_release(request), "tw_request_release");
  return status;
}

void End::close() {
  swap("over");
  must(tw_memory_release(memory), "tw_memory_release");
  memory = nullptr;
  swap("released");
}

std::vector<Named> all_operations() {
  std::vector<Named> all;
  for (const auto* some : {&operations(), &block_operations()}) all.insert(all.end(), some->begin(), some->end());
  return all;
}

namespace {

tw_status run_operation(End& end, uint64_t seed) {
  for (const Named& one : all_operations()) {
    if (std::strcmp(one.name, end.row.operation) == 0) return one.run(end, seed);
  }
  throw Wrong("an unknown operation");
}

void run_both(const Row& row, unsigned rank, test::Pipe& pipe, Outcome* out) {
  End end(row, rank, pipe);
  out->status = run_operation(end, row.seed);
  std::copy(end.calls.begin(), end.calls.end(), out->calls);
  std::snprintf(out->error, sizeof out->error, "%s", end.error.c_str());
  out->again = run_operation(end, row.seed + 1);
  end.close();
}

}  // namespace

Outcome run_row(const Row& row, unsigned rank, test::Pipe& pipe) {
  Outcome out{};
  try {
    const size_t before = holdings();
    run_both(row, rank, pipe, &out);
    const size_t after = holdings();
    demand(row.one_process || before == after, "device memory was not given back");
  } catch (const Wrong& wrong) {
    std::snprintf(out.wrong, sizeof out.wrong, "%s", wrong.what());
  }
  return out;
}

}  // namespace thalweg::faults
