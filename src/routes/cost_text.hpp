// SPDX-License-Identifier: Apache-2.0
// What the files of measured costs have in common: lines of text, untrusted when they are read, and files that only this
// user writes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {

std::string library_version();

/// Is the line `name` followed by `value`?
bool says(std::string_view line, std::string_view name, std::string_view value);
/// Cuts the first line off.
std::string_view next_line(std::string_view& text);
/// What is shown or compared has nothing but printable ASCII in it: logs, JSON and terminals are no place for other bytes.
std::string ascii(std::string_view text);
/// An error that quotes the line.
Status refuse_line(const char* what, std::string_view line, Status status = TW_ERR_INVALID);
/// "name = value" -> name; *digits is what follows. Without " = " *digits is empty.
std::string_view name_in(std::string_view line, std::string_view* digits);
/// "name = value\n", four digits, whatever the locale.
std::string cost_line(std::string_view name, double value);
/// A whole number text within limits; `line` is quoted when it is not.
Status parse_cost(std::string_view digits, std::string_view line, double least, double most, double* value);
/// The three lines before any value: format, library, machine. TW_ERR_STALE: of another library or machine.
Status parse_head(std::string_view& text, std::string_view format, std::string_view machine);
std::string head_of(std::string_view format, std::string_view machine);

/// At most `most` + 1 bytes of the user's own file, which no other user may write. TW_ERR_NO_MATCH: there is none.
Status read_own_file(const std::string& path, size_t most, std::string* text);
/// The folders that the file at `path` lies in.
Status make_place(const std::string& path);
/// Whole or not at all.
Status write_own_file(const std::string& path, std::string_view text);
/// Held while this process measures. None: it cannot be made, or another process had it for longer than `patience_ns`.
UniqueFd lock_beside(const std::string& file, uint64_t patience_ns);

}  // namespace thalweg::impl
