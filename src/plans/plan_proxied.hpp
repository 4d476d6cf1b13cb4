// SPDX-License-Identifier: Apache-2.0
// The steps of a plan that the host carries: each an operation between the proxies' workers, posted when the program rings.
#pragma once
#include <memory>
#include <vector>

#include "devices/program.hpp"
#include "plans/plan_failure.hpp"
#include "plans/plan_list.hpp"
#include "plans/plan_pieces.hpp"
#include "plans/plan_resolve.hpp"
#include "plans/proxied.hpp"
#include "plans/proxy.hpp"

namespace thalweg::impl {

/// The proxied steps of a plan that the host runs.
struct Carried final : Carrier {
  explicit Carried(Proxy& of) : proxy(of) {}
  bool drive() override { return proxy.drive(steps); }
  Proxy& proxy;
  std::vector<Proxied*> steps;
};

class CarriedSteps {
 public:
  CarriedSteps(Proxy& proxy, const PlanList& list, ResolvedSteps& resolved, const PlanPieces& pieces, PlanFailure& failure)
      : proxy_(proxy), list_(list), resolved_(resolved), pieces_(pieces), failure_(failure) {}
  CarriedSteps(const CarriedSteps&) = delete;
  CarriedSteps& operator=(const CarriedSteps&) = delete;

  /// Of all that are resolved as proxied.
  Status make(Executor& executor, const Deadline& deadline);
  /// TW_ERR_BUSY: a peer has begun to take one of them.
  Status unwatch();
  void release();
  /// Is a peer at one of them now?
  bool under_way() const;
  /// Null: there are none.
  const std::shared_ptr<Carried>& carrier() const { return carried_; }

 private:
  Status make_step(size_t index, const Deadline& deadline);
  bool is_short(size_t index) const;
  void make_bounce(size_t index);
  void make_piece(size_t index, uint32_t piece, uint64_t* words);
  Status post(size_t index, uint32_t piece, const OpDesc& prepared, const Completion& completion);
  static Status import_for_proxy(RemoteRegion& region, ProxyPeer& peer, bool signal, void** out);

  Proxy& proxy_;
  const PlanList& list_;
  ResolvedSteps& resolved_;
  const PlanPieces& pieces_;
  PlanFailure& failure_;
  Executor* executor_ = nullptr;
  uint64_t words_ = 0;  // kProxiedWords of each piece, pinned
  size_t words_length_ = 0;
  std::shared_ptr<Carried> carried_;
};

}  // namespace thalweg::impl
