// SPDX-License-Identifier: Apache-2.0
#include "model/jobs.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "collectives/algorithms.hpp"
#include "unit/collectives/reference.hpp"

namespace thalweg::model {
namespace {

using impl::CollectiveKind;
using test::Values;

constexpr const char* kVerbs[] = {"barrier",   "broadcast",  "reduce", "allreduce",     "reduce_scatter", "reduce_scatterv",
                                  "allgather", "allgatherv", "gather", "gatherv",       "scatter",        "scatterv",
                                  "alltoall",  "alltoallv",  "scan",   "exclusive_scan"};
static_assert(std::size(kVerbs) == static_cast<size_t>(Together::count_));
constexpr const char* kClasses[] = {"integer", "float", "half", "float8", "bool", "user"};
static_assert(std::size(kClasses) == static_cast<size_t>(TypeClass::count_));
constexpr const char* kTypes[] = {"float16", "bfloat16", "float32", "float64",     "int8",        "int16",
                                  "int32",   "int64",    "uint8",   "float8_e4m3", "float8_e5m2", "bool"};
constexpr const char* kOps[] = {"sum", "product", "min", "max", "and", "or", "xor", "average", "scaled_sum", "user"};

bool is_scan(Together verb) { return verb == Together::scan || verb == Together::exclusive_scan; }
bool is_float8(uint32_t type) { return type == TW_TYPE_FLOAT8_E4M3 || type == TW_TYPE_FLOAT8_E5M2; }
bool is_bitwise(uint32_t op) { return op == TW_REDUCE_AND || op == TW_REDUCE_OR || op == TW_REDUCE_XOR; }
bool counts_at_root(Together verb) { return verb == Together::gatherv || verb == Together::scatterv; }
bool has_root(Together verb) {
  return verb == Together::broadcast || verb == Together::reduce || verb == Together::gather || verb == Together::gatherv ||
         verb == Together::scatter || verb == Together::scatterv;
}

/// As ranks describe it to the choice among algorithms.
bool applies(const impl::Algorithm& algorithm, Together verb, uint32_t size, bool commutative, bool repeatable) {
  const std::vector<uint64_t> none(size);
  impl::Collective c;
  c.kind = kind_of(verb);
  c.size = size;
  c.commutative = commutative;
  c.repeatable = repeatable;
  c.counts_at_root = counts_at_root(verb);
  if (verb == Together::alltoallv) c.send_counts = none.data();
  if (verb == Together::alltoallv || verb == Together::allgatherv || verb == Together::reduce_scatterv)
    c.recv_counts = none.data();
  return algorithm.applies(c);
}

const impl::Algorithm* algorithm_of(Together verb, unsigned n) {
  for (const impl::Algorithm& one : impl::algorithms_of(kind_of(verb))) {
    if (one.write != nullptr && --n == 0) return &one;
  }
  return nullptr;
}

/// With a schedule.
unsigned algorithms_of(Together verb) {
  unsigned n = 1;
  while (algorithm_of(verb, n + 1) != nullptr) ++n;
  return n;
}

/// f(from, inout): what is not 0 replaces.
tw_status last_of(const void* from, void* inout, size_t count, void* arg) {
  const size_t size = *static_cast<const size_t*>(arg);
  static constexpr char kZero[8] = {};
  for (size_t i = 0; i < count; ++i) {
    const char* const one = static_cast<const char*>(from) + i * size;
    if (std::memcmp(one, kZero, size) != 0) std::memcpy(static_cast<char*>(inout) + i * size, one, size);
  }
  return TW_OK;
}
tw_status exclusive_or(const void* from, void* inout, size_t count, void* arg) {
  const size_t bytes = count * *static_cast<const size_t*>(arg);
  for (size_t i = 0; i < bytes; ++i) {
    auto& byte = static_cast<unsigned char*>(inout)[i];
    byte = static_cast<unsigned char>(byte ^ static_cast<const unsigned char*>(from)[i]);
  }
  return TW_OK;
}

Bytes bytes_of(const std::string& text) {
  Bytes bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

class Maker {
 public:
  Maker(const Program& program, const Op& op) : op_(op), random_(op.seed + uint64_t{op.id} * 0x9e3779b97f4a7c15u) {
    job_.verb = static_cast<Together>(op.memory % static_cast<unsigned>(Together::count_));
    job_.group = op.tag % kGroups;
    job_.workers = ranks_of(program, job_.group);
    size_ = job_.workers.size();
    job_.shares.resize(size_);
  }
  Job make() {
    choose();
    set_counts();
    set_inputs();
    for (size_t rank = 0; rank < size_; ++rank) {
      set_kinds(job_.shares[rank]);
      fill(rank);
    }
    return std::move(job_);
  }

 private:
  void choose();
  void choose_operation();
  void set_counts();
  void set_offsets(Share& share);
  void set_inputs();
  void set_kinds(Share& share);
  double value(size_t rank);
  void fill(size_t rank);
  void fill_moved(size_t rank);
  void fill_combined(size_t rank);

  bool has(uint32_t flag) const { return (op_.flags & flag) != 0; }
  bool at_root(size_t rank) const { return rank == job_.root; }
  size_t element() const { return test::size_of(job_.type); }
  /// Elements of what rank sends to `to` in a packed input.
  size_t begin_of(size_t rank, size_t to) const {
    return std::accumulate(moved_[rank].begin(), moved_[rank].begin() + static_cast<std::ptrdiff_t>(to), size_t{0});
  }
  Bytes input(size_t rank, size_t begin, size_t count) const {
    const auto from = inputs_[rank].begin() + static_cast<std::ptrdiff_t>(begin);
    return bytes_of(test::encode(job_.type, Values(from, from + static_cast<std::ptrdiff_t>(count))));
  }
  Bytes input(size_t rank) const { return input(rank, 0, inputs_[rank].size()); }
  Bytes combined(size_t last, size_t begin, size_t count) const;
  Bytes noise(size_t elements) {
    Bytes bytes(elements * element());
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_.next());
    return bytes;
  }
  void put(Bytes& to, size_t at, const Bytes& from) const {
    std::copy(from.begin(), from.end(), to.begin() + static_cast<std::ptrdiff_t>(at * element()));
  }
  static size_t extent(const std::vector<size_t>& counts, const std::vector<size_t>& at) {
    size_t most = 0;
    for (size_t i = 0; i < counts.size(); ++i) most = std::max(most, at[i] + counts[i]);
    return most;
  }

  const Op& op_;
  Random random_;
  Job job_;
  size_t size_ = 0;
  std::vector<std::vector<size_t>> moved_;  // elements, from rank to rank; of verbs without blocks all in the first
  std::vector<Values> inputs_;              // packed
};

void Maker::choose() {
  job_.type = job_.verb == Together::barrier ? 0 : op_.kind % std::size(kTypes);
  job_.root = has_root(job_.verb) ? op_.of % static_cast<uint32_t>(size_) : 0;
  job_.repeatable = has(kRepeatable);
  if (combines(job_.verb)) choose_operation();
  const unsigned wanted = op_.offset == 0 ? 0 : 1 + (op_.offset - 1) % algorithms_of(job_.verb);
  const impl::Algorithm* const algorithm = wanted == 0 ? nullptr : algorithm_of(job_.verb, wanted);
  const bool can =
      algorithm != nullptr && applies(*algorithm, job_.verb, static_cast<uint32_t>(size_), job_.commutative, job_.repeatable);
  job_.algorithm = can ? wanted : 0;
}

/// The wanted one, or one that the type has, and for which every order gives the same bits.
void Maker::choose_operation() {
  uint32_t op = op_.signal % std::size(kOps);
  if (job_.type == TW_TYPE_BOOL && !is_bitwise(op) && op != TW_REDUCE_USER) op = TW_REDUCE_AND + op % 3;
  if (is_bitwise(op) && test::is_float(job_.type)) op -= TW_REDUCE_AND - TW_REDUCE_PRODUCT;
  const bool scaled = op == TW_REDUCE_AVERAGE || op == TW_REDUCE_SCALED_SUM;
  if (scaled && is_float8(job_.type)) op = TW_REDUCE_SUM;
  if (op == TW_REDUCE_SCALED_SUM && !test::is_float(job_.type)) op = TW_REDUCE_SUM;
  if (op == TW_REDUCE_AVERAGE && is_scan(job_.verb)) op = TW_REDUCE_SUM;
  job_.op = op;
  if (op == TW_REDUCE_SCALED_SUM) job_.scale = 0.5;
  if (op == TW_REDUCE_USER) job_.commutative = op_.seed % 2 == 0;
}

void Maker::set_counts() {
  const bool v = has_counts(job_.verb), in_blocks = kind_of(job_.verb) >= CollectiveKind::reduce_scatter && !is_scan(job_.verb);
  const auto draw = [&]() -> size_t {
    if (job_.verb == Together::barrier) return 0;
    return !v ? op_.size : random_.percent(30) ? 0 : random_.below(op_.size + 1);
  };
  const bool pairs = kind_of(job_.verb) == CollectiveKind::alltoall;
  std::vector<size_t> of_rank(size_);
  for (size_t& one : of_rank) one = draw();
  for (size_t from = 0; from < size_; ++from) {
    std::vector<size_t>& row = moved_.emplace_back(of_rank);
    if (!in_blocks) row.assign(1, op_.size);
    for (size_t to = 0; pairs && to < size_; ++to) row[to] = draw();
  }
  for (size_t rank = 0; rank < size_; ++rank) {
    Share& share = job_.shares[rank];
    share.count = v ? of_rank[rank] : job_.verb == Together::barrier ? 0 : op_.size;
    if (!in_blocks) continue;
    share.sent = moved_[rank];
    share.received = of_rank;
    for (size_t from = 0; pairs && from < size_; ++from) share.received[from] = moved_[from][rank];
    set_offsets(share);
  }
}

/// One block behind the other, or in another order and with gaps.
void Maker::set_offsets(Share& share) {
  const bool may = has_counts(job_.verb) && job_.verb != Together::reduce_scatterv;
  share.offset = may && has(kFarLayout);
  const auto draw = [&](const std::vector<size_t>& counts) {
    std::vector<size_t> order(counts.size()), at(counts.size());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); share.offset && i > 1; --i)
      std::swap(order[i - 1], order[random_.below(static_cast<uint32_t>(i))]);
    size_t next = 0;
    for (const size_t i : order) {
      at[i] = next += share.offset ? random_.below(3) : 0;
      next += counts[i];
    }
    return at;
  };
  share.sent_at = draw(share.sent);
  share.received_at = draw(share.received);
}

