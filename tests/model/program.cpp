// SPDX-License-Identifier: Apache-2.0
#include "model/program.hpp"

#include <cstdio>
#include <iterator>

#include "model/jobs.hpp"

namespace thalweg::model {
namespace {

constexpr const char* kNames[] = {
    "connect",      "send",           "receive",        "probe",          "take",          "take_receive", "cancel",
    "active",       "active_receive", "active_release", "bytes_send",     "bytes_receive", "put",          "get",
    "atomic",       "signal",         "put_blocks",     "get_blocks",     "notification",  "fence",        "flush",
    "flush_worker", "look",           "release_region", "release_memory", "close",         "cut",          "kill",
    "open",         "before",         "collective",     "join",           "turns"};
static_assert(std::size(kNames) == static_cast<size_t>(What::count_));
constexpr const char* kWays[] = {"frames", "references", "kernel", "mapped", "shared", "process"};
constexpr const char* kOver[] = {"engines", "shm", "tcp", "one_context"};
static_assert(std::size(kWays) == static_cast<size_t>(Way::count_));

struct FlagName {
  uint32_t flag;
  const char *shown, *symbol;
};
constexpr FlagName kFlags[] = {
    {kSync, "sync", "kSync"},
    {kNoWait, "no_wait", "kNoWait"},
    {kRemote, "remote", "kRemote"},
    {kAfterAll, "after_all", "kAfterAll"},
    {kWaitAll, "wait_all", "kWaitAll"},
    {kEager, "eager", "kEager"},
    {kRendezvous, "rendezvous", "kRendezvous"},
    {kCallback, "callback", "kCallback"},
    {kDetached, "detached", "kDetached"},
    {kLibrary, "library", "kLibrary"},
    {kLayout, "layout", "kLayout"},
    {kFarLayout, "far_layout", "kFarLayout"},
    {kSignalled, "signalled", "kSignalled"},
    {kFetch, "fetch", "kFetch"},
    {kNarrow, "narrow", "kNarrow"},
    {kMasked, "masked", "kMasked"},
    {kKeep, "keep", "kKeep"},
    {kReply, "reply", "kReply"},
    {kAtOnce, "at_once", "kAtOnce"},
    {kInside, "inside", "kInside"},
    {kGraceful, "graceful", "kGraceful"},
    {kNotify, "notify", "kNotify"},
    {kLate, "late", "kLate"},
    {kInPlace, "in_place", "kInPlace"},
    {kRepeatable, "repeatable", "kRepeatable"},
    {kDevices, "devices", "kDevices"},
    {kBlocking, "blocking", "kBlocking"},
    {kDirect, "direct", "kDirect"},
    {kPlanned, "planned", "kPlanned"},
    {kQueued, "queued", "kQueued"},
};
constexpr FlagName kCounters[] = {
    {kCountGenerations, "generations", "kCountGenerations"},
    {kCountReceives, "receives", "kCountReceives"},
    {kCountTickets, "tickets", "kCountTickets"},
    {kCountMessages, "messages", "kCountMessages"},
    {kCountFrames, "frames", "kCountFrames"},
    {kCountCredits, "credits", "kCountCredits"},
    {kCountWords, "words", "kCountWords"},
    {kCountCollectives, "collectives", "kCountCollectives"},
};

struct Weight {
  What what;
  unsigned weight;
};
/// What a program is mostly about: few kinds at a time collide more often than all of them.
constexpr Weight kMessages[] = {{What::send, 30},      {What::receive, 28},       {What::probe, 3},
                                {What::take, 4},       {What::take_receive, 4},   {What::cancel, 5},
                                {What::active, 10},    {What::active_receive, 4}, {What::active_release, 2},
                                {What::bytes_send, 6}, {What::bytes_receive, 8},  {What::turns, 6}};
constexpr Weight kOneSided[] = {
    {What::put, 30},           {What::get, 12},         {What::atomic, 10}, {What::put_blocks, 6},
    {What::get_blocks, 3},     {What::notification, 4}, {What::signal, 6},  {What::fence, 12},
    {What::flush, 6},          {What::flush_worker, 1}, {What::look, 8},    {What::release_region, 1},
    {What::release_memory, 1}, {What::turns, 6},        {What::send, 4},    {What::receive, 4}};
constexpr Weight kMixed[] = {{What::send, 12},      {What::receive, 14},       {What::probe, 1},
                             {What::take, 2},       {What::take_receive, 2},   {What::cancel, 3},
                             {What::active, 6},     {What::active_receive, 2}, {What::active_release, 1},
                             {What::bytes_send, 4}, {What::bytes_receive, 5},  {What::put, 14},
                             {What::get, 6},        {What::atomic, 5},         {What::put_blocks, 3},
                             {What::get_blocks, 2}, {What::notification, 2},   {What::signal, 3},
                             {What::fence, 6},      {What::flush, 3},          {What::flush_worker, 1},
                             {What::look, 4},       {What::release_region, 1}, {What::release_memory, 1},
                             {What::turns, 4}};

/// Receives that are offered to the peer before it sends: messages between devices whose memory is imported.
constexpr Weight kOffered[] = {{What::send, 32},  {What::receive, 32}, {What::cancel, 8},
                               {What::probe, 1},  {What::take, 1},     {What::active, 2},
                               {What::turns, 12}, {What::connect, 1},  {What::release_memory, 1}};

/// Collectives beside some of all the rest.
constexpr Weight kTogether[] = {{What::collective, 20}, {What::join, 36},      {What::send, 7},  {What::receive, 7},
                                {What::active, 2},      {What::bytes_send, 1}, {What::put, 6},   {What::get, 2},
                                {What::atomic, 2},      {What::signal, 1},     {What::fence, 2}, {What::cancel, 2},
                                {What::probe, 1},       {What::flush, 1},      {What::turns, 8}};

class Generator {
 public:
  Generator(uint64_t seed, unsigned workers)
      : random_(Random(seed).next()), offered_(seed % 8 == 3), together_(is_together(seed)) {
    program_.seed = seed;
    program_.workers = static_cast<uint8_t>(workers != 0 ? workers : choose_workers());
    const bool one_process = random_.percent(12);
    for (Way& way : program_.ways) way = one_process ? Way::process : static_cast<Way>(random_.below(5));
    program_.copy_max = random_.of({2304u, 2560u, 4096u, 8192u});
    program_.fragment = random_.percent(60) ? program_.copy_max : 2048;
    program_.refuse = random_.of({0u, 0u, 5u, 20u, 50u});
    program_.budget = random_.of({uint64_t{64} << 20, uint64_t{64} << 20, uint64_t{1} << 20, uint64_t{0}});
    for (unsigned pair = 0; pair < pair_of(0, program_.workers); ++pair)
      program_.late |= random_.percent(15) ? uint64_t{1} << pair : 0;
    program_.counters = Random(seed).below(kCountCollectives);
    if (together_ && seed / 8 % 3 == 0) program_.counters |= kCountCollectives;
    if (!offered_) return;
    for (Way& way : program_.ways) way = random_.percent(50) ? Way::mapped : Way::shared;
  }
  Program make() {
    const unsigned count = random_.percent(60) ? 20 + random_.below(40) : 20 + random_.below(181);
    const unsigned theme = random_.below(10);
    const bool one_process = program_.ways[0] == Way::process;  // there devices of others touch memory without an import
    devices_ = random_.percent(one_process ? 60 : 30) || offered_;
    const unsigned ends = random_.percent(one_process ? 55 : 35) ? 1 + random_.below(2) : 0;
    unsigned end_at[2] = {random_.below(count), random_.below(count)};
    for (unsigned i = 0; i < count; ++i) {
      Op op;
      const bool ending = (ends > 0 && i == end_at[0]) || (ends > 1 && i == end_at[1]);
      if (ending) {
        op.what = random_.of({What::close, What::close, What::cut, What::kill});
      } else if (program_.late != 0 && random_.percent(4)) {
        op.what = What::connect;
      } else if (devices_ && random_.percent(8)) {
        op.what = What::open;
      } else if (devices_ && random_.percent(6)) {
        op.what = What::before;
      } else if (offered_) {
        op.what = pick(kOffered);
      } else if (together_) {
        op.what = pick(kTogether);
      } else {
        op.what = theme < 4 ? pick(kMessages) : theme < 8 ? pick(kOneSided) : pick(kMixed);
      }
      fill(op);
      program_.ops.push_back(op);
    }
    return std::move(program_);
  }

