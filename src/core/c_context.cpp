// SPDX-License-Identifier: Apache-2.0
// C interface: version, status texts, contexts.
#include <new>

#include "base/log.hpp"
#include "core/c_checks.hpp"
#include "core/context.hpp"
#include "core/counters.hpp"
#include "routes/cost_file.hpp"
#include "trace/trace.hpp"

using namespace thalweg::impl;

#define TW_TEXT_OF(x) #x
#define TW_TEXT(x) TW_TEXT_OF(x)

namespace thalweg::impl {

Status copy_out(const void* from, size_t length, void* to, size_t* capacity) {
  if (capacity == nullptr) return fail(TW_ERR_INVALID, "the length is NULL");
  const size_t room = *capacity;
  *capacity = length;
  if (to == nullptr) return TW_OK;
  if (room < length) return fail(TW_ERR_INVALID, "%zu bytes are needed, %zu were given", length, room);
  std::memcpy(to, from, length);
  return TW_OK;
}

Status no_size() {
  return fail(TW_ERR_INVALID,
              "the options have no size, so none of their fields would be read: begin with their TW_..._OPTIONS_INIT");
}

}  // namespace thalweg::impl

extern "C" {

int tw_version(void) { return TW_VERSION_MAJOR * 10000 + TW_VERSION_MINOR * 100 + TW_VERSION_PATCH; }
const char* tw_version_string(void) {
  return TW_TEXT(TW_VERSION_MAJOR) "." TW_TEXT(TW_VERSION_MINOR) "." TW_TEXT(TW_VERSION_PATCH);
}
const char* tw_status_name(tw_status status) { return status_name(status); }
const char* tw_last_error(void) { return last_error(); }

tw_status tw_context_create(const tw_context_options* given, tw_context** out) {
  if (out == nullptr) return fail(TW_ERR_INVALID, "the place for the context is NULL");
  *out = nullptr;
  const tw_context_options defaults = TW_CONTEXT_OPTIONS_INIT;
  const Options<tw_context_options> options(given, defaults);
  if (Status s = options.status(); is_error(s)) return s;
  auto* context = new (std::nothrow) tw_context;
  if (context == nullptr) return fail(TW_ERR_NO_MEMORY, "no memory for a context");
  const Status status = context->open(*options);
  if (is_error(status)) {
    const std::string why = last_error();
    delete context;
    set_last_error(why);
    return status;
  }
  *out = context;
  return TW_OK;
}

tw_status tw_costs_save(const char* values, char* file, size_t* length) {
  if (values == nullptr) return fail(TW_ERR_INVALID, "the values are NULL");
  std::string path;
  const Status status = save_costs(values, &path);
  if (is_error(status)) return status;
  return length == nullptr ? TW_OK : copy_out(path.c_str(), path.size() + 1, file, length);
}

void tw_context_destroy(tw_context* context) {
  if (context == nullptr || context->born.forked()) return;
  const uint32_t own = context->plans != nullptr ? 1 : 0;  // the worker of its plans
  if (context->workers.load() > own) {
    log(LogLevel::error, "tw_context_destroy: %u workers are still alive; the context is kept. Destroy its workers first",
        context->workers.load() - own);
    return;
  }
  if (context->plans != nullptr) context->plans->settle();
  if (context->plans != nullptr && context->plans->users() != 0) {
    log(LogLevel::error,
        "tw_context_destroy: %u plans, queues, windows or channels' ends are still alive; the context is kept. Destroy them "
        "first",
        context->plans->users());
    return;
  }
  context->plans.reset();
  delete context;
}

tw_status tw_context_info(tw_context* context, char* buffer, size_t* length) {
  const Status status = check(context);
  if (is_error(status)) return status;
  const std::string text = describe(*context);
  return copy_out(text.c_str(), text.size() + 1, buffer, length);
}

tw_status tw_context_counters(tw_context* context, char* buffer, size_t* length) {
  const Status status = check(context);
  if (is_error(status)) return status;
  const std::string text = counters_json(*context);
  return copy_out(text.c_str(), text.size() + 1, buffer, length);
}

tw_status tw_context_trace(tw_context* context, const char* file) {
  const Status status = check(context);
  if (is_error(status)) return status;
  return file != nullptr ? trace::start(file, context) : trace::stop(context);
}

}  // extern "C"
