// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "pair.hpp"

namespace perf {
namespace {

/// As the other names of a row are: the unit at the end.
std::string key(const Figure& f) { return f.unit.empty() ? f.name : f.name + (f.unit == "%" ? "_percent" : "_" + f.unit); }

void print_json(const Result& r) {
  std::printf("{\"test\": %s, \"transport\": %s, \"size\": %zu, \"iterations\": %llu", in_quotes(r.test).c_str(),
              in_quotes(r.transport).c_str(), r.size, static_cast<unsigned long long>(r.iterations));
  if (!r.latency_us.empty()) {
    std::printf(", \"latency_us\": {\"min\": %.6g, \"p50\": %.6g, \"p90\": %.6g, \"p99\": %.6g, \"max\": %.6g}",
                percentile(r.latency_us, 0), percentile(r.latency_us, 50), percentile(r.latency_us, 90),
                percentile(r.latency_us, 99), percentile(r.latency_us, 100));
  }
  std::printf(
      ", \"bandwidth_GBps\": %.6g, \"rate_Mps\": %.6g, \"verified\": %s, \"fresh\": %s, \"route\": %s, \"memory\": [%s, %s]",
      r.bandwidth, r.rate, r.verified ? "true" : "false", r.fresh ? "true" : "false", in_quotes(r.route).c_str(),
      in_quotes(r.memory[0]).c_str(), in_quotes(r.memory[1]).c_str());
  if (!r.trigger.empty()) std::printf(", \"trigger\": %s", in_quotes(r.trigger).c_str());
  if (!r.figures.empty()) {
    std::printf(", \"figures\": {");
    for (const Figure& f : r.figures)
      std::printf("%s%s: %.6g", &f == &r.figures[0] ? "" : ", ", in_quotes(key(f)).c_str(), f.value);
    std::printf("}");
  }
  std::printf("}\n");
}

void print_csv(const Result& r) {
  if (!r.verified) {  // numbers that mean nothing
    std::printf("%s,%zu,,not verified\n", r.test.c_str(), r.size);
    return;
  }
  if (!r.latency_us.empty())
    std::printf("%s,%zu,%.6g,us\n", r.test.c_str(), r.size, percentile(r.latency_us, 50));
  else if (r.test.find("rate") != std::string::npos)
    std::printf("%s,%zu,%.6g,Mmsg/s\n", r.test.c_str(), r.size, r.rate);
  else
    std::printf("%s,%zu,%.6g,GB/s\n", r.test.c_str(), r.size, r.bandwidth);
  for (const Figure& f : r.figures)
    std::printf("%s_%s,%zu,%.6g,%s\n", r.test.c_str(), f.name.c_str(), r.size, f.value, f.unit.c_str());
}

}  // namespace

namespace {
bool any_wrong = false;  // of this process's rows, which one thread prints
}  // namespace

bool wrong_data() { return any_wrong; }
void note_wrong_data() { any_wrong = true; }

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    out += c;
  }
  return out + "\"";
}

void flush_results() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  end_with(std::string("the results cannot be written: ") + std::strerror(errno != 0 ? errno : EIO));
}

double percentile(std::vector<double> samples, double p) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  double position = p / 100 * static_cast<double>(samples.size() - 1);
  size_t low = static_cast<size_t>(std::floor(position)), high = static_cast<size_t>(std::ceil(position));
  return samples[low] + (samples[high] - samples[low]) * (position - static_cast<double>(low));
}

std::string human_size(size_t n) {
  char text[32];
  if (n >= 1u << 20 && n % (1u << 20) == 0)
    std::snprintf(text, sizeof text, "%zu MiB", n >> 20);
  else if (n >= 1024 && n % 1024 == 0)
    std::snprintf(text, sizeof text, "%zu KiB", n >> 10);
  else
    std::snprintf(text, sizeof text, "%zu B", n);
  return text;
}

void print_header(Format format, const std::string& what) {
  if (format != Format::table) return;
  std::printf("# %s\n%-12s %10s %10s %10s %10s %10s %10s  %s\n", what.c_str(), "test", "size", "p50 [us]", "p90 [us]",
              "p99 [us]", "[GB/s]", "[Mmsg/s]", "route");
}

void print(Format format, const Result& r) {
  if (!r.verified) note_wrong_data();
  if (format == Format::json)
    print_json(r);
  else if (format == Format::csv)
    print_csv(r);
  else {
    std::printf("%-12s %10s", r.test.c_str(), human_size(r.size).c_str());
    if (r.latency_us.empty())
      std::printf(" %10s %10s %10s", "-", "-", "-");
    else
      std::printf(" %10.3f %10.3f %10.3f", percentile(r.latency_us, 50), percentile(r.latency_us, 90),
                  percentile(r.latency_us, 99));
    std::printf(" %10.3f %10.4f  %s%s", r.bandwidth, r.rate, r.route.c_str(), r.fresh ? "" : ", reused");
    for (const Figure& f : r.figures)
      std::printf("  %s %.4g%s%s", f.name.c_str(), f.value, f.unit.empty() ? "" : " ", f.unit.c_str());
    std::printf("%s\n", r.verified ? "" : "  NOT VERIFIED");
  }
  flush_results();
}

}  // namespace perf
