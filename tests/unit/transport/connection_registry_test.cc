// Tests the place where connections wait after their hello.
#include "common/transport/listener/connection_registry.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace muster::transport {
namespace {

class HallTest : public ::testing::Test {
 protected:
  // Returns the verdict on a hello.
  absl::StatusOr<HelloResult> Route(const Hello& hello) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const auto near = MakeTcpStream(ends[0]);
    registry_.Route({MakeTcpStream(ends[1]), hello, {"10.0.0.1:1", "10.0.0.1", ""}});
    std::array<std::byte, kAnswerBytes> answer{};
    const iovec into{answer.data(), answer.size()};
    EXPECT_EQ(*near->Read({&into, 1}), answer.size());
    return DecodeAnswer(answer, hello.generation);
  }
  ConnectionRegistry registry_{ListenerOptions()};
};

TEST_F(HallTest, TakingFromAGenerationThatWasLeftLetsNobodyIn) {
  registry_.Admit(5, 0, "ticket");
  registry_.Leave(5);
  EXPECT_EQ(registry_.TakeAny(5), nullptr);
  EXPECT_EQ(registry_.Take(5, {1, 0}), nullptr);
  // The hello has no ticket, like that of a process without a generation.
  EXPECT_EQ(*Route({5, 1, 0, 0, ""}), HelloResult::kPastGeneration);
}

}  // namespace
}  // namespace muster::transport
