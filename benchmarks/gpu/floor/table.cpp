// SPDX-License-Identifier: Apache-2.0
// The table: lines at once, so that a run that is cut short has said what it measured; JSON at the end.
#include "bench.hpp"

namespace thalweg::floors {

void Table::add(const std::string& test, const std::string& variant, uint64_t size, double value, const char* unit,
                const char* peer) {
  std::printf("%-22s %-46s %10llu %12.3f %s\n", test.c_str(), variant.c_str(), static_cast<unsigned long long>(size), value,
              unit);
  std::fflush(stdout);
  rows_.push_back({test, variant, size, value, unit, peer});
}

void Table::note(const std::string& text) {
  std::printf("# %s\n", text.c_str());
  std::fflush(stdout);
  notes_.push_back(text);
}

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

/// Series as benchmarks/compare.py has them.
bool Table::write(const char* path) const {
  FILE* const file = std::fopen(path, "we");
  if (file == nullptr) return false;
  std::fprintf(file, "{\"series\": [");
  const char* separator = "\n";
  for (const Row& row : rows_) {
    std::fprintf(file,
                 "%s {\"peer\": \"%s\", \"transport\": %s, \"test\": %s, \"size\": %llu, \"unit\": \"%s\", "
                 "\"samples\": {\"unknown\": [%.6g]}}",
                 separator, row.peer, quoted(row.variant).c_str(), quoted(row.test).c_str(),
                 static_cast<unsigned long long>(row.size), row.unit, row.value);
    separator = ",\n";
  }
  std::fprintf(file, "\n],\n\"notes\": [");
  separator = "\n";
  for (const std::string& note : notes_) {
    std::fprintf(file, "%s %s", separator, quoted(note).c_str());
    separator = ",\n";
  }
  std::fprintf(file, "\n]}\n");
  return std::fclose(file) == 0;
}

}  // namespace thalweg::floors