double Maker::value(size_t rank) {
  const uint32_t type = job_.type, op = combines(job_.verb) ? job_.op : TW_REDUCE_SUM;
  const bool is_signed = test::is_float(type) || (type >= TW_TYPE_INT8 && type <= TW_TYPE_INT64);
  if (type == TW_TYPE_BOOL) return random_.below(2);
  if (op == TW_REDUCE_PRODUCT) {
    if (rank < 6 && random_.percent(30)) return 2;
    return is_signed && random_.percent(50) ? -1 : 1;
  }
  if (is_bitwise(op)) return random_.below(128);
  if (is_float8(type)) return rank < 8 ? static_cast<double>(random_.below(3)) - 1 : 0;
  const double small = random_.below(4);
  const double one = is_signed && random_.percent(50) ? 0 - small : small;  // and no -0, which is as small as 0
  return op == TW_REDUCE_SCALED_SUM ? 2 * one : one;
}

void Maker::set_inputs() {
  for (size_t rank = 0; rank < size_; ++rank) {
    const CollectiveKind kind = kind_of(job_.verb);
    size_t n = std::accumulate(moved_[rank].begin(), moved_[rank].end(), size_t{0});
    if (kind == CollectiveKind::barrier) n = 0;
    if (kind == CollectiveKind::allgather || kind == CollectiveKind::gather) n = job_.shares[rank].count;
    if ((kind == CollectiveKind::broadcast || kind == CollectiveKind::scatter) && !at_root(rank)) n = 0;
    Values& values = inputs_.emplace_back(n);
    for (double& one : values) one = value(rank);
  }
  if (!combines(job_.verb) || job_.op != TW_REDUCE_AVERAGE) return;
  for (size_t i = 0; i < inputs_[0].size(); ++i) {  // sums that their number divides, into a power of two
    double others = 0;
    for (size_t rank = 1; rank < size_; ++rank) others += inputs_[rank][i];
    inputs_[0][i] = static_cast<double>(size_) * 4 - others;
  }
}

