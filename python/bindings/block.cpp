// SPDX-License-Identifier: Apache-2.0
// Block: plain memory that a receiver of objects allocates. Unlike a bytearray it is not zeroed, and the last few large ones are
// kept for the next receive: their pages are there already, which for tens of megabytes costs more than moving the data.
#include <cstdlib>

#include "objects.hpp"

namespace thalweg::python {
namespace {

constexpr size_t kept_from = 1 << 18;      ///< smaller ones the allocator keeps by itself
constexpr size_t kept_bytes = 256u << 20;  ///< in all
constexpr size_t page = 4096;

struct Piece {
  void* address;
  size_t capacity;
};

std::vector<Piece> kept;  // with the GIL
size_t kept_total = 0;

Piece take(size_t size) {
  if (size > static_cast<size_t>(PY_SSIZE_T_MAX) - page) throw std::bad_alloc();  // no buffer of Python's is as long
  size_t capacity = size < kept_from ? std::max<size_t>(size, 1) : (size + page - 1) / page * page;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].capacity < capacity || kept[i].capacity > capacity + capacity / 8) continue;
    Piece piece = kept[i];
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i));
    kept_total -= piece.capacity;
    return piece;
  }
  void* address = capacity < kept_from ? std::malloc(capacity) : std::aligned_alloc(page, capacity);
  if (address == nullptr) throw std::bad_alloc();
  return {address, capacity};
}

void give(Piece piece) {
  if (piece.capacity < kept_from || piece.capacity > kept_bytes) {
    std::free(piece.address);
    return;
  }
  while (kept_total + piece.capacity > kept_bytes) {
    kept_total -= kept.front().capacity;
    std::free(kept.front().address);
    kept.erase(kept.begin());
  }
  kept.push_back(piece);
  kept_total += piece.capacity;
}

struct Block {
  Piece piece;
  size_t size;
  explicit Block(size_t bytes) : piece(take(bytes)), size(bytes) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { give(piece); }
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Block& block = *nb::inst_ptr<Block>(self);
  return PyBuffer_FillInfo(view, self, block.piece.address, static_cast<Py_ssize_t>(block.size), 0, flags);
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};

}  // namespace

void bind_block(nb::module_& m) {
  nb::class_<Block>(m, "Block", "Memory of so many bytes, not zeroed, with the buffer protocol.", nb::type_slots(slots))
      .def(nb::init<size_t>(), nb::arg("length"))
      .def("__len__", [](const Block& b) { return b.size; });
}

}  // namespace thalweg::python
