#include "common/security/facts_cache.h"

#include <utility>

namespace muster::security {

absl::StatusOr<CertificateFacts> FactsCache::Get(const std::string& pem) {
  {
    absl::ReaderMutexLock lock(&mutex_);
    if (const auto found = facts_.find(pem); found != facts_.end()) return found->second;
  }
  MUSTER_ASSIGN_OR_RETURN(CertificateFacts facts, FactsOfPem(pem));
  absl::MutexLock lock(&mutex_);
  if (facts_.size() >= most_) facts_.clear();
  return facts_.try_emplace(pem, std::move(facts)).first->second;
}

size_t FactsCache::size() const {
  absl::ReaderMutexLock lock(&mutex_);
  return facts_.size();
}

}  // namespace muster::security