/// Of the ranks before `last`.
Bytes Maker::combined(size_t last, size_t begin, size_t count) const {
  if (job_.op == TW_REDUCE_USER) {
    Bytes sum = input(0, begin, count);
    size_t size = element();
    for (size_t rank = 1; rank < last; ++rank)
      function_of(job_.commutative)(input(rank, begin, count).data(), sum.data(), count, &size);
    return sum;
  }
  const bool scaled = job_.op == TW_REDUCE_AVERAGE || job_.op == TW_REDUCE_SCALED_SUM;
  Values sum = test::reduced(scaled ? uint32_t{TW_REDUCE_SUM} : job_.op, inputs_, 0, last, begin, count);
  for (double& one : sum) {
    if (job_.op == TW_REDUCE_AVERAGE) one /= static_cast<double>(size_);
    if (job_.op == TW_REDUCE_SCALED_SUM) one *= job_.scale;
  }
  return bytes_of(test::encode(job_.type, sum));
}

/// Devices combine what they can if both buffers are theirs.
void Maker::set_kinds(Share& share) {
  if (!has(kDevices)) return;
  share.send.kind = static_cast<uint8_t>(random_.below(6));
  share.recv.kind = static_cast<uint8_t>(random_.below(6));
  if (!combines(job_.verb)) return;
  const bool can = job_.type <= TW_TYPE_UINT8 && job_.op <= TW_REDUCE_XOR;
  share.recv.kind = share.send.kind = can ? share.send.kind : 0;
}

