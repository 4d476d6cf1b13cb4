// SPDX-License-Identifier: Apache-2.0
#include "model/prepared/prepared.hpp"

#include <cstdio>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <vector>

#include "devices/program/one_thread_run.hpp"
#include "model/random.hpp"

namespace thalweg::model {
namespace {

using namespace thalweg::impl;
using device::Signal;
using device::Step;
using device::StepKind;
using Bytes = std::vector<std::byte>;

constexpr const char* kForms[] = {"copies", "chain", "wait", "channel", "messages", "exchange"};
static_assert(std::size(kForms) == static_cast<size_t>(Form::count_));
constexpr uint32_t kMostTurns = 200'000;
constexpr uint64_t kAborted = static_cast<uint64_t>(int64_t{TW_ERR_PEER_LOST});

bool has_messages(Form form) { return form == Form::channel || form == Form::messages || form == Form::exchange; }
device::Side at(std::byte* address) { return {reinterpret_cast<uint64_t>(address), ~0ull, {0, 0}, {0, 0, 0}, nullptr, 0}; }

/// A prepared program, and the blocks of its run that are not over.
class One {
 public:
  explicit One(uint32_t blocks) : blocks_(blocks) {}
  One(const One&) = delete;
  One& operator=(const One&) = delete;

  Step& add(StepKind kind, bool behind_last = false) {
    Step& step = steps_.emplace_back();
    step.kind = kind;
    step.first_after = static_cast<uint32_t>(after_.size());
    step.after_count = behind_last ? 1 : 0;
    if (behind_last) after_.push_back(static_cast<uint32_t>(steps_.size() - 2));
    return step;
  }
  void copy(std::byte* to, std::byte* from, uint64_t bytes, device::u64* word, const Prepared& like, bool behind_last) {
    Step& step = add(StepKind::copy, behind_last);
    step.to = at(to);
    step.from = at(from);
    step.bytes = bytes;
    step.signal = {word, like.value, 1, like.adds ? 1u : 0u};
  }
  void send(void* end, std::byte* from, uint64_t bytes) {
    Step& step = add(StepKind::send);
    step.end = end;
    step.from = at(from);
    step.bytes = bytes;
  }

  bool prepare(uint64_t before) {
    if (arrange(steps_, after_, blocks_, kMostBlocks, &shape_) != TW_OK) return false;
    blocks_ = shape_.blocks;
    state_.assign(state_bytes(steps_.size()) / sizeof(uint64_t), 0);
    device::ProgramState& state = *state_at();
    state.runs = before;
    if (shape_.specialised.known() && blocks_ > 1) state.arrived = before * blocks_ * device::kOneArrived;
    for (uint32_t i = 0; i < steps_.size(); ++i)
      *device::shared_word(&state, i) = static_cast<uint32_t>(before * sharers(steps_[i]));
    for (uint32_t block = 0; block < blocks_; ++block) owner_words()[block] = 2 * before;
    run_ = {steps_, after_, 0, reinterpret_cast<uint64_t>(state_.data()), {&state.abort_flag, &failure, &abort, ~0ull >> 1},
            shape_};
    return true;
  }
  void launch() {
    for (uint32_t block = 0; block < blocks_; ++block) {
      alive_.push_back(std::make_unique<OneThreadBlock<device::DirectMachine>>(device::DirectMachine(), run_, block));
    }
  }
  size_t alive() const { return alive_.size(); }
  /// One turn of a block.
  void turn(uint32_t which) {
    if (alive_[which]->over()) alive_.erase(alive_.begin() + which);
  }
  uint32_t blocks() const { return blocks_; }
  uint64_t finished() { return state_at()->runs; }
  uint64_t in_vain() { return *device::ended_word(state_at(), static_cast<uint32_t>(steps_.size())); }
  uint64_t owner_word(uint32_t which) { return owner_words()[which]; }

  device::Failure failure{};
  device::u64 abort = 0;

 private:
  /// That count themselves in a step's word.
  uint32_t sharers(const Step& step) const {
    if (!shape_.specialised.known()) return blocks_;
    if (shape_.specialised.move != device::Move::independent || step.kind > StepKind::send) return 0;
    const uint32_t all = device::ItemShare{0, blocks_, shape_.item, 1}.blocks(step);
    return all == 1 ? 0 : all;
  }
  device::ProgramState* state_at() { return reinterpret_cast<device::ProgramState*>(state_.data()); }
  device::u64* owner_words() { return device::owner_words(state_at(), static_cast<uint32_t>(steps_.size())); }

