// SPDX-License-Identifier: Apache-2.0
#include "windows_part.hpp"

#include <unistd.h>

#include <cstring>

namespace conformance {
namespace {

/// May a window that is bound to `executor` use the part of another rank at `theirs`?
Reach window_reach(const Side& side, bool on_a_device, unsigned theirs, bool one_process) {
  if (!maps(side)) return Reach::carried;
  if (theirs >= kFirstDevice) {
    const bool managed = std::strstr(place_name(theirs), "managed") != nullptr;
    if (!on_a_device) return one_process && managed ? Reach::mapped : Reach::carried;
    if (one_process) return shared(theirs) ? Reach::mapped : Reach::either;
    return shared(theirs) ? Reach::mapped : Reach::carried;
  }
  if (one_process) return Reach::mapped;
  if (theirs == kPinned) return Reach::either;
  return theirs == kLibrary ? Reach::mapped : Reach::carried;
}

}  // namespace

tw_status Part::exchange(void* arg, const void* mine, size_t length, void* values) {
  Part& part = *static_cast<Part*>(arg);
  try {
    part.share(mine, length, values);
  } catch (const Failure& f) {
    part.why_ = f.text;
    return TW_ERR_CANCELED;
  }
  return TW_OK;
}

void Part::share(const void* mine, size_t length, void* all) {
  auto* const values = static_cast<unsigned char*>(all);
  side_.send_control(mine, length);
  side_.receive_control(values + other() * length, length);
  std::memcpy(values + static_cast<size_t>(side_.rank) * length, mine, length);
}

Part::Part(Side& side, const Row& r, size_t length)
    : cells(side, r.place[side.rank], r.seed + static_cast<unsigned>(side.rank), length),
      side_(side),
      row_(r),
      on_device_(r.place[side.rank] >= kFirstDevice) {
  uint64_t process[2];
  const auto mine = static_cast<uint64_t>(::getpid());
  share(&mine, sizeof mine, process);
  one_process_ = process[0] == process[1];
  tw_endpoint* endpoints[2] = {side.endpoint, side.endpoint};
  endpoints[side.rank] = nullptr;
  tw_window_options options = TW_WINDOW_OPTIONS_INIT;
  options.timeout_ns = kLong;
  const tw_status status = tw_window_create(side.worker, endpoints, 2, static_cast<uint32_t>(side.rank), cells.memory, exchange,
                                            this, &options, &window_);
  if (!why_.empty()) throw Failure{why_};
  must(status, "tw_window_create");
}

bool Part::bind() {
  const std::string place = place_name(row_.place[side_.rank]);
  const size_t number = place.find(':');
  const std::string family = place.rfind("emulated", 0) == 0 ? "emulated" : "cuda";
  const std::string executor = on_device_ ? family + place.substr(number) : "host";
  tw_device_window made{};
  const tw_status status = tw_window_bind(window_, executor.c_str(), &made);
  const Reach reach = window_reach(side_, on_device_, row_.place[!side_.rank], one_process_);
  if (status == TW_OK) {
    check(reach != Reach::carried, "a window was bound to memory that docs/support.md excludes");
    static_assert(sizeof made == sizeof window);
    std::memcpy(&window, &made, sizeof window);
  } else {
    const std::string rank = "rank " + std::to_string(other());
    const tw_status wanted = status == TW_ERR_UNREACHABLE ? TW_ERR_UNREACHABLE : TW_ERR_UNSUPPORTED;
    must_refuse(status, wanted, rank.c_str(), "tw_window_bind");
    check(reach != Reach::mapped, "a window of memory that docs/support.md names was refused");
  }
  const unsigned char bound = status == TW_OK;
  unsigned char all[2] = {};
  share(&bound, 1, all);
  return all[0] != 0 && all[1] != 0;
}

void Part::clear(u64 offset, u64 bytes) {
  const std::vector<unsigned char> zeros(bytes);
  must(tw_memory_copy(side_.context, cells.address() + offset, zeros.data(), bytes), "tw_memory_copy");
  cells.expect(offset, zeros.data(), bytes);
}

void Part::keep(u64 offset, u64 bytes) {
  std::vector<unsigned char> now(bytes);
  must(tw_memory_copy(side_.context, now.data(), cells.address() + offset, bytes), "tw_memory_copy");
  cells.expect(offset, now.data(), bytes);
}

void Part::close() {
  const tw_status status = tw_window_destroy(window_);
  window_ = nullptr;
  if (!why_.empty()) throw Failure{why_};
  must(status, "tw_window_destroy");
}

}  // namespace conformance
