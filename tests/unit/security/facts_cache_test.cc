#include "common/security/facts_cache.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/unit/security/cluster.h"

namespace muster::security {
namespace {

std::string CertificateOf(const std::string& task) {
  static const absl::StatusOr<Authority> authority = Authority::Random();
  return authority->Issue(UriOf({kCluster, task}), {"host.example"})->certificate;
}

TEST(FactsCache, ReturnsTheFactsOfEachCertificate) {
  FactsCache cache;
  const std::string worker = CertificateOf("worker:1"), ps = CertificateOf("ps:0");
  for (int i = 0; i < 2; ++i) {
    const auto facts = cache.Get(worker);
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->peer.task, "worker:1");
    EXPECT_THAT(facts->hosts, ::testing::ElementsAre("host.example"));
    EXPECT_EQ(cache.Get(ps)->peer.task, "ps:0");
  }
  EXPECT_EQ(cache.size(), 2u);
}

TEST(FactsCache, DoesNotRememberAnError) {
  FactsCache cache;
  EXPECT_FALSE(cache.Get("").ok());
  EXPECT_FALSE(cache.Get("no certificate").ok());
  EXPECT_EQ(cache.size(), 0u);
}

TEST(FactsCache, HoldsAtMostSoMany) {
  FactsCache cache(/*most=*/2);
  for (const char* task : {"worker:0", "worker:1", "worker:2"})
    EXPECT_EQ(cache.Get(CertificateOf(task))->peer.task, task);
  EXPECT_EQ(cache.size(), 1u);
}

}  // namespace
}  // namespace muster::security
