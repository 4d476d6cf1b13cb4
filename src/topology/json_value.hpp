// SPDX-License-Identifier: Apache-2.0
// Reads JSON text (RFC 8259) strictly: no comments, no trailing commas, no name twice in one object, only valid UTF-8. The text may be
// anybody's, so depth, members and values are bounded, and nothing is read twice.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace thalweg::impl::topology {

struct JsonMember;

struct JsonValue {
  enum class Kind : unsigned char { null, boolean, number, text, list, object };
  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0;
  std::string text;
  std::vector<JsonValue> list;
  std::vector<JsonMember> members;
  size_t at = 0;  // where it begins in the text

  /// Null: there is none of this name, or this is no object.
  const JsonValue* find(std::string_view name) const;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

inline constexpr size_t kMostJsonDepth = 16, kMostJsonMembers = 64, kMostJsonValues = 1u << 20;

/// As texts in a topology are: UTF-8 on one line of at most `most` bytes, cut between characters; what is none becomes "?".
std::string plain_text(std::string_view text, size_t most);

struct JsonError {
  std::string what;  // "a string without an end"
  size_t at = 0;
};

/// False: it is no such text, and *error says what is wrong and where.
bool parse_json(std::string_view text, JsonValue* out, JsonError* error);

}  // namespace thalweg::impl::topology
