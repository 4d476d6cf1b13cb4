// SPDX-License-Identifier: Apache-2.0
#include "model/coverage.hpp"

#include <cstdio>
#include <iterator>

namespace thalweg::model {
namespace {

constexpr const char* kNames[] = {"at once", "later",    "connecting", "refused",   "lost",
                                  "closed",  "canceled", "stale",      "truncated", "fenced"};
static_assert(std::size(kNames) == static_cast<size_t>(Happening::count_));

struct KindName {
  impl::MemoryKind kind;
  const char* name;
};
/// Those that an emulated device has.
constexpr KindName kKindNames[] = {{impl::MemoryKind::host, "host"},       {impl::MemoryKind::pinned, "pinned"},
                                   {impl::MemoryKind::managed, "managed"}, {impl::MemoryKind::pool, "pool"},
                                   {impl::MemoryKind::vmm, "vmm"},         {impl::MemoryKind::emulated, "emulated"}};

/// Its local buffer may be memory of a device.
bool has_kinds(What what) {
  return what == What::send || what == What::receive || what == What::take_receive || what == What::active ||
         what == What::active_receive || what == What::put || what == What::get || what == What::put_blocks ||
         what == What::get_blocks;
}

}  // namespace

const char* name_of(Happening happening) { return kNames[static_cast<size_t>(happening)]; }

void Coverage::add(const Coverage& other) {
  named_ += other.named_;
  sizes_ |= other.sizes_;
  for (size_t verb = 0; verb < kTogether; ++verb) {
    for (size_t form = 0; form < forms_[verb].size(); ++form) forms_[verb][form] += other.forms_[verb][form];
    for (size_t n = 0; n < together_[verb].size(); ++n) {
      for (size_t type = 0; type < together_[verb][n].size(); ++type)
        together_[verb][n][type] += other.together_[verb][n][type];
    }
    for (size_t how = 0; how < together_how_[verb].size(); ++how) together_how_[verb][how] += other.together_how_[verb][how];
  }
  for (size_t verb = 0; verb < cells_.size(); ++verb) {
    for (size_t way = 0; way < cells_[verb].size(); ++way) {
      for (size_t i = 0; i < cells_[verb][way].size(); ++i) cells_[verb][way][i] += other.cells_[verb][way][i];
    }
    for (size_t kind = 0; kind < kinds_[verb].size(); ++kind) kinds_[verb][kind] += other.kinds_[verb][kind];
  }
}

std::string Coverage::table() const {
  char text[64];
  std::snprintf(text, sizeof text, "%-15s %-11s", "verb", "way");
  std::string out = text;
  for (const char* name : kNames) {
    std::snprintf(text, sizeof text, "%11s", name);
    out += text;
  }
  out += "\n";
  for (size_t verb = 0; verb < cells_.size(); ++verb) {
    for (size_t way = 0; way < cells_[verb].size(); ++way) {
      uint64_t sum = 0;
      for (const uint64_t n : cells_[verb][way]) sum += n;
      if (sum == 0) continue;
      std::snprintf(text, sizeof text, "%-15s %-11s", name_of(static_cast<What>(verb)), name_of(static_cast<Way>(way)));
      out += text;
      for (const uint64_t n : cells_[verb][way]) {
        std::snprintf(text, sizeof text, "%11llu", static_cast<unsigned long long>(n));
        out += text;
      }
      out += "\n";
    }
  }
  std::snprintf(text, sizeof text, "%-27s", "verb, its buffer");
  out += text;
  for (const KindName& one : kKindNames) {
    std::snprintf(text, sizeof text, "%11s", one.name);
    out += text;
  }
  out += "\n";
  for (size_t verb = 0; verb < kinds_.size(); ++verb) {
    if (!has_kinds(static_cast<What>(verb))) continue;
    std::snprintf(text, sizeof text, "%-27s", name_of(static_cast<What>(verb)));
    out += text;
    for (const KindName& one : kKindNames) {
      const uint64_t n = kinds_[verb][static_cast<size_t>(one.kind)];
      std::snprintf(text, sizeof text, "%11llu", static_cast<unsigned long long>(n));
      out += text;
    }
    out += "\n";
  }
  std::snprintf(text, sizeof text, "%-27s%11llu bytes\n", "named in bounce buffers", static_cast<unsigned long long>(named_));
  return out + text + (sizes_ != 0 ? table_together() : "");
}

namespace {

constexpr unsigned bit(Happening happening) { return 1u << static_cast<unsigned>(happening); }

/// What happens to it often enough to be seen in kEnough programs.
unsigned expected(What what, Way way) {
  using enum Happening;
  constexpr unsigned kEnds = bit(lost) | bit(closed), kBegins = bit(later) | bit(before_connect) | bit(refused);
  switch (what) {
    case What::send:
    case What::active:
    case What::bytes_send:
      return kEnds | kBegins | bit(at_once) | bit(canceled);
    case What::receive:
      return kEnds | kBegins | bit(canceled) | bit(truncated);
    case What::bytes_receive:
      return kEnds | kBegins | bit(canceled);
    case What::take_receive:
    case What::active_receive:
      return bit(later) | bit(truncated) | bit(lost);
    case What::put:
    case What::get:
    case What::atomic:
      return kEnds | kBegins | bit(at_once) | bit(stale) | bit(behind_fence);
    case What::signal:
      return kEnds | kBegins | bit(at_once) | bit(behind_fence);
    case What::put_blocks:
      return kEnds | kBegins | bit(at_once) | bit(stale) | bit(behind_fence);
    case What::get_blocks: {
      const bool answered = way == Way::frames || way == Way::references;  // by the other side
      return kBegins | bit(lost) | bit(stale) | bit(behind_fence) | (answered ? 0 : bit(at_once));
    }
    case What::before:
      return kEnds | kBegins | bit(canceled) | bit(truncated) | bit(behind_fence);
    case What::flush:
      return kEnds | kBegins | bit(at_once) | bit(stale);
    default:
      return 0;
  }
}

/// What takes some hundred thousand programs. Not among them: a message that was taken out by a probe and not all here when its
/// endpoint is closed, which is seen once in some ten thousand programs of two workers, and in ways by frames almost never.
unsigned seldom(What what) {
  using enum Happening;
  switch (what) {
    case What::active_receive:
    case What::get_blocks:
      return bit(closed);
    case What::signal:
    case What::before:
      return bit(stale);
    default:
      return 0;
  }
}

}  // namespace

std::string Coverage::holes(bool many) const {
  std::string out;
  for (size_t verb = 0; verb < cells_.size(); ++verb) {
    for (size_t way = 0; way < cells_[verb].size(); ++way) {
      for (size_t i = 0; i < cells_[verb][way].size(); ++i) {
        const What what = static_cast<What>(verb);
        const unsigned may = expected(what, static_cast<Way>(way)) | (many ? seldom(what) : 0);
        if (cells_[verb][way][i] != 0 || (may >> i & 1) == 0) continue;
        out +=
            std::string(name_of(static_cast<What>(verb))) + " by " + name_of(static_cast<Way>(way)) + ": " + kNames[i] + "\n";
      }
    }
    for (const KindName& one : kKindNames) {
      const What what = static_cast<What>(verb);
      const bool seldom = what == What::take_receive || what == What::active_receive;
      if (!has_kinds(what) || seldom || kinds_[verb][static_cast<size_t>(one.kind)] != 0) continue;
      out += std::string(name_of(static_cast<What>(verb))) + " of " + one.name + " memory\n";
    }
  }
  if (sizes_ != 0) out += holes_together();
  return named_ != 0 ? out : out + "payloads named in bounce buffers\n";
}

}  // namespace thalweg::model
