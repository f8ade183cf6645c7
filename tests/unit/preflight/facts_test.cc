#include "deploy/preflight/facts.h"

#include <gmock/gmock.h>

namespace muster::preflight {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(FactsTest, ComeBackFromJson) {
  const Facts facts{.task = "worker:1",
                    .host = "node",
                    .host_id = "id",
                    .job = {{"seed", 1}},
                    .versions = {{"Muster", "1"}},
                    .data_address = "10.0.0.1",
                    .checks = {{.name = "a", .ok = false, .what = "b", .fix = "c"}}};
  const auto read = FactsFromJson(ToJson(facts));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(facts));
}

TEST(FactsTest, TextOfAnotherTaskCannotForgeALine) {
  Facts facts{.task = "worker:1", .host = "node\nok  fine", .versions = {{"a\x1b[2J", "\n"}}};
  facts.checks = {{.name = "x\ny", .what = std::string(5000, 'z')}};
  const auto read = FactsFromJson(ToJson(facts));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->host, Not(HasSubstr("\n")));
  EXPECT_THAT(read->versions.begin()->first, Not(HasSubstr("\x1b")));
  EXPECT_THAT(read->checks[0].name, Not(HasSubstr("\n")));
  EXPECT_LE(read->checks[0].what.size(), 503u) << "with ...";
}

TEST(FactsTest, WhatIsNoneIsRefused) {
  for (const char* text : {"[]", "{\"versions\": []}", "{\"checks\": 1}", "{\"unknown\": 1}",
                           "{\"checks\": [{\"ok\": \"yes\"}]}"}) {
    EXPECT_FALSE(FactsFromJson(*ParseJson(text, "test")).ok()) << text;
  }
}

TEST(PathFactsTest, ComeBackFromJson) {
  const PathFacts path{.from = "worker:0",
                       .to = "worker:1",
                       .own_mtu = 9000,
                       .mtu = 1500,
                       .reported_mtu = 1500,
                       .bits_per_second = 1e9,
                       .round_trip = 1e-4};
  const auto read = PathFactsFromJson(ToJson(path));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), ToJson(path));
  EXPECT_FALSE(PathFactsFromJson({{"from", "nobody"}}).ok());
}

}  // namespace
}  // namespace muster::preflight
