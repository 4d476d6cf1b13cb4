// SPDX-License-Identifier: Apache-2.0
// Data layouts (datatypes): which bytes around an address move, in which order. Immutable and reference counted once made.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/peer_bytes.hpp"
#include "base/platform/fork.hpp"
#include "base/status.hpp"

namespace thalweg::impl {

/// One dimension of a strided layout: `count` steps, `stride` bytes apart.
struct Dimension {
  uint64_t count;
  int64_t stride;
};

inline constexpr unsigned kMaxDimensions = 8;

/// Of a layout of callbacks: the user's functions, and in the layout of one operation (start_calls) what its calls need.
struct LayoutCalls {
  tw_layout_callbacks_options given;
  const tw_layout* made = nullptr;  // of an operation: the user's layout, retained
  void* state = nullptr;            // what start gave
  bool started = false;             // finish is owed
  Status status = TW_OK;            // what the first call that failed made of the operation
  std::string text;                 // ... and why
};

}  // namespace thalweg::impl

/// Three forms. Strided: `block` contiguous bytes at `start` + sum(i_d * stride_d), dimension 0 fastest; normalised when
/// made (mergeable dimensions merged, counts of one dropped). List: `pieces` in order. Callbacks: `calls`; each operation
/// has a layout of its own, whose `bytes` is the packed size. A contiguous layout is strided with no dimensions: `block`
/// bytes at address + start. The C handle is this struct.
struct tw_layout {
  thalweg::impl::BornHere born;
  std::atomic<uint32_t> references{1};
  uint64_t bytes = 0;           // moved in all
  int64_t first = 0, last = 0;  // touched: [first, last) relative to the buffer's address
  int64_t start = 0;            // offset of the first block
  uint64_t block = 0;
  unsigned dimensions = 0;  // 0 with no pieces: contiguous
  thalweg::impl::Dimension dimension[thalweg::impl::kMaxDimensions] = {};
  std::vector<tw_piece> pieces;  // list form when not empty
  std::vector<uint64_t> before;  // list: packed bytes before each piece, for seek
  bool overlaps = false;         // some byte is certainly named twice: fine to send from, refused to receive into
  std::unique_ptr<thalweg::impl::LayoutCalls> calls;  // not null: no bytes are named, the user's functions pack and unpack
  bool contiguous() const { return dimensions == 0 && pieces.empty() && calls == nullptr; }
};

namespace thalweg::impl {

using Layout = tw_layout;

Status make_strided(unsigned dimensions, size_t block, const uint64_t* count, const int64_t* stride, Layout** out);
Status make_subarray(unsigned dimensions, const uint64_t* shape, const uint64_t* extent, const uint64_t* start, size_t element,
                     int order, Layout** out);
Status make_list(const tw_piece* pieces, size_t count, Layout** out);
/// The same checks into a fresh caller's layout, which is not to be released.
Status fill_strided(Layout& layout, unsigned dimensions, int64_t start, uint64_t block, const Dimension* dimension);
Status fill_list(Layout& layout, const tw_piece* pieces, size_t count);
Status make_callbacks(const tw_layout_callbacks_options& given, Layout** out);
/// The layout of one operation with `made`, a layout of callbacks: calls start and packed_size. length: 0, or what the
/// caller says that it moves. The caller has a reference to it; finish is called by finish_calls(), or with the last
/// reference.
Status start_calls(const Layout& made, const void* buffer, uint64_t length, bool unpacks, Layout** out);
/// The operation has ended. Calls finish, once.
void finish_calls(const Layout& layout);
void end_calls(const Layout& layout);  // with the last reference
/// What a call of the layout has failed with, with its text as the last error; TW_OK: nothing has. null is allowed.
Status calls_failed(const Layout* layout);
/// The layout describes its bytes (TW_ERR_UNSUPPORTED with a remedy: it is one of callbacks), and is of this process.
Status check_named(const Layout& layout);
/// TW_ERR_INVALID with a remedy when bytes written through the layout would overwrite each other. null is allowed.
Status check_receive(const Layout* layout);
void retain(const Layout* layout);   // null is allowed
void release(const Layout* layout);  // null is allowed

/// A position inside a layout over a base address: yields contiguous runs in order. Copyable, no allocation. A layout of
/// callbacks has no runs: only pack(), unpack() and transfer() move its bytes, and calls_failed() reports their failure.
/// layout null: `length` contiguous bytes.
class LayoutCursor {
 public:
  LayoutCursor() = default;
  LayoutCursor(std::byte* base, const Layout* layout, uint64_t length) { reset(base, layout, length); }
  void reset(std::byte* base, const Layout* layout, uint64_t length);
  uint64_t remaining() const { return remaining_; }
  /// The run at the position: address and length (<= limit); advances past it. {nullptr, 0} at the end.
  struct Run {
    std::byte* address;
    size_t length;
  };
  Run next(size_t limit);
  /// Jumps to byte `offset` of the packed order (O(dimensions), or O(log pieces)).
  void seek(uint64_t offset);

