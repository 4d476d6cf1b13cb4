// SPDX-License-Identifier: Apache-2.0
// Rows of tests of the machine: named labels and values of any number, as a table with units, JSON lines or CSV.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "options.hpp"

namespace perf {

/// One measurement: what was measured (labels), how much (values), or why there is no value. The end of a value's name is its unit:
/// ns, _per_s (bytes_per_s: bytes of 1e9 a second in the table), _percent.
class Row {
 public:
  explicit Row(const char* test) : test_(test) {}
  Row& label(const char* name, const std::string& text);
  Row& label(const char* name, uint64_t number);
  Row& flag(const char* name, bool yes);
  Row& size(uint64_t bytes, const char* name = "bytes");
  Row& value(const char* name, double value);
  Row& verified(bool right);
  /// Instead of values: the reason.
  Row& unavailable(const std::string& why);
  /// Writes it to stdout; the table's heading too, where it is not the last one's.
  void print(Format format) const;

 private:
  enum class Kind { text, number, flag, size, value };
  struct Field {
    Kind kind;
    std::string name, text;
    uint64_t number;
    double value;
  };
  void print_json() const;
  void print_csv() const;
  void print_table() const;
  std::string test_, why_;
  std::vector<Field> fields_;
  int verified_ = -1;  // nothing to verify
};

}  // namespace perf