  uint32_t blocks_;
  std::vector<Step> steps_;
  std::vector<uint32_t> after_;
  std::vector<uint64_t> state_;
  ProgramShape shape_;
  ProgramRun run_;
  std::vector<std::unique_ptr<OneThreadBlock<device::DirectMachine>>> alive_;
};

class Site {
 public:
  explicit Site(const Prepared& program) : p_(program), random_(program.seed + 1) {}
  std::string run();

 private:
  /// A buffer that is moved, where it goes to, and the word behind it.
  struct Moved {
    Bytes from, to, old;
    device::u64 word = 0, word_before = 0;
    bool seen = false;   // the word has changed in this run
    uint32_t begin = 0;  // of what is moved
  };
  bool has_channel() const { return has_messages(p_.form); }
  /// The number of the run as its program counts it.
  uint64_t number(uint32_t run) const { return p_.before + run; }
  bool set_up();
  void set_up_channels();
  void begin(uint32_t run);
  void go_on(uint32_t run);
  void check_words(uint32_t run);
  void check_good(uint32_t run);
  void check_failed(uint32_t run);
  void check_counts(uint32_t good, uint32_t bad);
  bool is_moved(const Moved& one) const {
    const uint32_t n = p_.bytes - one.begin;
    return std::memcmp(one.to.data() + one.begin, one.from.data() + one.begin, n) == 0 &&
           std::memcmp(one.to.data(), one.old.data(), one.begin) == 0;
  }
  bool is_old(const Moved& one) const { return one.to == one.old; }
  bool signals() const { return !has_channel(); }
  void wrong(uint32_t run, const std::string& what) {
    if (failure_.empty()) failure_ = "run " + std::to_string(run) + ": " + what;
  }

