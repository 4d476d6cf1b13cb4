// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "collectives.hpp"
#include "gpu.hpp"
#include "machine/alone.hpp"

namespace perf {
namespace {

constexpr const char* kHelp = R"(thalweg perf: how fast are two processes that talk through Thalweg?

  thalweg perf TEST [HOST[:PORT] | --listen [PORT]] [options]

Without HOST the other process is started here and the two are pinned to different cores. With --listen this process serves;
run the same on the other machine with this one's HOST:PORT (default port 27182). Both need the same job key.

Tests   tag_lat tag_bw tag_bibw tag_rate   tagged messages: one-way latency, bandwidth, both directions, message rate
        am_lat am_bw am_rate               active messages
        bytes_lat bytes_bw                 byte streams
        put_lat put_bw get_lat get_bw      one-sided (the latency of a put: until the target's polling program sees it)
        blocks_bw                          one put of many blocks by index: 256 MiB of 64 KiB, of 4 KiB; 65,536 of 64 bytes
        atomic_lat atomic_rate             fetch-and-add; add without fetching
        signal_lat                         plan: a signal and its answer, one way
        chain                              plan: --window pieces, one start, one signal behind them; beside it the same bytes
                                           contiguous, and a call for each piece. --size: bytes of all pieces
        strided_put                        plan: the ij face of a cube of doubles, to the same and to contiguous memory; beside
                                           it the faces ik (rows) and jk (contiguous). --size: bytes of a face
        overlap                            a receive while its process computes: how much of the transfer the computation
                                           hides, in percent (100: all of it); try it with --progress thread as well.
                                           hidden: the sender progresses. receiver_first_hidden, sender_first_hidden: it
                                           computes, too, and nobody progresses once both have posted, in this order
        daxpy                              y += a * x, with x in the other process's memory and read in place; beside it a get.
                                           By the CPU, or where one of them is on a GPU by a kernel, with a copy kernel beside
        floor                              what this machine allows: cache line, memcpy, process_vm_readv, raw TCP
        allreduce alltoall allgather       collectives of float32 among -n processes, or all that a launcher has started: the
        reduce_scatter bcast barrier       slowest rank's time, and bandwidths as NCCL's tests define them: --size is of the longer
                                           buffer of a rank, [GB/s] size over time, bus: times 2(n-1)/n for allreduce, 1 for
                                           bcast, (n-1)/n else
        memory                             this machine, without the library: STREAM (copy, scale, add, triad) by each NUMA node's
                                           processors in each node's memory, in arrays of 4 times the last level's caches
        tiers                              read, write, triad and copies in and between DRAM, tmpfs and a mapped file; the file also
                                           with its pages on the disk; small writes until they are there
        sockets                            unix and loopback TCP sockets: latency and bandwidth
        pages                              the first touch of a page, by CPU and GPU (managed memory), and after it was asked for
        copies                             host and GPUs, each to each: by engine, by kernels that load or store, through the host;
                                           one way and both
        flags                              host and kernels, kernels of two GPUs; how long until a stream acts
        atomics                            adds to one word by host and GPU, alone and at once
        collaborate                        host and GPU together (without a GPU, threads): histograms by input and by output, padding,
                                           compaction, tasks, search; D: explicit copies, U: one shared memory
        tune                               measures this machine's costs and keeps them: routes are chosen by them
        tune --check                       keeps nothing: every way by force beside the choice, and predictions beside times, for
                                           shm, tcp and device memory; --paths shm,tcp,device-device,... (all), --rounds N (3).
                                           A line PASS or FAIL for each path; exit code 1: not all pass

Options
  --size 8 | 8,1K,1M | 1:64M    bytes; a range goes in powers of two             (default: a list per test)
  --transport auto|self|shm|tcp                                                  (auto)
  --window N                    messages in flight in bandwidth and rate tests, each from its own buffer (64)
  --seconds S                   time spent per size                              (0.5)
  --threads T                   pairs of workers, each with its own thread (1); memory, tiers, collaborate: threads of the host (one
                                for each processor that the process may use)
  --tmpfs DIR, --disk DIR       folders of tiers and pages                       (/dev/shm, and TMPDIR or /tmp)
  --layout strided:COUNT,BLOCK,STRIDE   both sides strided, COUNT blocks of BLOCK bytes, STRIDE apart: instead of --size
  --memory plain|huge|PLACE     malloc, transparent huge pages, or tw_memory_allocate with that place: host, pinned,
                                cuda[:N], managed[:N], vmm[:N], pool[:N], emulated[:N] (plain; one-sided: host); copies, flags,
                                atomics, pages: cuda:N (all GPUs); collaborate: host, pinned, managed:N, cuda:N
  --peer-memory ...             of the other process's buffers (as --memory)
  -n N                          processes of a collective's test, each pinned to a core; a device in --memory without a number is
                                the rank's own; --peer-memory is that of all but rank 0 (2)
  --nonblocking                 collectives: with a request; figure hidden: how much of the shorter one of the collective and a
                                computation that takes as long is hidden where the one goes on during the other
  --algorithm NAME              collectives: by force (thalweg explain has the names)
  --trigger host|queue|graph|kernel|plan
                                host, queue, graph: start prepared plans, by the host, in the order of a queue (a stream
                                of the buffers' device, or a thread where they are host memory), or captured once and
                                replayed; for put_lat, tag_lat (a channel) and all tests of plans (default there: host).
                                kernel: device code (docs/kernels.md), for put_lat, signal_lat, put_bw, strided_put, tag_lat
                                (a channel) and daxpy: kernels of this tool on the devices of the buffers, --memory cuda:0
                                --peer-memory cuda:1, and without a device their twins on the CPU. A side with host memory
                                answers a device's puts by its CPU, with a signal. Figure packed: the flag beside the data.
                                Collectives: queue: single ones in the order of a queue (tw_allreduce_on), graph: those
                                captured; host, plan: a prepared plan, by the host or on a queue. The same buffers, untouched
  --waits auto|kernel|ahead     how a device's queue waits for a channel's other end: in the plan's kernel, or in one of
                                one block ahead of it          (auto)
  --persistent BLOCKS           small copies of devices by a kernel that stays, of 1 to 8 thread blocks: THALWEG_PERSISTENT of both
                                processes, when they are started here                     (none)
  --way NAME                    by force: large transfers go by this way alone where it is possible, else as frames: eager, frames,
                                mapped, kernel; of device memory push, pull, staging. THALWEG_WAY of both processes, when
                                they are started here                                             (what is best)
  --progress caller|thread      who progresses the workers: the measuring threads, or the library's own (caller)
  --reuse                       send, put and get the same buffers again and again, untouched. Without it each message of tagged
                                messages, active messages, byte streams, puts and gets is new data, as a program's is: its
                                owner stores into each cache line of it first (a get's owner outside of the measured time)
  --sleep                       wait in the kernel instead of polling
  --tls                         TLS 1.3 on TCP
  --json                        one JSON object a line; --csv: test,size,value,unit; for wrong data test,size,,not verified
Payload is verified at every size; exit code 1: some was wrong, 3: the other process is gone, or something failed. Latency is one way: half a round trip, for ping-pong tests.
)";

bool parse_size(const std::string& text, size_t* out) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || value < 0) return false;
  switch (*end) {
    case 'k':
    case 'K':
      value *= 1024;
      ++end;
      break;
    case 'm':
    case 'M':
      value *= 1048576;
      ++end;
      break;
    case 'g':
    case 'G':
      value *= 1073741824.0;
      ++end;
      break;
    default:
      break;
  }
  if (*end != 0 || value > 1e15) return false;
  *out = static_cast<size_t>(value);
  return true;
}

bool parse_sizes(const std::string& text, std::vector<size_t>* out) {
  if (size_t colon = text.find(':'); colon != std::string::npos) {
    size_t first = 0, last = 0;
    if (!parse_size(text.substr(0, colon), &first) || !parse_size(text.substr(colon + 1), &last) || first == 0 || first > last)
      return false;
    for (size_t n = first; n < last; n *= 2) out->push_back(n);
    out->push_back(last);
    return true;
  }
  for (size_t from = 0; from <= text.size();) {
    size_t comma = std::min(text.find(',', from), text.size());
    size_t n = 0;
    if (!parse_size(text.substr(from, comma - from), &n)) return false;
    out->push_back(n);
    from = comma + 1;
  }
  return true;
}

bool parse_layout(const std::string& text, Layout* out) {
  unsigned long long count = 0, block = 0, stride = 0;
  if (std::sscanf(text.c_str(), "strided:%llu,%llu,%llu", &count, &block, &stride) != 3) return false;
  if (count == 0 || block == 0 || stride < block) return false;
  *out = {count, block, stride};
  return true;
}

bool refuse(const std::string& why) {
  std::fprintf(stderr, "thalweg perf: %s\nTry: thalweg perf --help\n", why.c_str());
  return false;
}

bool parse_trigger(const std::string& text, Trigger* out) {
  for (const Trigger trigger : {Trigger::host, Trigger::queue, Trigger::graph, Trigger::kernel, Trigger::plan}) {
    if (text != trigger_name(trigger)) continue;
    *out = trigger;
    return true;
  }
  return false;
}

bool apply(Options* o, const std::string& name, const std::string& value) {
  if (name == "--size") return parse_sizes(value, &o->sizes) || refuse("--size " + value + ": not a size, list or range");
  if (name == "--layout") return parse_layout(value, &o->layout) || refuse("--layout wants strided:COUNT,BLOCK,STRIDE");
  if (name == "--transport") {
    if (value != "auto" && value != "self" && value != "shm" && value != "tcp")
      return refuse("--transport: auto, self, shm or tcp");
    o->transport = value;
    return true;
  }
  if (name == "--trigger") {
    return parse_trigger(value, &o->trigger) || refuse("--trigger " + value + ": host, queue, graph, kernel or plan");
  }
  if (name == "--waits") {
    constexpr const char* kNames[] = {"auto", "kernel", "ahead"};  // as TW_WAITS_*
    const auto* const found = std::find(std::begin(kNames), std::end(kNames), value);
    if (found == std::end(kNames)) return refuse("--waits: auto, kernel or ahead");
    o->waits = static_cast<uint8_t>(found - std::begin(kNames));
    return true;
  }
  if (name == "--progress") {
    if (value != "caller" && value != "thread") return refuse("--progress: caller or thread");
    o->progress_thread = value == "thread";
    return true;
  }
  if (name == "--persistent") {  // the library checks it; the other process inherits it
    setenv("THALWEG_PERSISTENT", value.c_str(), 1);
    return true;
  }
  if (name == "--way") {  // as --persistent
    setenv("THALWEG_WAY", value.c_str(), 1);
    return true;
  }
  if (name == "--memory" || name == "--peer-memory") {  // the library knows what is a place
    if (value.empty() || value.size() >= kMemoryName) return refuse(name + " " + value + ": no such memory");
    o->memory[name == "--peer-memory"] = value;
    return true;
  }
  if (name == "--algorithm") {
    o->algorithm = value;
    return true;
  }
  if (name == "--tmpfs" || name == "--disk") {
    if (value.empty()) return refuse(name + " wants a folder");
    (name == "--tmpfs" ? o->tmpfs : o->disk) = value;
    return true;
  }
  if (name == "--paths") {
    std::istringstream names(value);
    for (std::string one; std::getline(names, one, ',');) o->paths.push_back(one);
    return true;
  }
  double number = std::strtod(value.c_str(), nullptr);
  if (name == "--seconds") return (o->seconds = number) > 0 || refuse("--seconds wants a positive number");
  if (number < 1 || number > 65536) return refuse(name + " wants a number from 1 to 65536");
  unsigned& to = name == "--window" ? o->window : name == "--rounds" ? o->rounds : name == "-n" ? o->ranks : o->threads;
  to = static_cast<unsigned>(number);
  return true;
}

/// What tests of collectives have no use for.
bool check_collective(const Options& o) {
  if (!is_collective(o.test)) {
    if (o.trigger == Trigger::plan)
      return refuse("--trigger plan is for collectives; others' plans are started by host, queue or graph");
    return (!o.nonblocking && o.algorithm.empty()) || refuse("--nonblocking and --algorithm are for collectives");
  }
  if (!o.host.empty() || o.listen_port >= 0)
    return refuse("processes of collectives are started here, by -n, or on several machines by srun or mpirun");
  if (o.trigger == Trigger::kernel)
    return refuse("no kernel of a program's starts a collective: --trigger host, queue, graph or plan");
  if (o.trigger != Trigger::call && o.nonblocking)
    return refuse("--nonblocking is for a collective's own call, without --trigger");
  if (o.layout || o.threads != 1 || o.sleep || o.transport == "self")
    return refuse("--layout, --threads, --sleep and --transport self are not for collectives");
  return true;
}

/// What tests of the machine have no use for.
bool check_alone(const Options& o) {
  if (find_alone(o.test) == nullptr)
    return (o.tmpfs.empty() && o.disk.empty()) || refuse("--tmpfs and --disk are folders of tiers and pages");
  if (!o.host.empty() || o.listen_port >= 0) return refuse(o.test + " measures this machine: neither HOST nor --listen");
  if (o.trigger != Trigger::call || o.layout || o.tls || o.progress_thread || o.transport != "auto")
    return refuse("--trigger, --layout, --tls, --progress and --transport are not for " + o.test);
  if (std::count(o.sizes.begin(), o.sizes.end(), size_t{0}) != 0) return refuse(o.test + ": --size from 1");
  const bool one = o.test == "memory" || o.test == "tiers" || o.test == "pages" || o.test == "collaborate";
  if (one && o.sizes.size() > 1) return refuse(o.test + " takes one --size: of an array, of all pages, or of the input");
  return true;
}

/// What kernels cannot do, whatever the machine.
bool check_kernels(Options* o) {
  const bool device[2] = {on_device(o->memory[0]), on_device(o->memory[1])};
  if (o->test == "daxpy" && o->trigger == Trigger::call && (device[0] || device[1])) o->trigger = Trigger::kernel;
  if (o->trigger != Trigger::kernel) return true;
  if (o->layout) return refuse("--trigger kernel puts contiguous buffers; strided_put has faces of a cube");
  if (o->threads != 1 && (device[0] || device[1]))
    return refuse("kernels of several threads would wait for each other's multiprocessors: --threads 1");
  if (o->test == "put_bw" && device[1] && !device[0])
    return refuse(
        "put_bw --trigger kernel runs where this side's buffers are, and a CPU cannot store into a device: --memory cuda:N");
  for (const std::string& memory : o->memory) {
    if (const std::string why = why_no_kernels(memory); !why.empty()) return refuse(why);
  }
  return true;
}

}  // namespace

const char* trigger_name(Trigger trigger) {
  constexpr const char* kNames[] = {"", "host", "queue", "graph", "kernel", "plan"};
  return kNames[static_cast<size_t>(trigger)];
}

const std::vector<const char*>& test_names() {
  static const std::vector<const char*> names = {
      "tag_lat",  "tag_bw",      "tag_bibw",       "tag_rate",  "am_lat",      "am_bw",     "am_rate",    "put_lat",
      "put_bw",   "get_lat",     "get_bw",         "bytes_lat", "bytes_bw",    "blocks_bw", "atomic_lat", "atomic_rate",
      "overlap",  "daxpy",       "signal_lat",     "chain",     "strided_put", "floor",     "tune",       "allreduce",
      "alltoall", "allgather",   "reduce_scatter", "bcast",     "barrier",     "memory",    "tiers",      "sockets",
      "pages",    "collaborate", "copies",         "flags",     "atomics"};
  return names;
}

bool on_device(const std::string& memory) {
  return memory != "plain" && memory != "huge" && memory != "host" && memory != "pinned";
}

void print_help() { std::fputs(kHelp, stdout); }

bool parse(int argc, char** argv, Options* out) {
  std::vector<std::string> plain;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (a == "-h" || a == "--help") {
      print_help();
      std::exit(0);
    }
    if (a == "--json") {
      out->format = Format::json;
      continue;
    }
    if (a == "--csv") {
      out->format = Format::csv;
      continue;
    }
    if (a == "--tls") {
      out->tls = true;
      continue;
    }
    if (a == "--sleep") {
      out->sleep = true;
      continue;
    }
    if (a == "--check") {
      out->check = true;
      continue;
    }
    if (a == "--nonblocking") {
      out->nonblocking = true;
      continue;
    }
    if (a == "--reuse") {
      out->reuse = true;
      continue;
    }
    if (a == "--inherit" && i + 1 < argc) {
      out->inherited = std::atoi(argv[++i]);
      continue;
    }
    if (a == "--listen") {
      out->listen_port = 27182;
      if (i + 1 < argc && argv[i + 1][0] >= '0' && argv[i + 1][0] <= '9') out->listen_port = std::atoi(argv[++i]);
      continue;
    }
    if (a.rfind("--", 0) == 0 || a == "-n") {
      static const char* known[] = {"--size",    "--layout",     "--transport", "--memory",   "--peer-memory",
                                    "--seconds", "--window",     "--threads",   "--progress", "--trigger",
                                    "--waits",   "--persistent", "--way",       "--paths",    "--rounds",
                                    "-n",        "--algorithm",  "--tmpfs",     "--disk"};
      if (std::none_of(std::begin(known), std::end(known), [&](const char* k) { return a == k; }))
        return refuse("no option " + a);
      if (i + 1 >= argc) return refuse(a + " wants a value");
      if (!apply(out, a, argv[++i])) return false;
      continue;
    }
    plain.push_back(a);
  }
  const bool alone = !plain.empty() && find_alone(plain[0]) != nullptr;
  if (out->threads == 0 && !alone) out->threads = 1;
  if (out->inherited >= 0 || (out->listen_port >= 0 && plain.empty())) return true;
  if (plain.empty() || plain.size() > 2) return refuse("which TEST?");
  out->test = plain[0];
  if (plain.size() == 2) out->host = plain[1];
  if (out->test == "daxpy") out->window = 1;  // one operand, whatever its size
  if (out->check && out->test != "tune") return refuse("--check is for tune");
  const auto& names = test_names();
  if (std::none_of(names.begin(), names.end(), [&](const char* n) { return out->test == n; }))
    return refuse("no test " + out->test);
  bool one_sided = out->test[0] == 'p' || out->test[0] == 'g' || out->test == "signal_lat" || out->test == "chain" ||
                   out->test == "daxpy" || out->test == "strided_put" || out->test.rfind("atomic", 0) == 0 ||
                   out->test == "blocks_bw";
  one_sided |= out->trigger == Trigger::kernel;  // device code reaches what is mapped
  if (!alone) {                                  // tests of the machine choose by themselves
    if (out->memory[0].empty()) out->memory[0] = one_sided ? "host" : "plain";
    if (out->memory[1].empty()) out->memory[1] = out->memory[0];
  }
  if (!check_alone(*out) || !check_collective(*out) || !check_kernels(out)) return false;
  if (out->layout && out->test == "tune") return refuse("--layout does not apply to tune");
  if (out->layout && out->sizes.empty()) out->sizes = {out->layout.bytes()};
  return true;
}

}  // namespace perf
