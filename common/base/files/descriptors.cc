#include "common/base/files/descriptors.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace muster {
namespace {

// Descriptors for the files of model_dir, the data pipeline, libraries, and gRPC itself.
constexpr int64_t kOfOneProcess = 200;
// The minimum for a process to start. In a test, 24 were enough for a member of a cluster of two.
constexpr int64_t kFewest = 32;
constexpr const char* kRemedy = "raise the limit (ulimit -n, LimitNOFILE= of systemd)";

// Returns the number of descriptors that a task needs in a cluster with `members` members, with a
// reserve. `is_chief` says whether this task is the chief.
int64_t DescriptorsNeeded(int members, bool is_chief) {
  return kOfOneProcess + int64_t{members} * (is_chief ? 4 : 1);
}

}  // namespace

int64_t RaiseDescriptorLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return std::numeric_limits<int64_t>::max();
  const rlimit raised{files.rlim_max, files.rlim_max};
  if (files.rlim_cur < files.rlim_max) (void)setrlimit(RLIMIT_NOFILE, &raised);
  return DescriptorLimit();
}

int64_t DescriptorLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(
      std::min<rlim_t>(files.rlim_cur, std::numeric_limits<int64_t>::max()));
}

absl::Status CheckDescriptorLimit(int64_t limit, int members, bool is_chief) {
  const int64_t fewest = kFewest + (is_chief ? 2 * members : 0);
  if (limit >= fewest) return absl::OkStatus();
  return ConfigurationError(fmt::format("this process may open {} files, and needs {} at least: {}",
                                        limit, fewest, kRemedy));
}

std::string DescriptorWarning(int64_t limit, int members, bool is_chief) {
  const int64_t needed = DescriptorsNeeded(members, is_chief);
  if (limit >= needed) return "";
  return fmt::format("this process may open {} files, and a cluster of {} members may need {}: {}",
                     limit, members, needed, kRemedy);
}

}  // namespace muster
