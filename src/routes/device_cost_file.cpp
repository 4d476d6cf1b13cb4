// SPDX-License-Identifier: Apache-2.0
#include "routes/device_cost_file.hpp"

#include <algorithm>
#include <charconv>

#include "routes/cost_file.hpp"
#include "routes/cost_text.hpp"

namespace thalweg::impl {
namespace {

constexpr std::string_view kHead = "thalweg-device-costs 1", kDevice = "device = ", kFixed = ".fixed", kByte = ".byte";
constexpr double kFixedLeast = 1, kFixedMost = 1e8, kByteLeast = 1e-6, kByteMost = 1e3;

constexpr DeviceCost kCosts[] = {{"out", &DeviceCosts::out},
                                 {"in", &DeviceCosts::in},
                                 {"local", &DeviceCosts::local},
                                 {"nvlink.write", &DeviceCosts::nvlink_write},
                                 {"nvlink.read", &DeviceCosts::nvlink_read},
                                 {"pcie.write", &DeviceCosts::pcie_write},
                                 {"pcie.read", &DeviceCosts::pcie_read},
                                 {"persistent", &DeviceCosts::persistent}};

/// What a section has brought so far.
struct Section {
  ModelCosts made;
  uint32_t fixed = 0, byte = 0;
};

Status parse_line(std::string_view line, Section* section) {
  std::string_view digits;
  const std::string_view name = name_in(line, &digits);
  for (const DeviceCost& one : kCosts) {
    if (name.substr(0, std::string_view(one.name).size()) != one.name) continue;
    const std::string_view rest = name.substr(std::string_view(one.name).size());
    if (digits.data() == nullptr || (rest != kFixed && rest != kByte)) continue;
    const bool fixed = rest == kFixed;
    uint32_t& seen = fixed ? section->fixed : section->byte;
    const uint32_t bit = bit_of(one.copy);
    if ((seen & bit) != 0) return refuse_line("a cost for the second time", line);
    seen |= bit;
    CopyCosts& copy = section->made.costs.*one.copy;
    return fixed ? parse_cost(digits, line, kFixedLeast, kFixedMost, &copy.fixed)
                 : parse_cost(digits, line, kByteLeast, kByteMost, &copy.byte);
  }
  return refuse_line("no cost that is known", line);
}

/// The shortest number that reads as the same one, whatever the locale.
void add_line(std::string& text, const char* name, std::string_view part, double value) {
  char digits[32];
  const char* const end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  text.append(name).append(part).append(" = ").append(digits, static_cast<size_t>(end - digits)).append("\n");
}

Status close_section(Section&& section, std::vector<ModelCosts>* all) {
  const std::string& model = section.made.model;
  if (model.empty()) return TW_OK;
  if (section.fixed != section.byte) return refuse_line("half of a cost", model);
  section.made.costs.measured = section.fixed;
  all->push_back(std::move(section.made));
  return TW_OK;
}

Status open_section(std::string_view line, const std::vector<ModelCosts>& before, Section* out) {
  const std::string_view model = line.substr(kDevice.size());
  if (model.empty() || model.size() > kModelMax || ascii(model) != model) return refuse_line("no name of a device", line);
  if (before.size() == kDeviceModels) return refuse_line("too many devices", line);
  if (std::any_of(before.begin(), before.end(), [&](const ModelCosts& one) { return one.model == model; }))
    return refuse_line("a device for the second time", line);
  *out = Section();
  out->made.model = model;
  return TW_OK;
}

}  // namespace

std::span<const DeviceCost> device_costs() { return kCosts; }

uint32_t bit_of(CopyCosts DeviceCosts::*copy) {
  uint32_t bit = 1;
  for (const DeviceCost& one : kCosts) {
    if (one.copy == copy) return bit;
    bit <<= 1;
  }
  return 0;
}

Status parse_device_costs(std::string_view text, std::string_view machine, std::vector<ModelCosts>* out) {
  if (text.size() > kDeviceCostFileMax) return fail(TW_ERR_INVALID, "it is longer than %zu bytes", kDeviceCostFileMax);
  if (const Status status = parse_head(text, kHead, machine); is_error(status)) return status;
  std::vector<ModelCosts> all;
  Section section;
  for (;;) {
    if (text.empty()) return fail(TW_ERR_INVALID, "it has no end: it was cut");
    const std::string_view line = next_line(text);
    const bool head = line.substr(0, kDevice.size()) == kDevice;
    Status status = TW_OK;
    if (head || line == "end") status = close_section(std::move(section), &all);
    if (!is_error(status) && line == "end") break;
    if (!is_error(status) && head) status = open_section(line, all, &section);
    if (!is_error(status) && !head)
      status = section.made.model.empty() ? refuse_line("a cost of no device", line) : parse_line(line, &section);
    if (is_error(status)) return status;
  }
  if (!text.empty()) return fail(TW_ERR_INVALID, "something follows its end");
  *out = std::move(all);
  return TW_OK;
}

Status format_device_costs(std::span<const ModelCosts> all, std::string_view machine, std::string* text) {
  std::string made = head_of(kHead, machine);
  for (const ModelCosts& one : all) {
    made.append(kDevice).append(one.model).append("\n");
    for (const DeviceCost& cost : kCosts) {
      if ((one.costs.measured & bit_of(cost.copy)) == 0) continue;
      add_line(made, cost.name, kFixed, (one.costs.*cost.copy).fixed);
      add_line(made, cost.name, kByte, (one.costs.*cost.copy).byte);
    }
  }
  made.append("end\n");
  std::vector<ModelCosts> back;
  if (const Status status = parse_device_costs(made, machine, &back); is_error(status)) return status;
  *text = std::move(made);
  return TW_OK;
}

std::string device_cost_path(const std::string& file) { return file + ".devices"; }

Status load_device_costs(const std::string& path, std::vector<ModelCosts>* out) {
  std::string text;
  const Status status = read_own_file(path, kDeviceCostFileMax, &text);
  return status == TW_OK ? parse_device_costs(text, machine_name(), out) : status;
}

Status save_device_costs(const std::string& path, std::span<const ModelCosts> all) {
  std::string text;
  const Status status = format_device_costs(all, machine_name(), &text);
  return is_error(status) ? status : write_own_file(path, text);
}

}  // namespace thalweg::impl
