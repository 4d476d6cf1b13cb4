// SPDX-License-Identifier: Apache-2.0
// A store in one file that all processes can open. The file belongs to one job: use a fresh path for each.
#pragma once
#include <mutex>
#include <unordered_map>

#include "base/unique_fd.hpp"
#include "bootstrap/store.hpp"

namespace thalweg::impl {

class FileLock;

class FileStore final : public Store {
 public:
  static Status open(const std::string& path, const StoreOptions& options, std::unique_ptr<Store>* out);

 protected:
  Status do_put(const std::string& key, const void* value, size_t length) override;
  Status do_get(const std::string& key, Bytes* out) override;
  Status do_wait(const std::string& key, const Deadline& deadline, Bytes* out) override;
  Status do_erase(const std::string& key) override;

 private:
  struct Place {
    uint64_t offset;
    uint32_t length;
  };
  using Store::Store;
  Status begin();
  Status check_file();
  Status append(const std::string& key, const void* value, uint32_t length);
  Status read_new_records(uint64_t end);
  Status refresh(const Deadline& deadline);
  Status get_within(const std::string& key, const Deadline& deadline, Bytes* out);
  Status lock(FileLock& lock, int kind, const Deadline& deadline);
  Status kept_locked() const;
  Status enter(std::unique_lock<std::timed_mutex>& guard, const Deadline& deadline);
  Status read_at(uint64_t offset, void* out, size_t n);
  Status write_at(uint64_t offset, const void* bytes, size_t n);
  Status pause(const Deadline& deadline, int watch);

  std::string path_;
  UniqueFd file_;
  std::timed_mutex mutex_;  // over the two below and the file's lock, which belongs to the open file and not to a thread
  uint64_t read_end_ = 0;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace thalweg::impl
