// SPDX-License-Identifier: Apache-2.0
// A context's settings, making and ending.
#include "core/context.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/interfaces.hpp"
#include "base/log.hpp"
#include "base/platform/process.hpp"
#include "core/live.hpp"
#include "core/setup.hpp"
#include "devices/deferred_release.hpp"
#include "devices/registry.hpp"
#include "routes/machine_costs.hpp"
#include "security/tls.hpp"
#include "topology/machine.hpp"
#include "trace/trace.hpp"
#include "transports/transports.hpp"

namespace thalweg::impl {
namespace {

constexpr uint64_t kSilentNs = 5 * kSecond, kHandshakeNs = 5 * kSecond;

/// The option, else the environment, else "".
std::string chosen(const char* option, const char* variable) {
  if (option != nullptr) return option;
  const char* value = getenv(variable);
  return value != nullptr ? value : "";
}

/// Of all that this build knows, "self, shm" and so on.
std::string known_names() {
  std::string names;
  for (const TransportEntry& entry : known_transports()) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

bool is_known(const std::string& name) {
  const auto known = known_transports();
  return std::any_of(known.begin(), known.end(), [&](const TransportEntry& entry) { return name == entry.name; });
}

Status split_transports(const std::string& list, std::vector<std::string>* out) {
  size_t at = 0;
  while (at <= list.size()) {
    const size_t comma = std::min(list.find(',', at), list.size());
    std::string name = list.substr(at, comma - at);
    std::erase(name, ' ');
    at = comma + 1;
    if (name.empty()) continue;
    if (!is_known(name)) {
      return fail(TW_ERR_INVALID, "unknown transport \"%s\": the list takes %s", name.c_str(), known_names().c_str());
    }
    out->push_back(name);
  }
  if (!out->empty()) return TW_OK;
  for (const TransportEntry& entry : known_transports()) out->push_back(entry.name);
  return TW_OK;
}

/// THALWEG_PERSISTENT: thread blocks, or thread blocks and microseconds: "2,500".
Status parse_persistent(const char* text, PersistentOptions* out) {
  char* end = nullptr;
  const unsigned long blocks = strtoul(text, &end, 10);
  uint64_t idle_us = PersistentOptions::kUsual / kMicrosecond;
  if (end != text && *end == ',') idle_us = strtoul(end + 1, &end, 10);
  if (end == text || *end != 0)
    return fail(TW_ERR_INVALID, "THALWEG_PERSISTENT is \"%s\": write thread blocks, or \"2,500\" with microseconds", text);
  *out = {static_cast<unsigned>(std::min(blocks, 1000ul)), std::min(idle_us, uint64_t{kSecond}) * kMicrosecond};
  return TW_OK;
}

Status resolve_persistent(const tw_context_options& options, PersistentOptions* out) {
  const char* const text = getenv("THALWEG_PERSISTENT");
  if (text != nullptr && *text != 0) {
    if (Status s = parse_persistent(text, out); is_error(s)) return s;
  }
  if (options.persistent_blocks != 0) out->blocks = options.persistent_blocks;
  if (options.persistent_idle_ns != 0) out->idle_ns = options.persistent_idle_ns;
  if (out->blocks <= PersistentOptions::kMostBlocks && out->idle_ns >= PersistentOptions::kShortest &&
      out->idle_ns <= PersistentOptions::kLongest) {
    return TW_OK;
  }
  return fail(
      TW_ERR_INVALID,
      "a persistent kernel (persistent_blocks, persistent_idle_ns, THALWEG_PERSISTENT) has 1 to %u thread blocks and ends "
      "when idle for 10 us to 100 ms",
      PersistentOptions::kMostBlocks);
}

}  // namespace

Status resolve_settings(const tw_context_options& options, Settings* out) {
  warn_of_unknown_level();
  Status status = split_transports(chosen(options.transports, "THALWEG_TRANSPORTS"), &out->transports);
  if (is_error(status)) return status;
  out->interfaces = chosen(options.interfaces, "THALWEG_INTERFACES");
  out->socket_dir = chosen(options.socket_dir, "THALWEG_SOCKET_DIR");
  if (out->socket_dir.empty()) {
    const char* runtime = getenv("XDG_RUNTIME_DIR");
    const bool usable = runtime != nullptr && runtime[0] == '/' && access(runtime, W_OK | X_OK) == 0;
    out->socket_dir = usable ? runtime : "/tmp";
  }
  out->socket_dir += "/thalweg-" + std::to_string(geteuid());
  out->silent_timeout_ns = options.silent_timeout_ns != 0 ? options.silent_timeout_ns : kSilentNs;
  out->handshake_timeout_ns = options.handshake_timeout_ns != 0 ? options.handshake_timeout_ns : kHandshakeNs;
  if (Status s = choose_tls(options.tls != 0, &out->tls); is_error(s)) return s;
  if (Status s = read_switch("THALWEG_LIVE", &out->live); is_error(s)) return s;
  const std::string way = chosen(options.way, "THALWEG_WAY");
  if (!way_named(way, &out->way)) {
    return fail(TW_ERR_INVALID, "no way \"%s\" (tw_context_options.way, THALWEG_WAY): %s", way.c_str(), kWayNames);
  }
  return resolve_persistent(options, &out->persistent);
}

std::vector<TransportSlot> make_transports(const Settings& settings) {
  std::vector<TransportSlot> slots;
  for (const TransportEntry& entry : known_transports()) slots.push_back({entry.name, entry.make(), ""});
  for (TransportSlot& slot : slots) {
    if (std::find(settings.transports.begin(), settings.transports.end(), slot.name) == settings.transports.end()) {
      slot.why_not = "not in the list of transports (option transports, THALWEG_TRANSPORTS)";
    } else {
      slot.why_not = slot.transport->unavailable();
    }
  }
  return slots;
}

Status local_ip_addresses(const std::string& interfaces, std::vector<IpAddress>* out) {
  std::vector<LocalAddress> found;
  const Status status = local_addresses(interfaces.c_str(), &found);
  if (is_error(status)) return status;
  bool outside = false;
  for (const LocalAddress& local : found) outside |= !local.address.loopback();
  for (const LocalAddress& local : found) {
    if (interfaces.empty() && outside && local.address.loopback()) continue;
    if (local.address.link_local()) continue;
    const std::string_view bytes = local.address.host_bytes();
    IpAddress ip;
    ip.length = static_cast<uint8_t>(bytes.size());
    std::memcpy(ip.bytes.data(), bytes.data(), bytes.size());
    out->push_back(ip);
  }
  return TW_OK;
}

}  // namespace thalweg::impl

using namespace thalweg::impl;

tw_context::tw_context() = default;

Status tw_context::open(const tw_context_options& options) {
  open_backends();
  const topology::Graph* saved = nullptr;
  if (Status s = topology::saved(&saved); is_error(s)) return s;  // routes go by it, so it is right or there is none
  Status status = resolve_settings(options, &settings);
  if (is_error(status)) return status;
  status = JobKey::load(options.job_key, options.job_key_length, options.key_file, &key);
  if (is_error(status)) return status;
  costs = machine_costs();
  device_costs.open(costs);
  incarnation = process_incarnation();
  host = host_id();
  registry = std::make_unique<Registry>(incarnation);
  signals = std::make_unique<SignalPool>(*registry);
  transports = make_transports(settings);
  if (usable(&TransportTraits::over_network)) {
    status = local_ip_addresses(settings.interfaces, &addresses);
    if (is_error(status)) return status;
  }
  status = loop.start();
  if (is_error(status)) return status;
  setup = std::make_unique<Setup>(*this);
  status = setup->open();
  if (is_error(status)) return status;
  live = std::make_unique<Live>(*this);
  if (settings.live && is_error(live->open())) log(LogLevel::info, "thalweg top will not see this context: %s", last_error());
  return trace::start_by_environment();
}

tw_context::~tw_context() {
  if (live != nullptr) live->close();
  if (setup != nullptr) setup->close();
  loop.stop();
  const std::string why = last_error();         // of what failed, and ends the context
  if (!born.forked()) (void)trace::stop(this);  // where it has begun one
  set_last_error(why);
  await_releases(5 * kSecond);
}

const TransportSlot* tw_context::usable(TransportTrait trait, const std::string& only) const {
  for (const TransportSlot& slot : transports) {
    const bool asked = slot.transport->traits().*trait && (only.empty() || slot.name == only);
    if (asked && slot.why_not.empty()) return &slot;
  }
  return nullptr;
}

std::string tw_context::names_of(TransportTrait trait) const {
  std::string names;
  for (const TransportSlot& slot : transports) {
    if (slot.transport->traits().*trait) names += (names.empty() ? "" : " or ") + slot.name;
  }
  return names;
}
