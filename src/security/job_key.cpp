// SPDX-License-Identifier: Apache-2.0
// The job key's source and the keys derived from it.
#include "security/job_key.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/platform/environment.hpp"
#include "base/platform/process.hpp"
#include "base/unique_fd.hpp"

namespace thalweg::impl {
namespace {

constexpr size_t kMinimum = 16;
constexpr size_t kFresh = 32;
constexpr size_t kFileLimit = 4096;

std::string to_hex(const std::vector<std::byte>& bytes) {
  const char* const digits = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += digits[unsigned(b) >> 4];
    text += digits[unsigned(b) & 15];
  }
  return text;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool from_hex(std::string_view text, std::vector<std::byte>* out) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  if (text.size() % 2 != 0) return false;
  out->clear();
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]);
    const int low = digit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    out->push_back(std::byte(high * 16 + low));
  }
  return out->size() >= kMinimum;
}

Status default_path(std::string* path) {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  if (config && *config == '/') {
    *path = std::string(config) + "/thalweg/job.key";
  } else if (home && *home) {
    *path = std::string(home) + "/.config/thalweg/job.key";
  } else {
    return fail(TW_ERR_KEY_FILE, "no place for the job key: set HOME, XDG_CONFIG_HOME or THALWEG_JOB_KEY");
  }
  return TW_OK;
}

// mkdir -p of the folder of path, private to the user.
void make_folder(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    mkdir(path.substr(0, at).c_str(), 0700);  // exists, or the open below reports why not
  }
}

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += size_t(n);
  }
  return fsync(fd) == 0;
}

// Gives the file its name unless the name is taken: the first of several processes wins and all read the winner's key.
bool publish(const std::string& temporary, const std::string& path) {
  constexpr unsigned kNoReplace = 1;
  if (syscall(SYS_renameat2, AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), kNoReplace) == 0) return true;
  int error = errno;
  if (error == EINVAL || error == ENOSYS) error = link(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
  unlink(temporary.c_str());
  errno = error;
  return error == 0 || error == EEXIST;
}

Status create_file(const std::string& path) {
  std::vector<std::byte> fresh(kFresh);
  if (const Status status = random_bytes(fresh.data(), fresh.size()); is_error(status)) return status;
  make_folder(path);
  char suffix[32];
  std::snprintf(suffix, sizeof suffix, ".%016llx", static_cast<unsigned long long>(random_id()));
  const std::string temporary = path + suffix;
  const UniqueFd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) {
    return fail(TW_ERR_KEY_FILE, "cannot make the job key file %s: %s; make its folder writable or set THALWEG_JOB_KEY",
                path.c_str(), strerror(errno));
  }
  if (!write_all(file.get(), to_hex(fresh) + "\n")) {
    const int error = errno;
    unlink(temporary.c_str());
    return fail(TW_ERR_KEY_FILE, "cannot write the job key file %s: %s", path.c_str(), strerror(error));
  }
  if (!publish(temporary, path)) {
    return fail(TW_ERR_KEY_FILE, "cannot make the job key file %s: %s", path.c_str(), strerror(errno));
  }
  return TW_OK;
}

Status check_private(const std::string& path, int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return fail_errno(errno, "fstat of the job key file");
  if (!S_ISREG(info.st_mode)) return fail(TW_ERR_KEY_FILE, "the job key file %s is not a regular file", path.c_str());
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return fail(TW_ERR_KEY_FILE, "the job key file %s belongs to user %u; use a file of your own", path.c_str(),
                unsigned(info.st_uid));
  }
  if (info.st_mode & 077) {
    return fail(TW_ERR_KEY_FILE,
                "the job key file %s can be read or written by others (mode %03o); run: chmod 600 %s, and replace the key if "
                "others may have seen it",
                path.c_str(), unsigned(info.st_mode & 0777), path.c_str());
  }
  return TW_OK;
}

Status read_file(const std::string& path, std::vector<std::byte>* out) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO in its place may not hang us
  if (!file && errno == ENOENT) {
    if (const Status status = create_file(path); is_error(status)) return status;
    file = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  }
  if (!file) {
    return fail(TW_ERR_KEY_FILE, "cannot read the job key file %s: %s; fix its owner or set THALWEG_JOB_KEY", path.c_str(),
                strerror(errno));
  }
  if (const Status status = check_private(path, file.get()); is_error(status)) return status;
  char text[kFileLimit + 1];
  const ssize_t n = read(file.get(), text, sizeof text);
  if (n > ssize_t(kFileLimit)) {
    OPENSSL_cleanse(text, sizeof text);
    return fail(TW_ERR_KEY_FILE, "the job key file %s is longer than %zu bytes; give a shorter key", path.c_str(), kFileLimit);
  }
  const bool good = n > 0 && from_hex(std::string_view(text, size_t(n)), out);
  OPENSSL_cleanse(text, sizeof text);
  if (!good) {
    return fail(TW_ERR_KEY_FILE,
                "the job key file %s does not hold at least %zu bytes as hex digits; remove it and start again", path.c_str(),
                kMinimum);
  }
  return TW_OK;
}

