// SPDX-License-Identifier: Apache-2.0
// Rows of results: medians and percentiles, as a table with units, JSON lines or CSV.
#pragma once
#include <string>
#include <vector>

#include "options.hpp"

namespace perf {

/// A test's results beside its time.
struct Figure {
  std::string name;  // without spaces
  double value;
  std::string unit;  // "": a number
};

struct Result {
  std::string test, transport, route;
  std::string trigger;          // "": the operation's own call
  std::vector<Figure> figures;  // in the order of printing
  std::string memory[2];        // of this process's buffers and of the other's
  size_t size = 0;
  uint64_t iterations = 0;
  std::vector<double> latency_us;  // samples; empty for bandwidth tests
  double bandwidth = 0;            // GB/s (1e9 bytes)
  double rate = 0;                 // million messages a second
  double predicted_us = 0;         // by explain, of one operation; 0: none
  bool verified = false;
  bool fresh = false;  // each message was new data; else the same buffers, untouched
};

double percentile(std::vector<double> samples, double p);
std::string human_size(size_t bytes);
std::string in_quotes(const std::string& text);  // as JSON has it
void print_header(Format format, const std::string& what);
void print(Format format, const Result& result);
/// Ends the process with a text where what was printed cannot be written: lost results are no success.
void flush_results();
/// Was a row printed whose data was wrong? It makes the exit code 1.
bool wrong_data();
void note_wrong_data();  // by what prints rows

}  // namespace perf
