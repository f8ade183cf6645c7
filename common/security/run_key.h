// The run key: a secret of 32 random bytes that all tasks of a run share. The key is never sent
// over a connection. A task proves possession of the key with a certificate that only a holder of
// the key can make (Authority::FromRunKey).
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
  // Returns `size` random bytes. Aborts the process if OpenSSL's random generator fails.
  static Secret Random(size_t size);
  explicit Secret(size_t size);  // `size` zero bytes. Throws std::bad_alloc.
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

// One or two run keys. This process makes its certificate from the first key, and accepts peers
// with either key. The run key of a running job can therefore be replaced task by task.
using RunKeys = std::vector<Secret>;

// Parses the text of a key file: one or two lines of 64 hexadecimal digits. If the text is invalid,
// returns a ConfigurationError that names `origin`. The error does not quote the text, which is
// secret.
absl::StatusOr<RunKeys> ParseRunKeys(std::string_view text, const std::string& origin);
// Returns the key as a line of a key file, with the newline.
Secret FormatRunKey(const Secret& key);

// Returns a token whose holder may read the state of the cluster over HTTP. The token is
// HMAC-SHA256(key, "status") as 64 hexadecimal digits. The token permits nothing else, and the key
// cannot be computed from the token.
std::string ReadingToken(const Secret& key);

// Reads a key file. Follows symbolic links. Returns ConfigurationError if users other than the
// file's owner and group have access to the file.
absl::StatusOr<RunKeys> ReadRunKeys(const std::string& path);
// Reads a key file from its beginning through a descriptor that the launcher passed on. Does not
// close the descriptor.
absl::StatusOr<RunKeys> ReadRunKeys(int descriptor);

// Returns the path of this process's key file. The path is `configured` (security.key_file of the
// job), or else $MUSTER_RUN_KEY_FILE, or else DefaultRunKeyPath() if that file exists. Returns ""
// if there is no such path.
std::string RunKeyPath(const std::string& configured);
// Returns the path to which `muster key new` writes by default: $XDG_CONFIG_HOME/muster/run.key, or
// ~/.config/muster/run.key if XDG_CONFIG_HOME is not an absolute path. Returns "" if the path needs
// HOME and HOME is not set.
std::string DefaultRunKeyPath();

// The environment variable in which the launcher passes a descriptor of the key file to a task.
inline constexpr char kRunKeyDescriptor[] = "MUSTER_RUN_KEY_FD";
// Returns the descriptor in kRunKeyDescriptor. The caller must close the descriptor. Removes the
// variable from the environment, so that child processes do not look for the descriptor.
std::optional<int> TakeRunKeyDescriptor();

// A child process inherits its key through a descriptor with at least this number. Between fork and
// exec, the launcher assigns lower numbers to the child's standard streams and pipes.
inline constexpr int kMinInheritedDescriptor = 10;
// Writes the text of a key file to a memory file (memfd). Returns a descriptor that stays open
// after exec, for kRunKeyDescriptor.
absl::StatusOr<Fd> RunKeyToInherit(std::string_view text);

// Creates a file with the permissions `mode`. Returns ConfigurationError if the file cannot be
// written or `path` exists. A dangling symbolic link counts as existing. Leaves no partial file.
absl::Status WriteNewFile(const std::string& path, std::string_view text, mode_t mode);
// Writes a new random key to a file that only its owner can read. Creates the folder if it is
// missing.
absl::Status WriteNewRunKey(const std::string& path);

}  // namespace muster::security
