// Functions for the input files that a job names: they resolve paths, list files, and compute
// digests. FirstLineOf reads small files, such as those of /proc.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

// Resolves `path` against `folder`. Returns `path` unchanged if `path` is absolute, or if `path` or
// `folder` is empty.
std::string PathFrom(const std::string& folder, const std::string& path);

// Returns "<size> bytes, <16 hexadecimal digits>". The digits are a 64-bit hash of the content,
// which detects mistakes but not attacks. To limit the time, the hash of a file above 16 MiB covers
// only 256 blocks of 64 KiB, evenly spaced over the file. Returns a DataError that names the file
// if the file cannot be read.
absl::StatusOr<std::string> FileDigest(const std::string& path);

// Returns the files in a folder and its subfolders, as paths relative to `folder`. Sorts by folder,
// then by name. Follows symbolic links, and skips names that begin with a dot. Returns a DataError
// that names the file or folder that cannot be read.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& folder);
// Returns the names of the folders directly in `folder`, sorted. Follows symbolic links, skips
// names that begin with a dot, and returns errors, as ListFiles does.
absl::StatusOr<std::vector<std::string>> ListFolders(const std::string& folder);

// Returns the files that `path` describes, as paths that can be opened. If `path` is a folder,
// returns all files in the folder and its subfolders. If the last name of `path` is a pattern
// (glob.h), returns the matching files, sorted. Otherwise, returns only `path`.
absl::StatusOr<std::vector<std::string>> MatchFiles(const std::string& path);
// For a file, returns FileDigest(path). For a folder or a pattern, returns "<n> files, <size>
// bytes, <16 hexadecimal digits>". The digits for a folder or a pattern are a hash of the names and
// sizes of the files.
absl::StatusOr<std::string> PathDigest(const std::string& path);

// Returns the content of a file. Returns a ConfigurationError that names the file if the file
// cannot be read.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);
// Returns the first line of a file, "" if the file cannot be read.
std::string FirstLineOf(const std::string& path);

}  // namespace muster
