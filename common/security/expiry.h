// Certificates that come to their end: a line a day about each file, from a week before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::security {

// All times are seconds since 1970.

// When the first of these PEM certificates ends, a leaf and what is between it and its authority.
std::optional<int64_t> EndOfChain(const std::string& chain);
// When the authority ends that has signed the chain; of several certificates of it, the last one.
std::optional<int64_t> EndOfAuthority(const std::string& chain, const std::string& authorities);

// All methods may be called from any thread.
class ExpiryWatch {
 public:
  // By file, in the place of those before.
  void Set(std::map<std::string, int64_t> ends);
  // Writes the lines that are due.
  void Look(int64_t now);
  // One that has ended; "" where none has.
  std::string Ended(int64_t now) const;

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, int64_t> ends_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int64_t> told_ ABSL_GUARDED_BY(mu_);  // when
};

}  // namespace muster::security
