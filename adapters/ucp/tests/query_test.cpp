// SPDX-License-Identifier: Apache-2.0
// Configuration, and what contexts, workers and endpoints tell about themselves: in the form that Open MPI and UCXX read.
#include <cstdlib>

#include "world.hpp"

using namespace ucp_test;

namespace {

/// What a function prints.
template <class Print>
std::string printed(const Print& print) {
  char* text = nullptr;
  size_t size = 0;
  FILE* const stream = open_memstream(&text, &size);
  print(stream);
  std::fclose(stream);
  const std::string result(text, size);
  std::free(text);
  return result;
}

TEST(Query, ConfigurationIsReadChangedAndPrinted) {
  ucp_config_t* config = nullptr;
  setenv("UCX_RNDV_THRESH", "12345", 1);
  setenv("APP_UCX_NET_DEVICES", "eth7", 1);
  ASSERT_EQ(ucp_config_read("APP", nullptr, &config), UCS_OK);
  EXPECT_EQ(ucp_config_modify(config, "NO_SUCH_NAME", "1"), UCS_ERR_NO_ELEM);
  EXPECT_EQ(ucp_config_modify(config, "ZCOPY_THRESH", "1m"), UCS_OK);
  const std::string text = printed([&](FILE* to) { ucp_config_print(config, to, "title", UCS_CONFIG_PRINT_CONFIG); });
  EXPECT_NE(text.find("UCX_TLS=all\n"), std::string::npos) << "UCXX switches CUDA off otherwise";
  EXPECT_NE(text.find("UCX_RNDV_THRESH=12345\n"), std::string::npos);
  EXPECT_NE(text.find("UCX_NET_DEVICES=eth7\n"), std::string::npos);
  EXPECT_NE(text.find("UCX_ZCOPY_THRESH=1m\n"), std::string::npos);
  ucp_config_release(config);
  EXPECT_EQ(ucp_config_read(nullptr, "/some/file", &config), UCS_ERR_UNSUPPORTED);
  unsetenv("UCX_RNDV_THRESH");
  unsetenv("APP_UCX_NET_DEVICES");
}

TEST(Query, TransportsAreThoseThatUcxNames) {
  struct Case {
    const char* tls;
    ucs_status_t status;
    const char* has;
    const char* lacks;
  };
  for (const Case& one : {Case{"tcp", UCS_OK, "-- tcp/", "-- shm/"}, Case{"posix,cma", UCS_OK, "-- shm/", "-- tcp/"},
                          Case{"^tcp", UCS_OK, "-- shm/", "-- tcp/"}, Case{"all", UCS_OK, "-- tcp/", "-- rc"},
                          Case{"rc,ud", UCS_ERR_NO_DEVICE, "", ""}}) {
    ucp_config_t* config = nullptr;
    ASSERT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
    EXPECT_EQ(ucp_config_modify(config, "TLS", one.tls), UCS_OK);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    ucp_context_h context = nullptr;
    EXPECT_EQ(ucp_init(&params, config, &context), one.status) << one.tls;
    ucp_config_release(config);
    if (one.status != UCS_OK) continue;
    const std::string text = printed([&](FILE* to) { ucp_context_print_info(context, to); });
    EXPECT_NE(text.find("resource 0  :  md 0  dev 0  flags -- self/memory\n"), std::string::npos);
    EXPECT_NE(text.find(one.has), std::string::npos) << one.tls;
    EXPECT_EQ(text.find(one.lacks), std::string::npos) << one.tls;
    ucp_cleanup(context);
  }
}

TEST(Query, FeaturesThatAreNotSupportedAreRefused) {
  ucp_params_t params{};
  ucp_context_h context = nullptr;
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | (uint64_t{1} << 40);
  EXPECT_EQ(ucp_init(&params, nullptr, &context), UCS_ERR_UNSUPPORTED);
  params.field_mask = uint64_t{1} << 60;
  EXPECT_EQ(ucp_init(&params, nullptr, &context), UCS_ERR_UNSUPPORTED);
}

TEST(Query, WorkersAndEndpoints) {
  World w;
  w.connect();
  ucp_worker_attr_t attr{};
  attr.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER | UCP_WORKER_ATTR_FIELD_THREAD_MODE;
  ASSERT_EQ(ucp_worker_query(w.a.worker, &attr), UCS_OK);
  EXPECT_EQ(attr.thread_mode, UCS_THREAD_MODE_SINGLE);
  EXPECT_LE(attr.max_am_header, 16384u) << "MPICH does not start with more";
  ucp_worker_address_attr_t first{}, second{};
  first.field_mask = second.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID;
  EXPECT_EQ(ucp_worker_address_query(attr.address, &first), UCS_OK);
  ucp_worker_release_address(w.a.worker, attr.address);
  ASSERT_EQ(ucp_worker_query(w.b.worker, &attr), UCS_OK);
  EXPECT_EQ(ucp_worker_address_query(attr.address, &second), UCS_OK);
  EXPECT_NE(first.worker_uid, second.worker_uid);
  std::memset(static_cast<void*>(attr.address), 'x', 8);  // an address of another UCX
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = attr.address;
  ucp_ep_h none = nullptr;
  EXPECT_EQ(ucp_ep_create(w.a.worker, &params, &none), UCS_ERR_UNSUPPORTED);
  ucp_worker_release_address(w.b.worker, attr.address);
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  EXPECT_EQ(UCP_VERSION(major, minor), UCP_API_VERSION);
  ucp_lib_attr_t library{};
  library.field_mask = UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL;
  EXPECT_EQ(ucp_lib_query(&library), UCS_OK);
  EXPECT_EQ(library.max_thread_level, UCS_THREAD_MODE_MULTI);
}

TEST(Query, ARequestsMemoryIsWhatTheUserDeclaredElseWhatIsThere) {
  World w;
  w.connect();
  char in[8];
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  for (const ucs_memory_type_t declared : {UCS_MEMORY_TYPE_CUDA_MANAGED, UCS_MEMORY_TYPE_HOST, UCS_MEMORY_TYPE_UNKNOWN}) {
    param.memory_type = declared;
    const ucs_memory_type_t told = declared != UCS_MEMORY_TYPE_UNKNOWN ? declared : UCS_MEMORY_TYPE_HOST;
    ucs_status_ptr_t tagged = ucp_tag_recv_nbx(w.a.worker, in, sizeof in, 1, ~ucp_tag_t{0}, &param);
    ucs_status_ptr_t streamed = ucp_stream_recv_nbx(w.a.ep, in, sizeof in, nullptr, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(tagged) && UCS_PTR_IS_PTR(streamed));
    EXPECT_EQ(memory_type_of(tagged), told);
    EXPECT_EQ(memory_type_of(streamed), told);
    ucp_request_cancel(w.a.worker, tagged);
    ucp_request_cancel(w.a.worker, streamed);
    EXPECT_EQ(w.end(tagged), UCS_ERR_CANCELED);
    EXPECT_EQ(w.end(streamed), UCS_ERR_CANCELED);
  }
}

TEST(Query, AnAdviceNeedsAllItsFields) {
  Side side;
  alignas(4096) static char page[4096];
  ucp_mem_advise_params_t params{};
  params.address = page;
  params.length = sizeof page;
  params.advice = UCP_MADV_WILLNEED;
  constexpr uint64_t kAll =
      UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS | UCP_MEM_ADVISE_PARAM_FIELD_LENGTH | UCP_MEM_ADVISE_PARAM_FIELD_ADVICE;
  for (uint64_t mask = 0; mask <= kAll; ++mask) {
    params.field_mask = mask;
    EXPECT_EQ(ucp_mem_advise(side.context, nullptr, &params), mask == kAll ? UCS_OK : UCS_ERR_INVALID_PARAM);
  }
}

}  // namespace
