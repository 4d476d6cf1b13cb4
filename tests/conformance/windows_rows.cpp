// SPDX-License-Identifier: Apache-2.0
// What device code does on a window: the kernel as a trigger. Windows of memory that an executor does not reach are refused
// when they are bound, by name.
#include <thalweg/device/ll128.hpp>

#include <algorithm>

#include "windows_part.hpp"

namespace conformance {
namespace {

uint64_t seed_of(const Row& r, unsigned run) { return r.seed * 7 + run; }

/// put and signal, or both at once; the signal is set, or added to where the row is asynchronous.
void put(Side& side, const Row& r, bool at_once) {
  const Room room(r);
  const SignalOp op = r.asynchronous ? SignalOp::add : SignalOp::set;
  over_window(side, r, Room::length(r.size), [&](Part& part) {
    Cells source(side, r.place[side.rank], r.seed, r.size + 64);
    const u64 start = r.seed % 17;
    const device::Window& w = part.window;
    const auto put_it = [&](unsigned run, auto m) {
      source.fill(seed_of(r, run));
      const u64 value = op == SignalOp::add ? 1 : run + 1;
      const unsigned char* const from = source.address() + start;
      if (at_once)
        return part.done(device::put_signal(device::Block(), w, 1, room.data, from, r.size, room.signal, value, op, m));
      part.done(device::put(device::Warp(), w, 1, room.data, from, r.size, m));
      device::quiet(device::Warp(), m);
      part.done(device::signal(device::Thread(), w, 1, room.signal, value, op, m));
    };
    const auto take_it = [&](unsigned run, auto m) {
      const u64 count = run + 1;
      part.done(device::wait(device::Block(), w, room.signal, Compare::greater_equal, count, run, m));
      check(device::test(w, room.signal, Compare::equal, count, m), "test() does not see what wait() saw");
      check(!device::test(w, room.signal, Compare::not_equal, count, m), "test() sees something else than wait() saw");
      part.cells.expect(room.data, random_bytes(seed_of(r, run), r.size + 64).data() + start, r.size);
      part.cells.expect(room.signal, &count, sizeof count);
    };
    take_turns(side, r, part, put_it, take_it);
  });
}
void window_put(Side& side, const Row& r) { put(side, r, false); }
void window_put_signal(Side& side, const Row& r) { put(side, r, true); }

/// Rank 0 tells rank 1 to fill its part, and gets it when it is told that it is there.
void window_get(Side& side, const Row& r) {
  const Room room(r);
  over_window(side, r, Room::length(r.size), [&](Part& part) {
    Cells sink(side, r.place[side.rank], r.seed, r.size + 64);
    const device::Window& w = part.window;
    const u64 start = r.seed % 13;
    // The answer of a run says that its data is there; the next signal, that it was got.
    const auto tell = [&](unsigned run, auto m) {
      part.done(device::signal(device::Thread(), w, 1, room.signal, run + 1, SignalOp::set, m));
      part.done(device::wait(device::Thread(), w, room.answer, Compare::equal, run + 1, run, m));
      sink.fill(r.seed + run);
      part.done(device::get(device::Block(), w, 1, room.data, sink.address() + start, r.size, m));
      sink.expect(start, random_bytes(seed_of(r, run), r.size).data(), r.size);
      sink.verify();
    };
    const auto fill_in = [&](unsigned run, auto m) {
      const u64 count = run + 1;
      part.done(device::wait(device::Block(), w, room.signal, Compare::equal, count, run, m));
      const std::vector<unsigned char> bytes = random_bytes(seed_of(r, run), r.size);
      m.copy(reinterpret_cast<u64>(part.cells.address() + room.data), reinterpret_cast<u64>(bytes.data()), r.size);
      part.cells.expect(room.data, bytes.data(), r.size);
      part.cells.expect(room.signal, &count, sizeof count);
    };
    take_turns(side, r, part, tell, fill_in);
  });
}

/// Rows of three words of 4 bytes among others that stay.
void window_strided_put(Side& side, const Row& r) {
  const Room room(r);
  constexpr u64 width = 3, to_pitch = 5, from_pitch = 7;
  const u64 rows = std::min<u64>(r.size / (width * sizeof(u32)), 600), at = room.data / 4 * 4;
  over_window(side, r, Room::length((rows + 1) * to_pitch * sizeof(u32)), [&](Part& part) {
    Cells source(side, r.place[side.rank], r.seed, (rows + 1) * from_pitch * sizeof(u32));
    const device::Window& w = part.window;
    const auto put_it = [&](unsigned run, auto m) {
      source.fill(seed_of(r, run));
      part.done(device::strided_put(device::Block(), w, 1, at, to_pitch, reinterpret_cast<const u32*>(source.address()),
                                    from_pitch, width, rows, m));
      part.done(device::put_value(w, 1, at + rows * to_pitch * sizeof(u32), static_cast<u32>(r.seed + run), m));
      part.done(device::signal(device::Block(), w, 1, room.signal, run + 1, SignalOp::set, m));
    };
    const auto take_it = [&](unsigned run, auto m) {
      const u64 count = run + 1;
      part.done(device::wait(device::Block(), w, room.signal, Compare::greater_equal, count, run, m));
      const std::vector<unsigned char> bytes = random_bytes(seed_of(r, run), (rows + 1) * from_pitch * sizeof(u32));
      for (u64 row = 0; row < rows; ++row)
        part.cells.expect(at + row * to_pitch * sizeof(u32), &bytes[row * from_pitch * sizeof(u32)], width * sizeof(u32));
      const u32 value = static_cast<u32>(r.seed + run);
      part.cells.expect(at + rows * to_pitch * sizeof(u32), &value, sizeof value);
      part.cells.expect(room.signal, &count, sizeof count);
    };
    take_turns(side, r, part, put_it, take_it);
  });
}

/// Words of rank 1's part: rank 0 adds and swaps, and by hosts rank 1 adds at the same time.
void window_atomics(Side& side, const Row& r) {
  const Room room(r);
  constexpr u64 kWide = 256, kNarrow = 264, kSwapped = 272;
  constexpr unsigned kAdds = 50;
  over_window(side, r, Room::length(0), [&](Part& part) {
    const device::Window& w = part.window;
    const bool both = r.place[0] < kFirstDevice && r.place[1] < kFirstDevice;
    const auto add = [&](auto m) {
      for (unsigned i = 0; i < kAdds; ++i) {
        device::fetch_add(w, 1, kWide, r.seed, m);
        device::fetch_add(w, 1, kNarrow, static_cast<u32>(r.seed), m);
      }
    };
    u64 swapped = 0;
    const auto change = [&](unsigned run, auto m) {
      part.done(device::signal(device::Thread(), w, 1, room.signal, run + 1, SignalOp::set, m));
      add(m);
      device::quiet(device::Thread(), m);
      const u64 old = device::compare_swap(w, 1, kSwapped, ~swapped, u64{1}, m);
      const u64 same = device::compare_swap(w, 1, kSwapped, old, old + r.seed, m);
      check(run == 0 || old == swapped, "compare_swap did not return what was there");
      check(same == old, "compare_swap changed a word that was not what it expected");
      swapped = old + r.seed;
    };
    const u64 wide = part.cells.load(kWide), word = part.cells.load(kSwapped);
    const u32 narrow = static_cast<u32>(part.cells.load(kNarrow));
    const auto join = [&](unsigned run, auto m) {
      const u64 count = run + 1, adds = (both ? 2 : 1) * kAdds * count;
      part.done(device::wait(device::Thread(), w, room.signal, Compare::greater_equal, count, run, m));
      if (both) add(m);
      const u64 wanted = word + count * r.seed;
      part.done(device::wait(device::Thread(), w, kSwapped, Compare::equal, wanted, run, m));
      part.cells.expect(kSwapped, &wanted, sizeof wanted);
      const u64 sum = wide + adds * r.seed;
      const u32 short_sum = static_cast<u32>(narrow + adds * r.seed);
      part.cells.expect(kWide, &sum, sizeof sum);
      part.cells.expect(kNarrow, &short_sum, sizeof short_sum);
      part.cells.expect(room.signal, &count, sizeof count);
    };
    take_turns(side, r, part, change, join);
  });
}

// ------------------------------------------------------------------------------------------------ packed

/// Messages whose flag travels beside the data: unpacked, read in place, and one value. Generations count from the seed on.
void window_ll(Side& side, const Row& r) {
  const u64 count = std::min<u64>(r.size, 515), rooms = device::ll_size(count), value_room = 512, room = 528;
  over_window(side, r, room + rooms + 64, [&](Part& part) {
    const u32 first = static_cast<u32>(r.seed % 1000000) + 1;
    part.clear(value_room, room - value_room + rooms);
    Cells mine(side, r.place[side.rank], r.seed, count + 64);
    const device::Window& w = part.window;
    const auto put_it = [&](unsigned run, auto m) {
      mine.fill(seed_of(r, run));
      part.done(device::put_ll(device::Block(), w, 1, room, mine.address() + 5, count, first + run, m));
      auto* const there = device::pointer<device::Word16>(w, 1, value_room, 1, m);
      part.done(there != nullptr);
      device::put_ll_value(there, static_cast<u32>(r.seed ^ run), first + run, m);
    };
    const auto take_it = [&](unsigned run, auto m) {
      mine.fill(r.seed + run);
      part.done(device::take_ll(device::Block(), w, room, mine.address() + 3, count, first + run, run, m));
      const std::vector<unsigned char> bytes = random_bytes(seed_of(r, run), count + 64);
      mine.expect(3, bytes.data() + 5, count);
      mine.verify();
      part.done(device::await_ll<unsigned char>(device::Warp(), w, room, count, first + run, run, m));
      for (u64 at = 0; at < count; at += 37)
        check(device::ll_at<unsigned char>(w, room, at, m) == bytes[5 + at], "ll_at() gave another byte");
      const auto* const here = device::pointer<device::Word16>(w, 1, value_room, 1, m);
      u32 value = 0;
      part.done(here != nullptr && device::take_ll_value(w.guard, here, &value, first + run, run, m));
      check(value == static_cast<u32>(r.seed ^ run), "take_ll_value() gave another value");
      part.keep(value_room, room - value_room + rooms);
    };
    take_turns(side, r, part, put_it, take_it);
  });
}

/// The same in lines of 128 bytes: whole words of 8 bytes.
void window_ll128(Side& side, const Row& r) {
  const u64 count = std::min<u64>(r.size, 8200) / 8 + 1, rooms = device::ll128_size(count * 8), room = 512;
  over_window(side, r, room + rooms + 64, [&](Part& part) {
    const u64 first = r.seed | 1;
    part.clear(room, rooms);
    Cells mine(side, r.place[side.rank], r.seed, count * 8 + 64);
    const device::Window& w = part.window;
    auto* const words = reinterpret_cast<u64*>(mine.address() + 8);
    const auto put_it = [&](unsigned run, auto m) {
      mine.fill(seed_of(r, run));
      part.done(device::put_ll128(device::Block(), w, 1, room, words, count, first + run, m));
    };
    const auto take_it = [&](unsigned run, auto m) {
      mine.fill(r.seed + run);
      part.done(device::take_ll128(device::Warp(), w, room, words, count, first + run, run, m));
      mine.expect(8, random_bytes(seed_of(r, run), count * 8 + 64).data() + 8, count * 8);
      mine.verify();
      part.keep(room, rooms);
    };
    take_turns(side, r, part, put_it, take_it);
  });
}

}  // namespace

void add_windows(std::vector<Operation>& all) {
  const auto add = [&](const char* name, void (*run)(Side&, const Row&), size_t limit = ~size_t{0}) {
    all.push_back({name, false, false, limit, run, Devices::all, Rows::fewest});
  };
  add("window_put", window_put);
  add("window_put_signal", window_put_signal);
  add("window_get", window_get);
  add("window_strided_put", window_strided_put);
  add("window_atomics", window_atomics, 8);
  add("window_ll", window_ll);
  add("window_ll128", window_ll128);
}

}  // namespace conformance
