// SPDX-License-Identifier: Apache-2.0
// Costs from a file: whatever parses is within its limits and comes back as it was; what does not changes nothing.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "protocols/cost_file.hpp"

using namespace thalweg::impl;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// The values of a table as lines.
std::string lines(const CostTable& table) {
  std::string text;
  for (const CostField& field : cost_fields()) {
    const double value = table.*field.link.*field.value;
    require(value >= field.least && value <= field.most);
    char line[80];
    snprintf(line, sizeof line, "%s = %.17g\n", field.name, value);
    text += line;
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view given(reinterpret_cast<const char*>(data), size);
  const std::string_view machine = "m";
  CostTable table;
  // As a whole file, and as values behind a good head, so that inputs reach the checks of values.
  std::string text;
  const bool whole = parse_costs(given, machine, &table) == TW_OK;
  if (!whole) {
    require(lines(table) == lines(CostTable()));
    if (format_costs(given, machine, &text) != TW_OK) return 0;
    require(parse_costs(text, machine, &table) == TW_OK);
  }
  std::string again;
  CostTable back;
  require(format_costs(lines(table), machine, &again) == TW_OK && parse_costs(again, machine, &back) == TW_OK);
  require(lines(back) == lines(table));
  return 0;
}
