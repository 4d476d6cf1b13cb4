// SPDX-License-Identifier: Apache-2.0
#include "routes/cost_file.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <bitset>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/log.hpp"
#include "routes/cost_text.hpp"

namespace thalweg::impl {

namespace {

constexpr std::string_view kHead = "thalweg-costs 1";
constexpr double kFrameMost = 1e8, kByteLeast = 1e-4, kByteMost = 1e3;

/// Those of shm, and of shm at a distance.
struct ShmField {
  const char* name;
  double LinkCosts::*value;
  double least, most;
};
constexpr ShmField kShm[] = {
    {"frame", &LinkCosts::frame, 1, kFrameMost},
    {"copy", &LinkCosts::copy, kByteLeast, kByteMost},
    {"serial_copy", &LinkCosts::serial_copy, kByteLeast, kByteMost},
    {"mapped", &LinkCosts::mapped, kByteLeast, kByteMost},
    {"kernel_fixed", &LinkCosts::kernel_fixed, 1, kFrameMost},
    {"kernel", &LinkCosts::kernel, kByteLeast, kByteMost},
    {"copy_large", &LinkCosts::copy_large, kByteLeast, kByteMost},
    {"mapped_large", &LinkCosts::mapped_large, kByteLeast, kByteMost},
    {"kernel_large", &LinkCosts::kernel_large, kByteLeast, kByteMost},
    {"streamed", &LinkCosts::streamed, 1, 1},
    {"stream_copy", &LinkCosts::stream_copy, kByteLeast, kByteMost},
    {"wide", &LinkCosts::wide, 1, 1},
};
constexpr CpuDistance kDistances[] = {CpuDistance::core, CpuDistance::cache, CpuDistance::node, CpuDistance::far};

void add_shm(const std::string& prefix, LinkCosts CostTable::*link, std::vector<CostField>* out) {
  for (const ShmField& one : kShm)
    out->push_back({prefix + one.name, link, one.value, one.least, one.most,
                    one.most == kFrameMost ? "ns"
                    : one.most == 1        ? ""
                                           : "ns/byte"});
}

std::vector<CostField> make_fields() {
  std::vector<CostField> fields;
  add_shm("shm.", &CostTable::shm, &fields);
  fields.push_back({"tcp.frame", &CostTable::tcp, &LinkCosts::frame, 1, kFrameMost, "ns"});
  fields.push_back({"tcp.copy", &CostTable::tcp, &LinkCosts::copy, kByteLeast, kByteMost, "ns/byte"});
  fields.push_back({"tcp.serial_copy", &CostTable::tcp, &LinkCosts::serial_copy, kByteLeast, kByteMost, "ns/byte"});
  fields.push_back({"tcp.reference", &CostTable::tcp, &LinkCosts::reference, kByteLeast, kByteMost, "ns/byte"});
  fields.push_back({"tcp.reference_large", &CostTable::tcp, &LinkCosts::reference_large, kByteLeast, kByteMost, "ns/byte"});
  for (const CpuDistance distance : kDistances)
    add_shm(std::string("shm.") + name_of(distance) + ".", costs_at(distance), &fields);
  return fields;
}

using Seen = std::bitset<128>;  // of cost_fields()

/// One line "name = value".
Status parse_value(std::string_view line, CostTable* table, Seen* seen) {
  std::string_view digits;
  const std::string_view name = name_in(line, &digits);
  const std::span<const CostField> fields = cost_fields();
  const auto field = std::find_if(fields.begin(), fields.end(), [&](const CostField& f) { return name == f.name; });
  if (digits.data() == nullptr || field == fields.end()) return refuse_line("no cost that is known", line);
  const size_t index = static_cast<size_t>(field - fields.begin());
  if (seen->test(index)) return refuse_line("a cost for the second time", line);
  seen->set(index);
  table->tcp_measured = table->tcp_measured || field->link == &CostTable::tcp;
  return parse_cost(digits, line, field->least, field->most, &(table->*field->link.*field->value));
}

/// Values missing for a distance that has others are those of all distances.
void complete(CostTable* table) {
  for (const CpuDistance distance : kDistances) {
    LinkCosts& costs = table->*costs_at(distance);
    const bool said = std::any_of(std::begin(kShm), std::end(kShm), [&](const ShmField& one) { return costs.*one.value != 0; });
    for (const ShmField& one : kShm)
      if (said && costs.*one.value == 0 && one.most != 1) costs.*one.value = table->shm.*one.value;
  }
}

/// Empty: costs are switched off, or there is no home for them; *why says which.
std::string cost_path(const std::string& machine, std::string* why) {
  const char* const given = getenv("THALWEG_COSTS");
  if (given != nullptr && std::string_view(given) == "off") {
    *why = "switched off by THALWEG_COSTS";
    return {};
  }
  if (given != nullptr && *given != 0) return given;
  const char* const cache = getenv("XDG_CACHE_HOME");
  const char* const home = getenv("HOME");
  std::string folder;
  if (cache != nullptr && *cache == '/') {
    folder.append(cache);
  } else if (home != nullptr && *home == '/') {
    folder.append(home).append("/.cache");
  } else {
    *why = "neither XDG_CACHE_HOME nor HOME names a folder";
    return {};
  }
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: only a name; the file names the machine in words
  for (const unsigned char c : machine) hash = (hash ^ c) * 0x100000001b3;
  char name[32];
  snprintf(name, sizeof name, "-%016llx", static_cast<unsigned long long>(hash));
  return folder.append("/thalweg/costs-").append(library_version()).append(name);
}

}  // namespace

std::span<const CostField> cost_fields() {
  static const auto* const fields = new std::vector<CostField>(make_fields());  // until the process ends
  return *fields;
}

LinkCosts CostTable::*costs_at(CpuDistance distance) {
  constexpr LinkCosts CostTable::*kAt[] = {&CostTable::shm_core, &CostTable::shm_cache, &CostTable::shm_node,
                                           &CostTable::shm_far};
  return distance == CpuDistance::count_ ? nullptr : kAt[static_cast<size_t>(distance)];
}

std::string machine_name() {
  utsname names{};
  uname(&names);
  std::string processor = names.machine, line;
  for (std::ifstream in("/proc/cpuinfo"); std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) != 0 || colon == std::string::npos) continue;
    processor = line.substr(colon + 2, 200);
    break;
  }
  std::string name = names.nodename;
  name.append("; ").append(processor).append("; ").append(names.release);
  return ascii(name);
}

