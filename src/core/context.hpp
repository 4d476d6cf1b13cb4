// SPDX-License-Identifier: Apache-2.0
// tw_context, the state per process: settings, job key, service thread, registry, transports, connection set-up.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/event_loop.hpp"
#include "base/platform/fork.hpp"
#include "core/address.hpp"
#include "devices/persistent/options.hpp"
#include "memory/local_copy.hpp"
#include "memory/registry.hpp"
#include "memory/signal.hpp"
#include "routes/costs.hpp"
#include "routes/device_table.hpp"
#include "routes/traffic.hpp"
#include "routes/ways.hpp"
#include "security/handshake.hpp"
#include "security/job_key.hpp"
#include "security/refusals.hpp"
#include "transports/transport.hpp"

namespace thalweg::impl {

class Live;
class Setup;

/// tw_context_options with the environment and the defaults filled in.
struct Settings {
  std::vector<std::string> transports;  // wanted
  std::string interfaces;               // comma list of names, addresses or subnets; empty: all
  std::string socket_dir;               // private directory of this user's sockets
  std::string key_file;
  uint64_t silent_timeout_ns = 0;
  uint64_t handshake_timeout_ns = 0;
  bool tls = false;
  bool live = true;  // thalweg top sees it
  PersistentOptions persistent;
  Way way = Way::any;
};
Status resolve_settings(const tw_context_options& options, Settings* out);

/// State of the layers above, opaque to the context. Destroyed first when the context ends.
class Extension {
 public:
  virtual ~Extension() = default;
  virtual unsigned users() const = 0;  // objects that must be destroyed before the context
  virtual void settle() = 0;           // ends those that the user has destroyed, and that could not end then
};

struct TransportSlot {
  std::string name;
  std::unique_ptr<Transport> transport;
  std::string why_not;  // empty: usable
};
/// Every transport of this build, usable or not.
std::vector<TransportSlot> make_transports(const Settings& settings);

/// The local IP addresses that `interfaces` allows; loopback last, and only when named or when there is no other.
Status local_ip_addresses(const std::string& interfaces, std::vector<IpAddress>* out);

class Json;

/// The text of `tw_context_info`, and of its section on devices, for which the device libraries are initialised.
std::string describe(const tw_context& context);
void describe_devices(Json& json, const tw_context& context);

}  // namespace thalweg::impl

struct tw_context {
  thalweg::impl::BornHere born;
  thalweg::impl::Settings settings;
  thalweg::impl::JobKey key;
  thalweg::impl::CostTable costs;
  mutable thalweg::impl::DeviceTable device_costs;  // what it says of a device it may look up first
  uint64_t incarnation = 0;
  uint64_t host = 0;
  thalweg::impl::EventLoop loop;
  std::unique_ptr<thalweg::impl::Registry> registry;
  std::unique_ptr<thalweg::impl::SignalPool> signals;
  thalweg::impl::LocalCopier copier;
  std::vector<thalweg::impl::TransportSlot> transports;
  std::unique_ptr<thalweg::impl::Setup> setup;
  thalweg::impl::RefusalCounters refusals;
  thalweg::impl::Traffic traffic;
  std::vector<thalweg::impl::IpAddress> addresses;  // for worker addresses
  std::unique_ptr<thalweg::impl::Live> live;
  std::atomic<uint32_t> rank{0}, ranks{0};  // of the world that this process is in; ranks 0: of none. For those who watch
  std::atomic<uint32_t> workers{0};
  std::mutex plans_mutex;
  std::unique_ptr<thalweg::impl::Extension> plans;  // made at the first use of a plan (plans/proxy.hpp)

  tw_context();
  ~tw_context();
  thalweg::impl::Status open(const tw_context_options& options);

  /// The first usable transport with the trait; its name is `only`, unless that is empty. Null: there is none.
  const thalweg::impl::TransportSlot* usable(thalweg::impl::TransportTrait trait, const std::string& only = {}) const;
  /// "a or b", of those with the trait, usable or not.
  std::string names_of(thalweg::impl::TransportTrait trait) const;
};