  const Prepared& p_;
  Random random_;
  std::string failure_;
  std::deque<Moved> moved_;
  std::deque<One> programs_;
  device::u64 waited_ = 0;  // the word of a wait
  struct Channel {
    device::SendEnd sender{};
    device::RecvEnd receiver{};
    device::u64 credits[device::kSlots] = {}, flags[device::kSlots] = {};
  };
  Channel& channel_of(uint32_t message) { return channels_[p_.form == Form::exchange ? message : 0]; }
  std::deque<Channel> channels_;
  std::vector<device::RecvBuffer> recv_buffers_;
};

void Site::set_up_channels() {
  recv_buffers_.resize(device::kRecvBuffers);
  for (uint32_t i = 0; i < p_.steps; ++i) recv_buffers_[i] = {at(moved_[i].to.data()), p_.bytes};
  channels_.resize(p_.form == Form::exchange ? p_.steps : 1);
  for (Channel& channel : channels_) {
    channel.sender.credits = channel.receiver.credits = channel.credits;
    channel.sender.flags = channel.receiver.flags = channel.flags;
    channel.sender.recv_buffers = recv_buffers_.data();
    channel.sender.count = channel.receiver.posted = channel.receiver.taken = p_.messages;
    for (uint64_t n = p_.messages - device::kSlots; p_.messages != 0 && n != p_.messages; ++n)
      channel.credits[n % device::kSlots] = channel.flags[n % device::kSlots] = device::slot_word(n, 0);
  }
}

bool Site::set_up() {
  for (uint32_t i = 0; i < p_.steps; ++i) moved_.push_back({Bytes(p_.bytes + 16), Bytes(p_.bytes + 16), {}});
  One& first = programs_.emplace_back(p_.blocks);
  if (has_channel()) {
    set_up_channels();
    One& second = programs_.emplace_back(p_.far_blocks);
    for (uint32_t i = 0; i < p_.steps; ++i) {
      first.send(&channel_of(i).sender, moved_[i].from.data(), p_.bytes);
      Step& post = second.add(StepKind::post);
      post.end = &channel_of(i).receiver;
      post.recv_buffer = i;
      second.add(StepKind::take).end = &channel_of(i).receiver;
    }
    return first.prepare(p_.before) && second.prepare(p_.before);
  }
  if (p_.form == Form::wait) {
    Step& wait = first.add(StepKind::wait);
    wait.signal = {&waited_, ~p_.value, 1, 0};
    wait.compare = TW_COMPARE_GE;
    waited_ = ~p_.value + p_.before - 1;
  }
  for (uint32_t i = 0; i < p_.steps; ++i) {
    Moved& one = moved_[i];
    one.word = p_.adds ? 0 : p_.value + p_.before - 1;
    const bool behind_last = p_.form == Form::chain ? i != 0 : p_.behind && i == 0;
    const bool follows = p_.form == Form::chain && i != 0;
    if (follows) one.begin = p_.bytes / 2;  // else each block would need only what it has moved itself
    std::byte* const from = follows ? moved_[i - 1].to.data() : one.from.data();
    first.copy(one.to.data() + one.begin, from + one.begin, p_.bytes - one.begin, &one.word, p_,
               p_.form != Form::copies && behind_last);
  }
  return first.prepare(p_.before);
}

void Site::begin(uint32_t run) {
  for (Moved& one : moved_) {
    for (std::byte& byte : one.from) byte = static_cast<std::byte>(random_.next());
    for (std::byte& byte : one.to) byte = static_cast<std::byte>(random_.next());
    one.old = one.to;
    one.word_before = one.word;
    one.seen = false;
  }
  if (p_.form == Form::chain) {
    for (uint32_t i = 1; i < p_.steps; ++i) moved_[i].from = moved_[0].from;  // what comes through
  }
  if (has_channel() && run == p_.fails) recv_buffers_[0].capacity = p_.bytes - 1;
}

/// Blocks take turns until all of them are over.
void Site::go_on(uint32_t run) {
  std::vector<One*> late;
  for (One& one : programs_) late.push_back(&one);
  if (has_channel() && random_.percent(50)) std::swap(late[0], late[1]);
  uint32_t opens = random_.below(60);
  for (uint32_t turn = 0; turn < kMostTurns && failure_.empty(); ++turn) {
    if (!late.empty() && random_.percent(30)) {
      late.back()->launch();
      late.pop_back();
    }
    if (p_.form == Form::wait && turn == opens) {
      if (run < p_.fails) waited_ = ~p_.value + number(run);
      if (run == p_.fails) __atomic_store_n(&programs_[0].abort, device::u64{kAborted}, __ATOMIC_RELEASE);
    }
    size_t alive = 0;
    for (One& one : programs_) alive += one.alive();
    if (alive == 0 && late.empty()) {
      if (turn >= opens || p_.form != Form::wait) return;
      continue;
    }
    One& one = programs_[random_.below(static_cast<uint32_t>(programs_.size()))];
    if (one.alive() == 0) continue;
    one.turn(random_.below(static_cast<uint32_t>(one.alive())));
    check_words(run);
  }
  wrong(run, "it never ends");
}

/// A signal comes behind its bytes.
void Site::check_words(uint32_t run) {
  if (!signals()) return;
  for (Moved& one : moved_) {
    if (one.seen || __atomic_load_n(&one.word, __ATOMIC_ACQUIRE) == one.word_before) continue;
    one.seen = true;
    if (!is_moved(one)) wrong(run, "a signal is given before its bytes are there");
  }
}

void Site::check_good(uint32_t run) {
  for (One& one : programs_) {
    if (one.failure.code != 0) wrong(run, "it fails with " + std::string(status_text(static_cast<Status>(one.failure.code))));
  }
  const uint64_t value = p_.value + number(run);
  for (const Moved& one : moved_) {
    if (!is_moved(one)) wrong(run, "not all of the bytes came");
    if (std::memcmp(one.to.data() + p_.bytes, one.old.data() + p_.bytes, 16) != 0)
      wrong(run, "bytes behind them were written to");
    if (signals() && one.word != (p_.adds ? one.word_before + value : value)) wrong(run, "its signal has another value");
  }
  if (!has_channel()) return;
  const uint64_t over = p_.messages + (run + 1) * (p_.form == Form::exchange ? 1 : p_.steps);
  for (const Channel& channel : channels_) {
    if (channel.sender.count != over) wrong(run, "the sends are not counted");
    if (channel.receiver.posted != over || channel.receiver.taken != over) wrong(run, "the receives are not counted");
  }
}

/// The run in which something fails, and one behind it.
void Site::check_failed(uint32_t run) {
  const auto code = static_cast<int64_t>(has_channel() ? TW_ERR_TRUNCATED : TW_ERR_PEER_LOST);
  for (One& one : programs_) {
    if (one.failure.code != code) wrong(run, "it fails with " + std::to_string(one.failure.code));
  }
  const bool may_move = run == p_.fails && !p_.behind && !has_channel();  // nothing of it waits
  for (size_t i = 0; i < moved_.size(); ++i) {
    if (may_move || (has_channel() && i > 0)) continue;
    if (!is_old(moved_[i])) wrong(run, "bytes were moved though what they wait for failed");
    if (moved_[i].word != moved_[i].word_before) wrong(run, "its signal is given though what it waits for failed");
  }
}

/// Each block has ended as part of a run that is counted, or in vain.
void Site::check_counts(uint32_t good, uint32_t bad) {
  for (One& one : programs_) {
    if (one.finished() != p_.before + good) wrong(good + bad - 1, "its runs are not counted");
    if (one.in_vain() != uint64_t{bad} * one.blocks()) wrong(good + bad - 1, "blocks that came in vain are not counted");
    for (uint32_t block = 0; block < one.blocks() && bad == 0; ++block) {
      if (one.owner_word(block) != 2 * (p_.before + good)) wrong(good - 1, "a block is not free");
    }
  }
}

std::string Site::run() {
  if (!set_up()) return std::string("it cannot be arranged: ") + last_error();
  uint32_t good = 0, bad = 0;
  for (uint32_t run = 0; run < p_.runs && failure_.empty() && bad < 2; ++run) {
    begin(run);
    go_on(run);
    run < p_.fails ? ++good : ++bad;
    if (!failure_.empty()) break;
    run < p_.fails ? check_good(run) : check_failed(run);
    if (failure_.empty()) check_counts(good, bad);
  }
  return failure_;
}

/// Runs, or messages, until shortly before one of these counts is reached.
uint64_t near(Random& random, std::initializer_list<unsigned> bits, uint64_t each) {
  const uint32_t which = random.below(static_cast<uint32_t>(bits.size()) + 1);
  if (which == bits.size()) return 0;
  return (uint64_t{1} << bits.begin()[which]) / each - random.below(4);
}

}  // namespace

const char* name_of(Form form) { return kForms[static_cast<size_t>(form)]; }

Prepared generate_prepared(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 3);
  Prepared p;
  p.seed = seed;
  p.form = static_cast<Form>(random.below(static_cast<uint32_t>(Form::count_)));
  p.blocks = random.of({1u, 2u, 2u, 4u, 8u, 16u, 64u});
  p.far_blocks = random.of({1u, 1u, 2u, 8u});
  p.bytes = random.of({1u, 8u, 16u, 64u, 100u, 256u, 1000u, 1024u});
  if (p.form == Form::copies) p.steps = 1 + random.below(3);
  if (p.form == Form::chain || p.form == Form::messages) p.steps = 2 + random.below(2);
  if (p.form == Form::exchange) p.steps = 2 + random.below(31);
  p.runs = 1 + random.below(6);
  p.before = near(random, {31, 32, 33}, p.blocks);
  if (has_messages(p.form)) p.messages = near(random, {32, 47, 48}, 1);
  p.value =
      random.of({uint64_t{0}, ~uint64_t{0} - p.before, (uint64_t{1} << 32) - p.before, uint64_t{1} << 63}) - random.below(4);
  p.adds = random.percent(40);
  p.behind = p.form == Form::wait && random.percent(60);
  if (p.form != Form::copies && p.form != Form::chain && random.percent(25)) p.fails = random.below(p.runs);
  return p;
}

std::string run(const Prepared& program) { return Site(program).run(); }

std::string test_of(const Prepared& p, const std::string& name) {
  char text[600];
  std::snprintf(text, sizeof text,
                "TEST(FoundPrepared, %s) {\n  Prepared p;\n  p.seed = %lluu;\n  p.form = Form::%s;\n  p.blocks = %u;\n"
                "  p.far_blocks = %u;\n  p.bytes = %u;\n  p.steps = %u;\n  p.runs = %u;\n  p.before = %lluu;\n"
                "  p.messages = %lluu;\n  p.value = %lluu;\n  p.adds = %s;\n  p.behind = %s;\n  p.fails = %uu;\n"
                "  EXPECT_EQ(run(p), \"\");\n}\n",
                name.c_str(), static_cast<unsigned long long>(p.seed), name_of(p.form), p.blocks, p.far_blocks, p.bytes,
                p.steps, p.runs, static_cast<unsigned long long>(p.before), static_cast<unsigned long long>(p.messages),
                static_cast<unsigned long long>(p.value), p.adds ? "true" : "false", p.behind ? "true" : "false", p.fails);
  return text;
}

}  // namespace thalweg::model
