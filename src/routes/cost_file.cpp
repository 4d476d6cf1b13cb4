// SPDX-License-Identifier: Apache-2.0
#include "routes/cost_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/log.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {

namespace {

constexpr std::string_view kHead = "thalweg-costs 1";
constexpr double kFrameMost = 1e8, kByteLeast = 1e-4, kByteMost = 1e3;

constexpr CostField kFields[] = {
    {"shm.frame", &CostTable::shm, &LinkCosts::frame, 1, kFrameMost, "ns"},
    {"shm.copy", &CostTable::shm, &LinkCosts::copy, kByteLeast, kByteMost, "ns/byte"},
    {"shm.serial_copy", &CostTable::shm, &LinkCosts::serial_copy, kByteLeast, kByteMost, "ns/byte"},
    {"shm.mapped", &CostTable::shm, &LinkCosts::mapped, kByteLeast, kByteMost, "ns/byte"},
    {"shm.kernel_fixed", &CostTable::shm, &LinkCosts::kernel_fixed, 1, kFrameMost, "ns"},
    {"shm.kernel", &CostTable::shm, &LinkCosts::kernel, kByteLeast, kByteMost, "ns/byte"},
    {"shm.copy_large", &CostTable::shm, &LinkCosts::copy_large, kByteLeast, kByteMost, "ns/byte"},
    {"shm.mapped_large", &CostTable::shm, &LinkCosts::mapped_large, kByteLeast, kByteMost, "ns/byte"},
    {"shm.kernel_large", &CostTable::shm, &LinkCosts::kernel_large, kByteLeast, kByteMost, "ns/byte"},
    {"tcp.frame", &CostTable::tcp, &LinkCosts::frame, 1, kFrameMost, "ns"},
    {"tcp.copy", &CostTable::tcp, &LinkCosts::copy, kByteLeast, kByteMost, "ns/byte"},
    {"tcp.serial_copy", &CostTable::tcp, &LinkCosts::serial_copy, kByteLeast, kByteMost, "ns/byte"},
    {"tcp.reference", &CostTable::tcp, &LinkCosts::reference, kByteLeast, kByteMost, "ns/byte"},
};

std::string library_version() {
  char text[40];
  snprintf(text, sizeof text, "%d.%d.%d", TW_VERSION_MAJOR, TW_VERSION_MINOR, TW_VERSION_PATCH);
  return text;
}

bool says(std::string_view line, std::string_view name, std::string_view value) {
  return line.substr(0, name.size()) == name && line.substr(name.size()) == value;
}

/// Cuts the first line off.
std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// What is shown or compared has nothing but printable ASCII in it: logs, JSON and terminals are no place for other bytes.
std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c < 0x20 || c > 0x7e) c = '?';
  return out;
}

Status refuse(const char* what, std::string_view line, Status status = TW_ERR_INVALID) {
  return fail(status, "%s: \"%s\"", what, printable(line.substr(0, 80)).c_str());
}

using Seen = std::bitset<std::size(kFields)>;

/// One line "name = value".
Status parse_value(std::string_view line, CostTable* table, Seen* seen) {
  const size_t equals = line.find(" = ");
  const std::string_view name = line.substr(0, std::min(equals, line.size()));
  const auto field = std::find_if(std::begin(kFields), std::end(kFields), [&](const CostField& f) { return name == f.name; });
  if (equals == std::string_view::npos || field == std::end(kFields)) return refuse("no cost that is known", line);
  const size_t index = static_cast<size_t>(field - kFields);
  if (seen->test(index)) return refuse("a cost for the second time", line);
  seen->set(index);
  const std::string_view digits = line.substr(equals + 3);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return refuse("no number", line);
  if (!(value >= field->least && value <= field->most)) return refuse("an absurd cost", line);  // not a number neither
  table->*field->link.*field->value = value;
  return TW_OK;
}

/// The user's own file and nobody else's to write. TW_ERR_NO_MATCH: there is none.
Status read_file(const std::string& path, std::string* text) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return errno == ENOENT ? Status(TW_ERR_NO_MATCH) : fail_errno(errno, "opening it");
  struct stat status;
  if (fstat(file.get(), &status) != 0) return fail_errno(errno, "fstat");
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(TW_ERR_INVALID, "it is not a file that only this user can write");
  text->resize(kCostFileMax + 1);
  const ssize_t n = read(file.get(), text->data(), text->size());
  if (n < 0) return fail_errno(errno, "reading it");
  text->resize(static_cast<size_t>(n));
  return TW_OK;
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
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: only a name; the file says the machine in words
  for (const unsigned char c : machine) hash = (hash ^ c) * 0x100000001b3;
  char name[64];
  snprintf(name, sizeof name, "/thalweg/costs-%016llx", static_cast<unsigned long long>(hash));
  return folder.append(name);
}

}  // namespace

Status make_place(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    if (mkdir(path.substr(0, at).c_str(), 0700) != 0 && errno != EEXIST)
      return fail(TW_ERR_IO, "the folder %s cannot be made: set XDG_CACHE_HOME or THALWEG_COSTS to a place that can be written",
                  path.substr(0, at).c_str());
  }
  return TW_OK;
}

std::span<const CostField> cost_fields() { return kFields; }

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
  return printable(name);
}

Status parse_costs(std::string_view text, std::string_view machine, CostTable* out) {
  if (text.size() > kCostFileMax) return fail(TW_ERR_INVALID, "it is longer than %zu bytes", kCostFileMax);
  if (const std::string_view head = next_line(text); head != kHead) return refuse("not costs of this format", head);
  if (const std::string_view line = next_line(text); !says(line, "library = ", library_version()))
    return refuse("measured with another version of the library", line, TW_ERR_STALE);
  if (const std::string_view line = next_line(text); !says(line, "machine = ", machine))
    return refuse("measured on another machine or kernel", line, TW_ERR_STALE);
  CostTable table;
  Seen seen;
  for (;;) {
    if (text.empty()) return fail(TW_ERR_INVALID, "it has no end: it was cut");
    const std::string_view line = next_line(text);
    if (line == "end") break;
    if (const Status status = parse_value(line, &table, &seen); is_error(status)) return status;
  }
  if (!text.empty()) return fail(TW_ERR_INVALID, "something follows its end");
  for (const CostField& field : kFields) out->*field.link.*field.value = table.*field.link.*field.value;
  return TW_OK;
}

Status format_costs(std::string_view values, std::string_view machine, std::string* text) {
  std::string made(kHead);
  made.append("\nlibrary = ").append(library_version()).append("\nmachine = ").append(machine).append("\n").append(values);
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
  Status status = read_file(table.file, &text);
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
  if (const Status status = make_place(file); is_error(status)) return status;
  std::string beside = file;
  beside.append(".XXXXXX");
  const UniqueFd out(mkostemp(beside.data(), O_CLOEXEC));
  const bool written = out && write(out.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written || rename(beside.c_str(), file.c_str()) != 0) {
    const int error = errno;
    if (out) unlink(beside.c_str());
    return fail_errno(error, ("writing " + file).c_str());
  }
  *path = file;
  return TW_OK;
}

}  // namespace thalweg::impl
