// SPDX-License-Identifier: Apache-2.0
// C interface: memory, keys, imported memory.
#include "base/interrupt.hpp"
#include "core/c_checks.hpp"
#include "core/remote_map.hpp"
#include "memory/placement.hpp"

using namespace thalweg::impl;

namespace {

constexpr tw_memory_options kMemoryDefaults = TW_MEMORY_OPTIONS_INIT;

Status check_access(uint32_t access) {
  if ((access & ~uint32_t{TW_MEMORY_ALL}) == 0) return TW_OK;
  return fail(TW_ERR_INVALID, "access 0x%x has bits beside TW_MEMORY_READ, _WRITE and _ATOMIC", access);
}

}  // namespace

namespace thalweg::impl {

Status import_key(tw_endpoint* endpoint, const void* key, size_t key_length, bool signal, RemoteRegion** out) {
  Status status = check(endpoint);
  if (is_error(status)) return status;
  if (out == nullptr) return fail(TW_ERR_INVALID, "the place for the %s is NULL", signal ? "signal" : "remote memory");
  KeyBody body{};
  status = parse_key(key, key_length, &body);
  if (is_error(status)) return status;
  if (((body.access & kAccessSignal) != 0) != signal) {
    return fail(TW_ERR_INVALID, "%s",
                signal ? "this is a memory key: use tw_memory_import" : "this is a signal's key: use tw_signal_import");
  }
  const Enter enter(*endpoint->worker);
  if (is_error(enter.status())) return enter.status();
  const Engine::Guard guard(*endpoint->worker->engine);
  status = import_region(*endpoint->peer, body, out);
  if (!is_error(status)) endpoint->regions.insert(*out);
  return status;
}

Status map_remote(tw_remote_memory* remote, uint64_t limit_ns, const std::function<Status()>& failure, void** address) {
  RemoteRegion* region = region_of(remote);
  if (region == nullptr || address == nullptr)
    return fail(TW_ERR_INVALID, "remote memory or the place for its address is NULL");
  *address = nullptr;
  if (region->peer == nullptr) return fail(TW_ERR_CLOSED, "the endpoint this memory was imported through is closed");
  tw_worker& worker = *region->peer->endpoint->worker;
  const Status status = check(&worker);
  if (is_error(status)) return status;
  const Enter enter(worker);
  if (is_error(enter.status())) return enter.status();
  const bool waits = worker.engine->may_progress();
  Status mapped = TW_IN_PROGRESS;
  const auto try_it = [&] {
    const Engine::Guard guard(*worker.engine);
    const Status answer = region->peer == nullptr ? fail(TW_ERR_CLOSED, "the endpoint was closed") : map_region(*region);
    if (answer == TW_OK) {  // under the lock: a loss that another thread sees does not unmap it any more
      region->held = true;
      *address = region->mapped;
    }
    return answer;
  };
  if (!waits) {
    mapped = try_it();
    if (mapped == TW_IN_PROGRESS)
      return fail(TW_ERR_BUSY, "the peer has yet to answer whether its memory can be mapped, which a callback cannot wait for");
  }
  worker.wait_until(
      [&] {
        if (mapped != TW_IN_PROGRESS) return true;  // asked again after a yes: a refusal is reported once
        mapped = try_it();
        if (mapped != TW_IN_PROGRESS) return true;
        Status ended = interrupted();
        if (!is_error(ended) && failure) ended = failure();
        if (is_error(ended)) mapped = ended;
        return is_error(ended);
      },
      limit_ns);
  if (mapped == TW_IN_PROGRESS)
    return fail(TW_ERR_TIMED_OUT, "the peer has not answered within %.1f s whether its memory can be mapped: is it stopped?",
                double(limit_ns) * 1e-9);
  return mapped;
}

}  // namespace thalweg::impl

