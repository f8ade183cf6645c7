#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <random>
#include <thread>

#include "common/push_pull/shard_connection.h"
#include "common/push_pull/wire.h"
#include "ps/server_connection.h"

namespace muster::ps {
namespace {

using ::testing::HasSubstr;
using transport::AbortSignal;
using transport::DataConnection;
using transport::FrameHeader;

constexpr uint64_t kLife = 77, kLayout = 5, kView = 9;
constexpr Open kOpen{kLife, kLayout, kView, 1, 2};

std::pair<std::unique_ptr<DataConnection>, std::unique_ptr<DataConnection>> Connect() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const auto make = [](int fd) {
    return std::make_unique<DataConnection>(transport::MakeTcpStream(fd),
                                            transport::ConnectionInfo{kView, 1, 2});
  };
  return {make(fds[0]), make(fds[1])};
}

MonotonicTime In(int seconds) { return Clock::now() + std::chrono::seconds(seconds); }

// One server with three chunks, of which one is large, and worker 1's connection to it.
class PushPullTest : public ::testing::Test {
 protected:
  PushPullTest() {
    options_.layout = kLayout;
    options_.chunks = {{2, 0, 4, 0}, {2, 4, 300004, 0}, {2, 300004, 300011, 0}};
    store_ = DenseStore::Make({options_.chunks, {SgdSpec{}}});
    for (int c = 0; c < 3; ++c) EXPECT_TRUE(store_->Fill(c, std::vector<float>(Size(c), 10)).ok());
    store_->Admit(1, kLife);
    own_gradients_.assign(kElements, 1);
    gradients_ = own_gradients_;
    parameters_.assign(kElements, -1);
    Reconnect();
  }
  ~PushPullTest() override { Disconnect(); }

  void Reconnect() {
    Disconnect();
    std::tie(near_, far_) = Connect();
    server_ = std::thread([this] { served_ = Serve(*far_, *store_, options_, abort_); });
  }
  void Disconnect() {
    link_.reset();
    if (near_) near_->Shutdown();
    if (server_.joinable()) server_.join();
  }
  void Link(Open open = kOpen) {
    link_ = std::make_unique<ShardConnection>(
        std::move(near_), ShardConnection::Options{open, checksum_, compression_});
  }
  // With memory to share.
  void LinkShared() {
    if (!shared_) {
      shared_ = *transport::SharedMemory::Create(kElements * sizeof(float));
      gradients_ = shared_->floats();
      std::fill(gradients_.begin(), gradients_.end(), 1);
    }
    link_ = std::make_unique<ShardConnection>(
        std::move(near_),
        ShardConnection::Options{kOpen, checksum_, compression_, shared_.get(),
                                 *transport::SharedMemory::Create(kElements * sizeof(float))});
  }
  size_t Size(int chunk) const { return options_.chunks[chunk].elements(); }
  // All chunks, each with a gradient of ones. Parameters in several pieces.
  std::vector<ChunkRequest> Requests(uint64_t sequence) {
    std::vector<ChunkRequest> requests;
    for (int c = 0; c < 3; ++c) {
      const Chunk& chunk = options_.chunks[c];
      ChunkRequest& r = requests.emplace_back();
      r.chunk = c;
      r.offset = chunk.begin;
      r.elements = chunk.elements();
      r.gradient = gradients_.subspan(r.offset, r.elements);
      const std::span<float> place = std::span(parameters_).subspan(r.offset, r.elements);
      pieces_[c] = {place.first(1), place.subspan(1, r.elements / 3),
                    place.subspan(1 + r.elements / 3)};
      r.parameters = pieces_[c];
      r.sequence = sequence;
      r.learning_rate = 0.5;
    }
    return requests;
  }
  absl::StatusOr<std::vector<ChunkAnswer>> Transfer(const std::vector<ChunkRequest>& requests) {
    return Transfer(*link_, requests, In(10));
  }
  static absl::StatusOr<std::vector<ChunkAnswer>> Transfer(
      ShardConnection& link, const std::vector<ChunkRequest>& requests, MonotonicTime deadline) {
    for (const ChunkRequest& request : requests) link.Ask(request);
    std::vector<ChunkAnswer> answers;
    while (!link.idle()) {
      MUSTER_ASSIGN_OR_RETURN(const bool moved, link.Pump(&answers));
      if (moved) continue;
      pollfd polled{link.fd(), link.PollEvents(), 0};
      poll(&polled, 1, 20);
      if (Clock::now() > deadline) return DeadlinePassed("no answer");
    }
    return answers;
  }
  // What the server says to a frame that a ShardConnection would not send.
  std::string AnswerTo(FrameHeader header, bool open = true) {
    if (open) SendOpen();
    EXPECT_TRUE(near_->Exchange(std::as_bytes(std::span(&header, 1)), {}, In(10), abort_).ok());
    return ErrorFrom();
  }
  void SendOpen() {
    FrameHeader header = EncodeOpen(kOpen);
    EXPECT_TRUE(near_
                    ->Exchange(std::as_bytes(std::span(&header, 1)),
                               std::as_writable_bytes(std::span(&header, 1)), In(10), abort_)
                    .ok());
    EXPECT_TRUE(DecodeWelcome(header).ok());
  }
  std::string ErrorFrom() {
    FrameHeader header;
    EXPECT_TRUE(
        near_->Exchange({}, std::as_writable_bytes(std::span(&header, 1)), In(10), abort_).ok());
    EXPECT_TRUE(IsError(header));
    std::string message(header.payload_bytes, 0);
    EXPECT_TRUE(
        near_->Exchange({}, std::as_writable_bytes(std::span(message)), In(10), abort_).ok());
    return message;
  }

