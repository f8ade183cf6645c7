#include "common/security/authority.h"

#include <gmock/gmock.h>

#include <cstring>

#include "common/security/expiry.h"

namespace muster::security {
namespace {

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

// RFC 5869 with the key of 32 bytes of 1; the value is from Python's hmac and hashlib.
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
      authority->Issue(UriOf({"abc", "worker:12"}), {"host.example", "10.0.0.7", "::1"});
  ASSERT_TRUE(made.ok());
  const auto facts = FactsOfPem(made->certificate);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->peer.cluster, "abc");
  EXPECT_EQ(facts->peer.task, "worker:12");
  EXPECT_THAT(facts->hosts, ::testing::ElementsAre("host.example", "10.0.0.7", "::1"));
  EXPECT_EQ(EndOfChain(made->certificate), 253402300799);
}

TEST(Authority, UrisOfTasks) {
  EXPECT_EQ(UriOf({"d", "ps:3"}), "muster://d/ps/3");
  EXPECT_EQ(UriOf({"d", "launcher"}), "muster://d/launcher");
  EXPECT_EQ(PeerFromUri("muster://d/launcher")->task, "launcher");
  EXPECT_EQ(PeerFromUri("muster://d/evaluator/0")->task, "evaluator:0");
  for (const char* wrong :
       {"", "muster://", "muster:///chief/0", "muster://d", "muster://d/chief", "muster://d/chief/",
        "muster://d/chief/-1", "muster://d/chief/01", "muster://d/chief/0/1", "muster://d/boss/0",
        "muster://d/chief/99999999999999", "https://d/chief/0"})
    EXPECT_FALSE(PeerFromUri(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace muster::security
