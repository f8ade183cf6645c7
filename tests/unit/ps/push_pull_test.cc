#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <random>
#include <thread>

#include "common/push_pull/shard_connection.h"
#include "common/push_pull/wire.h"
#include "ps/server_connection.h"

namespace muster::push_pull {
namespace {

using ps::ShardStore;
using ::testing::HasSubstr;
using transport::AbortSignal;
using transport::DataConnection;
using transport::FrameHeader;

constexpr uint64_t kLife = 77, kLayout = 5, kView = 9;
constexpr Open kOpen{kWireVersion, 1, kLife, kLayout, kView, 2};

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
    store_ = ShardStore::Make({options_.chunks, {SgdSpec{}}});
    for (int c = 0; c < 3; ++c) EXPECT_TRUE(store_->Fill(c, std::vector<float>(Size(c), 10)).ok());
    store_->Admit(1, kLife);
    own_gradients_.assign(kElements, 1);
    gradients_ = own_gradients_;
    parameters_.assign(kElements, -1);
    for (const Chunk& chunk : options_.chunks) {
      const std::span<float> place = std::span(parameters_).subspan(chunk.begin, chunk.elements());
      const size_t third = place.size() / 3;
      pieces_.push_back({place.first(1), place.subspan(1, third), place.subspan(1 + third)});
    }
    Reconnect();
  }
  ~PushPullTest() override { Disconnect(); }

  void Reconnect() {
    Disconnect();
    std::tie(near_, far_) = Connect();
    server_ = std::thread([this] { served_ = ps::Serve(*far_, *store_, options_, abort_); });
  }
  void Disconnect() {
    link_.reset();
    if (near_) near_->Shutdown();
    if (server_.joinable()) server_.join();
  }
  void Link(Open open = kOpen) {
    link_ = std::make_unique<ShardConnection>(std::move(near_), LinkOptions(open));
  }
  ShardConnection::Options LinkOptions(Open open = kOpen) {
    return {open, checksum_, compression_, options_.chunks, pieces_};
  }
  // With memory to share.
  void LinkShared() {
    if (!shared_) {
      shared_ = *transport::SharedMemory::Create(kElements * sizeof(float));
      gradients_ = shared_->floats();
      std::fill(gradients_.begin(), gradients_.end(), 1);
    }
    ShardConnection::Options options = LinkOptions();
    options.gradients = shared_.get();
    options.memory = *transport::SharedMemory::Create(kElements * sizeof(float));
    options.traffic = traffic_;
    link_ = std::make_unique<ShardConnection>(std::move(near_), std::move(options));
  }
  size_t Size(int chunk) const { return options_.chunks[chunk].elements(); }
  // All chunks, each with a gradient of ones.
  std::vector<Transfer> Pushes(uint64_t sequence) {
    std::vector<Transfer> pushes;
    for (int c = 0; c < 3; ++c) {
      const Chunk& chunk = options_.chunks[c];
      pushes.push_back(
          {c,
           ChunkPush{
               {1, kLife, sequence}, 0, 0.5, gradients_.subspan(chunk.begin, chunk.elements())}});
    }
    return pushes;
  }
  absl::StatusOr<std::vector<ChunkAnswer>> Move(const std::vector<Transfer>& transfers) {
    return Move(*link_, transfers, In(10));
  }
  static absl::StatusOr<std::vector<ChunkAnswer>> Move(ShardConnection& link,
                                                       const std::vector<Transfer>& transfers,
                                                       MonotonicTime deadline) {
    for (const Transfer& transfer : transfers) link.Ask(transfer);
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
  // Returns the server's answer to a frame that a ShardConnection would not send.
  std::string AnswerTo(FrameHeader header, const std::vector<RequestPart>& parts,
                       bool open = true) {
    if (open) SendOpen();
    // In one piece: the server may close the connection after the header.
    std::vector<std::byte> out;
    for (const auto piece : {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(parts))})
      out.insert(out.end(), piece.begin(), piece.end());
    EXPECT_TRUE(near_->Exchange(out, {}, In(10), abort_).ok());
    return ErrorFrom();
  }
  void SendOpen() {
    FrameHeader header = EncodeOpen(kOpen, 0);
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
  ps::ServeOptions options_;
  std::unique_ptr<ShardStore> store_;
  AbortSignal abort_;
  std::unique_ptr<DataConnection> near_, far_;
  std::unique_ptr<ShardConnection> link_;
  std::thread server_;
  absl::Status served_;
  std::unique_ptr<transport::SharedMemory> shared_;
  std::shared_ptr<transport::Traffic> traffic_;  // Of the worker. May be null.
  std::vector<float> own_gradients_, parameters_;
  std::span<float> gradients_;
  std::vector<ShardConnection::Pieces> pieces_;  // of the parameters
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
    const auto answers = Move(Pushes(++sequence));
    ASSERT_TRUE(answers.ok()) << answers.status();
    ASSERT_EQ(answers->size(), 3u);
    expected -= 0.5f;
    for (int c = 0; c < 3; ++c) {
      const ChunkAnswer& answer = (*answers)[c];
      EXPECT_EQ(answer.transfer.chunk, c);
      EXPECT_TRUE(answer.pushed.applied);
      EXPECT_EQ(answer.pushed.updates, static_cast<int64_t>(sequence));
      EXPECT_EQ(answer.bytes, static_cast<int64_t>(Size(c) * 8));
    }
    EXPECT_EQ(parameters_, std::vector<float>(kElements, expected));
  }
  std::ranges::fill(parameters_, -1.f);
  const std::vector<Transfer> pulls = {{0, DensePull{}}, {1, DensePull{}}, {2, DensePull{}}};
  const auto pulled = Move(pulls);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_FALSE((*pulled)[0].pushed.applied);
  EXPECT_EQ(parameters_, std::vector<float>(kElements, 9));
  ASSERT_TRUE(Move(Pushes(3)).ok());
  EXPECT_EQ(store_->Copy(2)->parameters[6], 8.5);
  // Nothing is newer than that.
  std::ranges::fill(parameters_, -1.f);
  const auto newer = Move({{0, DensePull{3}}, {1, DensePull{2}}, {2, DensePull{3}}});
  ASSERT_TRUE(newer.ok()) << newer.status();
  EXPECT_EQ((*newer)[0].bytes, 0);
  EXPECT_EQ((*newer)[1].bytes, static_cast<int64_t>(Size(1) * 4));
  for (const ChunkAnswer& answer : *newer) EXPECT_EQ(answer.pushed.updates, 3);
  EXPECT_EQ(parameters_[0], -1);
  EXPECT_EQ(parameters_[4], 8.5);
  EXPECT_EQ(parameters_.back(), -1);
  Disconnect();
  EXPECT_TRUE(served_.ok()) << served_;
}

