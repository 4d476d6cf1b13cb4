// SPDX-License-Identifier: Apache-2.0
#include "routes/cost_text.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/clock.hpp"

namespace thalweg::impl {

std::string library_version() {
  char text[40];
  std::snprintf(text, sizeof text, "%d.%d.%d", TW_VERSION_MAJOR, TW_VERSION_MINOR, TW_VERSION_PATCH);
  return text;
}

bool says(std::string_view line, std::string_view name, std::string_view value) {
  return line.substr(0, name.size()) == name && line.substr(name.size()) == value;
}

std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::string ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c < 0x20 || c > 0x7e) c = '?';
  return out;
}

Status refuse_line(const char* what, std::string_view line, Status status) {
  return fail(status, "%s: \"%s\"", what, ascii(line.substr(0, 80)).c_str());
}

std::string_view name_in(std::string_view line, std::string_view* digits) {
  const size_t equals = line.find(" = ");
  *digits = equals == std::string_view::npos ? std::string_view() : line.substr(equals + 3);
  return line.substr(0, std::min(equals, line.size()));
}

std::string cost_line(std::string_view name, double value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::general, 4).ptr;
  std::string line(name);
  return line.append(" = ").append(digits.data(), end).append("\n");
}

Status parse_cost(std::string_view digits, std::string_view line, double least, double most, double* value) {
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return refuse_line("no number", line);
  if (!(number >= least && number <= most)) return refuse_line("an absurd cost", line);  // not a number neither
  *value = number;
  return TW_OK;
}

Status parse_head(std::string_view& text, std::string_view format, std::string_view machine) {
  if (const std::string_view head = next_line(text); head != format) return refuse_line("not costs of this format", head);
  if (const std::string_view line = next_line(text); !says(line, "library = ", library_version()))
    return refuse_line("measured with another version of the library", line, TW_ERR_STALE);
  if (const std::string_view line = next_line(text); !says(line, "machine = ", machine))
    return refuse_line("measured on another machine or kernel", line, TW_ERR_STALE);
  return TW_OK;
}

std::string head_of(std::string_view format, std::string_view machine) {
  std::string head(format);
  return head.append("\nlibrary = ").append(library_version()).append("\nmachine = ").append(machine).append("\n");
}

Status read_own_file(const std::string& path, size_t most, std::string* text) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return errno == ENOENT ? Status(TW_ERR_NO_MATCH) : fail_errno(errno, "opening it");
  struct stat status;
  if (fstat(file.get(), &status) != 0) return fail_errno(errno, "fstat");
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(TW_ERR_INVALID, "it is not a file that only this user can write");
  text->resize(most + 1);
  const ssize_t n = read(file.get(), text->data(), text->size());
  if (n < 0) return fail_errno(errno, "reading it");
  text->resize(static_cast<size_t>(n));
  return TW_OK;
}

Status make_place(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    if (mkdir(path.substr(0, at).c_str(), 0700) != 0 && errno != EEXIST)
      return fail(TW_ERR_IO, "the folder %s cannot be made: set XDG_CACHE_HOME or THALWEG_COSTS to a place that can be written",
                  path.substr(0, at).c_str());
  }
  return TW_OK;
}

Status write_own_file(const std::string& path, std::string_view text) {
  if (const Status status = make_place(path); is_error(status)) return status;
  std::string beside = path;
  beside.append(".XXXXXX");
  const UniqueFd out(mkostemp(beside.data(), O_CLOEXEC));
  const bool written = out && write(out.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written || rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    if (out) unlink(beside.c_str());
    return fail_errno(error, ("writing " + path).c_str());
  }
  return TW_OK;
}

UniqueFd lock_beside(const std::string& file, uint64_t patience_ns) {
  UniqueFd lock(open((file + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const uint64_t until = monotonic_ns() + patience_ns;
  while (lock && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK || monotonic_ns() > until) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return lock;
}

}  // namespace thalweg::impl
