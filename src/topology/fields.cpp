// SPDX-License-Identifier: Apache-2.0
#include "topology/fields.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/printable.hpp"

namespace thalweg::impl::topology {
namespace {

constexpr double kMostRate = 1e15;  // bytes per second

}  // namespace

std::string in_quotes(std::string_view text) { return '"' + printable(text.substr(0, 64)) + '"'; }

Status TextPlace::refuse(size_t at, const std::string& what) const {
  const std::string_view before = text.substr(0, at);
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t column = at - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
  return fail(TW_ERR_INVALID, "%s:%zu:%zu: %s", file.c_str(), line, column, what.c_str());
}

Status Fields::refuse(std::string_view name, const std::string& what) const {
  const JsonValue* const found = find(name);
  return place_.refuse(found == nullptr ? value_.at : found->at, in_quotes(name) + " " + what);
}

Status Fields::only(std::initializer_list<std::string_view> known) const {
  if (value_.kind != JsonValue::Kind::object) return refuse("an object is due here");
  for (const auto& [name, value] : value_.members) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string all;
    for (const std::string_view one : known) all.append(all.empty() ? "" : ", ").append(one);
    return place_.refuse(value.at, in_quotes(name) + " is not known here; what is: " + all);
  }
  return TW_OK;
}

Status Fields::text(std::string_view name, size_t most, std::string* out) const {
  const JsonValue* const found = find(name);
  if (found == nullptr) return TW_OK;
  const bool plain =
      std::none_of(found->text.begin(), found->text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x20; });
  if (found->kind != JsonValue::Kind::text || found->text.size() > most || !plain)
    return refuse(name, "needs a text of at most " + std::to_string(most) + " bytes on one line");
  *out = found->text;
  return TW_OK;
}

Status Fields::whole(std::string_view name, uint64_t most, uint64_t* out) const {
  const JsonValue* const found = find(name);
  if (found == nullptr) return TW_OK;
  const double value = found->number;
  const bool fits = found->kind == JsonValue::Kind::number && value >= 0 && value <= static_cast<double>(most);
  if (!fits || value != std::floor(value)) return refuse(name, "needs a whole number of 0 to " + std::to_string(most));
  *out = static_cast<uint64_t>(value);
  return TW_OK;
}

Status Fields::whole(std::string_view name, unsigned most, unsigned* out) const {
  uint64_t value = *out;
  const Status status = whole(name, uint64_t{most}, &value);
  *out = static_cast<unsigned>(value);
  return status;
}

Status Fields::rate(std::string_view name, double* out) const {
  const JsonValue* const found = find(name);
  if (found == nullptr) return TW_OK;
  if (found->kind != JsonValue::Kind::number || found->number < 1 || found->number > kMostRate)
    return refuse(name, "needs bytes per second, 1 to 1e15");
  *out = found->number;
  return TW_OK;
}

Status Fields::state(bool* up) const {
  std::string word = "up";
  if (is_error(text("state", 8, &word)) || (word != "up" && word != "down")) return refuse("state", "is \"up\" or \"down\"");
  *up = word == "up";
  return TW_OK;
}

}  // namespace thalweg::impl::topology