  /// Whole blocks that lie `stride` apart at the position; rows 0: the position is inside a block, or a list's piece.
  struct Rows {
    std::byte* address;
    int64_t stride;
    uint64_t block, rows;
  };
  Rows rows() const;
  void skip_rows(uint64_t count);  // count <= rows().rows

 private:
  friend void pack(LayoutCursor& from, std::byte* to, size_t n);
  friend void unpack(LayoutCursor& to, const std::byte* from, size_t n);
  bool called() const { return layout_ != nullptr && layout_->calls != nullptr; }
  void pack_by_calls(std::byte* to, size_t n);
  void unpack_by_calls(const std::byte* from, size_t n);
  size_t run_length() const;  // bytes to the end of the contiguous run at the position
  void advance(size_t n);     // n <= run_length()
  void carry();               // dimension 0 ran over: on to the slower ones

  std::byte* base_ = nullptr;
  std::byte* block_at_ = nullptr;   // start of the block or piece at the position
  const Layout* layout_ = nullptr;  // null when contiguous: the position is block_at_ + within_
  uint64_t remaining_ = 0, total_ = 0;
  uint64_t index_[kMaxDimensions] = {};  // block position per dimension; list: index_[0] = piece
  uint64_t within_ = 0;                  // bytes into the block or piece
};

/// Packs `n` bytes from the cursor to `to` / unpacks `n` bytes from `from` at the cursor. Advances. n <= remaining().
void pack(LayoutCursor& from, std::byte* to, size_t n);
void unpack(LayoutCursor& to, const std::byte* from, size_t n);
/// Copies `n` bytes from one cursor to another in the same address space.
void transfer(LayoutCursor& to, LayoutCursor& from, uint64_t n);
/// Fills at most `max` iovec-like runs covering at most `limit` bytes; advances; returns how many runs.
size_t gather_runs(LayoutCursor& from, size_t limit, LayoutCursor::Run* runs, size_t max);

/// Wire form of a layout (used to describe a remote side to a peer). Bounded, versioned, fuzzed.
inline constexpr size_t kMaxWirePieces = 4096;
/// The bytes needed; writes when capacity suffices. Lists of more than kMaxWirePieces have no wire form: 0.
size_t encode(const Layout& layout, std::byte* to, size_t capacity);
/// Encodes only the pieces [first, first + count) of a list, count <= kMaxWirePieces.
size_t encode_pieces(const Layout& list, size_t first, size_t count, std::byte* to, size_t capacity);
/// decode allocates a layout or refuses. It takes no more than the layout: the payload may follow.
Status decode(PeerBytes& from, Layout** out);
/// Into a caller's layout, so that a strided one costs no allocation. `out` is not to be released.
Status decode_into(PeerBytes& from, Layout& out);

}  // namespace thalweg::impl
