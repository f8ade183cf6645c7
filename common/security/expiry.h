// Warns about certificate files that have expired or expire within a week. Logs one line per file
// and day.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::security {

// All times are in seconds since 1970.

// Returns the earliest expiry time of the certificates in the PEM text `chain` (the leaf and the
// intermediate certificates). Returns nullopt if there is none.
std::optional<int64_t> ChainExpiry(const std::string& chain);
// Returns the expiry time of the authority that signed `chain`. If `authorities` has several of its
// certificates, returns the latest expiry time. Returns nullopt if it has none. Both arguments are
// PEM.
std::optional<int64_t> AuthorityExpiry(const std::string& chain, const std::string& authorities);

// Thread-safe.
class ExpiryWatch {
 public:
  // Replaces the expiry times. The key of `ends` is the path of a certificate file.
  void Set(std::map<std::string, int64_t> ends);
  // Logs the warnings that are due at the time `now`.
  void Look(int64_t now);
  // Returns the path of a file that has expired, "" if there is none.
  std::string Ended(int64_t now) const;

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, int64_t> ends_ ABSL_GUARDED_BY(mu_);
  // The time of the last warning about each file.
  std::map<std::string, int64_t> last_logged_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::security
