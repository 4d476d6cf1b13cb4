// SPDX-License-Identifier: Apache-2.0
// An outside C++ program: the view of the interface, through the installed library.
#include <cstdio>
#include <thalweg/thalweg.hpp>

int main() {
  static const char key[] = "a job key of this test only.....";
  tw_store_options options = TW_STORE_OPTIONS_INIT;
  options.job_key = key;
  options.job_key_length = sizeof key;
  const thalweg::Store store("serve:127.0.0.1:0", &options);
  std::printf("C++ %ld through the installed library, rank %u of %u\n", long(__cplusplus), store.rank(), store.count());
}
