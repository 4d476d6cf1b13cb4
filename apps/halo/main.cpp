// SPDX-License-Identifier: Apache-2.0
// thalweg-halo: what the faces of a cube cost, by every way of exchanging them.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "halo/mpi.hpp"
#include "ranks/arguments.hpp"
#include "ranks/bar.hpp"
#include "ranks/launch.hpp"

namespace halo {
namespace {

constexpr const char* kHelp =
    R"(thalweg-halo: time and bandwidth of halo exchanges between processes, by every way to exchange them

  thalweg-halo                                      two processes on this machine's processor
  thalweg-halo --memory cuda --n 64,128,256         two GPUs
  thalweg run -n 4 thalweg-halo --region 26         four processes in a ring

A cube of N x N x N cells, k contiguous. Time is that of one exchange, in which every process sends and receives the region
once; MB/s is what one process sends in that time.

  --n 32,64,...          edges of the cube, in cells                       (32,64,128)
  --element 4,8          bytes of a cell: float32, float64                 (4,8)
  --region jk,ik,ij,26   planes to the next process: jk one block of N x N cells, ik N rows of N, ij N x N single cells, N apart;
                         26: the cube has a halo one wide, 13 of its neighbours are on the next process, 13 on the previous   (all)
  --way host,pack        comma list or all                                 (all)
           host          the host sends and receives tagged messages, strided by layouts
           queue         a stream of the memory's device, or a queue of the host, starts a prepared plan
           graph         the same, captured in a graph of ten exchanges
           kernel        a kernel (on the processor: the same code there) stores into the peer's cube, signals and waits
           pack          the program packs by loops (on a GPU: a kernel a box), sends contiguous messages, unpacks
           mpi           MPI_Isend and MPI_Irecv of MPI_Type_vector: `mpirun -n 2 thalweg-halo-mpi`, where it was built
  --memory PLACE         host, pinned, cuda (GPU of the rank's number), cuda:1, emulated, ...   (host)
  --processes N          how many to start here; not with `thalweg run`; 1: it is its own neighbour   (2)
  --seconds S            time spent per number in the table                (0.2)
  --rounds R             in which the ways take turns                      (5)
  --json                 one JSON object a line

Every way moves fresh random cells before and after it is timed; every cell of the cube is verified, also those that must not change.
)";

std::vector<std::string> way_names() {
  std::vector<std::string> names = {"host", "queue", "graph", "kernel", "pack"};
  if (has_mpi()) names.push_back("mpi");
  return names;
}

struct Options {
  std::vector<uint64_t> edges;
  std::vector<std::string> elements, regions, ways;
  std::string memory;
  unsigned processes;
  double seconds;
  unsigned rounds;
  bool json;
};

Options options_of(int argc, char** argv) {
  const apps::Arguments given(argc, argv, kHelp, {"n", "element", "region", "way", "memory", "processes", "seconds", "rounds"},
                              {"json"});
  Options o{{},
            given.words("element", "4,8", {"4", "8"}),
            given.words("region", "all", region_names()),
            given.words("way", "all", way_names()),
            given.text("memory", "host"),
            static_cast<unsigned>(given.number("processes", 2, 1)),
            given.number("seconds", 0.2, 0.0001),
            static_cast<unsigned>(given.number("rounds", 5, 1)),
            given.has("json")};
  for (const std::string& word : apps::split(given.text("n", "32,64,128"), ',')) {
    const uint64_t n = std::strtoull(word.c_str(), nullptr, 10);
    if (n < 2 || n > 2048) throw apps::Usage("--n " + word + ": wants numbers from 2 to 2048");
    o.edges.push_back(n);
  }
  return o;
}

struct Case {
  uint64_t n;
  size_t element;
  std::string region;
};

std::unique_ptr<Way> make(const std::string& way, apps::Ranks& ranks, Cube& cube, const std::string& place) {
  if (way == "host") return by_host(ranks, cube);
  if (way == "mpi") return by_mpi(ranks, cube);
  if (way == "kernel") return by_kernel(ranks, cube, place);
  if (way != "pack") return by_queue(ranks, cube, place == "pinned" ? "host" : place, way == "graph");
  return by_packing(ranks, cube, place);
}

void verify(Cube& cube, Way& way, const std::string& name) {
  // Alone, and one behind the other; new cells each time, so that exchanges that are lost behind the first are seen.
  for (const uint64_t count : {1, 1, 1, 10, 10}) {
    cube.fill();
    way.run(count);
    cube.check(name);
  }
}

/// Seconds of one exchange. The first is not counted: the ranks come to it at different times.
double timed(apps::Ranks& ranks, Way& way, uint64_t count) {
  using clock = std::chrono::steady_clock;
  way.run(1);
  const auto start = clock::now();
  way.run(count);
  return ranks.most(std::chrono::duration<double>(clock::now() - start).count() / static_cast<double>(count));
}

struct Result {
  uint64_t bytes;
  std::vector<double> seconds;  // of an exchange by each of the ways
};

/// Medians of rounds in which the ways take turns.
Result measure(apps::Ranks& ranks, const Options& o, const Case& c, const apps::Bar& bar, double done, double part) {
  const std::string place = ranks.place(o.memory);
  Cube cube(ranks, c.n, c.element, c.region, place);
  std::vector<std::unique_ptr<Way>> ways;
  std::vector<uint64_t> counts;
  std::vector<std::vector<double>> samples(o.ways.size());
  for (const std::string& name : o.ways) {
    ways.push_back(make(name, ranks, cube, place));
    verify(cube, *ways.back(), name);
    const double each = timed(ranks, *ways.back(), 2);
    counts.push_back(std::max<uint64_t>(static_cast<uint64_t>(o.seconds / o.rounds / each / 10), 1) * 10);
  }
  for (unsigned round = 0; round < o.rounds; ++round) {
    bar.at(done + part * round / o.rounds);
    for (size_t w = 0; w < ways.size(); ++w) samples[w].push_back(timed(ranks, *ways[w], counts[w]));
  }
  Result result{cube.bytes(), {}};
  for (size_t w = 0; w < ways.size(); ++w) {
    verify(cube, *ways[w], o.ways[w]);
    std::sort(samples[w].begin(), samples[w].end());
    result.seconds.push_back(samples[w][o.rounds / 2]);
  }
  ranks.align();  // nobody's cube ends while another still exchanges
  return result;
}

void print_header(const Options& o) {
  std::printf("%5s %-8s %-6s %10s", "N", "type", "region", "bytes");
  for (const std::string& way : o.ways) std::printf(" %8s us %8s", way.c_str(), "MB/s");
  std::printf("\n");
}

void print(const apps::Ranks& ranks, const Options& o, const Case& c, const Result& result) {
  const char* type = c.element == 4 ? "float32" : "float64";
  const auto rate = [&](double each) { return static_cast<double>(result.bytes) / each / 1e6; };
  if (!o.json) std::printf("%5zu %-8s %-6s %10zu", size_t{c.n}, type, c.region.c_str(), size_t{result.bytes});
  for (size_t w = 0; w < result.seconds.size(); ++w) {
    if (o.json) {
      std::printf(
          "{\"app\": \"halo\", \"n\": %zu, \"type\": \"%s\", \"region\": \"%s\", \"memory\": \"%s\", \"processes\": %d, "
          "\"way\": \"%s\", \"bytes\": %zu, \"us\": %.6g, \"MBps\": %.6g, \"verified\": true}\n",
          size_t{c.n}, type, c.region.c_str(), o.memory.c_str(), ranks.size(), o.ways[w].c_str(), size_t{result.bytes},
          result.seconds[w] * 1e6, rate(result.seconds[w]));
    } else {
      std::printf(" %11.2f %8.0f", result.seconds[w] * 1e6, rate(result.seconds[w]));
    }
  }
  if (!o.json) std::printf("\n");
  apps::flush_results();
}

void all_cases(apps::Ranks& ranks, const Options& o) {
  const bool first = ranks.rank() == 0;
  const size_t count = o.edges.size() * o.elements.size() * o.regions.size();
  double done = 0;
  if (first && !o.json) print_header(o);
  for (const uint64_t n : o.edges)
    for (const std::string& element : o.elements)
      for (const std::string& region : o.regions) {
        const Case c{n, element == "4" ? size_t{4} : size_t{8}, region};
        Result result;
        {
          const apps::Bar bar(first, "N " + std::to_string(n) + ", " + region);
          result = measure(ranks, o, c, bar, done / static_cast<double>(count), 1 / static_cast<double>(count));
        }
        if (first) print(ranks, o, c, result);
        done += 1;
      }
}

int run(int argc, char** argv) {
  const Options o = options_of(argc, argv);
  start_mpi();
  const int code = apps::run(o.processes, argv, [&](apps::Ranks& ranks) { all_cases(ranks, o); });
  if (code == 0) end_mpi();  // else mpirun ends the others
  return code;
}

}  // namespace
}  // namespace halo

int main(int argc, char** argv) try { return halo::run(argc, argv); } catch (const apps::Usage& error) {
  std::fprintf(stderr, "thalweg-halo: %s\n", error.what());
  return 2;
}
