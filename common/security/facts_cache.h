// A cache of CertificateFacts. A server needs the facts of the caller's certificate in each call.
// Without the cache, OpenSSL would parse the certificate in each call.
#pragma once

#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/security/authority.h"
#include "muster/status.h"

namespace muster::security {

// Thread-safe.
class FactsCache {
 public:
  // If the cache has `most` certificates, it removes all of them before it adds the next one.
  explicit FactsCache(size_t most = 4096) : most_(most) {}

  // Returns FactsOfPem(pem). Does not cache errors.
  absl::StatusOr<CertificateFacts> Get(const std::string& pem);
  size_t size() const;

 private:
  const size_t most_;
  mutable absl::Mutex mutex_;
  std::unordered_map<std::string, CertificateFacts> facts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::security
