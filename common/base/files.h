// Files that a job names: where they are, and what tells two of them apart.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

// `path` as seen from `folder`: itself where it is absolute, or where one of the two is empty.
std::string PathFrom(const std::string& folder, const std::string& path);

// "<size> bytes, <16 hexadecimal digits>": the digits are a 64-bit hash of the content, against
// mistakes and no attacker. Of a file above 16 MiB they are of 256 blocks of 64 KiB, evenly spread
// from its first byte to its last, so that no file takes longer than 16 MiB do. A DataError names
// the file that cannot be read.
absl::StatusOr<std::string> FileDigest(const std::string& path);

// The files in a folder and the folders below it, symbolic links followed, as paths relative to it:
// sorted by folder, then by name, whatever order the file system has. What begins with a dot is
// left out. A DataError names what cannot be read.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& folder);
// The folders in a folder, the same way, none below them.
absl::StatusOr<std::vector<std::string>> ListFolders(const std::string& folder);

// The files that a path means: those in a folder and below, those whose names match the last part
// of a pattern ('*' is any text, '?' any one character), sorted; or the path itself.
absl::StatusOr<std::vector<std::string>> MatchFiles(const std::string& path);
// FileDigest of a file; of a folder or a pattern "<n> files, <size> bytes, <16 digits>", of the
// names and sizes of what they mean.
absl::StatusOr<std::string> PathDigest(const std::string& path);

}  // namespace muster
