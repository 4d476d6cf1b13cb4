// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "request.hpp"
#include "status.hpp"

using namespace thalweg::ucx;

namespace {

constexpr uint64_t kParams = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE | UCP_PARAM_FIELD_REQUEST_INIT |
                             UCP_PARAM_FIELD_REQUEST_CLEANUP | UCP_PARAM_FIELD_TAG_SENDER_MASK |
                             UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                             UCP_PARAM_FIELD_ESTIMATED_NUM_PPN | UCP_PARAM_FIELD_NAME
#if THALWEG_HAS_UCP_PARAM_FIELD_NODE_LOCAL_ID
                             | UCP_PARAM_FIELD_NODE_LOCAL_ID
#endif
    ;
constexpr uint64_t kFeatures = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_WAKEUP |
                               UCP_FEATURE_STREAM | UCP_FEATURE_AM
#if THALWEG_HAS_UCP_FEATURE_DEVICE
                               | UCP_FEATURE_DEVICE  // NIXL always asks for it; what needs it refuses
#endif
    ;

std::string info_of(tw_context* context) {
  size_t size = 0;
  if (tw_context_info(context, nullptr, &size) < 0) return "";
  std::string text(size, 0);
  if (tw_context_info(context, text.data(), &size) < 0) return "";
  text.resize(std::strlen(text.c_str()));
  return text;
}

/// Which memory operations take: CUDA's where this machine has a GPU that the library can use. Where the driver's device is there, the driver
/// is not initialised to know that: every buffer of the process would be asked of it from then on.
uint64_t memory_types(tw_context* context) {
  constexpr uint64_t kCuda = UCS_BIT(UCS_MEMORY_TYPE_CUDA) | UCS_BIT(UCS_MEMORY_TYPE_CUDA_MANAGED);
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);  // the context has loaded it, if it is there
  if (driver == nullptr) return UCS_BIT(UCS_MEMORY_TYPE_HOST);
  dlclose(driver);
  const bool there = access("/dev/nvidiactl", F_OK) == 0 || info_of(context).find("\"cuda:0\"") != std::string::npos;
  return UCS_BIT(UCS_MEMORY_TYPE_HOST) | (there ? kCuda : 0);
}

/// `thalweg ucx` asks who uses this library: a line with process and program in the file that it names.
void tell_user() {
  const char* const file = std::getenv("THALWEG_UCX_USERS");
  if (file == nullptr || *file == 0) return;
  const int fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return;
  const std::string line = std::to_string(getpid()) + " " + program_invocation_short_name + "\n";
  if (write(fd, line.data(), line.size()) < 0) tell("%s cannot be written", file);
  close(fd);
}

void take_params(const ucp_params_t& params, ucp_context& context) {
  const uint64_t mask = params.field_mask;
  if ((mask & UCP_PARAM_FIELD_FEATURES) != 0) context.features = params.features;
  if ((mask & UCP_PARAM_FIELD_REQUEST_SIZE) != 0) context.request_size = params.request_size;
  if ((mask & UCP_PARAM_FIELD_REQUEST_INIT) != 0) context.request_init = params.request_init;
  if ((mask & UCP_PARAM_FIELD_REQUEST_CLEANUP) != 0) context.request_cleanup = params.request_cleanup;
  if ((mask & UCP_PARAM_FIELD_MT_WORKERS_SHARED) != 0) context.shared = params.mt_workers_shared != 0;
  if ((mask & UCP_PARAM_FIELD_NAME) != 0 && params.name != nullptr) context.name = params.name;
}

}  // namespace