constexpr char kVariable[] = "THALWEG_JOB_KEY";
constexpr char kTaken[] = "taken";  // the variable's value once the key was read

/// The key that was taken out of the environment, for what this process opens later.
struct CachedKeys {
  std::mutex mutex;
  std::vector<std::byte> secret;
};

CachedKeys& cached_keys() {
  static auto* const one = new CachedKeys;  // leaked: threads may outlive static destruction
  return *one;
}

/// Takes the key out of the environment, so that programs which this one starts do not inherit it. Neither shifts nor frees
/// anything: other threads may be reading the environment.
void hide(char* value) {
  if (const char* keep = std::getenv("THALWEG_KEEP_JOB_KEY"); keep != nullptr && std::strcmp(keep, "1") == 0) return;
  if (!from_the_kernel(value)) {
    setenv(kVariable, kTaken, 1);
    return;
  }
  OPENSSL_cleanse(value, std::strlen(value));
  std::memcpy(value, kTaken, sizeof kTaken);
}

/// TW_ERR_NO_MATCH: there is none.
Status read_environment(std::vector<std::byte>* out) {
  CachedKeys& store = cached_keys();
  const std::lock_guard lock(store.mutex);
  char* const value = std::getenv(kVariable);
  if (value == nullptr || *value == 0) return TW_ERR_NO_MATCH;
  if (std::strcmp(value, kTaken) != 0) {
    if (!from_hex(value, out)) return fail(TW_ERR_INVALID, "%s is not at least %zu bytes as hex digits", kVariable, kMinimum);
    store.secret = *out;
    hide(value);
    return TW_OK;
  }
  *out = store.secret;
  if (!out->empty()) return TW_OK;
  return fail(
      TW_ERR_KEY_FILE,
      "the program that started this one has taken the job key out of the environment: give this one a key of its own, or set "
      "THALWEG_KEEP_JOB_KEY=1 for the job, so that programs started by its processes inherit it");
}

std::array<std::byte, 32> hmac(const void* key, size_t key_length, const void* data, size_t length) {
  std::array<std::byte, 32> out;
  unsigned size = out.size();
  if (!HMAC(EVP_sha256(), key, int(key_length), static_cast<const unsigned char*>(data), length,
            reinterpret_cast<unsigned char*>(out.data()), &size)) {
    // Only without memory. A predictable value would be an open door: stop here.
    std::fputs("thalweg: HMAC-SHA256 failed in OpenSSL; cannot go on safely\n", stderr);
    std::abort();
  }
  return out;
}

/// The first use of OpenSSL in a context. Its threads may be in a handshake when the program leaves main, so OpenSSL is not to end before
/// the process does; where the program has used it before, that is the program's.
void keep_openssl() {
  static const int kept = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  (void)kept;
}

}  // namespace

JobKey::~JobKey() {
  if (!secret_.empty()) OPENSSL_cleanse(secret_.data(), secret_.size());
}

Status JobKey::load(const void* bytes, size_t length, const char* key_file, JobKey* out) {
  keep_openssl();
  JobKey key;
  if (bytes) {
    if (length < kMinimum) return fail(TW_ERR_INVALID, "the job key has %zu bytes; at least %zu are needed", length, kMinimum);
    const auto* first = static_cast<const std::byte*>(bytes);
    key.secret_.assign(first, first + length);
    key.source_ = "the program's job_key option";
    *out = key;
    return TW_OK;
  }
  const Status environment = key_file ? Status(TW_ERR_NO_MATCH) : read_environment(&key.secret_);
  if (environment == TW_OK) {
    key.source_ = kVariable;
  } else if (environment != TW_ERR_NO_MATCH) {
    return environment;
  } else {
    std::string path = key_file ? key_file : "";
    if (!key_file) {
      if (const Status status = default_path(&path); is_error(status)) return status;
    }
    if (const Status status = read_file(path, &key.secret_); is_error(status)) return status;
    key.source_ = "the file " + path;
  }
  *out = key;
  return TW_OK;
}

std::array<std::byte, 32> JobKey::derive(const char* purpose) const {
  const std::string label = std::string("thalweg 1 ") + purpose;
  return hmac(secret_.data(), secret_.size(), label.data(), label.size());
}

std::array<std::byte, 32> JobKey::mac(const char* purpose, const void* data, size_t length) const {
  auto key = derive(purpose);
  const auto out = hmac(key.data(), key.size(), data, length);
  OPENSSL_cleanse(key.data(), key.size());
  return out;
}

std::string JobKey::hex() const { return to_hex(secret_); }

bool equal_secret(const void* a, const void* b, size_t n) { return CRYPTO_memcmp(a, b, n) == 0; }

Status random_bytes(void* out, size_t n) {
  if (RAND_bytes(static_cast<unsigned char*>(out), int(n)) == 1) return TW_OK;
  return fail(TW_ERR_IO, "OpenSSL has no random numbers; check that /dev/urandom or getrandom works in this sandbox");
}

}  // namespace thalweg::impl
