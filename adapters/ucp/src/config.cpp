// SPDX-License-Identifier: Apache-2.0
// Thalweg chooses its routes by costs that it measures, so UCX's tuning variables are read, kept and printed, and have no effect. What
// has one: TLS (which transports may be used). Names that UCX does not have are refused, as by UCX.
#include "config.hpp"

#include <array>
#include <cstring>
#include <new>
#include <sstream>
#include <string_view>
#include <vector>

#include "status.hpp"

extern char** environ;

namespace thalweg::ucx {
namespace {

struct Known {
  const char* name;
  const char* value;  // what is printed where nothing was set
};
// In the order in which they are printed.
constexpr std::array kKnown = {
    Known{"NET_DEVICES", "all"},
    Known{"SHM_DEVICES", "all"},
    Known{"ACC_DEVICES", "all"},
    Known{"SELF_DEVICES", "all"},
    Known{"TLS", "all"},
    Known{"ALLOC_PRIO", "md:sysv,md:posix,thp,md:*,mmap,heap"},
    Known{"PROTOS", "all"},
    Known{"SOCKADDR_TLS_PRIORITY", "tcp"},
    Known{"WARN_INVALID_CONFIG", "y"},
    Known{"BCOPY_THRESH", "auto"},
    Known{"RNDV_THRESH", "auto"},
    Known{"RNDV_SCHEME", "auto"},
    Known{"RNDV_FRAG_SIZE", "host:512K,cuda:4M"},
    Known{"RNDV_SEND_NBR_THRESH", "256K"},
    Known{"RNDV_PIPELINE_SEND_THRESH", "inf"},
    Known{"ZCOPY_THRESH", "auto"},
    Known{"TM_THRESH", "1K"},
    Known{"TM_FORCE_THRESH", "8K"},
    Known{"NUM_EPS", "auto"},
    Known{"NUM_PPN", "auto"},
    Known{"MAX_EAGER_LANES", "1"},
    Known{"MAX_EAGER_RAILS", "1"},
    Known{"MAX_RNDV_LANES", "2"},
    Known{"MAX_RNDV_RAILS", "2"},
    Known{"MAX_COMPONENT_MDS", "16"},
    Known{"USE_MT_MUTEX", "n"},
    Known{"ADAPTIVE_PROGRESS", "y"},
    Known{"SEG_SIZE", "8K"},
    Known{"UNIFIED_MODE", "n"},
    Known{"CM_USE_ALL_DEVICES", "y"},
    Known{"KEEPALIVE_INTERVAL", "20s"},
    Known{"KEEPALIVE_NUM_EPS", "128"},
    Known{"PROTO_ENABLE", "y"},
    Known{"PROTO_INFO", "n"},
    Known{"MEMTYPE_CACHE", "try"},
    Known{"MEMTYPE_REG_WHOLE_ALLOC_TYPES", "cuda"},
    Known{"REG_WHOLE_ALLOC_BITMAP", "cuda"},
    Known{"ADDRESS_VERSION", "v1"},
    Known{"ADDRESS_DEBUG_INFO", "n"},
    Known{"SELECT_DISTANCE_MD", "cuda_cpy"},
    Known{"FLUSH_WORKER_EPS", "y"},
    Known{"RCACHE_ENABLE", "try"},
    Known{"RCACHE_PURGE_ON_FORK", "y"},
    Known{"ERROR_HANDLING_MODE", "none"},
    Known{"LISTENER_BACKLOG", "auto"},
    Known{"MULTI_LANE_MAX_RATIO", "4"},
    Known{"PREFER_OFFLOAD", "y"},
    Known{"RESOLVE_REMOTE_EP_ID", "auto"},
    Known{"WORKER_ADDR_NAME", "n"},
};

const Known* find(std::string_view name) {
  for (const Known& one : kKnown) {
    if (name == one.name) return &one;
  }
  return nullptr;
}

bool ends_a_transport(std::string_view word, std::string_view prefix) {
  return word == prefix ||
         (word.substr(0, prefix.size()) == prefix && word.size() > prefix.size() && word[prefix.size()] == '_');
}

/// UCX's name of a transport, or of a class of them, in Thalweg's; "" : none.
const char* transport_of(std::string_view word) {
  if (word == "self" || word == "loopback") return "self";
  if (word == "tcp") return "tcp";
  for (const char* name : {"sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}) {
    if (ends_a_transport(word, name)) return "shm";
  }
  return "";
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word.substr(0, word.find(':')));
  return words;
}

void take_environment(const std::string& prefix, ucp_config& config) {
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    if (text.substr(0, prefix.size()) != prefix) continue;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals <= prefix.size()) continue;
    const std::string name(text.substr(prefix.size(), equals - prefix.size()));
    if (find(name) != nullptr) config.values[name] = std::string(text.substr(equals + 1));
  }
}