TEST_F(PushPullTest, APushThatWasCutOffIsResumedAndCountsOnce) {
  Link();
  auto requests = Pushes(1);
  ASSERT_TRUE(Move({requests[0], requests[1]}).ok());
  Reconnect();
  Link();
  const auto answers = Move({requests[1], requests[2]});  // the answer to one was lost
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_FALSE((*answers)[0].pushed.applied) << "it was in the chunk before";
  EXPECT_TRUE((*answers)[1].pushed.applied);
  for (int c = 0; c < 3; ++c) EXPECT_EQ(store_->Copy(c)->updates, 1);
  EXPECT_EQ(parameters_, std::vector<float>(kElements, 9.5));
}

TEST_F(PushPullTest, ARequestThatDoesNotFitIsReportedAndChangesNothing) {
  const auto refused = [&](Open open) {
    Reconnect();
    Link(open);
    return std::string(Message(Move(Pushes(1)).status()));
  };
  EXPECT_THAT(refused({kWireVersion, 1, kLife, kLayout + 1, kView, 2}),
              HasSubstr("has other variables"));
  EXPECT_THAT(refused({kWireVersion, 1, kLife, kLayout, kView + 1, 2}),
              HasSubstr("this is shard 2 in view 0x9"));
  EXPECT_THAT(refused({6, 1, kLife, kLayout, kView, 2}), HasSubstr("speaks version 6"));
  EXPECT_THAT(refused({kWireVersion, 1, kLife, kLayout, kView, 1}), HasSubstr("came for shard 1"));
  const auto answer = [&](FrameHeader header, bool open = true) {
    Reconnect();
    return AnswerTo(header, {}, open);
  };
  const auto request = [&](Request request, RequestPart part, uint64_t data) {
    Reconnect();
    return AnswerTo(EncodeRequest(request, {&part, 1}, data), {part});
  };
  const RequestPart part;
  EXPECT_THAT(answer(EncodeRequest({}, {&part, 1}, 0), false), HasSubstr("where 0x5001 belongs"));
  EXPECT_THAT(request({}, {.chunk = 3}, 0), HasSubstr("no chunk 3"));
  EXPECT_THAT(request({.operation = Operation::kPush}, {}, 1ull << 40),
              HasSubstr("1099511627776 bytes of data, not 16"));
  EXPECT_THAT(
      request({.operation = Operation::kPush, .compression = Compression::kFloat16}, {}, 16),
      HasSubstr("16 bytes of data, not 8"));
  EXPECT_THAT(request({.operation = Operation::kPush}, {.learning_rate = -1}, 0),
              HasSubstr("0 bytes of data, not 16"));
  EXPECT_THAT(request({.in_memory = true}, {}, 0), HasSubstr("shared memory, where none is"));
  EXPECT_THAT(answer(EncodeRequest({.operation = Operation(0)}, {&part, 1}, 0)),
              HasSubstr("asks a parameter server for operation 0"));
  EXPECT_THAT(answer(EncodeRequest({.operation = Operation(6)}, {&part, 1}, 0)),
              HasSubstr("asks a parameter server for operation 6"));
  EXPECT_THAT(answer(EncodeRequest({.in_memory = true, .compression = Compression::kFloat16},
                                   {&part, 1}, 0)),
              HasSubstr("more than one of these"));
  const std::vector<RequestPart> parts(2);
  EXPECT_THAT(answer(EncodeRequest({}, parts, 0)), HasSubstr("about 2 chunks has a payload of 48"));
  EXPECT_THAT(answer(EncodeRequest({}, {}, 0)), HasSubstr("about 0 chunks has a payload of 0"));
  FrameHeader damaged = EncodeRequest({}, {&part, 1}, 0);
  damaged.body[8] ^= 1;
  EXPECT_THAT(answer(damaged), HasSubstr("damaged"));
  FrameHeader other = EncodeOpen(kOpen, 0);
  other.body[0] = 9;
  EXPECT_THAT(answer(other, false), HasSubstr("damaged"));
  EXPECT_THAT(answer(EncodeOpen(kOpen, 1 << 20), false), HasSubstr("payload of 1048576 bytes"));
  EXPECT_THAT(request({.operation = Operation::kPushRows}, {}, 16),
              HasSubstr("chunk 0 is of no embedding table"));
  // Each bit of a header and of a part is looked after.
  const FrameHeader good = EncodeRequest({}, {&part, 1}, 0);
  for (size_t bit = 0; bit < 8 * sizeof good; bit += 7) {
    FrameHeader flipped = good;
    reinterpret_cast<unsigned char*>(&flipped)[bit / 8] ^= 1 << bit % 8;
    EXPECT_THAT(answer(flipped), HasSubstr("damaged")) << bit;
  }
  for (size_t bit = 0; bit < 8 * sizeof part; bit += 7) {
    RequestPart flipped = part;
    reinterpret_cast<unsigned char*>(&flipped)[bit / 8] ^= 1 << bit % 8;
    Reconnect();
    EXPECT_THAT(AnswerTo(good, {flipped}), HasSubstr("damaged")) << bit;
  }
  for (int c = 0; c < 3; ++c) EXPECT_EQ(store_->Copy(c)->updates, 0);
}

