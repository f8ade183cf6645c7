#include "common/push_pull/push_pull.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <numeric>
#include <random>
#include <thread>

#include "common/push_pull/wire.h"
#include "ps/server_connection.h"

namespace muster::ps {
namespace {

using ::testing::HasSubstr;
using transport::AbortSignal;
using transport::DataConnection;
using transport::FrameHeader;

constexpr uint64_t kLife = 77, kLayout = 5;

std::pair<std::unique_ptr<DataConnection>, std::unique_ptr<DataConnection>> Connect() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const auto make = [](int fd) {
    return std::make_unique<DataConnection>(transport::MakeTcpStream(fd),
                                            transport::ConnectionInfo{});
  };
  return {make(fds[0]), make(fds[1])};
}

MonotonicTime In(int seconds) { return Clock::now() + std::chrono::seconds(seconds); }

// One server with three chunks, of which one is large, and worker 1's connection to it.
class PushPullTest : public ::testing::Test {
 protected:
  PushPullTest() {
    options_.layout = kLayout;
    options_.chunks = {{0, 0, 4, 0}, {0, 4, 300004, 0}, {0, 300004, 300011, 0}};
    store_ = DenseStore::Make({options_.chunks, {SgdSpec{}}});
    for (int c = 0; c < 3; ++c) EXPECT_TRUE(store_->Fill(c, std::vector<float>(Size(c), 10)).ok());
    store_->Admit(1, kLife);
    Reconnect();
  }
  ~PushPullTest() override { Disconnect(); }

  void Reconnect() {
    Disconnect();
    std::tie(near_, far_) = Connect();
    server_ = std::thread([this] { served_ = Serve(*far_, *store_, options_, abort_); });
  }
  void Disconnect() {
    if (near_) near_->Shutdown();
    if (server_.joinable()) server_.join();
  }
  absl::Status Open(uint64_t layout = kLayout) {
    return OpenConnection(*near_, 1, kLife, layout, In(10), abort_);
  }
  size_t Size(int chunk) const { return options_.chunks[chunk].elements(); }
  // All chunks, each with a gradient of ones.
  std::vector<ChunkTransfer> Transfers() {
    std::vector<ChunkTransfer> transfers;
    for (int c = 0; c < 3; ++c) {
      gradients_[c].assign(Size(c), 1);
      parameters_[c].assign(Size(c), -1);
      transfers.push_back({c, gradients_[c], parameters_[c]});
    }
    return transfers;
  }
  absl::Status Transfer(uint64_t sequence, std::span<ChunkTransfer> transfers) {
    return PushPull(*near_, {sequence, 0.5, checksum_}, transfers, In(10), abort_);
  }
  // What the server says to a frame that PushPull would not send.
  std::string AnswerTo(FrameHeader header) {
    EXPECT_TRUE(near_->Exchange(std::as_bytes(std::span(&header, 1)), {}, In(10), abort_).ok());
    std::vector<ChunkTransfer> nothing = {{0, {}, parameters_[0]}};
    parameters_[0].resize(4);
    nothing[0].parameters = parameters_[0];
    return std::string(Message(PushPull(*near_, {}, nothing, In(10), abort_)));
  }

  ServeOptions options_;
  std::unique_ptr<DenseStore> store_;
  AbortSignal abort_;
  std::unique_ptr<DataConnection> near_, far_;
  std::thread server_;
  absl::Status served_;
  std::vector<float> gradients_[3], parameters_[3];
  bool checksum_ = false;
};

TEST_F(PushPullTest, WhatIsPushedIsInWhatIsPulled) {
  ASSERT_TRUE(Open().ok());
  for (const bool checksum : {false, true}) {
    checksum_ = checksum;
    auto transfers = Transfers();
    ASSERT_TRUE(Transfer(checksum ? 2 : 1, transfers).ok());
    for (const ChunkTransfer& t : transfers) {
      EXPECT_TRUE(t.done && t.result.applied);
      EXPECT_EQ(t.result.updates, checksum ? 2 : 1);
      EXPECT_THAT(t.parameters.front(), checksum ? 9 : 9.5);
      EXPECT_THAT(t.parameters.back(), t.parameters.front());
    }
  }
  auto pull = Transfers();
  for (ChunkTransfer& t : pull) t.gradient = {};
  ASSERT_TRUE(Transfer(0, pull).ok());
  EXPECT_FALSE(pull[0].result.applied);
  EXPECT_EQ(parameters_[1][299999], 9);
  auto push = Transfers();
  for (ChunkTransfer& t : push) t.parameters = {};
  ASSERT_TRUE(Transfer(3, push).ok());
  EXPECT_EQ(store_->Copy(2)->parameters[6], 8.5);
  Disconnect();
  EXPECT_TRUE(served_.ok()) << served_;
}

TEST_F(PushPullTest, APushThatWasCutOffIsResumedAndCountsOnce) {
  ASSERT_TRUE(Open().ok());
  auto transfers = Transfers();
  ASSERT_TRUE(Transfer(1, std::span(transfers).first(2)).ok());
  EXPECT_FALSE(transfers[2].done);
  transfers[1].done = false;  // its answer was lost
  Reconnect();
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Transfer(1, transfers).ok());
  EXPECT_FALSE(transfers[1].result.applied) << "it was in the chunk before";
  EXPECT_TRUE(transfers[2].result.applied);
  for (int c = 0; c < 3; ++c) EXPECT_EQ(store_->Copy(c)->updates, 1);
}