/// What is set, and does not do here what it does in UCX.
void tell_without_effect(const std::string& name) {
  if (!wants_info()) return;  // users set them by default
  tell("UCX_%s has no effect here: routes are chosen by measured costs (thalweg tune, thalweg explain)", name.c_str());
}

}  // namespace

ucs_status_t transports_of(const ucp_config& config, std::string* transports) {
  transports->clear();
  const auto at = config.values.find("TLS");
  if (at == config.values.end()) return UCS_OK;
  const bool negated = !at->second.empty() && at->second[0] == '^';
  bool named[3] = {};
  constexpr const char* kNames[3] = {"self", "shm", "tcp"};
  for (const std::string& word : words_of(negated ? at->second.substr(1) : at->second)) {
    if (word == "all") return UCS_OK;
    const std::string_view mine = transport_of(word);
    for (int i = 0; i < 3; ++i) named[i] = named[i] || mine == kNames[i];
  }
  if (!negated) named[0] = true;  // an endpoint to oneself: UCX's shared memory and tcp reach it, too
  for (int i = 0; i < 3; ++i) {
    if (named[i] == negated) continue;
    *transports += std::string(transports->empty() ? "" : ",") + kNames[i];
  }
  if (*transports != "self" || named[1] || negated || at->second.find("self") != std::string::npos) return UCS_OK;
  tell("UCX_TLS=%s names none of what carries here: self, tcp, and sm (posix, sysv, cma, ...)", at->second.c_str());
  return UCS_ERR_NO_DEVICE;
}

ucp_config default_config() {
  ucp_config config;
  take_environment("UCX_", config);
  for (const auto& [name, value] : config.values) {
    if (name != "TLS" && value != find(name)->value) tell_without_effect(name);
  }
  return config;
}

}  // namespace thalweg::ucx

using namespace thalweg::ucx;

extern "C" {

ucs_status_t ucp_config_read(const char* env_prefix, const char* filename, ucp_config_t** config_p) {
  if (config_p == nullptr) return UCS_ERR_INVALID_PARAM;
  if (filename != nullptr) return unsupported("ucp_config_read", "a configuration file", "set UCX_* in the environment");
  auto* config = new (std::nothrow) ucp_config(default_config());
  if (config == nullptr) return UCS_ERR_NO_MEMORY;
  if (env_prefix != nullptr && *env_prefix != 0) take_environment(std::string(env_prefix) + "_UCX_", *config);
  *config_p = config;
  return UCS_OK;
}

void ucp_config_release(ucp_config_t* config) { delete config; }

ucs_status_t ucp_config_modify(ucp_config_t* config, const char* name, const char* value) {
  if (config == nullptr || name == nullptr || value == nullptr) return UCS_ERR_INVALID_PARAM;
  const std::string_view given = std::strncmp(name, "UCX_", 4) == 0 ? name + 4 : name;
  const Known* known = find(given);
  if (known == nullptr) return UCS_ERR_NO_ELEM;
  if (given != "TLS" && std::strcmp(value, known->value) != 0) tell_without_effect(known->name);
  config->values[known->name] = value;
  return UCS_OK;
}

void ucp_config_print(const ucp_config_t* config, FILE* stream, const char* title, ucs_config_print_flags_t print_flags) {
  if ((print_flags & UCS_CONFIG_PRINT_HEADER) != 0) {
    std::fprintf(stream, "#\n# %s\n#\n\n", title != nullptr ? title : "Thalweg's UCP configuration");
  }
  if ((print_flags & UCS_CONFIG_PRINT_CONFIG) == 0) return;
  for (const Known& one : kKnown) {
    const auto at = config->values.find(one.name);
    std::fprintf(stream, "UCX_%s=%s\n", one.name, at != config->values.end() ? at->second.c_str() : one.value);
  }
}

}  // extern "C"
