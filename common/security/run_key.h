// The run key: 32 random bytes that all tasks of a run hold and nobody else. It is never sent: each
// side of a connection proves that it holds it (authority.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/status.h"

namespace muster::security {

// Bytes that a core dump leaves out and that are overwritten when they go.
class Secret {
 public:
  // REQUIRES: OpenSSL's random generator works; without it nothing here can go on.
  static Secret Random(size_t size);
  explicit Secret(size_t size);
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

// The first key is the one that this process shows; both are accepted, so that a key can be
// replaced task by task.
using RunKeys = std::vector<Secret>;  // 1 or 2

// The text of a key file: one or two lines of 64 hexadecimal digits. A ConfigurationError names
// `origin`, and nothing of the text.
absl::StatusOr<RunKeys> ParseRunKeys(std::string_view text, const std::string& origin);
// A line of it, with its end.
Secret FormatRunKey(const Secret& key);

// A file that others than its owner and group may read is refused. Links are followed.
absl::StatusOr<RunKeys> ReadRunKeys(const std::string& path);
// The same from a descriptor that the launcher passed on, from its beginning.
absl::StatusOr<RunKeys> ReadRunKeys(int descriptor);

// Where the keys of this process are: `configured` (security.key_file), else $MUSTER_RUN_KEY_FILE,
// else ~/.config/muster/run.key if there is one; "" where there is none.
std::string RunKeyPath(const std::string& configured);
// Where `muster key new` writes without an argument; "" without a home.
std::string DefaultRunKeyPath();

// The descriptor that $MUSTER_RUN_KEY_FD names, for the caller to close. Forgets the variable: no
// child is to look for it.
inline constexpr char kRunKeyDescriptor[] = "MUSTER_RUN_KEY_FD";
std::optional<int> TakeRunKeyDescriptor();

// Writes a whole file with these permissions, or none. One that exists is not touched, nor what a
// link leads to.
absl::Status WriteNewFile(const std::string& path, std::string_view text, mode_t mode);
// A new key, readable by its owner alone, in a folder that is made if need be.
absl::Status WriteNewRunKey(const std::string& path);

}  // namespace muster::security
