// SPDX-License-Identifier: Apache-2.0
#include "machine/rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "report.hpp"

namespace perf {
namespace {

struct Unit {
  const char *end, *shown;
  double divisor;
};
/// By the end of a name; the longest first.
constexpr Unit kUnits[] = {{"bytes_per_s", "GB/s", 1e9}, {"per_s", "M/s", 1e6}, {"ns", "us", 1e3}, {"percent", "%", 1}};

const Unit* unit_of(const std::string& name) {
  for (const Unit& unit : kUnits) {
    if (name == unit.end || name.ends_with(std::string("_") + unit.end)) return &unit;
  }
  return nullptr;
}

/// "p99_ns": "p99 [us]".
std::string heading(const std::string& name) {
  const Unit* const unit = unit_of(name);
  if (unit == nullptr) return name;
  std::string word = name.substr(0, name.size() - std::string(unit->end).size());
  while (word.ends_with('_')) word.pop_back();
  return word + (word.empty() ? "[" : " [") + unit->shown + "]";
}

std::string number(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string padded(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

}  // namespace

Row& Row::label(const char* name, const std::string& text) {
  fields_.push_back({Kind::text, name, text, 0, 0});
  return *this;
}
Row& Row::label(const char* name, uint64_t number) {
  fields_.push_back({Kind::number, name, std::to_string(number), number, 0});
  return *this;
}
Row& Row::flag(const char* name, bool yes) {
  fields_.push_back({Kind::flag, name, yes ? "true" : "false", 0, 0});
  return *this;
}
Row& Row::size(uint64_t bytes, const char* name) {
  fields_.push_back({Kind::size, name, human_size(bytes), bytes, 0});
  return *this;
}
Row& Row::value(const char* name, double value) {
  const Unit* const unit = unit_of(name);
  fields_.push_back({Kind::value, name, number("%.4g", unit == nullptr ? value : value / unit->divisor), 0, value});
  return *this;
}
Row& Row::verified(bool right) {
  verified_ = right ? 1 : 0;
  return *this;
}
Row& Row::unavailable(const std::string& why) {
  why_ = why;
  return *this;
}

void Row::print_json() const {
  std::string line = "{\"test\": " + in_quotes(test_);
  for (const Field& f : fields_) {
    line += ", " + in_quotes(f.name) + ": ";
    if (f.kind == Kind::text) line += in_quotes(f.text);
    if (f.kind == Kind::number || f.kind == Kind::size) line += std::to_string(f.number);
    if (f.kind == Kind::flag) line += f.text;
    if (f.kind == Kind::value) line += std::isfinite(f.value) ? number("%.6g", f.value) : "null";  // JSON has no infinity
  }
  if (verified_ >= 0) line += std::string(", \"verified\": ") + (verified_ != 0 ? "true" : "false");
  if (!why_.empty()) line += ", \"unavailable\": " + in_quotes(why_);
  std::printf("%s}\n", line.c_str());
}

void Row::print_csv() const {
  std::string name = test_;
  uint64_t bytes = 0;
  for (const Field& f : fields_) {
    if (f.kind == Kind::text || f.kind == Kind::number) name += "_" + f.text;
    if (f.kind == Kind::size && (f.name == "bytes" || f.name == "size")) bytes = f.number;
  }
  std::replace(name.begin(), name.end(), ',', ' ');
  const char* const nothing = !why_.empty() ? "unavailable" : verified_ == 0 ? "not verified" : nullptr;
  if (nothing != nullptr) {
    std::printf("%s,%llu,,%s\n", name.c_str(), static_cast<unsigned long long>(bytes), nothing);
    return;
  }
  for (const Field& f : fields_) {
    if (f.kind == Kind::value)
      std::printf("%s,%llu,%.6g,%s\n", name.c_str(), static_cast<unsigned long long>(bytes), f.value, f.name.c_str());
  }
}

void Row::print_table() const {
  static std::string last;
  constexpr size_t kWidth = 11, kTextWidth = 16;
  std::string head = padded("test", kWidth), line = padded(test_, kWidth);
  for (const Field& f : fields_) {
    const std::string name = heading(f.name);
    const size_t width = std::max(name.size(), f.kind == Kind::text ? kTextWidth : kWidth);
    head += "  " + padded(name, width);
    line += "  " + padded(f.text, width);
  }
  if (why_.empty() && head != last) {
    std::printf("%s%s\n", last.empty() ? "" : "\n", head.c_str());
    last = head;
  }
  if (!why_.empty()) line += "  unavailable: " + why_;
  std::printf("%s%s\n", line.c_str(), verified_ == 0 ? "  NOT VERIFIED" : "");
}

void Row::print(Format format) const {
  if (verified_ == 0) note_wrong_data();
  if (format == Format::json)
    print_json();
  else if (format == Format::csv)
    print_csv();
  else
    print_table();
  flush_results();
}

}  // namespace perf
