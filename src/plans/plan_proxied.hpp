// SPDX-License-Identifier: Apache-2.0
// The steps of a plan that the host carries: each an operation between the proxies' workers, posted when the program rings.
#pragma once
#include <memory>
#include <vector>

#include "devices/program.hpp"
#include "plans/plan_failure.hpp"
#include "plans/plan_list.hpp"
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
  CarriedSteps(Proxy& proxy, const PlanList& list, ResolvedSteps& resolved, PlanFailure& failure)
      : proxy_(proxy), list_(list), resolved_(resolved), failure_(failure) {}
  CarriedSteps(const CarriedSteps&) = delete;
  CarriedSteps& operator=(const CarriedSteps&) = delete;

  /// Of all that are resolved as proxied.
  Status make(const Executor& executor);
  /// TW_ERR_BUSY: a peer has begun to take one of them.
  Status unwatch();
  void release() { carried_.reset(); }
  /// Null: there are none.
  const std::shared_ptr<Carried>& carrier() const { return carried_; }

 private:
  Status make_step(const Executor& executor, size_t index);
  Status post(size_t index, const Proxied& self, const Completion& completion);
  static Status import_for_proxy(RemoteRegion& region, ProxyPeer& peer, bool signal, void** out);

  Proxy& proxy_;
  const PlanList& list_;
  ResolvedSteps& resolved_;
  PlanFailure& failure_;
  std::shared_ptr<Carried> carried_;
};

}  // namespace thalweg::impl