 private:
  static bool may_be_on_device(What what) {
    return what == What::send || what == What::receive || what == What::take_receive || what == What::active ||
           what == What::active_receive || what == What::put || what == What::get;
  }
  unsigned choose_workers() {
    if (together_ && random_.percent(30)) return 5 + random_.below(kWorkers - 4);
    const unsigned n = random_.below(10);
    return n < 6 ? 2 : n < 9 ? 3 : 4;
  }
  template <unsigned kCount>
  What pick(const Weight (&weights)[kCount]) {
    unsigned sum = 0;
    for (const Weight& one : weights) sum += one.weight;
    unsigned at = random_.below(sum);
    for (const Weight& one : weights) {
      if (at < one.weight) return one.what;
      at -= one.weight;
    }
    return What::turns;
  }
  void flag(Op& op, uint32_t which, unsigned percent) {
    if (random_.percent(percent)) op.flags |= which;
  }
  void fill(Op& op) {
    op.id = static_cast<uint32_t>(program_.ops.size() + 1);
    op.seed = static_cast<uint32_t>(random_.next());
    op.worker = static_cast<uint8_t>(random_.below(program_.workers));
    op.peer = static_cast<uint8_t>((op.worker + 1 + random_.below(program_.workers - 1u)) % program_.workers);
    op.tag = static_cast<uint8_t>(random_.below(3));
    op.memory = static_cast<uint8_t>(random_.below(devices_ ? kMemories : kMemories - 1));
    if (devices_ && may_be_on_device(op.what)) {
      if (random_.percent(40)) op.kind = static_cast<uint8_t>(random_.below(6));
      flag(op, kLate, offered_ ? 5 : 25);
      if (offered_ && random_.percent(93)) op.kind = kShared;
    }
    op.signal = static_cast<uint8_t>(random_.below(kSignals));
    completion(op);
    switch (op.what) {
      case What::send:
        op.size = message_size();
        flag(op, kSync, 20);
        flag(op, kNoWait, 5);
        flag(op, kLibrary, 25);
        flag(op, kLayout, 15);
        op.flags &= ~uint32_t{kDetached};
        break;
      case What::receive:
        received_ = op.id;
        [[fallthrough]];
      case What::take_receive:
      case What::active_receive:
        op.size = random_.percent(70) ? 70'000 : message_size();
        flag(op, kLibrary, 25);
        flag(op, kLayout, 10);
        flag(op, kMasked, 25);
        if (random_.percent(60)) op.peer = kAnyone;
        op.flags &= ~uint32_t{kDetached};
        break;
      case What::probe:
      case What::take:
        flag(op, kMasked, 50);
        if (random_.percent(60)) op.peer = kAnyone;
        break;
      case What::cancel:
        op.of = program_.ops.empty() ? 0 : 1 + recent();
        if (awaited_ != 0 && op.seed % 3 == 0) op.of = awaited_;
        break;
      case What::before:
        op.of = op.seed % 2 == 0 && received_ != 0 ? received_ : program_.ops.empty() ? 0 : 1 + recent();
        awaited_ = op.of;
        if (op.of != 0) op.worker = program_.ops[op.of - 1].worker;
        break;
      case What::active:
        op.size = message_size();
        op.offset = random_.percent(20) ? random_.below(129) : 8;  // of the header
        flag(op, kKeep, 30);
        flag(op, kReply, 15);
        flag(op, kAtOnce, 20);
        flag(op, random_.percent(50) ? kEager : kRendezvous, 25);
        flag(op, kLayout, 10);
        op.flags &= ~uint32_t{kDetached};
        break;
      case What::bytes_send:
        op.size = message_size();
        op.flags &= ~uint32_t{kDetached};
        break;
      case What::bytes_receive:
        op.size = message_size();
        flag(op, kWaitAll, 30);
        op.flags &= ~uint32_t{kDetached};
        break;
      case What::put:
        op.size = one_sided_size();
        flag(op, kSignalled, 30);
        flag(op, kAfterAll, 20);
        flag(op, kRemote, 20);
        flag(op, kNoWait, 4);
        flag(op, kLibrary, 15);
        flag(op, kLayout, 12);
        flag(op, kFarLayout, 12);
        op.offset = place();
        break;
      case What::get:
        op.size = one_sided_size();
        flag(op, kLayout, 12);
        flag(op, kFarLayout, 12);
        op.flags &= ~uint32_t{kDetached};
        op.offset = place();
        break;
      case What::put_blocks:
      case What::get_blocks:
        op.size = random_.below(3);  // which length of a block
        if (devices_ && op.seed % 5 < 2) op.kind = static_cast<uint8_t>(op.seed / 5 % 6);
        flag(op, kNotify, 50);
        flag(op, kRemote, op.what == What::put_blocks ? 20 : 0);
        flag(op, kAfterAll, op.what == What::put_blocks ? 20 : 0);
        flag(op, kSignalled, op.what == What::put_blocks ? 20 : 0);
        if (op.what == What::get_blocks) op.flags &= ~uint32_t{kDetached};
        break;
      case What::atomic:
        flag(op, kFetch, 50);
        flag(op, kNarrow, 30);
        flag(op, kRemote, 20);
        break;
      case What::signal:
        flag(op, kAfterAll, 40);
        flag(op, kRemote, 20);
        break;
      case What::flush:
      case What::flush_worker:
        op.flags &= ~uint32_t{kDetached};
        break;
      case What::collective:
        fill_collective(op, random_, program_.workers, devices_);
        break;
      case What::join:
        flag(op, kLibrary, 25);
        break;
      case What::close:
        flag(op, kGraceful, 50);
        break;
      case What::cut:
      case What::kill:
        flag(op, kInside, 60);
        op.offset = 1 + random_.below(12);  // calls of a port until then
        break;
      default:
        break;
    }
  }
  void completion(Op& op) {
    const unsigned how = random_.below(10);
    op.flags |= how < 3 ? uint32_t{kCallback} : how < 5 ? uint32_t{kDetached} : 0;
  }
  uint32_t recent() {
    const auto n = static_cast<uint32_t>(program_.ops.size());
    const uint32_t back = random_.below(8);
    return back < n ? n - 1 - back : n - 1;
  }
  uint32_t message_size() {
    const uint32_t copy = program_.copy_max, fragment = program_.fragment;
    const unsigned how = random_.below(100);
    if (how < 55) return random_.of({0u, 1u, 8u, 13u, 100u, 500u});
    if (how < 85) return random_.of({copy - 8, copy - 1, copy, copy + 1, fragment + 1, 2 * copy + 5, 3 * fragment});
    return random_.of({32767u, 32768u, 32769u, 40'000u, 65'000u});
  }
  uint32_t one_sided_size() {
    const uint32_t room = program_.copy_max - 1092;
    const unsigned how = random_.below(100);
    if (how < 65) return random_.of({0u, 1u, 4u, 8u, 8u, 40u, 64u});
    return random_.of({room - 1, room, room + 1, 2 * room + 3, program_.copy_max + 1});
  }
  uint32_t place() { return random_.of({0u, 0u, 8u, 16u, 64u, 1000u}); }