void Maker::fill(size_t rank) {
  if (job_.verb == Together::barrier) return;
  combines(job_.verb) ? fill_combined(rank) : fill_moved(rank);
  Share& share = job_.shares[rank];
  if (share.send.used) share.send.after = share.send.before;
}

void Maker::fill_combined(size_t rank) {
  Share& share = job_.shares[rank];
  const bool rooted = job_.verb == Together::reduce, in_blocks = kind_of(job_.verb) == CollectiveKind::reduce_scatter;
  const size_t n = inputs_[rank].size();
  share.send.used = true;
  share.send.placed = has(kInPlace) && (!rooted || at_root(rank));
  share.recv.used = !rooted || at_root(rank);
  if (!share.send.placed) share.send.before = input(rank);
  if (!share.recv.used) return;
  share.recv.before = share.send.placed ? input(rank) : noise(in_blocks ? share.count : n);
  share.recv.after = share.recv.before;
  if (in_blocks) return put(share.recv.after, 0, combined(size_, begin_of(rank, rank), share.count));
  if (job_.verb == Together::exclusive_scan && rank == 0) return;
  const size_t last = job_.verb == Together::scan ? rank + 1 : job_.verb == Together::exclusive_scan ? rank : size_;
  put(share.recv.after, 0, combined(last, 0, n));
}

void Maker::fill_moved(size_t rank) {
  Share& share = job_.shares[rank];
  const CollectiveKind kind = kind_of(job_.verb);
  Side &send = share.send, &recv = share.recv;
  if (kind == CollectiveKind::broadcast) {
    recv.used = true;
    recv.before = at_root(rank) ? input(rank) : noise(share.count);
    recv.after = input(job_.root);
    return;
  }
  const bool root_sends = kind == CollectiveKind::scatter, root_receives = kind == CollectiveKind::gather;
  const bool placed = has(kInPlace) && job_.verb != Together::alltoallv && ((!root_sends && !root_receives) || at_root(rank));
  send.used = !root_sends || at_root(rank);
  recv.used = !root_receives || at_root(rank);
  (root_sends ? recv : send).placed = placed;
  const bool in_blocks = root_sends || kind == CollectiveKind::alltoall;  // what is sent
  if (send.used && !send.placed) {
    send.before = in_blocks ? noise(extent(share.sent, share.sent_at)) : input(rank);
    for (size_t to = 0; in_blocks && to < size_; ++to)
      put(send.before, share.sent_at[to], input(rank, begin_of(rank, to), share.sent[to]));
  }
  if (!recv.used || recv.placed) return;
  recv.before = noise(root_sends ? share.count : extent(share.received, share.received_at));
  if (send.placed && kind != CollectiveKind::alltoall) put(recv.before, share.received_at[rank], input(rank));
  for (size_t to = 0; send.placed && kind == CollectiveKind::alltoall && to < size_; ++to)
    put(recv.before, share.received_at[to], input(rank, begin_of(rank, to), share.sent[to]));
  recv.after = recv.before;
  if (root_sends) return put(recv.after, 0, input(job_.root, begin_of(job_.root, rank), share.count));
  for (size_t from = 0; from < size_; ++from) {
    const size_t begin = kind == CollectiveKind::alltoall ? begin_of(from, rank) : 0;
    put(recv.after, share.received_at[from], input(from, begin, share.received[from]));
  }
}

}  // namespace

const char* name_of(Together verb) { return kVerbs[static_cast<size_t>(verb)]; }
const char* name_of(TypeClass type) { return kClasses[static_cast<size_t>(type)]; }

