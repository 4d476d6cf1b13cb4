// SPDX-License-Identifier: Apache-2.0
// Writes JSON text: of tw_context_info, tw_topology_json and their like.
#pragma once
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace thalweg::impl {

/// With so many digits, in whatever locale the program is.
inline std::string number_text(double value, int digits) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits).ptr};
}

/// One value after the other; a null name is an element of an array.
class Json {
 public:
  void open(const char* name, char bracket) {
    key(name);
    text_ += bracket;
    first_ = true;
  }
  void close(char bracket) {
    text_ += bracket;
    first_ = false;
  }
  void add(const char* name, const std::string& value) {
    key(name);
    quote(value);
  }
  void add(const char* name, uint64_t value) {
    key(name);
    text_ += std::to_string(value);
  }
  /// The shortest text that reads as the same number; it is finite.
  void add(const char* name, double value) {
    char digits[32];
    key(name);
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
  /// What follows begins on a line of its own.
  void line() { line_ = true; }
  void flag(const char* name, bool value) {
    key(name);
    text_ += value ? "true" : "false";
  }
  std::string take() { return std::move(text_); }

 private:
  void key(const char* name) {
    if (!first_) text_ += line_ ? "," : ", ";
    if (line_) text_ += "\n  ";
    first_ = line_ = false;
    if (name == nullptr) return;
    quote(name);
    text_ += ": ";
  }
  void quote(const std::string& value) {
    text_ += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escaped[8];
        snprintf(escaped, sizeof escaped, "\\u%04x", unsigned(c));
        text_ += escaped;
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }
  std::string text_;
  bool first_ = true, line_ = false;
};

}  // namespace thalweg::impl
