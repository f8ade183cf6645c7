// Functions for the input files that a job names: they resolve paths, list files, and compute
// digests.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

// Resolves `path` against `folder`. Returns `path` unchanged if it is absolute, or if one of the
// two is empty.
std::string PathFrom(const std::string& folder, const std::string& path);

// Returns "<size> bytes, <16 hexadecimal digits>". The digits are a 64-bit hash of the content,
// which detects mistakes but not attacks. For a file above 16 MiB, the hash only covers 256 blocks
// of 64 KiB, which are evenly distributed over the file. The time is therefore bounded. Returns a
// DataError that names the file if it cannot be read.
absl::StatusOr<std::string> FileDigest(const std::string& path);

// Returns the files in a folder and its subfolders, as paths relative to `folder`. Sorts by folder,
// then by name. Follows symbolic links, and skips names that begin with a dot. Returns a DataError
// that names the file or folder that cannot be read.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& folder);
// Returns the folders directly in `folder` by the same rules.
absl::StatusOr<std::vector<std::string>> ListFolders(const std::string& folder);

// Returns the files that `path` describes. For a folder, these are all files in it and its
// subfolders. If the last part of `path` is a pattern (glob.h), these are the matching files,
// sorted. Otherwise, returns `path` itself.
absl::StatusOr<std::vector<std::string>> MatchFiles(const std::string& path);
// Returns FileDigest for a file. For a folder or a pattern, returns "<n> files, <size> bytes, <16
// digits>". These digits are a hash of the names and sizes of the files.
absl::StatusOr<std::string> PathDigest(const std::string& path);

}  // namespace muster
