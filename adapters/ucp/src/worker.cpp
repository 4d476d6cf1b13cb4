// SPDX-License-Identifier: Apache-2.0
#include "worker.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "am.hpp"
#include "endpoint.hpp"
#include "status.hpp"
#include "stream.hpp"

namespace thalweg::ucx {

bool parse_address(const void* address, AddressHeader* header) {
  if (address == nullptr) return false;
  std::memcpy(header, address, sizeof *header);
  return std::memcmp(header->magic, kAddressMagic, sizeof kAddressMagic) == 0;
}

namespace {

unsigned finish_those_that_are_complete(ucp_worker& worker) {
  unsigned events = 0;
  Request* ready = worker.later;
  worker.later = nullptr;
  worker.later_end = &worker.later;
  while (ready != nullptr) {
    Request& request = *ready;
    ready = request.next;
    ++events;
    request.in_later = false;
    finish(request, request.outcome);
  }
  return events;
}

unsigned tell_postponed(ucp_worker& worker) {
  std::deque<std::function<void()>> calls = std::exchange(worker.postponed, {});
  const auto events = static_cast<unsigned>(calls.size());
  for (; !calls.empty(); calls.pop_front()) calls.front()();
  return events;
}

/// Until it is empty; but not for ever, where callbacks post what ends at once.
unsigned poll_queue(ucp_worker& worker) {
  constexpr size_t kAtOnce = 16;
  constexpr int kTurns = 64;
  tw_completion entries[kAtOnce];
  unsigned events = 0;
  size_t taken = kAtOnce;
  for (int turn = 0; taken == kAtOnce && turn < kTurns; ++turn) {
    if (tw_completion_queue_poll(worker.queue, entries, kAtOnce, &taken) != TW_OK) return events;
    worker.told -= static_cast<uint32_t>(taken);
    events += static_cast<unsigned>(taken);
    for (size_t i = 0; i < taken; ++i) ended(entries[i].arg, TW_REQUEST_NONE, entries[i].status, &entries[i].info);
  }
  return events;
}

/// What has ended already, without progress: an entry of ours shows where that ends, and a queue that has one is not progressed for.
void take_ended(ucp_worker& worker) {
  tw_op_options options = TW_OP_OPTIONS_INIT;
  options.queue = worker.queue;
  if (tw_request_tell(TW_REQUEST_NONE, &options) != TW_OK) return;
  tw_completion entry;
  size_t taken = 0;
  while (tw_completion_queue_poll(worker.queue, &entry, 1, &taken) == TW_OK && taken == 1 && entry.arg != nullptr) {
    --worker.told;
    ended(entry.arg, TW_REQUEST_NONE, entry.status, &entry.info);
  }
}

[[gnu::noinline]] unsigned progress_held(ucp_worker& worker) {
  const Hold hold(worker);
  return progress(worker);
}

/// With the worker: what its queue would have told.
void end_told(ucp_worker& worker) {
  worker.pool.each([](Request& request) {
    const bool waits = request.told && !over(request);  // what is in later ends as it did
    if (waits && request.status.load(std::memory_order_relaxed) == UCS_INPROGRESS) finish(request, UCS_ERR_CANCELED);
  });
}

/// What ended in other calls than progress wakes nobody: cancels, closes by force. True: progress has something to tell.
bool has_news(ucp_worker& worker) {
  const HoldBack held(worker);
  if (worker.told != 0) (void)poll_queue(worker);
  return !worker.postponed.empty() || worker.later != nullptr || !worker.streams.empty() || !worker.losses.empty() ||
         !worker.sweeps.empty() || may_step_closing(worker) || may_step_flushes(worker);
}

}  // namespace

void end_sleep(ucp_worker& worker) {
  if (worker.several || worker.sleeper != std::this_thread::get_id()) return;  // Hold wakes
  worker.armed = false;
  worker.guarded = worker.multi;
}

void wake_sleeper(ucp_worker& worker) {
  worker.armed = false;
  worker.guarded = worker.multi;
  if (const tw_status status = tw_worker_wake(worker.worker); status != TW_OK) (void)failed("waking a thread", status);
}

void postpone(ucp_worker& worker, std::function<void()> call) {
  worker.postponed.push_back(std::move(call));
  worker.chores = true;
}

unsigned do_chores(ucp_worker& worker) {
  // First: what arrives from here on came after it.
  unsigned events = worker.postponed.empty() ? 0 : tell_postponed(worker);
  events += tw_worker_progress(worker.worker);
  if (worker.later != nullptr) events += finish_those_that_are_complete(worker);
  if (!worker.losses.empty()) {
    if (worker.told != 0) events += poll_queue(worker);  // requests end before the error handler is called
    events += tell_losses(worker);
  }
  if (!worker.streams.empty()) events += load_streams(worker);
  if (!worker.flushes.empty()) events += step_flushes(worker);
  if (!worker.closing.empty()) events += step_closing(worker);
  if (!worker.sweeps.empty()) sweep(worker);
  // Last: all before may progress Thalweg's worker.
  if (worker.told != 0) events += poll_queue(worker);
  worker.chores = worker.told != 0 || !worker.postponed.empty() || !worker.losses.empty() || !worker.sweeps.empty() ||
                  worker.later != nullptr || !worker.streams.empty() || !worker.flushes.empty() || !worker.closing.empty();
  return events;
}

}  // namespace thalweg::ucx

