// SPDX-License-Identifier: Apache-2.0
// The secret that every process of a job shares.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace thalweg::impl {

class JobKey {
 public:
  JobKey() = default;
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;
  ~JobKey();  // wipes the secret
  /// The first that is given: explicit bytes (>= 16), key_file, THALWEG_JOB_KEY (hex), the user's key file
  /// ($XDG_CONFIG_HOME/thalweg/job.key or ~/.config/thalweg/job.key). A file is hex text; made with mode 0600 on first use,
  /// refused when others may read it. `source` says which, for error texts. The variable's key is kept for later loads of
  /// this process, and "taken" put in its place, unless THALWEG_KEEP_JOB_KEY=1.
  static Status load(const void* bytes, size_t length, const char* key_file, JobKey* out);
  const std::string& source() const { return source_; }
  /// HMAC-SHA256 with a key derived for `purpose`.
  std::array<std::byte, 32> mac(const char* purpose, const void* data, size_t length) const;
  /// 32 derived bytes for `purpose` (TLS PSK and the like).
  std::array<std::byte, 32> derive(const char* purpose) const;
  /// As hex text, for the environment of a child process.
  std::string hex() const;

 private:
  std::vector<std::byte> secret_;
  std::string source_;
};

/// Constant-time comparison.
bool equal_secret(const void* a, const void* b, size_t n);
Status random_bytes(void* out, size_t n);

}  // namespace thalweg::impl