extern "C" {

ucs_status_t ucp_init_version(unsigned api_major_version, unsigned, const ucp_params_t* params, const ucp_config_t* config,
                              ucp_context_h* context_p) {
  if (params == nullptr || context_p == nullptr) return UCS_ERR_INVALID_PARAM;
  if (api_major_version != UCP_API_MAJOR) {
    return unsupported("ucp_init_version", "a major version other than 1", "use a program that was built with UCX 1.x");
  }
  if (ucs_status_t s = check_mask("ucp_init", "ucp_params_t::field_mask", params->field_mask, kParams); s != UCS_OK) return s;
  auto context = std::make_unique<ucp_context>();
  take_params(*params, *context);
  if (ucs_status_t s = check_mask("ucp_init", "ucp_params_t::features", context->features, kFeatures); s != UCS_OK) return s;
  const ucp_config own = config != nullptr ? *config : default_config();
  if (ucs_status_t s = transports_of(own, &context->transports); s != UCS_OK) return s;
  tw_context_options options = TW_CONTEXT_OPTIONS_INIT;
  if (!context->transports.empty()) options.transports = context->transports.c_str();
  const tw_status status = tw_context_create(&options, &context->context);
  if (status != TW_OK) return failed("ucp_init", status);
  tell_user();
  if (context->name.empty()) context->name = "thalweg";
  *context_p = context.release();
  return UCS_OK;
}

void ucp_cleanup(ucp_context_h context) {
  if (context == nullptr) return;
  tw_context_destroy(context->context);
  delete context;
}

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t* attr) {
  if (context == nullptr || attr == nullptr) return UCS_ERR_INVALID_PARAM;
  constexpr uint64_t kKnown =
      UCP_ATTR_FIELD_REQUEST_SIZE | UCP_ATTR_FIELD_THREAD_MODE | UCP_ATTR_FIELD_MEMORY_TYPES | UCP_ATTR_FIELD_NAME;
  if (ucs_status_t s = check_mask("ucp_context_query", "field_mask", attr->field_mask, kKnown); s != UCS_OK) return s;
  const uint64_t mask = attr->field_mask;
  if ((mask & UCP_ATTR_FIELD_REQUEST_SIZE) != 0) attr->request_size = kRequestBytes;
  if ((mask & UCP_ATTR_FIELD_THREAD_MODE) != 0) attr->thread_mode = UCS_THREAD_MODE_MULTI;
  if ((mask & UCP_ATTR_FIELD_MEMORY_TYPES) != 0) attr->memory_types = memory_types(context->context);
  if ((mask & UCP_ATTR_FIELD_NAME) != 0) {
    std::memset(attr->name, 0, sizeof attr->name);
    context->name.copy(attr->name, sizeof attr->name - 1);
  }
  return UCS_OK;
}

// Open MPI reads the lines with "resource", in this form.
void ucp_context_print_info(const ucp_context_h context, FILE* stream) {
  std::fprintf(stream, "#\n# UCP context\n#\n#     component 0  :  thalweg\n#            md 0  :  component 0  thalweg\n#\n");
  int number = 0;
  for (const char* name : {"self", "shm", "tcp"}) {
    if (!context->transports.empty() && context->transports.find(name) == std::string::npos) continue;
    const char* const device = *name == 't' ? "network" : "memory";
    std::fprintf(stream, "#      resource %d  :  md 0  dev %d  flags -- %s/%s\n", number, number, name, device);
    ++number;
  }
  std::fprintf(stream, "#\n# %s\n#\n", tw_version_string());
}

ucs_status_t ucp_lib_query(ucp_lib_attr_t* attr) {
  if (attr == nullptr) return UCS_ERR_INVALID_PARAM;
  if (ucs_status_t s = check_mask("ucp_lib_query", "field_mask", attr->field_mask, UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL);
      s != UCS_OK) {
    return s;
  }
  if ((attr->field_mask & UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL) != 0) attr->max_thread_level = UCS_THREAD_MODE_MULTI;
  return UCS_OK;
}

void ucp_get_version(unsigned* major_version, unsigned* minor_version, unsigned* release_number) {
  *major_version = UCP_API_MAJOR;
  *minor_version = UCP_API_MINOR;
  *release_number = 0;
}

#define THALWEG_TEXT(x) #x
#define THALWEG_TEXT_OF(x) THALWEG_TEXT(x)
const char* ucp_get_version_string(void) { return THALWEG_TEXT_OF(UCP_API_MAJOR) "." THALWEG_TEXT_OF(UCP_API_MINOR) ".0"; }

}  // extern "C"
