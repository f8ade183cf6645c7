#include "common/transport/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::transport {
namespace {

using ::testing::HasSubstr;

TEST(SocketAddress, ParsesAndJoins) {
  for (const char* text : {"10.0.0.3:41234", "[fe80::1]:5", "worker-0.job:65535"}) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(JoinEndpoint(endpoint->host, endpoint->port), text);
  }
}

TEST(SocketAddress, RefusesWithTheValueAndTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"host", "has no port"},       {"host:0", "from 1 to 65535"},
      {"host:70000", "from 1"},      {"host:12x", "from 1"},
      {"::1:5", "without brackets"}, {"[::1:5", "unclosed"},
      {":5", "has no host"},         {"host:", "from 1"}};
  for (const auto& [text, why] : cases) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text);
    ASSERT_FALSE(endpoint.ok()) << text;
    EXPECT_THAT(std::string(Message(endpoint.status())), HasSubstr(why));
    EXPECT_THAT(std::string(Message(endpoint.status())), HasSubstr(text));
  }
}

TEST(SocketAddress, OfAnInterface) {
  const absl::StatusOr<std::string> loopback = InterfaceAddress("lo");
  ASSERT_TRUE(loopback.ok()) << loopback.status();
  EXPECT_EQ(*loopback, "127.0.0.1");
  const absl::StatusOr<std::string> unknown = InterfaceAddress("eth99");
  EXPECT_EQ(ExitCodeOf(unknown.status()), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(unknown.status())), HasSubstr("lo"));
}

}  // namespace
}  // namespace muster::transport