using namespace thalweg::ucx;

namespace {

constexpr uint64_t kParams = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_CPU_MASK |
                             UCP_WORKER_PARAM_FIELD_EVENTS | UCP_WORKER_PARAM_FIELD_USER_DATA |
                             UCP_WORKER_PARAM_FIELD_EVENT_FD | UCP_WORKER_PARAM_FIELD_FLAGS | UCP_WORKER_PARAM_FIELD_NAME |
                             UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT | UCP_WORKER_PARAM_FIELD_CLIENT_ID;
constexpr uint64_t kAttributes = UCP_WORKER_ATTR_FIELD_THREAD_MODE | UCP_WORKER_ATTR_FIELD_ADDRESS |
                                 UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER |
                                 UCP_WORKER_ATTR_FIELD_NAME | UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING;

ucs_status_t check_params(const ucp_worker_params_t& params) {
  if (ucs_status_t s = check_mask("ucp_worker_create", "field_mask", params.field_mask, kParams); s != UCS_OK) return s;
  const uint64_t mask = params.field_mask;
  constexpr unsigned kEvents = UCP_WAKEUP_RMA | UCP_WAKEUP_AMO | UCP_WAKEUP_TAG_SEND | UCP_WAKEUP_TAG_RECV | UCP_WAKEUP_TX |
                               UCP_WAKEUP_RX | UCP_WAKEUP_EDGE;
  const unsigned events = (mask & UCP_WORKER_PARAM_FIELD_EVENTS) != 0 ? params.events : 0;
  // The flags are not looked at: their only one changes nothing here, and Open MPI 4.1 sets it in a field that is not initialised.
  if (ucs_status_t s = check_mask("ucp_worker_create", "events", events, kEvents); s != UCS_OK) return s;
  unsigned mode;  // loaded as a number: a program in C may pass any
  static_assert(sizeof mode == sizeof params.thread_mode);
  std::memcpy(&mode, &params.thread_mode, sizeof mode);
  if ((mask & UCP_WORKER_PARAM_FIELD_THREAD_MODE) != 0 && mode >= UCS_THREAD_MODE_LAST) return UCS_ERR_INVALID_PARAM;
  if ((mask & UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT) == 0) return UCS_OK;
  const size_t alignment = params.am_alignment;
  return alignment != 0 && (alignment & (alignment - 1)) == 0 ? UCS_OK : UCS_ERR_INVALID_PARAM;
}

void take_params(const ucp_worker_params_t& params, ucp_worker& worker) {
  const uint64_t mask = params.field_mask;
  if ((mask & UCP_WORKER_PARAM_FIELD_THREAD_MODE) != 0) worker.mode = params.thread_mode;
  if ((mask & UCP_WORKER_PARAM_FIELD_USER_DATA) != 0) worker.user_data = params.user_data;
  if ((mask & UCP_WORKER_PARAM_FIELD_NAME) != 0 && params.name != nullptr) worker.name = params.name;
  if ((mask & UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT) != 0) worker.am_alignment = params.am_alignment;
  if ((mask & UCP_WORKER_PARAM_FIELD_CLIENT_ID) != 0) worker.client_id = params.client_id;
  worker.multi = worker.guarded = worker.mode == UCS_THREAD_MODE_MULTI;
}

/// The address as peers get it. Its place is fixed for the worker's life.
ucs_status_t make_address(ucp_worker& worker) {
  AddressHeader header{};
  std::memcpy(header.magic, kAddressMagic, sizeof kAddressMagic);
  header.uid = worker.uid;
  header.client_id = worker.client_id;
  size_t size = 0;
  tw_status status = tw_worker_address(worker.worker, nullptr, &size);
  if (status < 0) return failed("ucp_worker_create", status);
  worker.address.resize(sizeof header + sizeof(uint32_t) + size);
  std::memcpy(worker.address.data(), &header, sizeof header);
  const auto length = static_cast<uint32_t>(size);
  std::memcpy(worker.address.data() + sizeof header, &length, sizeof length);
  status = tw_worker_address(worker.worker, worker.address.data() + sizeof header + sizeof length, &size);
  return status < 0 ? failed("ucp_worker_create", status) : UCS_OK;
}

ucs_status_t watch(ucp_worker& worker, int event_fd) {
  int fd = -1;
  if (const tw_status s = tw_worker_fd(worker.worker, &fd); s != TW_OK) return failed("ucp_worker_create", s);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = worker.user_data;
  return epoll_ctl(event_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? UCS_OK : UCS_ERR_IO_ERROR;
}

ucs_status_t open(ucp_worker& worker, const ucp_worker_params_t& params) {
  tw_worker_options options = TW_WORKER_OPTIONS_INIT;
  tw_status status = tw_worker_create(worker.context.context, &options, &worker.worker);
  if (status == TW_OK) status = tw_completion_queue_create(worker.worker, nullptr, &worker.queue);
  if (status != TW_OK) return failed("ucp_worker_create", status);
  if (getrandom(&worker.uid, sizeof worker.uid, 0) != sizeof worker.uid) return UCS_ERR_IO_ERROR;
  if (ucs_status_t s = make_address(worker); s != UCS_OK) return s;
  if (ucs_status_t s = open_am_handlers(worker); s != UCS_OK) return s;
  if (ucs_status_t s = open_stream_handlers(worker); s != UCS_OK) return s;
  if ((params.field_mask & UCP_WORKER_PARAM_FIELD_EVENT_FD) == 0) return UCS_OK;
  return watch(worker, params.event_fd);
}

ucs_status_t copy_address(const ucp_worker& worker, ucp_address_t** address, size_t* length) {
  void* const copy = std::malloc(worker.address.size());
  if (copy == nullptr) return UCS_ERR_NO_MEMORY;
  std::memcpy(copy, worker.address.data(), worker.address.size());
  *address = static_cast<ucp_address_t*>(copy);
  *length = worker.address.size();
  return UCS_OK;
}

ucs_status_t need_wakeup(const ucp_worker& worker, const char* function) {
  if ((worker.context.features & UCP_FEATURE_WAKEUP) != 0) return UCS_OK;
  return unsupported(function, "a worker without UCP_FEATURE_WAKEUP", "ask for that feature in ucp_init");
}

/// Of a thread that sleeps already no end is known: its descriptor may have become readable since.
void note_sleeper(ucp_worker& worker) {
  const std::thread::id self = std::this_thread::get_id();
  worker.several = worker.several || (worker.armed && worker.sleeper != self);
  worker.sleeper = self;
  worker.armed = worker.guarded = true;
}

}  // namespace

extern "C" {

ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t* params, ucp_worker_h* worker_p) {
  if (context == nullptr || params == nullptr || worker_p == nullptr) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = check_params(*params); s != UCS_OK) return s;
  auto* const worker = new (std::nothrow) ucp_worker(*context);
  if (worker == nullptr) return UCS_ERR_NO_MEMORY;
  take_params(*params, *worker);
  if (ucs_status_t s = open(*worker, *params); s != UCS_OK) {
    ucp_worker_destroy(worker);
    return s;
  }
  if (worker->name.empty()) worker->name = "thalweg-" + std::to_string(worker->uid);
  *worker_p = worker;
  return UCS_OK;
}