  Random random_;
  Program program_;
  static constexpr uint8_t kShared = 2;  // of kKinds: memory that is imported in one process, too
  const bool offered_, together_;
  bool devices_ = false;
  uint32_t received_ = 0, awaited_ = 0;  // the last receive, and the last operation that a stream waits for
};

template <unsigned kCount>
std::string flags_text(const FlagName (&names)[kCount], uint32_t flags) {
  std::string out;
  for (const FlagName& one : names) {
    if ((flags & one.flag) != 0) out += std::string(" ") + one.shown;
  }
  return out;
}
template <unsigned kCount>
std::string flags_code(const FlagName (&names)[kCount], uint32_t flags) {
  std::string out;
  for (const FlagName& one : names) {
    if ((flags & one.flag) != 0) out += (out.empty() ? "" : " | ") + std::string(one.symbol);
  }
  return out;
}

}  // namespace

const char* name_of(What what) { return kNames[static_cast<size_t>(what)]; }
const char* name_of(Way way) { return kWays[static_cast<size_t>(way)]; }

void fill_collective(Op& op, Random& random, unsigned workers, bool devices) {
  const auto flag = [&](uint32_t which, unsigned percent) {
    if (random.percent(percent)) op.flags |= which;
  };
  op.flags &= ~uint32_t{kDetached};
  op.memory = static_cast<uint8_t>(random.below(16));
  op.kind = static_cast<uint8_t>(random.below(12));
  op.signal = static_cast<uint8_t>(random.below(10));
  op.of = random.below(workers);
  op.offset = random.percent(25) ? 0 : 1 + random.below(2520);  // any number of algorithms divides that
  const unsigned how = random.below(100);
  if (how < 45) {
    op.size = random.of({0u, 1u, 2u, 3u, 5u, 7u, 8u, 13u, 16u, 17u});
  } else if (how < 85) {
    op.size = random.of({31u, 33u, 64u, 100u, 127u, 255u, 257u, 500u, 513u, 1023u});
  } else if (how < 98) {
    op.size = random.of({1025u, 2047u, 2049u, 4097u});
  } else {
    op.size = random.of({9001u, 40'001u});
  }
  flag(kInPlace, 30);
  flag(kRepeatable, 15);
  flag(kFarLayout, 40);
  flag(kLibrary, 25);
  flag(kDevices, devices ? 40 : 0);
}

Program generate(uint64_t seed, unsigned workers) { return Generator(seed, workers).make(); }

std::string text_of(const Program& program) {
  char line[200];
  std::snprintf(line, sizeof line, "seed %llu: %u workers, frames of %u, fragments of %u, %u%% refused, budget %llu, ways",
                static_cast<unsigned long long>(program.seed), program.workers, program.copy_max, program.fragment,
                program.refuse, static_cast<unsigned long long>(program.budget));
  std::string out = line;
  if (program.over != Over::engines) out += std::string("; ranks over ") + kOver[static_cast<size_t>(program.over)];
  for (unsigned b = 1; b < program.workers; ++b) {
    for (unsigned a = 0; a < b; ++a) {
      const unsigned pair = pair_of(a, b);
      std::snprintf(line, sizeof line, " %u-%u %s%s", a, b, name_of(program.ways[pair]),
                    (program.late >> pair & 1) != 0 ? " (late)" : "");
      out += line;
    }
  }
  if (program.counters != 0) out += ", near their wraps:" + flags_text(kCounters, program.counters);
  out += "\n";
  for (const Op& op : program.ops) {
    const int peer = op.peer == kAnyone ? -1 : op.peer;
    std::snprintf(line, sizeof line, "%4u %-15s %u > %d  size %u offset %u tag %u memory %u signal %u kind %u of %u", op.id,
                  name_of(op.what), op.worker, peer, op.size, op.offset, op.tag, op.memory, op.signal, op.kind, op.of);
    out += line + flags_text(kFlags, op.flags);
    if (op.what == What::collective) out += "  = " + text_of(job_of(program, op));
    out += "\n";
  }
  return out;
}

std::string test_of(const Program& program, const std::string& name) {
  char line[300];
  std::string out = "TEST(Found, " + name + ") {\n  Program p;\n";
  std::snprintf(line, sizeof line,
                "  p.seed = %lluu;\n  p.workers = %u;\n  p.copy_max = %u;\n  p.fragment = %u;\n  p.refuse = %u;\n"
                "  p.budget = %lluu;\n  p.late = %lluu;\n",
                static_cast<unsigned long long>(program.seed), program.workers, program.copy_max, program.fragment,
                program.refuse, static_cast<unsigned long long>(program.budget), static_cast<unsigned long long>(program.late));
  out += line;
  if (program.over != Over::engines) out += std::string("  p.over = Over::") + kOver[static_cast<size_t>(program.over)] + ";\n";
  for (unsigned pair = 0; pair < program.workers * (program.workers - 1u) / 2; ++pair) {
    out += "  p.ways[" + std::to_string(pair) + "] = Way::" + name_of(program.ways[pair]) + ";\n";
  }
  if (program.counters != 0) out += "  p.counters = " + flags_code(kCounters, program.counters) + ";\n";
  out += "  p.ops = {\n";
  for (const Op& op : program.ops) {
    std::snprintf(line, sizeof line,
                  "      {.what = What::%s, .worker = %u, .peer = %u, .tag = %u, .memory = %u, .signal = %u, .kind = %u,",
                  name_of(op.what), op.worker, op.peer, op.tag, op.memory, op.signal, op.kind);
    out += line;
    const std::string flags = flags_code(kFlags, op.flags);
    if (!flags.empty()) out += " .flags = " + flags + ",";
    std::snprintf(line, sizeof line, " .size = %u, .offset = %u, .of = %u, .id = %u, .seed = %uu},\n", op.size, op.offset,
                  op.of, op.id, op.seed);
    out += line;
  }
  return out + "  };\n  EXPECT_EQ(run_guarded(p), \"\");\n}\n";
}

}  // namespace thalweg::model
