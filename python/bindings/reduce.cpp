// SPDX-License-Identifier: Apache-2.0
#include "reduce.hpp"

#include <thalweg/device/reduce.hpp>

#include <algorithm>
#include <array>

namespace thalweg::python {
namespace {

constexpr std::array<const char*, 9> kTypes = {"float16", "bfloat16", "float32", "float64", "int8",
                                               "int16",   "int32",    "int64",   "uint8"};
constexpr std::array<const char*, 7> kOperations = {"sum", "product", "min", "max", "and", "or", "xor"};

template <size_t N>
uint32_t number_of(const std::array<const char*, N>& names, const std::string& name, const char* what) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const char* one) { return name == one; });
  if (found == names.end()) raise(TW_ERR_INVALID, (std::string("reductions take no ") + what + " '" + name + "'").c_str());
  return static_cast<uint32_t>(found - names.begin());
}

std::unique_ptr<BufferView> contiguous_view(nb::handle object, BufferView::Use use) {
  StepArguments none;
  auto view = none.take_buffer(object, nb::none(), use);
  if (view->layout() != nullptr) raise(TW_ERR_UNSUPPORTED, "a reduction is of contiguous memory: copy the array first");
  return view;
}

}  // namespace

/// NumPy says "float32", torch "torch.float32"; a type of NumPy's by its __name__.
std::string name_of_type(nb::handle array, nb::handle dtype) {
  nb::object type = dtype.is_none() ? nb::getattr(array, "dtype", nb::none()) : nb::borrow(dtype);
  if (type.is_none()) raise(TW_ERR_INVALID, "the buffer has no dtype: name it by dtype=");
  std::string name = nb::cast<std::string>(nb::str(nb::hasattr(type, "__name__") ? nb::getattr(type, "__name__") : type));
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

ReduceArguments::ReduceArguments(nb::handle destination, nb::handle given, const std::string& operation, nb::handle dtype) {
  const std::string named = name_of_type(destination, dtype);
  type = number_of(kTypes, named, "type");
  op = number_of(kOperations, operation, "operation");
  views.push_back(contiguous_view(destination, BufferView::Use::destination));
  const size_t length = views.front()->length();
  const size_t size = device::element_bytes(static_cast<device::ElementType>(type));
  if (length % size != 0) raise(TW_ERR_INVALID, "the destination is not a whole number of elements");
  count = length / size;
  for (nb::handle source : nb::cast<nb::sequence>(given)) {
    if (nb::isinstance<nb::tuple>(source) && nb::len(source) == 2) {
      nb::object remote = source[0];
      sources.push_back({nullptr, nb::cast<RemoteMemory&>(remote).get(), nb::cast<uint64_t>(source[1])});
      remotes.push_back(std::move(remote));
      continue;
    }
    if (dtype.is_none() && nb::hasattr(source, "dtype") && name_of_type(source, dtype) != named)
      raise(TW_ERR_INVALID, "a source and the destination have different types: give dtype= where that is meant");
    auto view = contiguous_view(source, BufferView::Use::source);
    if (view->length() != length) raise(TW_ERR_INVALID, "sources have the destination's number of bytes");
    sources.push_back({view->data(), nullptr, 0});
    views.push_back(std::move(view));
  }
}

}  // namespace thalweg::python
