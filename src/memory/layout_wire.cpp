// SPDX-License-Identifier: Apache-2.0
// The wire form of a layout. Little endian:
//   u8 version (1), u8 form (0 strided, 1 list), u16 dimensions or pieces
//   strided: i64 start, u64 block, then (u64 count, i64 stride) per dimension
//   list: (u64 offset, u64 length) per piece
// What comes from a peer goes through the same checks as what a caller makes.
#include <cstring>
#include <memory>

#include "memory/layout.hpp"

namespace thalweg::impl {
namespace {

constexpr uint8_t kVersion = 1, kStrided = 0, kList = 1;
struct Head {
  uint8_t version, form;
  uint16_t count;
};
static_assert(sizeof(Head) == 4 && sizeof(Dimension) == 16 && sizeof(tw_piece) == 16);

Status malformed() {
  return fail(TW_ERR_PROTOCOL, "a peer sent a layout that does not parse; both sides need the same release");
}

}  // namespace

size_t encode_pieces(const Layout& list, size_t first, size_t count, std::byte* to, size_t capacity) {
  const size_t needed = sizeof(Head) + count * sizeof(tw_piece);
  if (count > kMaxWirePieces) return 0;
  if (capacity < needed) return needed;
  const Head head{kVersion, kList, static_cast<uint16_t>(count)};
  std::memcpy(to, &head, sizeof head);
  std::memcpy(to + sizeof head, list.pieces.data() + first, count * sizeof(tw_piece));
  return needed;
}

size_t encode(const Layout& layout, std::byte* to, size_t capacity) {
  if (!layout.pieces.empty()) return encode_pieces(layout, 0, layout.pieces.size(), to, capacity);
  const size_t needed = sizeof(Head) + 16 + layout.dimensions * sizeof(Dimension);
  if (capacity < needed) return needed;
  const Head head{kVersion, kStrided, static_cast<uint16_t>(layout.dimensions)};
  std::memcpy(to, &head, sizeof head);
  std::memcpy(to + 4, &layout.start, 8);
  std::memcpy(to + 12, &layout.block, 8);
  std::memcpy(to + 20, layout.dimension, layout.dimensions * sizeof(Dimension));
  return needed;
}

Status decode_into(PeerBytes& from, Layout& out) {
  Head head;
  if (!from.take(&head)) return malformed();
  if (head.version != kVersion || head.form > kList) return malformed();
  if (head.form == kList) {
    const size_t bytes = head.count * sizeof(tw_piece);
    if (head.count > kMaxWirePieces || from.left() < bytes) return malformed();
    std::vector<tw_piece> pieces(head.count);
    if (!from.take(pieces.data(), bytes)) return malformed();
    return fill_list(out, pieces.data(), pieces.size());
  }
  Dimension dimension[kMaxDimensions];
  int64_t start;
  uint64_t block;
  if (head.count > kMaxDimensions || !from.take(&start) || !from.take(&block) ||
      !from.take(dimension, head.count * sizeof(Dimension))) {
    return malformed();
  }
  return fill_strided(out, head.count, start, block, dimension);
}

Status decode(PeerBytes& from, Layout** out) {
  auto layout = std::make_unique<Layout>();
  if (Status s = decode_into(from, *layout); is_error(s)) return s;
  *out = layout.release();
  return TW_OK;
}

}  // namespace thalweg::impl