void ucp_worker_destroy(ucp_worker_h worker) {
  if (worker == nullptr) return;
  {
    const Hold hold(*worker);
    worker->ending = true;
    ++worker->holding;
    worker->armed = false;                       // nobody may sleep any more
    if (worker->told != 0) take_ended(*worker);  // what has ended is not under way
    deliver_posted(*worker);
    if (worker->worker != nullptr) tw_worker_destroy(worker->worker);  // ends what is pending
    if (worker->queue != nullptr) (void)tw_completion_queue_destroy(worker->queue);
    tell_postponed(*worker);
    end_told(*worker);
    end_flushes(*worker);
    finish_those_that_are_complete(*worker);
    worker->fetches.clear();
    end_endpoints(*worker);
  }
  delete worker;
}

ucs_status_t ucp_worker_query(ucp_worker_h worker, ucp_worker_attr_t* attr) {
  if (worker == nullptr || attr == nullptr) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = check_mask("ucp_worker_query", "field_mask", attr->field_mask, kAttributes); s != UCS_OK) return s;
  const uint64_t mask = attr->field_mask;
  const unsigned wanted = (mask & UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS) != 0 ? attr->address_flags : 0;
  if (ucs_status_t s = check_mask("ucp_worker_query", "address_flags", wanted, UCP_WORKER_ADDRESS_FLAG_NET_ONLY); s != UCS_OK)
    return s;
  if ((mask & UCP_WORKER_ATTR_FIELD_THREAD_MODE) != 0) attr->thread_mode = worker->mode;
  if ((mask & UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER) != 0) attr->max_am_header = kMaxHeader;
  if ((mask & UCP_WORKER_ATTR_FIELD_NAME) != 0) {
    std::memset(attr->name, 0, sizeof attr->name);
    worker->name.copy(attr->name, sizeof attr->name - 1);
  }
  if ((mask & UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING) != 0) attr->max_debug_string = 128;
  // UCP_WORKER_ADDRESS_FLAG_NET_ONLY asks for fewer ways: the address has all of them, and leads there as well.
  if ((mask & UCP_WORKER_ATTR_FIELD_ADDRESS) == 0) return UCS_OK;
  return copy_address(*worker, &attr->address, &attr->address_length);
}

