// Warns about certificates that expire: one log line per day for each file, from a week before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::security {

// All times are in seconds since 1970.

// Returns when the first of these PEM certificates expires: the leaf and those between it and its
// authority.
std::optional<int64_t> EndOfChain(const std::string& chain);
// Returns when the authority that signed the chain expires. If the authority has several
// certificates, the last one counts.
std::optional<int64_t> EndOfAuthority(const std::string& chain, const std::string& authorities);

// Thread-safe.
class ExpiryWatch {
 public:
  // Replaces the expiry times, by file.
  void Set(std::map<std::string, int64_t> ends);
  // Logs the lines that are due.
  void Look(int64_t now);
  // Returns an expired file, "" if there is none.
  std::string Ended(int64_t now) const;

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, int64_t> ends_ ABSL_GUARDED_BY(mu_);
  // The time of the last log line, by file.
  std::map<std::string, int64_t> told_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::security
