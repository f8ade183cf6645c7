#include "common/transport/listener/hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace muster::transport {
namespace {

using ::testing::HasSubstr;

TEST(HelloTest, GoesThereAndBack) {
  const Hello hello{(7ull << 32) | 3, 4, 2, 9, std::string("\0secret\xff", 8)};
  const absl::StatusOr<Hello> decoded = DecodeHello(EncodeHello(hello));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->generation, hello.generation);
  EXPECT_EQ(decoded->from, 4);
  EXPECT_EQ(decoded->to, 2);
  EXPECT_EQ(decoded->channel, 9u);
  EXPECT_EQ(decoded->ticket, hello.ticket);
}

TEST(HelloTest, RefusesOtherVersionsGarbageAndOtherLengths) {
  auto broken = [](size_t at, uint32_t value) {
    auto bytes = EncodeHello({1, 0, 1, 0, "ticket"});
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return std::string(Message(DecodeHello(bytes).status()));
  };
  EXPECT_THAT(broken(0, 0x20544547), HasSubstr("does not speak the data protocol"));
  EXPECT_THAT(broken(8, 77), HasSubstr("version 77 of the data protocol, not 1"));
  EXPECT_THAT(broken(12, 1'000'000), HasSubstr("1000000 bytes, not 88"));
  EXPECT_THAT(broken(36, 33), HasSubstr("damaged"));
  EXPECT_THAT(broken(36, 0), HasSubstr("damaged"));
}

TEST(HelloTest, AnswersBelongToAGeneration) {
  const auto answer = EncodeAnswer(HelloResult::kWrongTicket, 5);
  EXPECT_EQ(*DecodeAnswer(answer, 5), HelloResult::kWrongTicket);
  EXPECT_FALSE(DecodeAnswer(answer, 6).ok());
}

TEST(HelloTest, TicketsAreComparedWhole) {
  EXPECT_TRUE(SameTicket("abc", "abc"));
  EXPECT_FALSE(SameTicket("abc", "abd"));
  EXPECT_FALSE(SameTicket("abc", std::string("abc\0", 4)));
  EXPECT_FALSE(SameTicket("", "a"));
}

}  // namespace
}  // namespace muster::transport
