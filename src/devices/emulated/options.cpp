// SPDX-License-Identifier: Apache-2.0
// Options of emulated devices from a text.
#include "devices/emulated/options.hpp"

#include <charconv>
#include <string>
#include <string_view>

namespace thalweg::impl::emulated {
namespace {

constexpr std::string_view kFaults[] = {"fail_allocate", "fail_export", "fail_import", "fail_copy", "fail_launch",
                                        "fail_run",      "fail_queue",  "fail_word",   "fail_event"};
static_assert(std::size(kFaults) == static_cast<size_t>(Operation::count_));

bool parse_peers(std::string_view rows, std::vector<uint64_t>* out) {
  out->assign(1, 0);
  unsigned column = 0;
  for (char c : rows) {
    if (c == '/') {
      out->push_back(0);
      column = 0;
    } else if ((c == '0' || c == '1') && column < 64) {
      out->back() |= uint64_t{c == '1'} << column++;
    } else {
      return false;
    }
  }
  return true;
}

bool set(std::string_view key, uint64_t value, uint64_t* devices, Options* all) {
  if (key == "devices") return *devices = value, value >= 1 && value <= 64;
  if (key == "slots") return all->kernel_slots = static_cast<unsigned>(value), value >= 1;
  if (key == "kernels") return all->kernels = value != 0, value <= 1;
  if (key == "vmm_piece") return all->vmm_piece = value, value > 0 && value % 4096 == 0;
  if (key == "delay_ns") return all->task_delay_ns = value, true;
  if (key == "import_delay_ns") return all->import_delay_ns = value, true;
  if (key == "release_delay_ns") return all->release_delay_ns = value, true;
  if (key == "wait_limit_ns") return all->wait_limit_ns = value, true;
  if (key == "capacity") return all->capacity = value, true;
  for (size_t i = 0; i < std::size(kFaults); ++i) {
    if (key == kFaults[i]) return all->fail_at[i] = static_cast<unsigned>(value), true;
  }
  return false;
}

}  // namespace

Status parse_options(const char* text, std::vector<Options>* out) {
  Options all;
  uint64_t devices = 1;
  std::vector<uint64_t> peers;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t equal = item.find('=');
    const std::string_view key = item.substr(0, equal);
    const std::string_view value = equal == std::string_view::npos ? std::string_view() : item.substr(equal + 1);
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if (key == "peers" ? !parse_peers(value, &peers) : !whole || !set(key, number, &devices, &all)) {
      return fail(TW_ERR_INVALID, "emulated devices: cannot use \"%s\"; write, say, devices=2,peers=10/01,slots=1",
                  std::string(item).c_str());
    }
  }
  out->assign(devices, all);
  for (size_t i = 0; i < devices && i < peers.size(); ++i) (*out)[i].peers = peers[i] | uint64_t{1} << i;
  return TW_OK;
}

}  // namespace thalweg::impl::emulated
