// SPDX-License-Identifier: Apache-2.0
// Mapped memory of this process: anonymous, or of a file without a name in a folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace perf {

/// Ended with its pages. Failing is a text (why()), not an end.
class Mapping {
 public:
  /// Private and zero; huge: transparent huge pages, where the system has them.
  static Mapping anonymous(size_t bytes, bool huge);
  /// Of a new file in `folder`, which is removed at once; its room is taken before anything is stored.
  static Mapping of_file(const std::string& folder, size_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  const std::string& why() const { return why_; }  // ""; else there is no memory
  unsigned char* at(size_t offset = 0) const { return static_cast<unsigned char*>(address_) + offset; }
  size_t bytes() const { return bytes_; }
  int file() const { return file_; }

 private:
  Mapping() = default;
  void* address_ = nullptr;
  size_t bytes_ = 0;
  int file_ = -1;
  std::string why_;
};

/// A new file in `folder` that has no name any more; -1: `why` says it.
int nameless_file(const std::string& folder, std::string* why);
/// "tmpfs", "ext4", ..., or its number in hexadecimal; "": the folder cannot be asked.
std::string file_system_of(const std::string& folder);
/// TMPDIR, or /tmp.
std::string temporary_folder();
/// Bytes that may still be stored below a folder.
uint64_t free_below(const std::string& folder);

}  // namespace perf