ucs_status_t ucp_worker_get_address(ucp_worker_h worker, ucp_address_t** address_p, size_t* address_length_p) {
  if (worker == nullptr || address_p == nullptr || address_length_p == nullptr) return UCS_ERR_INVALID_PARAM;
  return copy_address(*worker, address_p, address_length_p);
}

void ucp_worker_release_address(ucp_worker_h, ucp_address_t* address) { std::free(address); }

ucs_status_t ucp_worker_address_query(ucp_address_t* address, ucp_worker_address_attr_t* attr) {
  AddressHeader header;
  if (attr == nullptr || !parse_address(address, &header)) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s =
          check_mask("ucp_worker_address_query", "field_mask", attr->field_mask, UCP_WORKER_ADDRESS_ATTR_FIELD_UID);
      s != UCS_OK) {
    return s;
  }
  if ((attr->field_mask & UCP_WORKER_ADDRESS_ATTR_FIELD_UID) != 0) attr->worker_uid = header.uid;
  return UCS_OK;
}

unsigned ucp_worker_progress(ucp_worker_h worker) {
  if (worker->guarded || worker->chores) [[unlikely]]
    return progress_held(*worker);
  return tw_worker_progress(worker->worker);
}

// ------------------------------------------------------------------------------------------------ sleeping

ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int* fd) {
  if (worker == nullptr || fd == nullptr) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = need_wakeup(*worker, "ucp_worker_get_efd"); s != UCS_OK) return s;
  const tw_status status = tw_worker_fd(worker->worker, fd);
  return status == TW_OK ? UCS_OK : failed("ucp_worker_get_efd", status);
}

ucs_status_t ucp_worker_arm(ucp_worker_h worker) {
  if (ucs_status_t s = need_wakeup(*worker, "ucp_worker_arm"); s != UCS_OK) return s;
  const Lock lock(*worker);
  if (has_news(*worker)) return UCS_ERR_BUSY;
  const tw_status status = tw_worker_arm(worker->worker);
  if (status == TW_OK) note_sleeper(*worker);
  return status == TW_OK || status == TW_ERR_BUSY ? status_of(status) : failed("ucp_worker_arm", status);
}

ucs_status_t ucp_worker_wait(ucp_worker_h worker) {
  const ucs_status_t status = ucp_worker_arm(worker);
  if (status == UCS_ERR_BUSY) return UCS_OK;
  if (status != UCS_OK) return status;
  pollfd one{-1, POLLIN, 0};
  if (const tw_status s = tw_worker_fd(worker->worker, &one.fd); s != TW_OK) return failed("ucp_worker_wait", s);
  while (poll(&one, 1, -1) < 0 && errno == EINTR) {
  }
  return UCS_OK;
}

// It may return before the word has changed: its caller looks at it again, and progresses.
void ucp_worker_wait_mem(ucp_worker_h, void*) {
  pollfd none{-1, 0, 0};
  const timespec shortly{0, 20000};
  (void)ppoll(&none, 0, &shortly, nullptr);
}

ucs_status_t ucp_worker_signal(ucp_worker_h worker) {
  const tw_status status = tw_worker_wake(worker->worker);
  return status == TW_OK ? UCS_OK : failed("ucp_worker_signal", status);
}

void ucp_worker_print_info(ucp_worker_h worker, FILE* stream) {
  const Lock lock(*worker);
  std::fprintf(stream, "#\n# UCP worker '%s'\n#\n#                 address: %zu bytes\n#               endpoints: %zu\n#\n",
               worker->name.c_str(), worker->address.size(), worker->peers.size());
}

}  // extern "C"
