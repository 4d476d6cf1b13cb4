// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/pmix_api.hpp"

#include <dlfcn.h>

#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/launcher.hpp"

namespace thalweg::impl::pmix {
namespace {

constexpr char kName[] = "libpmix.so.2";

std::vector<std::string> candidates() {
  if (const char* given = variable("THALWEG_PMIX")) return {given};
  std::vector<std::string> all{kName};
  for (const char* prefix : {"PMIX_INSTALL_PREFIX", "PMIX_PREFIX", "OPAL_PREFIX", "PRTE_PREFIX", "SLURM_PMIX_PREFIX"}) {
    if (const char* folder = variable(prefix)) all.push_back(std::string(folder) + "/lib/" + kName);
  }
  return all;
}

template <class F>
bool find(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(::dlsym(library, name));
  return *out != nullptr;
}

bool read(void* library, Api* api) {
  return find(library, "PMIx_Init", &api->init) && find(library, "PMIx_Finalize", &api->finalize) &&
         find(library, "PMIx_Put", &api->put) && find(library, "PMIx_Commit", &api->commit) &&
         find(library, "PMIx_Fence_nb", &api->fence) && find(library, "PMIx_Get", &api->get) &&
         find(library, "PMIx_Error_string", &api->text);
}

}  // namespace

Status load(const Api** out) {
  static std::mutex mutex;
  static Api api{};
  static bool loaded = false;
  const std::lock_guard lock(mutex);
  *out = &api;
  // An MPI of this process has it already: of two copies each would believe to be the process's client.
  if (!loaded) loaded = read(RTLD_DEFAULT, &api);
  std::string why;
  for (const std::string& path : candidates()) {
    if (loaded) return TW_OK;
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // its plugins look for its symbols
    loaded = library != nullptr && read(library, &api);
    const char* text = loaded ? nullptr : ::dlerror();
    if (text != nullptr) why = text;
  }
  if (loaded) return TW_OK;
  return fail(TW_ERR_UNSUPPORTED,
              "a launcher that speaks PMIx started this process, but its library cannot be loaded (%s): install libpmix2, set "
              "THALWEG_PMIX "
              "to the path of the launcher's %s, or start with \"thalweg run\"",
              why.c_str(), kName);
}

}  // namespace thalweg::impl::pmix