CollectiveKind kind_of(Together verb) {
  constexpr CollectiveKind kKinds[] = {
      CollectiveKind::barrier,       CollectiveKind::broadcast,      CollectiveKind::reduce,
      CollectiveKind::allreduce,     CollectiveKind::reduce_scatter, CollectiveKind::reduce_scatter,
      CollectiveKind::allgather,     CollectiveKind::allgather,      CollectiveKind::gather,
      CollectiveKind::gather,        CollectiveKind::scatter,        CollectiveKind::scatter,
      CollectiveKind::alltoall,      CollectiveKind::alltoall,       CollectiveKind::scan,
      CollectiveKind::exclusive_scan};
  static_assert(std::size(kKinds) == static_cast<size_t>(Together::count_));
  return kKinds[static_cast<size_t>(verb)];
}

bool combines(Together verb) {
  const CollectiveKind kind = kind_of(verb);
  return kind == CollectiveKind::reduce || kind == CollectiveKind::allreduce || kind == CollectiveKind::reduce_scatter ||
         is_scan(verb);
}
bool has_counts(Together verb) {
  return verb == Together::reduce_scatterv || verb == Together::allgatherv || verb == Together::alltoallv ||
         counts_at_root(verb);
}

const char* algorithm_name(Together verb, unsigned n) {
  const impl::Algorithm* const found = algorithm_of(verb, n);
  return found != nullptr ? found->name : "";
}
bool algorithm_applies(Together verb, unsigned n, uint32_t size, bool commutative) {
  const impl::Algorithm* const found = algorithm_of(verb, n);
  return found != nullptr && applies(*found, verb, size, commutative, false);
}

/// All of them; all of them in another order; some of them.
std::vector<unsigned> ranks_of(const Program& program, unsigned group) {
  std::vector<unsigned> ranks(program.workers);
  std::iota(ranks.begin(), ranks.end(), 0u);
  const auto turn = static_cast<std::ptrdiff_t>(program.seed / 8 % program.workers);
  if (group != 0) std::rotate(ranks.begin(), ranks.begin() + turn, ranks.end());
  if (group == 1) std::reverse(ranks.begin(), ranks.end());
  if (group == 2 && program.workers > 2) ranks.pop_back();
  return ranks;
}

TypeClass Job::type_class() const {
  if (combines(verb) && op == TW_REDUCE_USER) return TypeClass::user;
  if (type == TW_TYPE_BOOL) return TypeClass::truth;
  if (is_float8(type)) return TypeClass::float8;
  if (type == TW_TYPE_FLOAT16 || type == TW_TYPE_BFLOAT16) return TypeClass::half;
  return test::is_float(type) ? TypeClass::floating : TypeClass::integer;
}

Job job_of(const Program& program, const Op& op) { return Maker(program, op).make(); }

std::string text_of(const Job& job) {
  std::string out = std::string(name_of(job.verb)) + " of workers";
  for (const unsigned worker : job.workers) out += " " + std::to_string(worker);
  if (job.verb == Together::barrier) return out;
  out += std::string(", ") + kTypes[job.type];
  if (combines(job.verb)) out += std::string(" ") + kOps[job.op] + (job.commutative ? "" : " in order");
  if (has_root(job.verb)) out += ", root " + std::to_string(job.root);
  out += ", by " + std::string(job.algorithm == 0 ? "costs" : algorithm_name(job.verb, job.algorithm));
  if (job.repeatable) out += ", repeatable";
  for (size_t rank = 0; rank < job.shares.size(); ++rank) {
    const Share& share = job.shares[rank];
    out += "; " + std::to_string(share.send.before.size()) + (share.send.placed ? " in place" : "") + " to " +
           std::to_string(share.recv.before.size()) + (share.recv.placed ? " in place" : "") + " bytes";
    if (share.send.kind + share.recv.kind != 0)
      out += " of kinds " + std::to_string(share.send.kind) + " and " + std::to_string(share.recv.kind);
  }
  return out;
}

tw_reduce_function function_of(bool commutative) { return commutative ? exclusive_or : last_of; }

tw_collective_options options_of(const Job& job) {
  static size_t sizes[] = {1, 2, 4, 8};
  tw_collective_options options = TW_COLLECTIVE_OPTIONS_INIT;
  options.flags = job.repeatable ? TW_COLLECTIVE_REPEATABLE : 0;
  options.commutative = job.commutative ? 1 : 0;
  options.algorithm = job.algorithm != 0 ? algorithm_name(job.verb, job.algorithm) : nullptr;
  options.scale = job.scale;
  if (combines(job.verb) && job.op == TW_REDUCE_USER) {
    options.reduce = function_of(job.commutative);
    options.reduce_arg = std::find(std::begin(sizes), std::end(sizes), test::size_of(job.type));
  }
  return options;
}

}  // namespace thalweg::model
