// SPDX-License-Identifier: Apache-2.0
// Costs from a file, of the machine and of its devices: whatever parses is within its limits and comes back as it was; what does not
// changes nothing.
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "routes/cost_file.hpp"
#include "routes/device_cost_file.hpp"

using namespace thalweg::impl;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

bool same(const CostTable& one, const CostTable& other) {
  for (const CostField& field : cost_fields())
    if (one.*field.link.*field.value != other.*field.link.*field.value) return false;
  return true;
}

/// The values of a table as lines, each the shortest text that reads as the same number.
std::string lines(const CostTable& table) {
  std::string text;
  for (const CostField& field : cost_fields()) {
    const double value = table.*field.link.*field.value;
    if (value == 0) continue;  // of a distance of which nothing is said
    require(value >= field.least && value <= field.most);
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    text.append(field.name).append(" = ").append(digits, end).append("\n");
  }
  return text;
}

void require_same(const std::vector<ModelCosts>& one, const std::vector<ModelCosts>& other) {
  require(one.size() == other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    require(one[i].model == other[i].model && one[i].costs.measured == other[i].costs.measured);
    for (const DeviceCost& cost : device_costs()) {
      const CopyCosts &a = one[i].costs.*cost.copy, &b = other[i].costs.*cost.copy;
      require(a.fixed == b.fixed && a.byte == b.byte && a.fixed >= 1 && a.byte > 0);
    }
  }
}

/// Behind a good head, so that inputs reach the sections.
void devices(std::string_view given, std::string_view machine) {
  std::string head, text;
  require(format_device_costs({}, machine, &head) == TW_OK);
  head.resize(head.size() - 4);  // its end
  for (const std::string& whole : {std::string(given), head.append(given)}) {
    std::vector<ModelCosts> all, back;
    if (parse_device_costs(whole, machine, &all) != TW_OK) {
      require(all.empty());
      continue;
    }
    require(format_device_costs(all, machine, &text) == TW_OK);
    require(parse_device_costs(text, machine, &back) == TW_OK);
    require_same(all, back);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view given(reinterpret_cast<const char*>(data), size);
  const std::string_view machine = "m";
  devices(given, machine);
  CostTable table;
  // As a whole file, and as values behind a good head, so that inputs reach the checks of values.
  std::string text;
  const bool whole = parse_costs(given, machine, &table) == TW_OK;
  if (!whole) {
    static const CostTable defaults;
    require(same(table, defaults));
    if (format_costs(given, machine, &text) != TW_OK) return 0;
    require(parse_costs(text, machine, &table) == TW_OK);
  }
  std::string again;
  CostTable back;
  require(format_costs(lines(table), machine, &again) == TW_OK && parse_costs(again, machine, &back) == TW_OK);
  require(same(back, table));
  return 0;
}