  static constexpr int64_t kElements = 300011;
  ServeOptions options_;
  std::unique_ptr<DenseStore> store_;
  AbortSignal abort_;
  std::unique_ptr<DataConnection> near_, far_;
  std::unique_ptr<ShardConnection> link_;
  std::thread server_;
  absl::Status served_;
  std::unique_ptr<transport::SharedMemory> shared_;
  std::vector<float> own_gradients_, parameters_;
  std::span<float> gradients_;
  std::vector<std::span<float>> pieces_[3];
  bool checksum_ = false;
  Compression compression_ = Compression::kNone;
};

TEST_F(PushPullTest, WhatIsPushedIsInWhatIsPulled) {
  uint64_t sequence = 0;
  float expected = 10;
  for (const bool checksum : {false, true}) {
    checksum_ = checksum;
    Reconnect();
    Link();
    const auto answers = Transfer(Requests(++sequence));
    ASSERT_TRUE(answers.ok()) << answers.status();
    ASSERT_EQ(answers->size(), 3u);
    expected -= 0.5f;
    for (int c = 0; c < 3; ++c) {
      const ChunkAnswer& answer = (*answers)[c];
      EXPECT_EQ(answer.request.chunk, c);
      EXPECT_TRUE(answer.pushed.applied);
      EXPECT_EQ(answer.pushed.updates, static_cast<int64_t>(sequence));
      EXPECT_EQ(answer.bytes, static_cast<int64_t>(Size(c) * 8));
    }
    EXPECT_EQ(parameters_, std::vector<float>(kElements, expected));
  }
  auto pull = Requests(0);
  for (ChunkRequest& r : pull) r.gradient = {};
  parameters_.assign(kElements, -1);
  const auto pulled = Transfer(pull);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_FALSE((*pulled)[0].pushed.applied);
  EXPECT_EQ(parameters_, std::vector<float>(kElements, 9));
  auto push = Requests(3);
  for (ChunkRequest& r : push) r.parameters = {};
  ASSERT_TRUE(Transfer(push).ok());
  EXPECT_EQ(store_->Copy(2)->parameters[6], 8.5);
  Disconnect();
  EXPECT_TRUE(served_.ok()) << served_;
}

TEST_F(PushPullTest, APushThatWasCutOffIsResumedAndCountsOnce) {
  Link();
  auto requests = Requests(1);
  ASSERT_TRUE(Transfer({requests[0], requests[1]}).ok());
  Reconnect();
  Link();
  const auto answers = Transfer({requests[1], requests[2]});  // the answer to one was lost
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_FALSE((*answers)[0].pushed.applied) << "it was in the chunk before";
  EXPECT_TRUE((*answers)[1].pushed.applied);
  for (int c = 0; c < 3; ++c) EXPECT_EQ(store_->Copy(c)->updates, 1);
  EXPECT_EQ(parameters_, std::vector<float>(kElements, 9.5));
}

TEST_F(PushPullTest, WhatDoesNotFitIsToldAndChangesNothing) {
  const auto refused = [&](Open open) {
    Reconnect();
    Link(open);
    return std::string(Message(Transfer(Requests(1)).status()));
  };
  EXPECT_THAT(refused({kLife, kLayout + 1, kView, 1, 2}), HasSubstr("has other variables"));
  EXPECT_THAT(refused({kLife, kLayout, kView + 1, 1, 2}), HasSubstr("this is shard 2 in view 0x9"));
  EXPECT_THAT(refused({kLife, kLayout, kView, 1, 1}), HasSubstr("came for shard 1"));
  const auto answer = [&](FrameHeader header, bool open = true) {
    Reconnect();
    return AnswerTo(header, open);
  };
  EXPECT_THAT(answer(EncodeRequest({.pull = true}, 0), false), HasSubstr("where 0x5001 belongs"));
  EXPECT_THAT(answer(EncodeRequest({.chunk = 3, .pull = true}, 0)), HasSubstr("no chunk 3"));
  EXPECT_THAT(answer(EncodeRequest({.chunk = 0, .push = true}, 1ull << 40)),
              HasSubstr("payload of 1099511627776 bytes, not 16"));
  EXPECT_THAT(
      answer(EncodeRequest({.chunk = 0, .push = true, .compression = Compression::kFloat16}, 16)),
      HasSubstr("payload of 16 bytes, not 8"));
  EXPECT_THAT(answer(EncodeRequest({.chunk = 0, .pull = true, .in_memory = true}, 0)),
              HasSubstr("shared memory, where none is"));
  EXPECT_THAT(answer(EncodeRequest({}, 0)), HasSubstr("neither pushes nor pulls"));
  FrameHeader damaged = EncodeRequest({.chunk = 0, .pull = true}, 0);
  damaged.body[8] ^= 1;
  EXPECT_THAT(answer(damaged), HasSubstr("damaged"));
  FrameHeader other = EncodeOpen(kOpen);
  other.body[0] = 9;
  EXPECT_THAT(answer(other, false), HasSubstr("damaged"));
  EXPECT_THAT(answer(EncodeOpen(kOpen, 1 << 20), false), HasSubstr("payload of 1048576 bytes"));
  EXPECT_THAT(answer(EncodeRequest({.chunk = 0, .push = true, .learning_rate = -1}, 0)),
              HasSubstr("payload of 0 bytes, not 16"));
  EXPECT_THAT(answer(EncodeRequest({.chunk = 0, .push = true, .rows = true}, 16)),
              HasSubstr("chunk 0 is of no embedding table"));
  // Each bit of a header is looked after.
  const FrameHeader good = EncodeRequest({.chunk = 0, .pull = true}, 0);
  for (size_t bit = 0; bit < 8 * sizeof good; bit += 7) {
    FrameHeader flipped = good;
    reinterpret_cast<unsigned char*>(&flipped)[bit / 8] ^= 1 << bit % 8;
    EXPECT_THAT(answer(flipped), HasSubstr("damaged")) << bit;
  }
  for (int c = 0; c < 3; ++c) EXPECT_EQ(store_->Copy(c)->updates, 0);
}

TEST_F(PushPullTest, AWorkerThatWasLostIsRefused) {
  Link();
  store_->Expel(1);
  const absl::Status status = Transfer(Requests(1)).status();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("worker 1 was lost"));
}

