// SPDX-License-Identifier: Apache-2.0
#include "prepared.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <random>

namespace conformance {

const char* executor_of(unsigned place) { return place < kFirstDevice ? "host" : place_name(place); }

bool on_device(unsigned place) { return place >= kFirstDevice && std::strstr(place_name(place), "managed") == nullptr; }

void must_refuse(tw_status status, tw_status wanted, const char* part, const char* what) {
  const std::string text = tw_last_error();
  if (status != wanted) failed("%s: %s instead of %s: %s", what, tw_status_name(status), tw_status_name(wanted), text.c_str());
  if (text.find(part) == std::string::npos) failed("%s was refused without a word on \"%s\": %s", what, part, text.c_str());
}

bool shared(unsigned place) {
  const std::string name = place_name(place);
  return name.find("pool") == std::string::npos && name.find("managed") == std::string::npos;
}

bool maps(const Side& side) { return std::strcmp(tw_endpoint_transport(side.endpoint), "tcp") != 0; }

namespace {
bool managed(unsigned place) { return std::strstr(place_name(place), "managed") != nullptr; }
}  // namespace

Reach reach_of(const Side& side, unsigned mine, unsigned theirs, bool one_process, bool changes) {
  if (!maps(side)) return Reach::carried;
  const bool device = mine >= kFirstDevice, there = theirs >= kFirstDevice;
  if (!device && there) return one_process && managed(theirs) && !changes ? Reach::mapped : Reach::carried;
  if (device && !there) {
    if (changes) return Reach::carried;                                         // no device has atomics on host memory
    if (theirs == kPlain) return one_process ? Reach::either : Reach::carried;  // neighbours may share a page that is pinned
    return Reach::mapped;
  }
  // Native atomics between devices are the devices' own affair.
  if (changes && device && mine != theirs && std::strstr(place_name(mine), "emulated") == nullptr) return Reach::either;
  if (one_process) return shared(theirs) ? Reach::mapped : Reach::either;
  if (theirs == kPinned) return Reach::either;
  return (device ? shared(theirs) : theirs == kLibrary) ? Reach::mapped : Reach::carried;
}

Reach both(Reach one, Reach other) {
  if (one == Reach::carried || other == Reach::carried) return Reach::carried;
  return one == Reach::either ? one : other;
}

// ------------------------------------------------------------------------------------------------ plans

Plan::Plan(Side& side, const Row& r, Trigger trigger) : trigger_(trigger) {
  tw_plan_options options = TW_PLAN_OPTIONS_INIT;
  options.place = executor_of(r.place[side.rank]);
  options.timeout_ns = kLong;
  options.chunk_bytes = r.size / 3;  // steps that read what others write, in pieces
  must(tw_plan_create(side.context, &options, &plan), "tw_plan_create");
  tw_queue_options waits = TW_QUEUE_OPTIONS_INIT;
  if (trigger == Trigger::ahead) waits.waits = TW_WAITS_AHEAD;
  if (trigger != Trigger::host) must(tw_queue_create(side.context, options.place, &waits, &queue_), "tw_queue_create");
}

Plan::~Plan() {
  if (running_ && give_up) give_up();
  if (running_) static_cast<void>(trigger_ == Trigger::host ? tw_plan_finish(plan, kLong) : tw_queue_synchronize(queue_));
  if (graph_ != nullptr) tw_graph_destroy(graph_);
  if (plan != nullptr && tw_plan_destroy(plan) != TW_OK) std::fprintf(stderr, "a plan stays: %s\n", tw_last_error());
  if (queue_ != nullptr) tw_queue_destroy(queue_);
}

void Plan::capture() {
  if (trigger_ != Trigger::graph) return;
  if (graph_ != nullptr) tw_graph_destroy(graph_);
  graph_ = nullptr;
  must(tw_queue_begin_capture(queue_), "tw_queue_begin_capture");
  must(tw_plan_trigger(plan, queue_), "tw_plan_trigger into a capture");
  must(tw_queue_end_capture(queue_, &graph_), "tw_queue_end_capture");
}

void Plan::prepare() {
  must(tw_plan_prepare(plan, kLong), "tw_plan_prepare");
  capture();
}

void Plan::update(uint32_t step, const void* address, const uint64_t* value) {
  must(tw_plan_update(plan, step, address, value), "tw_plan_update");
  stale_ = true;
}

void Plan::start() {
  if (stale_) capture();
  stale_ = false;
  switch (trigger_) {
    case Trigger::host:
      must(tw_plan_trigger(plan, nullptr), "tw_plan_trigger");
      break;
    case Trigger::queue:
    case Trigger::ahead:
      must(tw_plan_trigger(plan, queue_), "tw_plan_trigger");
      break;
    case Trigger::graph:
      must(tw_graph_launch(graph_, queue_), "tw_graph_launch");
  }
  running_ = true;
}

void Plan::finish() {
  const tw_status status = trigger_ == Trigger::host ? tw_plan_finish(plan, kLong) : tw_queue_synchronize(queue_);
  running_ = false;
  must(status, trigger_ == Trigger::host ? "tw_plan_finish" : "tw_queue_synchronize");
}

void Plan::check_running() const {
  if (trigger_ == Trigger::host) check(tw_plan_test(plan) == TW_IN_PROGRESS, "the plan does not wait");
}

std::string Plan::explain() const {
  size_t size = 0;
  must(tw_plan_explain(plan, nullptr, &size), "tw_plan_explain");
  std::string text(size, '\0');
  must(tw_plan_explain(plan, text.data(), &size), "tw_plan_explain");
  return text;
}

void Plan::expect(Reach reach) const {
  if (reach == Reach::either) return;
  const std::string text = explain();
  const bool carried = text.find("by the host") != std::string::npos;
  if (carried != (reach == Reach::carried)) failed("not what docs/support.md says: %s", text.c_str());
}

void Plan::close() {
  must(tw_plan_destroy(plan), "tw_plan_destroy");
  plan = nullptr;
}

// ------------------------------------------------------------------------------------------------ words and keys

std::vector<unsigned char> random_bytes(uint64_t seed, size_t length) {
  std::mt19937_64 random(seed);
  std::vector<unsigned char> bytes(length);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

Cells::Cells(Side& side, unsigned place, uint64_t seed, size_t length) : context_(side.context) {
  constexpr size_t kAlign = 128;
  if (place == kPlain) {
    plain_.resize(length + kAlign);
    unsigned char* const start = plain_.data() + (kAlign - reinterpret_cast<uintptr_t>(plain_.data()) % kAlign);
    must(tw_memory_register(context_, start, length, nullptr, &memory), "tw_memory_register");
  } else {
    tw_memory_options options = TW_MEMORY_OPTIONS_INIT;
    options.place = place_name(place);
    must(tw_memory_allocate(context_, length, &options, &memory), "tw_memory_allocate");
  }
  image_.resize(length);
  fill(seed);
}

Cells::~Cells() { (void)tw_memory_release(memory); }

void Cells::fill(uint64_t seed) {
  image_ = random_bytes(seed, image_.size());
  must(tw_memory_copy(context_, address(), image_.data(), image_.size()), "tw_memory_copy");
}

void Cells::expect(size_t offset, const void* bytes, size_t length) {
  if (length > 0) std::memcpy(&image_.at(offset), bytes, length);
}

uint64_t Cells::load(size_t offset) const {
  uint64_t value = 0;
  must(tw_memory_copy(context_, &value, address() + offset, sizeof value), "tw_memory_copy");
  return value;
}

void Cells::verify() const {
  std::vector<unsigned char> now(image_.size());
  must(tw_memory_copy(context_, now.data(), address(), now.size()), "tw_memory_copy");
  for (size_t at = 0; at < now.size(); ++at) {
    if (now[at] != image_[at]) failed("byte %zu is %02x, wanted %02x", at, now[at], image_[at]);
  }
}

unsigned place_of_word(unsigned place) {
  if (place == kPlain) return kLibrary;
  return std::strstr(place_name(place), "managed") != nullptr ? kFirstDevice : place;  // managed memory takes no signals
}

Word::Word(Side& side, unsigned place, uint32_t kind, uint64_t initial, uint64_t seed) {
  tw_signal_options options = TW_SIGNAL_OPTIONS_INIT;
  options.kind = kind;
  options.initial = initial;
  if (place != kPlain) {
    around_ = std::make_unique<Cells>(side, place_of_word(place), seed);
    options.memory = around_->memory;
    options.offset = offset_ = 8 * (1 + seed % 500);
  }
  must(tw_signal_create(side.worker, &options, &signal), "tw_signal_create");
}

Word::~Word() {
  if (signal != nullptr) (void)tw_signal_destroy(signal);
}

void Word::verify(uint64_t value) {
  const uint64_t found = tw_signal_read(signal);
  if (found != value) failed("the signal is %llx, wanted %llx", (unsigned long long)found, (unsigned long long)value);
  if (around_ == nullptr) return;
  around_->expect(offset_, &value, sizeof value);
  around_->verify();
}

void Keys::add(tw_memory* memory, uint64_t offset) {
  Key& key = keys_.emplace_back();
  size_t length = sizeof key.bytes;
  must(tw_memory_export(memory, key.bytes, &length), "tw_memory_export");
  key.length = length;
  key.offset = offset;
}

void Keys::add(const Word& word) {
  Key& key = keys_.emplace_back();
  size_t length = sizeof key.bytes;
  must(tw_signal_export(word.signal, key.bytes, &length), "tw_signal_export");
  key.length = length;
}

void Keys::send(Side& side) const {
  const auto process = static_cast<uint64_t>(::getpid());
  side.send_control(&process, sizeof process);
  side.send_control(keys_.data(), keys_.size() * sizeof(Key));
}

Imports::Imports(Side& side, size_t memories, size_t signals) {
  uint64_t process = 0;
  std::vector<Keys::Key> keys(memories + signals);
  side.receive_control(&process, sizeof process);
  side.receive_control(keys.data(), keys.size() * sizeof keys[0]);
  one_process = process == static_cast<uint64_t>(::getpid());
  for (size_t i = 0; i < memories; ++i) {
    offset.push_back(keys[i].offset);
    memory.push_back(nullptr);
    must(tw_memory_import(side.endpoint, keys[i].bytes, keys[i].length, &memory.back()), "tw_memory_import");
  }
  for (size_t i = memories; i < keys.size(); ++i) {
    signal.push_back(nullptr);
    must(tw_signal_import(side.endpoint, keys[i].bytes, keys[i].length, &signal.back()), "tw_signal_import");
  }
}

Imports::~Imports() {
  for (tw_remote_memory* one : memory) tw_remote_memory_release(one);
  for (tw_remote_signal* one : signal) {
    if (one != nullptr) tw_remote_signal_release(one);
  }
}

}  // namespace conformance