TEST_F(PushPullTest, WhatDoesNotFitIsToldAndChangesNothing) {
  ASSERT_TRUE(Open(kLayout + 1).ok());
  auto transfers = Transfers();
  EXPECT_THAT(std::string(Message(Transfer(1, transfers))), HasSubstr("has other variables"));
  Reconnect();
  EXPECT_THAT(AnswerTo(EncodeRequest({.pull = true}, 0)), HasSubstr("where 0x5001 belongs"));
  Reconnect();
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(AnswerTo(EncodeRequest({.chunk = 3, .pull = true}, 0)), HasSubstr("no chunk 3"));
  Reconnect();
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(AnswerTo(EncodeRequest({.chunk = 0, .push = true}, 1ull << 40)),
              HasSubstr("payload of 1099511627776 bytes, not 16"));
  Reconnect();
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(AnswerTo(EncodeRequest({}, 0)), HasSubstr("neither pushes nor pulls"));
  Reconnect();
  ASSERT_TRUE(Open().ok());
  FrameHeader damaged = EncodeRequest({.chunk = 0, .pull = true}, 0);
  damaged.body[8] ^= 1;
  EXPECT_THAT(AnswerTo(damaged), HasSubstr("damaged"));
  Reconnect();
  FrameHeader other = EncodeOpen({kLife, kLayout, 1});
  other.body[0] = 9;
  EXPECT_THAT(AnswerTo(other), HasSubstr("damaged"));
  for (int c = 0; c < 3; ++c) EXPECT_EQ(store_->Copy(c)->updates, 0);
}

TEST_F(PushPullTest, AWorkerThatWasLostIsRefused) {
  ASSERT_TRUE(Open().ok());
  store_->Expel(1);
  auto transfers = Transfers();
  const absl::Status status = Transfer(1, transfers);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("worker 1 was lost"));
}

TEST_F(PushPullTest, AnEmptyServerSaysSo) {
  Disconnect();
  store_ = DenseStore::Make({options_.chunks, {SgdSpec{}}});
  Reconnect();
  ASSERT_TRUE(Open().ok());
  auto transfers = Transfers();
  EXPECT_TRUE(absl::IsUnavailable(Transfer(1, transfers)));
}

TEST_F(PushPullTest, ADamagedGradientIsNotApplied) {
  ASSERT_TRUE(Open().ok());
  Request request{.chunk = 0, .push = true, .checksum = true, .sequence = 1, .payload_crc = 1};
  FrameHeader header = EncodeRequest(request, 16);
  const std::vector<float> gradient(4, 1);
  ASSERT_TRUE(near_->Exchange(std::as_bytes(std::span(&header, 1)), {}, In(10), abort_).ok());
  ASSERT_TRUE(near_->Exchange(std::as_bytes(std::span(gradient)), {}, In(10), abort_).ok());
  server_.join();
  EXPECT_THAT(std::string(Message(served_)), HasSubstr("damaged on its way"));
  EXPECT_EQ(store_->Copy(0)->updates, 0);
}

TEST_F(PushPullTest, NobodyWaitsForEver) {
  Disconnect();
  options_.idle = std::chrono::milliseconds(100);
  options_.stall = std::chrono::milliseconds(100);
  Reconnect();
  server_.join();  // no first frame
  EXPECT_TRUE(absl::IsDeadlineExceeded(served_)) << served_;
  Reconnect();
  ASSERT_TRUE(Open().ok());
  server_.join();  // no request
  EXPECT_THAT(std::string(Message(served_)), HasSubstr("worker 1 asked for nothing for 0.1 s"));
  // A server that does not answer.
  auto [near, far] = Connect();
  auto transfers = Transfers();
  const absl::Status status =
      PushPull(*near, {1, 0.5}, transfers, Clock::now() + std::chrono::milliseconds(50), abort_);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  Reconnect();
  ASSERT_TRUE(Open().ok());
  abort_.Set();
  server_.join();
  EXPECT_TRUE(absl::IsAborted(served_)) << served_;
}

// Frames of noise: whatever comes, the server ends in order and holds what it held.
TEST_F(PushPullTest, NoiseChangesNothing) {
  Disconnect();
  options_.stall = options_.idle = std::chrono::milliseconds(20);
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    Reconnect();
    if (round % 2 == 0) {
      ASSERT_TRUE(Open().ok());
    }
    std::vector<uint64_t> noise(random() % 40 + 1);
    for (uint64_t& word : noise) word = random();
    if (round % 3 == 0) {
      const FrameHeader real = EncodeRequest({.chunk = static_cast<uint32_t>(random() % 5)}, 16);
      std::memcpy(noise.data(), &real, std::min(sizeof real, noise.size() * 8));
    }
    (void)near_->Exchange(std::as_bytes(std::span(noise)), {}, In(1), abort_);
    server_.join();
    EXPECT_FALSE(served_.ok());
  }
  for (int c = 0; c < 3; ++c) EXPECT_EQ(store_->Copy(c)->updates, 0);
}

}  // namespace
}  // namespace muster::ps
