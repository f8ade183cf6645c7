#include "common/security/authority.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <utility>

#include "common/cluster/cluster_spec.h"
#include "common/security/expiry.h"
#include "tests/unit/security/cluster.h"

namespace muster::security {
namespace {

using ::testing::HasSubstr;

Secret KeyOf(unsigned char fill) {
  Secret key(kRunKeyBytes);
  std::memset(key.data(), fill, key.size());
  return key;
}

TEST(Authority, IsTheSameForAllThatHoldTheKey) {
  const auto first = Authority::FromRunKey(KeyOf(1)), again = Authority::FromRunKey(KeyOf(1)),
             other = Authority::FromRunKey(KeyOf(2));
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(first->certificate(), again->certificate());
  EXPECT_EQ(*first->PrivateKey(), *again->PrivateKey());
  EXPECT_NE(first->certificate(), other->certificate());
}

// Derives a key as RFC 5869 says from 32 bytes of value 1. The expected value is from Python's hmac
// and hashlib.
TEST(Authority, DerivesItsKeyAsDocumented) {
  const auto authority = Authority::FromRunKey(KeyOf(1));
  EXPECT_EQ(*authority->PrivateKey(),
            "-----BEGIN PRIVATE KEY-----\n"
            "MC4CAQAwBQYDK2VwBCIEIDalFKW0IUXopd99BR3Q+MYLGrFGhMTOu/xCVdSjtCHA\n"
            "-----END PRIVATE KEY-----\n");
}

TEST(Authority, CertificatesNameTaskAndHosts) {
  const auto authority = Authority::Random();
  const auto made =
      authority->Issue(UriOf({kCluster, "worker:12"}), {"host.example", "10.0.0.7", "::1"});
  ASSERT_TRUE(made.ok());
  const auto facts = FactsOfPem(made->certificate);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->peer.cluster, kCluster);
  EXPECT_EQ(facts->peer.task, "worker:12");
  EXPECT_THAT(facts->hosts, ::testing::ElementsAre("host.example", "10.0.0.7", "::1"));
  EXPECT_EQ(ChainExpiry(made->certificate), 253402300799);
}

TEST(Authority, UrisOfTasks) {
  const std::string cluster = "muster://" + std::string(kCluster);
  EXPECT_EQ(UriOf({kCluster, "ps:3"}), cluster + "/ps/3");
  EXPECT_EQ(UriOf({kCluster, "launcher"}), cluster + "/launcher");
  EXPECT_EQ(PeerFromUri(cluster + "/launcher")->task, "launcher");
  EXPECT_EQ(PeerFromUri(cluster + "/evaluator/0")->task, "evaluator:0");
  for (const char* wrong : {"", "/", "/chief", "/chief/", "/chief/-1", "/chief/01", "/chief/0/1",
                            "/boss/0", "/chief/99999999999999", "/chief/0 ", "//chief/0"})
    EXPECT_FALSE(PeerFromUri(cluster + wrong).ok()) << wrong;
  for (const char* wrong :
       {"", "muster://", "muster:///chief/0", "https://0123456789abcdef/chief/0"})
    EXPECT_FALSE(PeerFromUri(wrong).ok()) << wrong;
}

// A cluster has one spelling, so that a URI cannot put any other text into a log.
TEST(Authority, ClustersInUrisAreDigests) {
  ClusterSpec spec;
  spec.chief = Address{"host1", 2222};
  EXPECT_TRUE(PeerFromUri(UriOf({spec.Digest(), "chief:0"})).ok());
  for (const char* wrong : {"d", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF",
                            "0123456789abcdeg", "\x1b[2J\nROOT CAUSE: x", "0123456789abcd\n "})
    EXPECT_FALSE(PeerFromUri(fmt::format("muster://{}/worker/0", wrong)).ok()) << wrong;
}

TEST(Authority, UrisOfOtherSchemesAreForOthers) {
  const auto authority = Authority::Random();
  const std::string task = UriOf({kCluster, "worker:1"});
  const auto facts = [&](const std::string& uris) {
    return FactsOfPem(authority->Issue(uris, {})->certificate);
  };
  const auto mesh = facts("spiffe://mesh/ns/job,URI:" + task + ",URI:https://wiki/muster");
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ(mesh->peer.task, "worker:1");
  EXPECT_THAT(std::string(Message(facts("spiffe://mesh/ns/job").status())),
              HasSubstr("names no task"));
  EXPECT_THAT(std::string(Message(facts(task + ",URI:" + task).status())),
              HasSubstr("names more than one task"));
  EXPECT_THAT(std::string(Message(facts(task + ",URI:muster://x").status())),
              HasSubstr("names more than one task"));
}

TEST(Authority, OneHostInAnySpelling) {
  for (const auto& [a, b] : {std::pair("FD00::1", "fd00:0::1"),
                             {"::1", "0:0:0:0:0:0:0:1"},
                             {"10.0.0.1", "10.0.0.1"},
                             {"Host1.Example", "hOST1.eXAMPLE"},
                             {"fe80::1%eth0", "FE80:0::1"},
                             {"::ffff:10.0.0.1", "::ffff:a00:1"}})
    EXPECT_TRUE(SameHost(a, b) && SameHost(b, a)) << a;
  for (const auto& [a, b] : {std::pair("fd00::1", "fd00::2"),
                             {"10.0.0.1", "10.0.0.10"},
                             {"host1", "host1.example"},
                             {"", "host1"},
                             {"::1", "host1"}})
    EXPECT_FALSE(SameHost(a, b) || SameHost(b, a)) << a;
  // The bytes after a zero byte belong to the name.
  EXPECT_FALSE(SameHost(std::string("10.0.0.1\0.example", 17), "10.0.0.1"));
}

TEST(Authority, NamesOfAuthoritiesBeginWithTheOneThatSigned) {
  const auto first = Authority::Random(), second = Authority::Random();
  const auto made = second->Issue(UriOf({kCluster, "ps:0"}), {});
  const auto names =
      NamesOfAuthorities(made->certificate, first->certificate() + second->certificate());
  ASSERT_EQ(names.size(), 2u);
  EXPECT_THAT(names, ::testing::Each(::testing::StartsWith("Muster run authority ")));
  EXPECT_EQ(names[0], NamesOfAuthorities(made->certificate, second->certificate())[0]);
}

}  // namespace
}  // namespace muster::security
