// SPDX-License-Identifier: Apache-2.0
// Tests with memory of a CUDA device: the driver's functions, buffers at a place, who sends to whom, and waits that end. Of CUDA only the
// driver's library is needed, when a test runs: without it, or without a GPU, these tests are skipped.
#pragma once
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "world.hpp"

namespace ucp_test {

using Bytes = std::vector<unsigned char>;

inline constexpr ucp_tag_t kAll = ~ucp_tag_t{0};
inline constexpr size_t kLengths[] = {1,         8,       1000,         8193,
                                      65536 + 3, 1 << 20, (4 << 20) + 1};  // on both sides of where ways change

// ------------------------------------------------------------------------------------------------ the driver

using Address = unsigned long long;  // CUdeviceptr

/// The driver's functions, by the names and types of its documentation (handles are pointers, results ints).
struct Driver {
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*primary_retain)(void**, int);
  int (*set_current)(void*);
  int (*allocate)(Address*, size_t);
  int (*allocate_managed)(Address*, size_t, unsigned);
  int (*release)(Address);
  int (*copy_in)(Address, const void*, size_t);
  int (*copy_out)(void*, Address, size_t);
  int (*synchronize)();
  void* context = nullptr;
  std::string why_not;  // empty: there is a GPU

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
      why_not = "no NVIDIA driver here (libcuda.so.1)";
      return;
    }
    find(library, "cuInit", init);
    find(library, "cuDeviceGet", device_get);
    find(library, "cuDevicePrimaryCtxRetain", primary_retain);
    find(library, "cuCtxSetCurrent", set_current);
    find(library, "cuMemAlloc_v2", allocate);
    find(library, "cuMemAllocManaged", allocate_managed);
    find(library, "cuMemFree_v2", release);
    find(library, "cuMemcpyHtoD_v2", copy_in);
    find(library, "cuMemcpyDtoH_v2", copy_out);
    find(library, "cuCtxSynchronize", synchronize);
    if (why_not.empty()) open();
  }

 private:
  template <class Function>
  void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) why_not = std::string("the driver has no ") + name;
  }
  void open() {
    int device = 0;
    const auto must = [&](int result, const char* what) {
      if (result != 0 && why_not.empty()) why_not = std::string("no GPU here: ") + what + " says " + std::to_string(result);
      return result == 0;
    };
    (void)(must(init(0), "cuInit") && must(device_get(&device, 0), "cuDeviceGet") &&
           must(primary_retain(&context, device), "cuDevicePrimaryCtxRetain"));
  }
};

inline const Driver& driver() {
  static const Driver loaded;
  return loaded;
}

inline void must(int result, const char* what) { EXPECT_EQ(result, 0) << what; }

// ------------------------------------------------------------------------------------------------ memory

/// Of all tests: a wait ran out, or an operation was refused in the middle. What is under way may still touch its memory, which stays then,
/// and the test ends.
inline bool stuck = false;

inline Bytes fresh(size_t length) {
  static std::mt19937_64 random{std::random_device{}()};
  Bytes bytes(length + 8);
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  bytes.resize(length);
  return bytes;
}

enum class Place { host, device, managed };

inline const char* name_of(Place place) {
  return place == Place::host ? "host" : place == Place::device ? "device" : "managed memory";
}
inline ucs_memory_type_t type_of(Place place) {
  if (place == Place::host) return UCS_MEMORY_TYPE_HOST;
  return place == Place::device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_CUDA_MANAGED;
}

/// Where the first difference is, in the words of a buffer of `length` bytes with `before` guard bytes in front.
inline std::string difference(const Bytes& have, const Bytes& want, size_t before, size_t length) {
  size_t first = want.size(), wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (have[i] == want[i]) continue;
    first = std::min(first, i);
    ++wrong;
  }
  std::ostringstream text;
  if (first < before) {
    text << "guard byte " << before - first << " in front";
  } else if (first >= before + length) {
    text << "guard byte " << first - before - length << " behind";
  } else {
    text << "byte " << first - before;
  }
  text << " of " << length << " is the first wrong one: " << std::hex << std::showbase << int{have[first]} << " instead of "
       << int{want[first]} << std::dec << "; " << wrong << " are wrong";
  return text.str();
}

/// Random bytes at a place, with guards before and behind them.
class Buffer {
 public:
  static constexpr size_t kGuard = 256;

