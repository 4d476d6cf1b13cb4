// SPDX-License-Identifier: Apache-2.0
// The world: a launcher tells who the ranks are, then each gives its worker's address to all.
#include <thalweg/views.h>

#include <cstring>
#include <new>

#include "base/platform/process.hpp"
#include "base/told_status.hpp"
#include "bootstrap/launcher.hpp"
#include "core/c_checks.hpp"
#include "groups/addressed_peers.hpp"
#include "groups/group.hpp"
#include "groups/mailbox.hpp"
#include "trace/trace.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_init_options kInitDefaults = TW_INIT_OPTIONS_INIT;
constexpr tw_context_options kContextDefaults = TW_CONTEXT_OPTIONS_INIT;
constexpr uint64_t kMagic = 0x7468616c77726c33;  // of this form of the exchange

/// What each rank gives, also one that cannot take part. The world's id is rank 0's.
struct Contribution {
  uint64_t magic, id;
  int32_t status;
  uint32_t length;
  RankPlace place;
  unsigned char address[kAddressMax];
};

LaunchOptions launch_options(const tw_init_options& options, const tw_context_options& context, uint64_t timeout_ns) {
  LaunchOptions launch;
  launch.store = options.store;
  launch.rank = options.rank;
  launch.count = options.count;
  launch.job_key = context.job_key;
  launch.job_key_length = context.job_key_length;
  launch.key_file = context.key_file;
  launch.tls = context.tls != 0;
  launch.timeout_ns = timeout_ns;
  return launch;
}

Status make_worker(const Launcher& launcher, const tw_context_options& given, const tw_worker_options* worker, World* world) {
  tw_context_options options = given;
  if (options.job_key == nullptr && options.key_file == nullptr && !launcher.key.empty()) {
    options.job_key = launcher.key.data();
    options.job_key_length = launcher.key.size();
  }
  if (Status s = tw_context_create(&options, &world->context); is_error(s)) return s;
  return tw_worker_create(world->context, worker, &world->worker);
}

Status contribute(Status so_far, tw_worker* worker, Contribution* mine) {
  *mine = {kMagic, 0, so_far, 0, {}, {}};
  if (is_error(so_far)) return so_far;
  mine->id = random_id();
  mine->place = place_of(*worker);
  size_t length = sizeof mine->address;
  mine->status = tw_worker_address(worker, mine->address, &length);
  mine->length = static_cast<uint32_t>(length);
  return mine->status;
}

/// All ranks read the same, so all come to the same end.
Status check_contributions(const std::vector<Contribution>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].magic != kMagic || all[i].length > kAddressMax)
      return fail(TW_ERR_VERSION, "rank %zu gives no address that this library reads: use one release in all processes", i);
    if (const Status told = told_status(all[i].status); told != TW_OK)
      return fail(told, "rank %zu cannot take part in the world (%s): its own error text says why", i, tw_status_name(told));
  }
  return TW_OK;
}

Status init(const tw_init_options& options, tw_group** out) {
  const Options<tw_context_options> context(options.context, kContextDefaults);
  if (Status s = context.status(); is_error(s)) return s;
  const uint64_t timeout_ns = options.timeout_ns != 0 ? options.timeout_ns : 60 * kSecond;
  std::unique_ptr<Launcher> launcher;
  if (Status s = find_launcher(launch_options(options, *context, timeout_ns), &launcher); is_error(s)) return s;
  auto world = std::make_unique<World>();
  Status mine_is = make_worker(*launcher, *context, options.worker, world.get());
  if (!is_error(mine_is)) (void)Mailbox::of(*world->worker);  // other ranks may write as soon as they have the address
  Contribution mine;
  mine_is = contribute(mine_is, world->worker, &mine);
  const std::string own_text = is_error(mine_is) ? last_error() : "";
  std::vector<Contribution> all(launcher->size);
  Status exchanged = launcher->exchange(&mine, sizeof mine, all.data());
  if (!is_error(exchanged)) exchanged = launcher->finish();
  if (is_error(mine_is)) return fail(mine_is, "%s", own_text.c_str());
  if (is_error(exchanged)) return exchanged;
  if (Status s = check_contributions(all); is_error(s)) return s;
  std::vector<std::string> addresses;
  for (const Contribution& one : all) addresses.emplace_back(reinterpret_cast<const char*>(one.address), one.length);
  auto group = std::make_unique<tw_group>(*world->worker, launcher->rank, launcher->size, timeout_ns);
  if (Status s = AddressedPeers::make(*world->worker, std::move(addresses), timeout_ns, &group->peers); is_error(s)) return s;
  group->set_id(all[0].id);
  group->take_places(all);
  tw_context& owner = group->worker.context;
  owner.rank.store(launcher->rank, std::memory_order_relaxed);
  owner.ranks.store(launcher->size, std::memory_order_relaxed);
  trace::call_process("rank " + std::to_string(launcher->rank));
  group->world = std::move(world);
  *out = group.release();
  return TW_OK;
}

}  // namespace

tw_status tw_init(const tw_init_options* given, tw_group** world) {
  if (world == nullptr) return fail(TW_ERR_INVALID, "the place for the world is NULL");
  *world = nullptr;
  const Options<tw_init_options> options(given, kInitDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  try {
    return init(*options, world);
  } catch (const std::bad_alloc&) {
    return fail(TW_ERR_NO_MEMORY, "out of memory in tw_init");
  }
}

void tw_group_yield_worker(tw_group* world) {
  if (world == nullptr || world->world == nullptr) return;
  world->world->worker = nullptr;
  world->world->context = nullptr;
  world->world.reset();
}
