// Files that a job names: where they are, and what tells two of them apart.
#pragma once

#include <string>

#include "muster/status.h"

namespace muster {

// `path` as seen from `folder`: itself where it is absolute, or where one of the two is empty.
std::string PathFrom(const std::string& folder, const std::string& path);

// "<size> bytes, <16 hexadecimal digits>": the digits are a 64-bit hash of the content, against
// mistakes and no attacker. Of a file above 16 MiB they are of 256 blocks of 64 KiB, evenly spread
// from its first byte to its last, so that no file takes longer than 16 MiB do. A DataError names
// the file that cannot be read.
absl::StatusOr<std::string> FileDigest(const std::string& path);

}  // namespace muster
