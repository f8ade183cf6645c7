#include "deploy/hosts/host_input.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "deploy/hosts/messages.h"

namespace muster::hosts {
namespace {

class Input : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    read_end_ = Fd(ends[0]);
    input_.Open(Fd(ends[1]));
  }
  std::string Read() {
    std::string text(1 << 20, ' ');
    const ssize_t size = read(read_end_.get(), text.data(), text.size());
    text.resize(size < 0 ? 0 : static_cast<size_t>(size));
    return text;
  }

  Fd read_end_;
  HostInput input_;
};

TEST_F(Input, KeepsWhatThePipeDoesNotTake) {
  const std::string much(200'000, 'x');
  input_.Write(much);
  EXPECT_GE(input_.waiting(), 0);
  std::string got = Read();
  EXPECT_LT(got.size(), much.size());
  while (input_.waiting() >= 0) {
    input_.Flush();
    got += Read();
  }
  EXPECT_EQ(got, much);
}

TEST_F(Input, PingsWhenNothingElseWasWritten) {
  const MonotonicTime later = Clock::now() + kPingEvery + std::chrono::minutes(1);
  input_.Ping(later);
  EXPECT_EQ(Read(), "");  // Nobody takes messages yet.
  input_.SetPings(true);
  input_.Write("a\n");
  EXPECT_EQ(Read(), "a\n");
  input_.Ping(Clock::now());
  EXPECT_EQ(Read(), "");
  input_.Ping(later);
  EXPECT_EQ(Read(), Dump(Ping()) + "\n");
  input_.Close();
  input_.Ping(later);
  EXPECT_EQ(input_.waiting(), -1);
}

}  // namespace
}  // namespace muster::hosts