TEST_F(PushPullTest, AnEmptyServerSaysSo) {
  Disconnect();
  store_ = DenseStore::Make({options_.chunks, {SgdSpec{}}});
  Reconnect();
  Link();
  EXPECT_TRUE(absl::IsUnavailable(Transfer(Requests(1)).status()));
}

TEST_F(PushPullTest, ADamagedGradientIsNotApplied) {
  SendOpen();
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
  // Short is the limit alone that each part is about: the test's own steps take what they take.
  const ServeOptions patient = options_;
  Disconnect();
  options_.stall = std::chrono::milliseconds(100);
  Reconnect();
  server_.join();  // no first frame
  EXPECT_TRUE(absl::IsDeadlineExceeded(served_)) << served_;
  options_ = patient;
  options_.idle = std::chrono::milliseconds(100);
  Reconnect();
  SendOpen();
  server_.join();  // no request
  EXPECT_THAT(std::string(Message(served_)), HasSubstr("worker 1 asked for nothing for 0.1 s"));
  options_ = patient;
  Reconnect();
  SendOpen();
  abort_.Set();
  server_.join();
  EXPECT_TRUE(absl::IsAborted(served_)) << served_;
}

// Frames of noise: whatever comes, the server ends in order and holds what it held.
TEST_F(PushPullTest, NoiseChangesNothing) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    Reconnect();
    if (round % 2 == 0) SendOpen();
    std::vector<uint64_t> noise(random() % 40 + 1);
    for (uint64_t& word : noise) word = random();
    if (round % 3 == 0) {
      const FrameHeader real = EncodeRequest({.chunk = static_cast<uint32_t>(random() % 5)}, 16);
      std::memcpy(noise.data(), &real, std::min(sizeof real, noise.size() * 8));
    }
    (void)near_->Exchange(std::as_bytes(std::span(noise)), {}, In(10), abort_);
    near_->Shutdown();  // what is there is read before the end
    server_.join();
    EXPECT_FALSE(served_.ok());
  }
  for (int c = 0; c < 3; ++c) EXPECT_EQ(store_->Copy(c)->updates, 0);
}

