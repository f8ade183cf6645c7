// Warns about certificate files that have expired or that expire within a week. Logs at most one
// line per file and day.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::security {

// All times are in seconds since 1970.

// Returns the earliest expiry time of the certificates in the PEM text `chain`, which contains a
// leaf certificate and its intermediate certificates. Returns nullopt if `chain` has no
// certificate.
std::optional<int64_t> ChainExpiry(const std::string& chain);
// Returns the latest expiry time of the certificates in `authorities` that belong to the issuer of
// the last certificate in `chain`. Returns nullopt if the issuer has no certificate there. Both
// arguments are PEM.
std::optional<int64_t> AuthorityExpiry(const std::string& chain, const std::string& authorities);

// Thread-safe.
class ExpiryWatch {
 public:
  // Replaces the expiry times. The key of `ends` is the path of a certificate file.
  void Set(std::map<std::string, int64_t> ends);
  // Logs the warnings that are due at the time `now`.
  void Look(int64_t now);
  // Returns the path of a certificate file that is expired at the time `now`, or "" if none is.
  std::string Ended(int64_t now) const;

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, int64_t> ends_ ABSL_GUARDED_BY(mu_);
  // The time of the last warning about each file.
  std::map<std::string, int64_t> last_logged_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::security