extern "C" {

tw_status tw_memory_register(tw_context* context, void* address, size_t length, const tw_memory_options* given,
                             tw_memory** memory) {
  Status status = check(context);
  if (is_error(status)) return status;
  const Options<tw_memory_options> options(given, kMemoryDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (memory == nullptr || address == nullptr || length == 0) {
    return fail(TW_ERR_INVALID, "registering needs an address, a length and a place for the handle");
  }
  status = check_access(options->access);
  if (is_error(status)) return status;
  const uint32_t access = options->access != 0 ? options->access : uint32_t{TW_MEMORY_ALL};
  return register_anywhere(*context->registry, address, length, access, memory);
}

tw_status tw_memory_allocate(tw_context* context, size_t length, const tw_memory_options* given, tw_memory** memory) {
  Status status = check(context);
  if (is_error(status)) return status;
  const Options<tw_memory_options> options(given, kMemoryDefaults);
  if (Status s = options.status(); is_error(s)) return s;
  if (memory == nullptr || length == 0) return fail(TW_ERR_INVALID, "allocating needs a length and a place for the handle");
  status = check_access(options->access);
  if (is_error(status)) return status;
  const uint32_t access = options->access != 0 ? options->access : uint32_t{TW_MEMORY_ALL};
  MemoryPlace place;
  status = parse_place(options->place, &place);
  if (is_error(status)) return status;
  if (place.device != nullptr) context->registry->release_left();
  return allocate_at(*context->registry, place, length, access, options->huge_pages != 0, memory);
}

void* tw_memory_address(const tw_memory* memory) { return memory == nullptr ? nullptr : memory->address; }
size_t tw_memory_length(const tw_memory* memory) { return memory == nullptr ? 0 : memory->length; }

tw_status tw_memory_release(tw_memory* memory) {
  const Status status = check(memory);
  if (is_error(status)) return status;
  return memory->registry->release(memory);
}

void* tw_allocate(tw_context* context, size_t length) {
  tw_memory* memory = nullptr;
  return tw_memory_allocate(context, length, nullptr, &memory) == TW_OK ? memory->address : nullptr;
}

tw_status tw_free(tw_context* context, void* address) {
  const Status status = check(context);
  if (is_error(status)) return status;
  return context->registry->release_address(address);
}

tw_status tw_memory_export_range(tw_memory* memory, size_t offset, size_t length, uint32_t access, void* key,
                                 size_t* key_length) {
  Status status = check(memory);
  if (is_error(status)) return status;
  if (key_length == nullptr) return fail(TW_ERR_INVALID, "the key's length is NULL");
  status = check_access(access);
  if (is_error(status)) return status;
  if (offset > memory->length || length > memory->length - offset) {
    return fail(TW_ERR_OUT_OF_BOUNDS, "%zu bytes at offset %zu reach outside the region of %zu bytes", length, offset,
                memory->length);
  }
  if (key == nullptr) {
    *key_length = kKeySize;
    return TW_OK;
  }
  KeyBody body{};
  status = memory->registry->export_range(memory, offset, length != 0 ? length : memory->length - offset,
                                          access != 0 ? access : memory->access, &body);
  if (is_error(status)) return status;
  status = write_key(body, key, key_length);
  if (is_error(status)) memory->registry->revoke(body.rkey);
  return status;
}

tw_status tw_memory_export(tw_memory* memory, void* key, size_t* key_length) {
  return tw_memory_export_range(memory, 0, 0, 0, key, key_length);
}

tw_status tw_memory_import(tw_endpoint* endpoint, const void* key, size_t key_length, tw_remote_memory** remote) {
  RemoteRegion* region = nullptr;
  const Status status = import_key(endpoint, key, key_length, false, remote != nullptr ? &region : nullptr);
  if (remote != nullptr) *remote = reinterpret_cast<tw_remote_memory*>(region);
  return status;
}

void tw_remote_memory_release(tw_remote_memory* remote) {
  RemoteRegion* region = region_of(remote);
  if (region == nullptr) return;
  Peer* const peer = peer_of(*region);
  if (peer == nullptr) return release_region(region);
  tw_endpoint* endpoint = peer->endpoint;
  if (endpoint->worker->born.forked()) return;
  const Engine::Guard guard(*endpoint->worker->engine);
  if (region->peer != nullptr) endpoint->regions.erase(region);
  release_region(region);
}

size_t tw_remote_memory_length(const tw_remote_memory* remote) {
  return remote == nullptr ? 0 : reinterpret_cast<const RemoteRegion*>(remote)->key.length;
}

tw_status tw_remote_memory_map(tw_remote_memory* remote, void** address) {
  const RemoteRegion* const region = region_of(remote);
  if (region != nullptr && address != nullptr && (region->key.access & TW_MEMORY_READ) == 0) {
    *address = nullptr;
    return fail(TW_ERR_PERMISSION,
                "the key does not allow loads, which an address gives: export it with TW_MEMORY_READ too, or put into it");
  }
  return map_remote(remote, 10 * kSecond, {}, address);
}

}  // extern "C"