Status parse_costs(std::string_view text, std::string_view machine, CostTable* out) {
  if (text.size() > kCostFileMax) return fail(TW_ERR_INVALID, "it is longer than %zu bytes", kCostFileMax);
  if (const Status status = parse_head(text, kHead, machine); is_error(status)) return status;
  CostTable table;
  Seen seen;
  for (;;) {
    if (text.empty()) return fail(TW_ERR_INVALID, "it has no end: it was cut");
    const std::string_view line = next_line(text);
    if (line == "end") break;
    if (const Status status = parse_value(line, &table, &seen); is_error(status)) return status;
  }
  if (!text.empty()) return fail(TW_ERR_INVALID, "something follows its end");
  complete(&table);
  out->tcp_measured = table.tcp_measured;
  for (const CostField& field : cost_fields()) out->*field.link.*field.value = table.*field.link.*field.value;
  return TW_OK;
}

Status format_costs(std::string_view values, std::string_view machine, std::string* text) {
  std::string made = head_of(kHead, machine).append(values);
  if (!values.empty() && values.back() != '\n') made.append("\n");
  made.append("end\n");
  CostTable table;
  if (const Status status = parse_costs(made, machine, &table); is_error(status)) return status;
  *text = std::move(made);
  return TW_OK;
}

CostTable load_costs(bool* wanted) {
  CostTable table;
  if (wanted != nullptr) *wanted = false;
  const std::string machine = machine_name();
  table.file = cost_path(machine, &table.why);
  if (table.file.empty()) return table;
  std::string text;
  Status status = read_own_file(table.file, kCostFileMax, &text);
  if (status == TW_ERR_NO_MATCH) {
    table.why = "not measured yet: thalweg tune does it";
    if (wanted != nullptr) *wanted = true;
    return table;
  }
  if (!is_error(status)) status = parse_costs(text, machine, &table);
  if (status == TW_ERR_STALE && wanted != nullptr) {
    table.why = last_error();
    *wanted = true;
    return table;
  }
  if (!is_error(status)) {
    table.source = table.file;
    return table;
  }
  table.why = last_error();
  std::string text_of_warning = "the measured costs in ";
  text_of_warning.append(table.file).append(" are ignored: ").append(table.why);
  warn_once("costs", text_of_warning.append(". Remedy: thalweg tune measures them again; THALWEG_COSTS=off does without"));
  return table;
}

Status save_costs(std::string_view values, std::string* path) {
  std::string why, text;
  const std::string machine = machine_name();
  const std::string file = cost_path(machine, &why);
  if (file.empty()) return fail(TW_ERR_INVALID, "no place for measured costs: %s", why.c_str());
  if (const Status status = format_costs(values, machine, &text); is_error(status)) return status;
  if (const Status status = write_own_file(file, text); is_error(status)) return status;
  *path = file;
  return TW_OK;
}

}  // namespace thalweg::impl
