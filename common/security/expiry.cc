#include "common/security/expiry.h"

#include <fmt/format.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "common/security/authority.h"

namespace muster::security {
namespace {

constexpr int64_t kHour = 3600, kDay = 24 * kHour, kWeek = 7 * kDay;

std::optional<int64_t> EndOf(const X509* certificate) {
  tm until{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &until) != 1) return std::nullopt;
  return timegm(&until);
}

}  // namespace

std::optional<int64_t> ChainExpiry(const std::string& chain) {
  std::optional<int64_t> first;
  for (const X509Ptr& certificate : CertificatesOf(chain))
    if (const auto end = EndOf(certificate.get())) first = std::min(first.value_or(*end), *end);
  return first;
}

std::optional<int64_t> AuthorityExpiry(const std::string& chain, const std::string& authorities) {
  const std::vector<X509Ptr> signed_by = CertificatesOf(chain);
  if (signed_by.empty()) return std::nullopt;
  std::optional<int64_t> last;
  for (const X509Ptr& authority : CertificatesOf(authorities)) {
    if (X509_check_issued(authority.get(), signed_by.back().get()) != X509_V_OK) continue;
    if (const auto end = EndOf(authority.get())) last = std::max(last.value_or(*end), *end);
  }
  return last;
}

void ExpiryWatch::Set(std::map<std::string, int64_t> ends) {
  absl::MutexLock lock(&mu_);
  std::erase_if(last_logged_, [&](const auto& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto before = ends_.find(entry.first), now = ends.find(entry.first);
    return before == ends_.end() || now == ends.end() || before->second != now->second;
  });
  ends_ = std::move(ends);
}

void ExpiryWatch::Look(int64_t now) {
  absl::MutexLock lock(&mu_);
  for (const auto& [file, end] : ends_) {
    const int64_t left = end - now;
    if (left >= kWeek) continue;
    const auto [logged, first] = last_logged_.try_emplace(file, now);
    if (!first && now - logged->second < kDay) continue;
    logged->second = now;
    LogWarning("the certificate {} {}", file,
               left < 0 ? "has expired: peers refuse it"
                        : fmt::format("expires in {} hours", left / kHour));
  }
}

std::string ExpiryWatch::Ended(int64_t now) const {
  absl::MutexLock lock(&mu_);
  for (const auto& [file, end] : ends_)
    if (end < now) return file;
  return "";
}

}  // namespace muster::security