TEST_F(PushPullTest, SharedMemoryGivesTheSameBits) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> results[2];
  for (const bool shared : {false, true}) {
    Disconnect();
    store_ = DenseStore::Make({options_.chunks, {ParseOptimizer(Json("adam"))->rule}});
    for (int c = 0; c < 3; ++c) EXPECT_TRUE(store_->Fill(c, std::vector<float>(Size(c), 10)).ok());
    store_->Admit(1, kLife);
    Reconnect();
    shared ? LinkShared() : Link();
    random.seed(3);
    normal.reset();
    for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
      for (float& g : gradients_) g = normal(random);
      const auto answers = Transfer(Requests(sequence));
      ASSERT_TRUE(answers.ok()) << answers.status();
    }
    EXPECT_EQ(link_->shares_memory(), shared);
    results[shared] = parameters_;
    Disconnect();
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(PushPullTest, MemoryThatCannotBeSharedIsDeclined) {
  Disconnect();
  options_.share_memory = false;
  Reconnect();
  LinkShared();
  ASSERT_TRUE(Transfer(Requests(1)).ok());
  EXPECT_FALSE(link_->shares_memory());
  EXPECT_EQ(link_->declined(), "the server does not share memory");
  EXPECT_EQ(parameters_, std::vector<float>(kElements, 9.5));
  options_.share_memory = true;
  // Of another length than the shard's.
  Reconnect();
  link_ = std::make_unique<ShardConnection>(
      std::move(near_), ShardConnection::Options{kOpen, false, Compression::kNone, shared_.get(),
                                                 *transport::SharedMemory::Create(4096)});
  ASSERT_TRUE(Transfer(Requests(2)).ok());
  EXPECT_THAT(link_->declined(), HasSubstr("4096 bytes, not 1200044"));
}

TEST_F(PushPullTest, WhatIsNotFiniteIsRefusedAndTheRestIsTaken) {
  for (const auto& [compression, in_memory] :
       {std::pair(Compression::kNone, false), std::pair(Compression::kNone, true),
        std::pair(Compression::kBFloat16, false), std::pair(Compression::kFloat16, false)}) {
    Disconnect();
    store_ = DenseStore::Make({options_.chunks, {SgdSpec{}}});
    for (int c = 0; c < 3; ++c) EXPECT_TRUE(store_->Fill(c, std::vector<float>(Size(c), 10)).ok());
    store_->Admit(1, kLife);
    compression_ = compression;
    Reconnect();
    in_memory ? LinkShared() : Link();
    std::ranges::fill(gradients_, 1.f);
    gradients_[options_.chunks[1].begin + 77] = std::nanf("");
    const auto answers = Transfer(Requests(1));
    ASSERT_TRUE(answers.ok()) << answers.status();
    for (int c = 0; c < 3; ++c) {
      EXPECT_EQ((*answers)[c].pushed.refused, c == 1);
      EXPECT_EQ((*answers)[c].pushed.applied, c != 1);
      EXPECT_EQ((*answers)[c].pushed.updates, c == 1 ? 0 : 1);
      EXPECT_EQ(parameters_[options_.chunks[c].begin], c == 1 ? 10 : 9.5f);
    }
    // The connection goes on; what is large and finite is none of it, whatever it is rounded to.
    std::ranges::fill(gradients_, 1e6f);
    const auto large = Transfer(Requests(2));
    ASSERT_TRUE(large.ok()) << large.status();
    for (const ChunkAnswer& answer : *large) EXPECT_TRUE(answer.pushed.applied);
  }
}

TEST_F(PushPullTest, CompressionRoundsToTheNearest) {
  for (const auto& [compression, bound] : {std::pair(Compression::kBFloat16, 1.0f / 256),
                                           std::pair(Compression::kFloat16, 1.0f / 2048)}) {
    Disconnect();
    store_ = DenseStore::Make({options_.chunks, {SgdSpec{}}});
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(-2, 2);
    std::vector<float> start(kElements);
    for (float& x : start) x = uniform(random);
    for (float& x : gradients_) x = uniform(random);
    for (int c = 0; c < 3; ++c)
      EXPECT_TRUE(
          store_->Fill(c, std::span(start).subspan(options_.chunks[c].begin, Size(c))).ok());
    store_->Admit(1, kLife);
    compression_ = compression;
    checksum_ = true;
    Reconnect();
    Link();
    const auto answers = Transfer(Requests(1));
    ASSERT_TRUE(answers.ok()) << answers.status();
    EXPECT_EQ((*answers)[1].bytes, static_cast<int64_t>(Size(1) * 4));
    for (int64_t i = 0; i < kElements; ++i) {
      const float exact = start[i] - 0.5f * gradients_[i];
      ASSERT_LE(std::abs(parameters_[i] - exact),
                bound * (std::abs(exact) + 0.5f * std::abs(gradients_[i])) + 1e-6f)
          << i;
    }
  }
}

}  // namespace
}  // namespace muster::ps
