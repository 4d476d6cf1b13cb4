// SPDX-License-Identifier: Apache-2.0
#include "halo/packer.hpp"
#include "halo/way.hpp"

namespace halo {
namespace {

class ByPacking final : public Way {
 public:
  ByPacking(apps::Ranks& ranks, Cube& cube, const std::string& place)
      : cube_(cube),
        worker_(ranks.worker.get()),
        packer_(apps::on_gpu(place) ? pack_by_kernels(cube, place) : pack_by_loops(cube)),
        outgoing_(ranks.context.allocate(cube.bytes(), place.c_str())),
        incoming_(ranks.context.allocate(cube.bytes(), place.c_str())),
        sends_(parts(ranks, cube.moves().sends, outgoing_)),
        receives_(parts(ranks, cube.moves().receives, incoming_)),
        requests_(sends_.size() + receives_.size()) {}

  void run(uint64_t count) override {
    for (uint64_t n = 0; n < count; ++n) exchange();
  }

 private:
  struct Part {
    tw_endpoint* endpoint;
    uint64_t tag;
    apps::Box box;
    char* packed;
    size_t length;
  };

  std::vector<Part> parts(apps::Ranks& ranks, const std::vector<apps::Move>& moves, const thalweg::Memory& memory) {
    std::vector<Part> parts;
    char* at = static_cast<char*>(memory.data());
    for (const apps::Move& move : moves) {
      const size_t length = move.box.points() * cube_.shape().element;
      parts.push_back({ranks.peer(move.peer), move.tag, move.box, at, length});
      at += length;
    }
    return parts;
  }

  void exchange() {
    size_t n = 0;
    for (const Part& part : receives_) {
      const auto options = thalweg::OpOptions().source(part.endpoint);
      apps::must(tw_recv(worker_, part.packed, part.length, part.tag, UINT64_MAX, options, requests_[n++].out()));
    }
    for (const Part& part : sends_) packer_->pack(part.box, part.packed);
    packer_->synchronize();
    for (const Part& part : sends_) {
      apps::must(tw_send(part.endpoint, part.packed, part.length, part.tag, nullptr, requests_[n++].out()));
    }
    for (thalweg::Request& request : requests_) apps::must(request.wait(apps::kPatience));
    for (const Part& part : receives_) packer_->unpack(part.box, part.packed);
    packer_->synchronize();
  }

  Cube& cube_;
  tw_worker* worker_;
  std::unique_ptr<Packer> packer_;
  thalweg::Memory outgoing_, incoming_;
  std::vector<Part> sends_, receives_;
  std::vector<thalweg::Request> requests_;
};

}  // namespace

std::unique_ptr<Way> by_packing(apps::Ranks& ranks, Cube& cube, const std::string& place) {
  if (!apps::on_gpu(place) && thalweg::memory_query(cube.data()).host_access == 0) {
    throw std::runtime_error("pack: no loop of the host's reaches " + place + "; leave it out of --way");
  }
  return std::make_unique<ByPacking>(ranks, cube, place);
}

}  // namespace halo
