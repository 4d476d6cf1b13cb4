// SPDX-License-Identifier: Apache-2.0
#include "ranks/ranks.hpp"

#include <algorithm>
#include <cstdlib>

namespace apps {
namespace {

int from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error(std::string(name) + " is not set; start with `thalweg run` or --processes");
  return std::atoi(text);
}

}  // namespace

Ranks::Ranks() : rank_(from_environment("THALWEG_RANK")), size_(from_environment("THALWEG_SIZE")) {
  if (size_ < 1 || rank_ < 0 || rank_ >= size_) throw std::runtime_error("THALWEG_RANK is not below THALWEG_SIZE");
  tw_store_options options = TW_STORE_OPTIONS_INIT;
  options.rank = static_cast<uint32_t>(rank_);
  options.count = static_cast<uint32_t>(size_);
  options.timeout_ns = std::chrono::nanoseconds(kPatience).count();
  store_.emplace(nullptr, &options);
  std::string mine = worker.address();
  const uint64_t length = mine.size();
  std::vector<uint64_t> lengths(static_cast<size_t>(size_));
  must(tw_store_exchange(store_->get(), &length, sizeof length, lengths.data()));
  mine.resize(*std::max_element(lengths.begin(), lengths.end()));
  std::string together(mine.size() * lengths.size(), '\0');
  must(tw_store_exchange(store_->get(), mine.data(), mine.size(), together.data()));
  for (size_t i = 0; i < lengths.size(); ++i) addresses_.push_back(together.substr(i * mine.size(), lengths[i]));
}

tw_endpoint* Ranks::peer(int rank) {
  tw_endpoint*& endpoint = peers_[rank];
  if (endpoint == nullptr) {
    const std::string& address = addresses_.at(static_cast<size_t>(rank));
    must(tw_connect(worker.get(), address.data(), address.size(), nullptr, &endpoint));
  }
  return endpoint;
}

std::vector<tw_endpoint*> Ranks::others() {
  std::vector<tw_endpoint*> all(static_cast<size_t>(size_));
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) all[static_cast<size_t>(rank)] = peer(rank);
  return all;
}

std::string Ranks::place(const std::string& memory) const {
  const bool complete = memory == "host" || memory == "pinned" || memory.find(':') != std::string::npos;
  return complete ? memory : memory + ":" + std::to_string(rank_);
}

template <class T>
std::vector<T> Ranks::all(T mine) {
  constexpr uint64_t kTag = uint64_t{1} << 40;  // no application's
  std::vector<T> values(static_cast<size_t>(size_), mine);
  std::vector<thalweg::Request> requests(2 * values.size());
  for (int other = 0; other < size_; ++other) {
    const auto n = static_cast<size_t>(other);
    if (other == rank_) continue;
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.source = peer(other);
    must(tw_recv(worker.get(), &values[n], sizeof mine, kTag, UINT64_MAX, &options, requests[2 * n].out()));
    must(tw_send(peer(other), &mine, sizeof mine, kTag, nullptr, requests[2 * n + 1].out()));
  }
  for (thalweg::Request& request : requests) must(request.wait(kPatience));
  return values;
}

void Ranks::align() { all(char{0}); }

double Ranks::sum(double mine) {
  double sum = 0;
  for (const double value : all(mine)) sum += value;  // in the order of ranks: the same everywhere
  return sum;
}

double Ranks::most(double mine) {
  for (const double value : all(mine)) mine = std::max(mine, value);
  return mine;
}

uint64_t Ranks::sum_bits(uint64_t mine) {
  uint64_t sum = 0;
  for (const uint64_t value : all(mine)) sum += value;
  return sum;
}

void Ranks::leave() {
  align();  // nobody closes while another still needs the connection
  std::vector<thalweg::Request> closing(peers_.size());
  size_t n = 0;
  for (const auto& [rank, endpoint] : peers_) must(tw_endpoint_close(endpoint, TW_CLOSE_GRACEFUL, closing[n++].out()));
  for (thalweg::Request& request : closing) must(request.wait(kPatience));
  store_->barrier();  // nobody's worker ends while another still closes
}

}  // namespace apps
