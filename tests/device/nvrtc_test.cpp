// SPDX-License-Identifier: Apache-2.0
// usage: nvrtc_test KERNELS.cu INCLUDE_FOLDER [libnvrtc]: compiles a source with NVRTC as CuPy's RawModule does. Exit code 77:
// there is no NVRTC here (package nvidia-cuda-nvrtc).
#include <dlfcn.h>
#include <glob.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Program = void*;
constexpr int kSuccess = 0;

/// Whatever installed it: the system, a toolkit, or the Python package of some environment.
void* load(const std::vector<std::string>& hints) {
  std::vector<std::string> names = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"};
  for (const std::string& hint : hints) {
    glob_t found;
    if (glob(hint.c_str(), 0, nullptr, &found) == 0)
      names.insert(names.begin(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
  }
  for (const std::string& name : names) {
    if (void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

template <class F>
F find(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "no %s in NVRTC\n", name);
    std::exit(1);
  }
  return reinterpret_cast<F>(symbol);
}

std::string log_of(void* library, Program program) {
  size_t length = 0;
  find<int (*)(Program, size_t*)>(library, "nvrtcGetProgramLogSize")(program, &length);
  std::string log(length, '\0');
  find<int (*)(Program, char*)>(library, "nvrtcGetProgramLog")(program, log.data());
  return log;
}

int compile(void* library, const std::string& source, const std::string& include, const char* architecture) {
  Program program = nullptr;
  const auto create =
      find<int (*)(Program*, const char*, const char*, int, const char**, const char**)>(library, "nvrtcCreateProgram");
  if (create(&program, source.c_str(), "kernels.cu", 0, nullptr, nullptr) != kSuccess) return 1;
  const std::string folder = "-I" + include, target = std::string("--gpu-architecture=") + architecture;
  const char* const options[] = {folder.c_str(), target.c_str(), "--std=c++17"};
  const int status = find<int (*)(Program, int, const char* const*)>(library, "nvrtcCompileProgram")(program, 3, options);
  const std::string log = log_of(library, program);
  size_t bytes = 0;
  if (status == kSuccess) find<int (*)(Program, size_t*)>(library, "nvrtcGetCUBINSize")(program, &bytes);
  std::printf("%s: status %d, %zu bytes of machine code\n%s\n", architecture, status, bytes, log.c_str());
  find<int (*)(Program*)>(library, "nvrtcDestroyProgram")(&program);
  const bool silent = log.find("warning") == std::string::npos;
  return status == kSuccess && bytes > 0 && silent ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  void* const library = load({argv + 3, argv + argc});
  if (library == nullptr) {
    std::printf("skipped: no libnvrtc (Python package nvidia-cuda-nvrtc)\n");
    return 77;
  }
  int version[2] = {0, 0};
  find<int (*)(int*, int*)>(library, "nvrtcVersion")(&version[0], &version[1]);
  std::printf("NVRTC %d.%d\n", version[0], version[1]);
  std::ostringstream source;
  source << std::ifstream(argv[1]).rdbuf();
  if (source.str().empty()) return 2;
  return compile(library, source.str(), argv[2], "sm_80") + compile(library, source.str(), argv[2], "sm_90");
}
