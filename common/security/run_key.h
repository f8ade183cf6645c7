// The run key: a secret of 32 random bytes that all tasks of a run share. No connection carries it.
// Each side of a connection proves that it has the key by a certificate (authority.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::security {

// A secret in memory. Core dumps do not contain it, and the destructor overwrites it.
class Secret {
 public:
  // Returns random bytes. Aborts the process if OpenSSL's random generator fails.
  static Secret Random(size_t size);
  explicit Secret(size_t size);  // Zeros. Throws std::bad_alloc.
  ~Secret();
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&&) = delete;
  unsigned char* data() { return data_; }
  const unsigned char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  unsigned char* data_ = nullptr;
  size_t size_ = 0;
};

inline constexpr size_t kRunKeyBytes = 32;

// One or two keys. This process proves that it has the first one, and accepts peers with either. A
// run's key can thus be replaced task by task.
using RunKeys = std::vector<Secret>;

// Parses the text of a key file: one or two lines of 64 hexadecimal digits. A ConfigurationError
// names `origin` and does not quote the text.
absl::StatusOr<RunKeys> ParseRunKeys(std::string_view text, const std::string& origin);
// Returns the key as a line of a key file, with the newline.
Secret FormatRunKey(const Secret& key);

// Returns a token that lets its holder read the state of the cluster over HTTP, and nothing else:
// 64 hexadecimal digits, HMAC-SHA256(key, "status"). The key cannot be computed from it.
std::string ReadingToken(const Secret& key);

// Reads a key file. Returns ConfigurationError if other users than its owner and group have access
// to it. Follows symbolic links.
absl::StatusOr<RunKeys> ReadRunKeys(const std::string& path);
// Reads a key file from its beginning through a descriptor that the launcher passed on.
absl::StatusOr<RunKeys> ReadRunKeys(int descriptor);

// Returns the path of this process's key file: `configured` (security.key_file), else
// $MUSTER_RUN_KEY_FILE, else DefaultRunKeyPath() if that file exists, else "".
std::string RunKeyPath(const std::string& configured);
// Returns $XDG_CONFIG_HOME/muster/run.key, else ~/.config/muster/run.key, or "" without a home.
// `muster key new` writes there by default.
std::string DefaultRunKeyPath();

// The environment variable with the number of a descriptor of the key file.
inline constexpr char kRunKeyDescriptor[] = "MUSTER_RUN_KEY_FD";
// Returns that descriptor, which the caller must close. Removes the variable from the environment,
// so child processes do not look for the descriptor.
std::optional<int> TakeRunKeyDescriptor();

// Descriptors that a child process inherits are at least this large, so that its standard streams
// and the launcher's pipes do not replace them before exec.
inline constexpr int kMinInheritedDescriptor = 10;
// Writes the text of a key file to a file in memory. Returns a descriptor that stays open after
// exec, for kRunKeyDescriptor.
absl::StatusOr<Fd> RunKeyToInherit(std::string_view text);

// Creates a file with the permissions `mode`. Returns ConfigurationError if `path` exists, even as
// a symbolic link, or if the file cannot be written. Leaves no partial file.
absl::Status WriteNewFile(const std::string& path, std::string_view text, mode_t mode);
// Writes a new random key to a file that only its owner can read. Creates the folder if it is
// missing.
absl::Status WriteNewRunKey(const std::string& path);

}  // namespace muster::security
