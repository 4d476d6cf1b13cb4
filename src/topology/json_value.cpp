// SPDX-License-Identifier: Apache-2.0
#include "topology/json_value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace thalweg::impl::topology {
namespace {

/// The length of the valid UTF-8 sequence at the beginning of `text`; 0: there is none.
size_t sequence(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto more = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return more(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    const bool overlong = first == 0xe0 && second < 0xa0, surrogate = first == 0xed && second >= 0xa0;
    return more(1) && more(2) && !overlong && !surrogate ? 3 : 0;
  }
  const bool overlong = first == 0xf0 && second < 0x90, beyond = first == 0xf4 && second >= 0x90;
  return first >= 0xf0 && first <= 0xf4 && more(1) && more(2) && more(3) && !overlong && !beyond ? 4 : 0;
}

void append_utf8(uint32_t point, std::string* out) {
  const auto put = [&](uint32_t byte) { *out += static_cast<char>(byte); };
  if (point < 0x80) return put(point);
  if (point < 0x800) {
    put(0xc0 | point >> 6);
  } else if (point < 0x10000) {
    put(0xe0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3f));
  } else {
    put(0xf0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3f));
    put(0x80 | (point >> 6 & 0x3f));
  }
  put(0x80 | (point & 0x3f));
}

class Reader {
 public:
  Reader(std::string_view text, JsonError* error) : text_(text), error_(error) {}

  bool whole(JsonValue* out) {
    if (!value(out, 0)) return false;
    space();
    return at_ == text_.size() || refuse("more text behind the end");
  }

 private:
  bool refuse(const char* what) {
    *error_ = {what, at_};
    return false;
  }
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char wanted) {
    space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  bool value(JsonValue* out, size_t depth) {
    space();
    out->at = at_;
    if (depth > kMostJsonDepth) return refuse("more than 16 levels of brackets");
    if (++values_ > kMostJsonValues) return refuse("more than 1048576 values");
    if (at_ == text_.size()) return refuse("the text ends where a value is due");
    switch (text_[at_]) {
      case '{':
        return object(out, depth);
      case '[':
        return list(out, depth);
      case '"':
        out->kind = JsonValue::Kind::text;
        return text(&out->text);
      case 't':
        out->boolean = true;
        return word("true", JsonValue::Kind::boolean, out);
      case 'f':
        return word("false", JsonValue::Kind::boolean, out);
      case 'n':
        return word("null", JsonValue::Kind::null, out);
      default:
        return number(out);
    }
  }

  bool word(std::string_view wanted, JsonValue::Kind kind, JsonValue* out) {
    if (text_.substr(at_, wanted.size()) != wanted) return refuse("this is no value");
    at_ += wanted.size();
    out->kind = kind;
    return true;
  }

  /// from_chars takes more than JSON has ("inf", "01", "1."), so the form is looked at first.
  bool number(JsonValue* out) {
    const size_t begin = at_;
    const auto digits = [&] {
      const size_t first = at_;
      while (next() >= '0' && next() <= '9') ++at_;
      return at_ > first;
    };
    if (next() == '-') ++at_;
    const bool zero = next() == '0';
    const size_t whole = at_;
    if (!digits()) return refuse("this is no value");
    if (zero && at_ - whole > 1) return refuse("a number with zeros before it");
    if (next() == '.' && (++at_, !digits())) return refuse("a number that ends in its point");
    if (next() == 'e' || next() == 'E') {
      ++at_;
      if (next() == '+' || next() == '-') ++at_;
      if (!digits()) return refuse("a number without its exponent");
    }
    out->kind = JsonValue::Kind::number;
    const auto result = std::from_chars(text_.data() + begin, text_.data() + at_, out->number);
    at_ = result.ec == std::errc() ? at_ : begin;
    return (result.ec == std::errc() && std::isfinite(out->number)) || refuse("a number that is too large or too small");
  }

  bool hex(uint32_t* out) {
    *out = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = next();
      const bool digit = c >= '0' && c <= '9', lower = c >= 'a' && c <= 'f', upper = c >= 'A' && c <= 'F';
      if (!digit && !lower && !upper) return refuse("\\u needs four hexadecimal digits");
      *out = *out << 4 | static_cast<uint32_t>(digit ? c - '0' : lower ? c - 'a' + 10 : c - 'A' + 10);
    }
    return true;
  }

  /// Behind a backslash.
  bool escape(std::string* out) {
    constexpr std::string_view kShort = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
    const char c = next();
    if (const size_t found = kShort.find(c); c != '\0' && found != std::string_view::npos) {
      *out += kMeaning[found];
      ++at_;
      return true;
    }
    if (c != 'u') return refuse("an escape that JSON does not have");
    uint32_t point = 0, low = 0;
    ++at_;
    if (!hex(&point)) return false;
    if (point >= 0xd800 && point < 0xdc00) {
      if (text_.substr(at_, 2) != "\\u") return refuse("half of a surrogate pair");
      at_ += 2;
      if (!hex(&low)) return false;
      if (low < 0xdc00 || low >= 0xe000) return refuse("half of a surrogate pair");
      point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
    } else if (point >= 0xdc00 && point < 0xe000) {
      return refuse("half of a surrogate pair");
    }
    append_utf8(point, out);
    return true;
  }

  bool text(std::string* out) {
    for (++at_; at_ < text_.size();) {
      const char c = text_[at_];
      if (c == '"') return ++at_, true;
      if (c == '\\') {
        ++at_;
        if (!escape(out)) return false;
        continue;
      }
      if (static_cast<uint8_t>(c) < 0x20) return refuse("a control character in a string");
      const size_t length = sequence(text_.substr(at_));
      if (length == 0) return refuse("bytes that are not UTF-8");
      out->append(text_.substr(at_, length));
      at_ += length;
    }
    return refuse("a string without an end");
  }

  bool list(JsonValue* out, size_t depth) {
    out->kind = JsonValue::Kind::list;
    ++at_;
    if (take(']')) return true;
    do {
      if (!value(&out->list.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']') || refuse("a list needs \",\" or \"]\" here");
  }

  bool object(JsonValue* out, size_t depth) {
    out->kind = JsonValue::Kind::object;
    ++at_;
    if (take('}')) return true;
    do {
      space();
      std::string name;
      if (next() != '"') return refuse("a name in quotes is due here");
      const size_t begin = at_;
      if (!text(&name)) return false;
      if (out->find(name) != nullptr) return at_ = begin, refuse("the same name twice in one object");
      if (out->members.size() == kMostJsonMembers) return refuse("more than 64 names in one object");
      if (!take(':')) return refuse("a name needs \":\" behind it");
      JsonMember& member = out->members.emplace_back();
      member.name = std::move(name);
      if (!value(&member.value, depth + 1)) return false;
    } while (take(','));
    return take('}') || refuse("an object needs \",\" or \"}\" here");
  }

  const std::string_view text_;
  JsonError* const error_;
  size_t at_ = 0, values_ = 0;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  for (const auto& [of, value] : members)
    if (of == name) return &value;
  return nullptr;
}

std::string plain_text(std::string_view text, size_t most) {
  std::string plain;
  while (!text.empty()) {
    const size_t length = static_cast<uint8_t>(text[0]) < 0x20 ? 0 : sequence(text);
    if (plain.size() + std::max<size_t>(length, 1) > most) break;
    plain += length == 0 ? "?" : text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return plain;
}

bool parse_json(std::string_view text, JsonValue* out, JsonError* error) {
  *out = {};
  return Reader(text, error).whole(out);
}

}  // namespace thalweg::impl::topology