  /// shift: how far it lies behind an address that is aligned to 256.
  Buffer(Place place, size_t length, size_t shift = 0)
      : place_(place), length_(length), before_(kGuard + shift), image_(fresh(before_ + length + kGuard)) {
    switch (place) {
      case Place::host:
        base_ = reinterpret_cast<Address>(::operator new(image_.size(), std::align_val_t{kGuard}));
        break;
      case Place::device:
        must(driver().allocate(&base_, image_.size()), "cuMemAlloc");
        break;
      case Place::managed:
        must(driver().allocate_managed(&base_, image_.size(), 1), "cuMemAllocManaged");
    }
    if (base_ != 0) write();
  }
  ~Buffer() {
    if (base_ == 0 || stuck) return;
    if (place_ != Place::host) {
      must(driver().release(base_), "cuMemFree");
    } else {
      ::operator delete(reinterpret_cast<void*>(base_), std::align_val_t{kGuard});
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  unsigned char* at(size_t offset = 0) const { return reinterpret_cast<unsigned char*>(base_ + before_ + offset); }
  size_t length() const { return length_; }
  Place place() const { return place_; }
  /// What was written into it here.
  Bytes written() const { return part(image_, 0, length_); }
  Bytes written(size_t offset, size_t length) const { return part(image_, offset, length); }
  /// Nothing has changed since.
  ::testing::AssertionResult untouched() const { return compare(image_); }
  /// These bytes lie there, and nothing beside them has changed.
  ::testing::AssertionResult holds(const Bytes& content, size_t offset = 0) const {
    Bytes want = image_;
    put(content, offset, want);
    return compare(want);
  }
  /// The same of pieces, in their order.
  ::testing::AssertionResult holds(const Bytes& content, const std::vector<ucp_dt_iov_t>& pieces) const {
    Bytes want = image_;
    size_t used = 0;
    for (const ucp_dt_iov_t& piece : pieces) {
      put(part(content, used, piece.length, 0), static_cast<size_t>(static_cast<unsigned char*>(piece.buffer) - at()), want);
      used += piece.length;
    }
    return compare(want);
  }
  /// From here.
  void set(const Bytes& content, size_t offset = 0) {
    put(content, offset, image_);
    write();
  }
  Bytes read(size_t offset, size_t length) const { return part(read(), offset, length); }

 private:
  Bytes part(const Bytes& all, size_t offset, size_t length) const { return part(all, offset, length, before_); }
  static Bytes part(const Bytes& all, size_t offset, size_t length, size_t before) {
    const auto first = all.begin() + static_cast<ptrdiff_t>(before + offset);
    return {first, first + static_cast<ptrdiff_t>(length)};
  }
  void put(const Bytes& content, size_t offset, Bytes& all) const {
    std::copy(content.begin(), content.end(), all.begin() + static_cast<ptrdiff_t>(before_ + offset));
  }
  void write() {
    if (place_ == Place::host) return void(std::memcpy(reinterpret_cast<void*>(base_), image_.data(), image_.size()));
    must(driver().copy_in(base_, image_.data(), image_.size()), "cuMemcpyHtoD");
    must(driver().synchronize(), "cuCtxSynchronize");  // a copy from pageable memory may return before it
  }
  Bytes read() const {
    Bytes bytes(image_.size());
    if (place_ == Place::host) {
      std::memcpy(bytes.data(), reinterpret_cast<const void*>(base_), bytes.size());
    } else {
      must(driver().copy_out(bytes.data(), base_, bytes.size()), "cuMemcpyDtoH");
    }
    return bytes;
  }
  ::testing::AssertionResult compare(const Bytes& want) const {
    const Bytes have = read();
    if (have == want) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << name_of(place_) << ": " << difference(have, want, before_, length_);
  }

  Place place_;
  size_t length_, before_;
  Bytes image_;  // guards among it
  Address base_ = 0;
};

// ------------------------------------------------------------------------------------------------ operations

struct Case {
  Place from, to;
  size_t length;
  bool declared;  // the memory types are told
};

inline constexpr std::array<std::pair<Place, Place>, 3> kWays = {
    {{Place::host, Place::device}, {Place::device, Place::host}, {Place::device, Place::device}}};

inline std::string text_of(const Case& c) {
  return std::to_string(c.length) + " bytes, " + name_of(c.from) + " to " + name_of(c.to) +
         (c.declared ? ", types declared" : "");
}

/// Each length, way and declaration, until something is stuck.
template <class Lengths, class Run>
void each(const Lengths& lengths, const Run& run) {
  for (const auto& [from, to] : kWays) {
    for (const size_t length : lengths) {
      for (const bool declared : {false, true}) {
        if (stuck) return;
        const Case c{from, to, length, declared};
        SCOPED_TRACE(text_of(c));
        run(c);
      }
    }
  }
}

inline ucp_request_param_t param_of(Place place, bool declared, uint32_t flags = 0) {
  ucp_request_param_t param{};
  if (declared) param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = type_of(place);
  if (flags != 0) param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  return param;
}

inline ucp_request_param_t pieces_param(Place place, bool declared) {
  ucp_request_param_t param = param_of(place, declared);
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  param.datatype = ucp_dt_make_iov();
  return param;
}

/// Who sends to whom: a worker to one of another context of this process, whose device memory it reaches through the host only; or to
/// itself, which reaches all.
enum class Peers { contexts, itself };

struct Ends {
  World world;
  Side &from, &to;

  explicit Ends(Peers peers, ucs_thread_mode_t mode = UCS_THREAD_MODE_SINGLE)
      : world(mode), from(world.a), to(peers == Peers::contexts ? world.b : world.a) {
    from.connect(to);
    if (peers == Peers::contexts) to.connect(from);
  }
};

inline bool happens(Ends& e, const std::function<bool()>& done, const char* what) {
  if (stuck) return false;
  stuck = !e.world.until(done);
  EXPECT_FALSE(stuck) << what << " did not happen within 20 s";
  return !stuck;
}

/// How it ended; its request is freed. UCS_INPROGRESS: it did not.
inline ucs_status_t ended(Ends& e, ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_RAW_STATUS(request);
  if (!happens(e, [&] { return ucp_request_check_status(request) != UCS_INPROGRESS; }, "the end of a request")) {
    return UCS_INPROGRESS;
  }
  const ucs_status_t status = ucp_request_check_status(request);
  ucp_request_free(request);
  return status;
}

/// Was it posted? If not, its other side would wait for it.
inline bool posted(ucs_status_ptr_t request, const char* what) {
  if (!UCS_PTR_IS_ERR(request)) return true;
  ADD_FAILURE() << what << " was refused: " << UCS_PTR_RAW_STATUS(request);
  stuck = true;
  return false;
}

inline void progress_some(Ends& e) {
  for (int i = 0; i < 20; ++i) e.world.progress();
}

inline ucs_status_t flush(Ends& e) {
  const ucp_request_param_t none = nothing();
  return ended(e, ucp_ep_flush_nbx(e.from.ep, &none));
}

struct Cuda : ::testing::Test {
  void SetUp() override {
    stuck = false;
    if (!driver().why_not.empty()) GTEST_SKIP() << driver().why_not;
    ASSERT_EQ(driver().set_current(driver().context), 0);
  }
};
struct CudaBetween : Cuda, ::testing::WithParamInterface<Peers> {};

#define THALWEG_BETWEEN_PEERS(suite)                                                        \
  INSTANTIATE_TEST_SUITE_P(Peers, suite, ::testing::Values(Peers::contexts, Peers::itself), \
                           [](const auto& info) { return info.param == Peers::contexts ? "contexts" : "itself"; })

inline constexpr size_t kLengthsInPieces[] = {1000, 8193, 65536 + 3, 1 << 20};
inline constexpr size_t kPieces = 7, kGap = 5;

/// A buffer for `length` bytes in pieces.
inline size_t room_for(size_t length) { return length + kPieces * kGap; }

/// Of unequal length, with gaps, the last one first.
inline std::vector<ucp_dt_iov_t> pieces_of(const Buffer& buffer, size_t length) {
  std::vector<ucp_dt_iov_t> pieces;
  size_t used = 0;
  for (size_t i = 0; i < kPieces; ++i) {
    const size_t n = i + 1 == kPieces ? length - used : length / kPieces / 2 + i;
    pieces.push_back({buffer.at(used + i * kGap), n});
    used += n;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

inline Bytes gathered(const Buffer& buffer, const std::vector<ucp_dt_iov_t>& pieces) {
  Bytes all;
  for (const ucp_dt_iov_t& piece : pieces) {
    const Bytes one =
        buffer.written(static_cast<size_t>(static_cast<unsigned char*>(piece.buffer) - buffer.at()), piece.length);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace ucp_test
