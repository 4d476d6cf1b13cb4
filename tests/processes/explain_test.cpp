// SPDX-License-Identifier: Apache-2.0
// What explain says of one-sided operations: every way with its cost or with the reason why it is impossible, and the one that
// is taken.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "../fixtures/rooms.hpp"
#include "process.hpp"

using namespace thalweg::test;

namespace {

/// Keys of library memory and of plain memory out; serves until told to stop.
const Role kBothKinds("both kinds", [](Pipe& pipe) {
  Side side;
  pipe.send(side.address());
  static char plain[4096];
  tw_memory* memories[2] = {};
  if (tw_memory_allocate(side.context, sizeof plain, nullptr, &memories[0]) != TW_OK) return 1;
  if (tw_memory_register(side.context, plain, sizeof plain, nullptr, &memories[1]) != TW_OK) return 2;
  for (tw_memory* memory : memories) {
    char key[kKeyRoom];
    size_t length = sizeof key;
    if (tw_memory_export(memory, key, &length) != TW_OK) return 3;
    pipe.send({key, length});
  }
  return progress_until(side.worker, [&] { return pipe.readable(); }) && pipe.receive() == "end" ? 0 : 4;
});

template <class Ask>
std::string text_of(Ask ask) {
  char text[4096];
  size_t size = sizeof text;
  EXPECT_EQ(ask(text, &size), TW_OK) << tw_last_error();
  return text;
}

/// The line of `text` that names this way; "" when there is none.
std::string line_of(const std::string& text, const std::string& way) {
  const size_t at =
      text.find("  " + way + " ") != std::string::npos ? text.find("  " + way + " ") : text.find("* " + way + " ");
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

class Explain : public testing::TestWithParam<const char*> {};

TEST_P(Explain, OneSidedWaysAndWhyTheyAreImpossible) {
  const bool shm = GetParam() == std::string("shm");
  Child child("both kinds");
  Side side;
  tw_endpoint* endpoint = side.connect(child.receive(), GetParam());
  const std::string library_key = child.receive(), plain_key = child.receive();
  ASSERT_EQ(tw_endpoint_wait(endpoint, 20'000'000'000), TW_OK) << tw_last_error();
  tw_remote_memory *library = nullptr, *plain = nullptr;
  ASSERT_EQ(tw_memory_import(endpoint, library_key.data(), library_key.size(), &library), TW_OK);
  ASSERT_EQ(tw_memory_import(endpoint, plain_key.data(), plain_key.size(), &plain), TW_OK);
  void* mapped = nullptr;
  ASSERT_EQ(tw_remote_memory_map(library, &mapped), shm ? TW_OK : TW_ERR_UNSUPPORTED);
  for (const std::string verb : {"put", "get", "atomic"}) {
    const auto of = [&](tw_remote_memory* remote) {
      return text_of([&](char* to, size_t* size) { return tw_remote_memory_explain(remote, verb.c_str(), 8, to, size); });
    };
    for (tw_remote_memory* remote : {library, plain}) {
      const std::string text = of(remote);
      const bool direct = shm && remote == library;
      const std::string way = line_of(text, verb + "_mapped");
      EXPECT_EQ(way.find("impossible: ") == std::string::npos, direct) << text;
      EXPECT_EQ(way.find(" ns ") != std::string::npos, direct) << text;
      EXPECT_EQ(way[0] == '*', direct) << text;
      EXPECT_NE(line_of(text, verb + "_frames").find(" ns "), std::string::npos) << text;
      if (direct) {
        EXPECT_NE(text.find("chosen: " + verb + "_mapped\n"), std::string::npos) << text;
      }
      if (!shm) {
        EXPECT_NE(text.find("chosen: " + verb + "_frames\n"), std::string::npos) << text;
      }
    }
    const std::string both =
        text_of([&](char* to, size_t* size) { return tw_endpoint_explain(endpoint, verb.c_str(), 8, to, size); });
    EXPECT_NE(both.find("tw_memory_allocate:"), std::string::npos) << both;
    EXPECT_NE(both.find("tw_memory_register:"), std::string::npos) << both;
    EXPECT_NE(both.find("impossible: "), std::string::npos) << both;
  }
  for (const char* verb : {"put_blocks", "get_blocks"}) {
    for (tw_remote_memory* remote : {library, plain}) {
      const std::string said =
          text_of([&](char* to, size_t* size) { return tw_remote_memory_explain(remote, verb, 4096, to, size); });
      EXPECT_NE(line_of(said, "kernels of a device").find("impossible: "), std::string::npos) << said;
      EXPECT_NE(line_of(said, "frames").find(" ns "), std::string::npos) << said;
      const std::string way = !shm                                    ? "frames"
                              : remote == library                     ? "mapped"
                              : said.find("way: kernel") != said.npos ? "kernel"
                                                                      : "frames";
      EXPECT_NE(said.find("way: " + way + "\n"), std::string::npos) << said;
    }
    const std::string both =
        text_of([&](char* to, size_t* size) { return tw_endpoint_explain(endpoint, verb, 4096, to, size); });
    EXPECT_NE(both.find("tw_memory_allocate:"), std::string::npos) << both;
    EXPECT_NE(both.find(shm ? "chosen: direct copies" : "chosen: frames"), std::string::npos) << both;
  }
  // A layout of one piece is as none.
  constexpr size_t kLength = 1u << 20;
  tw_memory* own = nullptr;
  tw_layout* dense = nullptr;
  const uint64_t count = 16;
  const int64_t stride = kLength / 16;
  ASSERT_EQ(tw_memory_allocate(side.context, kLength, nullptr, &own), TW_OK);
  ASSERT_EQ(tw_layout_strided(1, kLength / 16, &count, &stride, &dense), TW_OK) << tw_last_error();
  const auto sent = [&](tw_layout* layout) {
    tw_op_options options = TW_OP_OPTIONS_INIT;
    options.layout = layout;
    return text_of([&](char* to, size_t* n) {
      return tw_endpoint_explain_buffer(endpoint, "send", tw_memory_address(own), kLength, nullptr, &options, to, n);
    });
  };
  EXPECT_EQ(sent(dense), sent(nullptr));
  tw_layout_destroy(dense);
  EXPECT_EQ(tw_memory_release(own), TW_OK);
  char text[16];
  size_t size = sizeof text;
  EXPECT_EQ(tw_remote_memory_explain(library, "send", 8, text, &size), TW_ERR_INVALID);
  EXPECT_EQ(tw_remote_memory_explain(nullptr, "put", 8, text, &size), TW_ERR_INVALID);
  tw_remote_memory_release(plain);
  child.send("end");
  EXPECT_EQ(child.join(), 0);
  EXPECT_EQ(tw_endpoint_close(endpoint, TW_CLOSE_FORCE, nullptr), TW_OK);
  EXPECT_EQ(tw_remote_memory_explain(library, "put", 8, text, &size), TW_ERR_CLOSED);
  tw_remote_memory_release(library);
}

INSTANTIATE_TEST_SUITE_P(Transports, Explain, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
