#include "common/security/expiry.h"

#include <gmock/gmock.h>

#include "common/security/authority.h"
#include "tests/unit/base/logged_lines.h"

namespace muster::security {
namespace {

using testing::LoggedLines;

TEST(ExpiryTest, ACertificateThatTakesThePlaceOfOneThatEndsIsWarnedOfByItself) {
  ExpiryWatch watch;
  const LoggedLines log;
  watch.Set({{"a.pem", 1'000'000}, {"b.pem", 9'000'000}});
  watch.Look(900'000);
  watch.Look(900'001);
  EXPECT_EQ(log.Count("a.pem expires in 27 hours"), 1);
  watch.Set({{"a.pem", 1'100'000}, {"b.pem", 9'000'000}});
  watch.Look(900'002);
  EXPECT_EQ(log.Count("a.pem expires in 55 hours"), 1);
  watch.Set({{"a.pem", 9'000'000}, {"b.pem", 9'000'000}});
  watch.Look(900'003);
  EXPECT_EQ(log.Count("expires"), 2);
}

TEST(ExpiryTest, TheAuthorityThatSignedIsTheOneThatCounts) {
  const auto authority = Authority::Random(), other = Authority::Random();
  const auto made = authority->Issue(UriOf({"0123456789abcdef", "ps:0"}), {});
  EXPECT_EQ(AuthorityExpiry(made->certificate, other->certificate() + authority->certificate()),
            253'402'300'799);
  EXPECT_EQ(AuthorityExpiry(made->certificate, other->certificate()), std::nullopt);
  EXPECT_EQ(ChainExpiry("no certificate"), std::nullopt);
}

}  // namespace
}  // namespace muster::security