TEST_F(PushPullTest, AWorkerThatWasLostIsRefused) {
  Link();
  store_->Expel(1);
  const absl::Status status = Move(Pushes(1)).status();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("worker 1 was lost"));
}

TEST_F(PushPullTest, AnEmptyServerSaysSo) {
  Disconnect();
  store_ = ShardStore::Make({options_.chunks, {SgdSpec{}}});
  Reconnect();
  Link();
  EXPECT_TRUE(absl::IsUnavailable(Move(Pushes(1)).status()));
}

TEST_F(PushPullTest, ADamagedGradientIsNotApplied) {
  SendOpen();
  const Request request{
      .operation = Operation::kPush, .checksum = true, .sequence = 1, .data_crc = 1};
  const RequestPart part;
  const FrameHeader header = EncodeRequest(request, {&part, 1}, 16);
  const std::vector<float> gradient(4, 1);
  ASSERT_TRUE(near_->Exchange(std::as_bytes(std::span(&header, 1)), {}, In(10), abort_).ok());
  ASSERT_TRUE(near_->Exchange(std::as_bytes(std::span(&part, 1)), {}, In(10), abort_).ok());
  ASSERT_TRUE(near_->Exchange(std::as_bytes(std::span(gradient)), {}, In(10), abort_).ok());
  server_.join();
  EXPECT_THAT(std::string(Message(served_)), HasSubstr("damaged on its way"));
  EXPECT_EQ(store_->Copy(0)->updates, 0);
}

