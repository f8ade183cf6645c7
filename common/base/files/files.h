// Files that a job names: resolving their paths, and digests that distinguish them.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

// Resolves `path` against `folder`. Returns `path` unchanged if it is absolute, or if one of the
// two is empty.
std::string PathFrom(const std::string& folder, const std::string& path);

// Returns "<size> bytes, <16 hexadecimal digits>". The digits are a 64-bit hash of the content. It
// detects mistakes, not attacks. For a file above 16 MiB the hash covers 256 blocks of 64 KiB,
// evenly distributed from the first byte to the last. No file therefore takes longer than one of 16
// MiB. Returns a DataError that names a file that cannot be read.
absl::StatusOr<std::string> FileDigest(const std::string& path);

// Returns the files in a folder and its subfolders as paths relative to it. Symbolic links are
// followed. The order is by folder, then by name, whatever the file system returns. Names that
// begin with a dot are skipped. Returns a DataError that names what cannot be read.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& folder);
// Returns the folders in a folder by the same rules, without subfolders.
absl::StatusOr<std::vector<std::string>> ListFolders(const std::string& folder);

// Returns the files that a path describes. For a folder: all files in it and below. For a pattern
// in the last part ('*' is any text, '?' any one character): the matching files, sorted. Otherwise:
// the path itself.
absl::StatusOr<std::vector<std::string>> MatchFiles(const std::string& path);
// For a file: FileDigest. For a folder or a pattern: "<n> files, <size> bytes, <16 digits>", over
// the names and sizes of the files.
absl::StatusOr<std::string> PathDigest(const std::string& path);

}  // namespace muster
