// SPDX-License-Identifier: Apache-2.0
// Members of objects of a text that may be anybody's, each checked as it is taken; messages name the place.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "topology/json_value.hpp"

namespace thalweg::impl::topology {

/// Where offsets of a text are, for messages.
struct TextPlace {
  std::string file;
  std::string_view text;
  /// TW_ERR_INVALID: "FILE:3:17: what".
  [[gnu::cold]] Status refuse(size_t at, const std::string& what) const;
};

/// As messages show what is in a text; cut short where it is long. (std::quoted would be found beside a function of that name.)
std::string in_quotes(std::string_view text);

class Fields {
 public:
  Fields(const JsonValue& value, const TextPlace& place) : value_(value), place_(place) {}

  /// An object whose members are all among `known`?
  Status only(std::initializer_list<std::string_view> known) const;
  const JsonValue* find(std::string_view name) const { return value_.find(name); }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  Status refuse(const std::string& what) const { return place_.refuse(value_.at, what); }
  Status refuse(std::string_view name, const std::string& what) const;

  // What is absent leaves *out as it is. TW_ERR_INVALID: another kind of value, or beyond the bounds.
  Status text(std::string_view name, size_t most, std::string* out) const;
  Status whole(std::string_view name, uint64_t most, uint64_t* out) const;
  Status whole(std::string_view name, unsigned most, unsigned* out) const;
  Status rate(std::string_view name, double* out) const;  // bytes per second, above zero
  Status state(bool* up) const;                           // "up" or "down"

 private:
  const JsonValue& value_;
  const TextPlace& place_;
};

}  // namespace thalweg::impl::topology