TEST_F(PushPullTest, NobodyWaitsForEver) {
  // Short is the limit alone that each part is about: the test's own steps take what they take.
  const ps::ServeOptions patient = options_;
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

// Frames of noise: after any of them the server ends in order, and its state is unchanged.
TEST_F(PushPullTest, NoiseChangesNothing) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    Reconnect();
    if (round % 2 == 0) SendOpen();
    std::vector<uint64_t> noise(random() % 40 + 1);
    for (uint64_t& word : noise) word = random();
    if (round % 3 == 0) {
      const RequestPart part{.chunk = static_cast<uint32_t>(random() % 5)};
      const FrameHeader real = EncodeRequest({}, {&part, 1}, 16);
      noise.resize(11 + noise.size());
      std::memcpy(noise.data(), &real, sizeof real);
      std::memcpy(noise.data() + 8, &part, sizeof part);
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
    transport::Traffic of_server;
    options_.shared_memory = &of_server;
    traffic_ = std::make_shared<transport::Traffic>();
    store_ = ShardStore::Make({options_.chunks, {ParseOptimizer(Json("adam"))->rule}});
    for (int c = 0; c < 3; ++c) EXPECT_TRUE(store_->Fill(c, std::vector<float>(Size(c), 10)).ok());
    store_->Admit(1, kLife);
    Reconnect();
    shared ? LinkShared() : Link();
    random.seed(3);
    normal.reset();
    for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
      for (float& g : gradients_) g = normal(random);
      const auto answers = Move(Pushes(sequence));
      ASSERT_TRUE(answers.ok()) << answers.status();
    }
    EXPECT_EQ(link_->shares_memory(), shared);
    results[shared] = parameters_;
    // Each push has all gradients, and each answer all parameters.
    const auto bytes = static_cast<int64_t>(shared ? 3 * kElements * sizeof(float) : 0);
    EXPECT_EQ(traffic_->sent, bytes);
    EXPECT_EQ(traffic_->received, bytes);
    Disconnect();
    EXPECT_EQ(of_server.sent, bytes);
    EXPECT_EQ(of_server.received, bytes);
    options_.shared_memory = nullptr;
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(PushPullTest, MemoryThatCannotBeSharedIsDeclined) {
  Disconnect();
  options_.share_memory = false;
  Reconnect();
  LinkShared();
  ASSERT_TRUE(Move(Pushes(1)).ok());
  EXPECT_FALSE(link_->shares_memory());
  EXPECT_EQ(link_->declined(), "the server does not share memory");
  EXPECT_EQ(parameters_, std::vector<float>(kElements, 9.5));
  options_.share_memory = true;
  // Shared memory of another length than the shard's.
  Reconnect();
  ShardConnection::Options options = LinkOptions();
  options.gradients = shared_.get();
  options.memory = *transport::SharedMemory::Create(4096);
  link_ = std::make_unique<ShardConnection>(std::move(near_), std::move(options));
  ASSERT_TRUE(Move(Pushes(2)).ok());
  EXPECT_THAT(link_->declined(), HasSubstr("4096 bytes, not 1200044"));
}

TEST_F(PushPullTest, WhatIsNotFiniteIsRefusedAndTheRestIsTaken) {
  for (const auto& [compression, in_memory] :
       {std::pair(Compression::kNone, false), std::pair(Compression::kNone, true),
        std::pair(Compression::kBFloat16, false), std::pair(Compression::kFloat16, false)}) {
    Disconnect();
    store_ = ShardStore::Make({options_.chunks, {SgdSpec{}}});
    for (int c = 0; c < 3; ++c) EXPECT_TRUE(store_->Fill(c, std::vector<float>(Size(c), 10)).ok());
    store_->Admit(1, kLife);
    compression_ = compression;
    Reconnect();
    in_memory ? LinkShared() : Link();
    std::ranges::fill(gradients_, 1.f);
    gradients_[options_.chunks[1].begin + 77] = std::nanf("");
    const auto answers = Move(Pushes(1));
    ASSERT_TRUE(answers.ok()) << answers.status();
    for (int c = 0; c < 3; ++c) {
      EXPECT_EQ((*answers)[c].pushed.refused, c == 1);
      EXPECT_EQ((*answers)[c].pushed.applied, c != 1);
      EXPECT_EQ((*answers)[c].pushed.updates, c == 1 ? 0 : 1);
      EXPECT_EQ(parameters_[options_.chunks[c].begin], c == 1 ? 10 : 9.5f);
    }
    // The connection stays usable. A large finite gradient is applied, also if rounding makes it
    // infinite.
    std::ranges::fill(gradients_, 1e6f);
    const auto large = Move(Pushes(2));
    ASSERT_TRUE(large.ok()) << large.status();
    for (const ChunkAnswer& answer : *large) EXPECT_TRUE(answer.pushed.applied);
  }
}

TEST_F(PushPullTest, CompressionRoundsToTheNearest) {
  for (const auto& [compression, bound] : {std::pair(Compression::kBFloat16, 1.0f / 256),
                                           std::pair(Compression::kFloat16, 1.0f / 2048)}) {
    Disconnect();
    store_ = ShardStore::Make({options_.chunks, {SgdSpec{}}});
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
    const auto answers = Move(Pushes(1));
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
}  // namespace muster::push_pull
