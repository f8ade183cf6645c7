// Rows of several tables on one connection: how they share frames, and what either end refuses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <cmath>
#include <cstring>
#include <list>
#include <thread>

#include "common/base/files/crc32c.h"
#include "common/push_pull/rows/packed_rows.h"
#include "common/push_pull/rows/row_pull.h"
#include "common/push_pull/shard_connection.h"
#include "ps/server_connection.h"

namespace muster::push_pull {
namespace {

using ::testing::HasSubstr;
using transport::DataConnection;
using transport::FrameHeader;

constexpr uint64_t kLife = 77, kLayout = 5, kView = 9;
constexpr Open kOpen{kWireVersion, 1, kLife, kLayout, kView, 2};
constexpr int64_t kWidths[] = {0, 3, 3, 2};  // by chunk

MonotonicTime In(int seconds) { return Clock::now() + std::chrono::seconds(seconds); }

// One chunk of no table, two of a table of width 3 and one of a table of width 2.
class RowFrames : public ::testing::Test {
 protected:
  RowFrames() {
    options_.layout = kLayout;
    options_.chunks = {{2, 0, 4, 0}, {2, 4, 4, 0, 1}, {2, 4, 4, 0, 1}, {2, 4, 4, 0, 2}};
    options_.widths = {{1, 3}, {2, 2}};
    const auto table = [](int64_t width) {
      return EmbeddingTable::Options{
          .width = width, .initializer = {Initializer::Kind::kZeros}, .rule = SgdSpec{}};
    };
    store_ = ps::ShardStore::Make({options_.chunks, {SgdSpec{}}, {{1, table(3)}, {2, table(2)}}});
    EXPECT_TRUE(store_->Fill(0, std::vector<float>(4, 10)).ok());
    for (int c = 1; c < 4; ++c) EXPECT_TRUE(store_->Fill(c, {}).ok());
    store_->Admit(1, kLife);
  }
  ~RowFrames() override { Disconnect(); }

  void Connect() {
    Disconnect();
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    const auto make = [](int fd) {
      return std::make_unique<DataConnection>(transport::MakeTcpStream(fd),
                                              transport::ConnectionInfo{kView, 1, 2});
    };
    near_ = make(fds[0]);
    far_ = make(fds[1]);
  }
  void Disconnect() {
    link_.reset();
    if (near_) near_->Shutdown();
    if (server_.joinable()) server_.join();
  }
  void StartServer() {
    server_ = std::thread([this] { served_ = ps::Serve(*far_, *store_, options_, abort_); });
  }
  void Link() {
    link_ = std::make_unique<ShardConnection>(
        std::move(near_),
        ShardConnection::Options{kOpen, true, Compression::kNone, options_.chunks, parameters_});
  }
  absl::StatusOr<std::vector<ChunkAnswer>> Move(const std::vector<Transfer>& transfers) {
    for (const Transfer& transfer : transfers) link_->Ask(transfer);
    return Answers();
  }
  absl::StatusOr<std::vector<ChunkAnswer>> Answers() {
    std::vector<ChunkAnswer> answers;
    const MonotonicTime deadline = In(10);
    while (!link_->idle()) {
      MUSTER_ASSIGN_OR_RETURN(const bool moved, link_->Pump(&answers));
      if (moved) continue;
      pollfd polled{link_->fd(), link_->PollEvents(), 0};
      poll(&polled, 1, 20);
      if (Clock::now() > deadline) return DeadlinePassed("no answer");
    }
    return answers;
  }
  Transfer Push(int chunk, uint64_t sequence, const std::vector<uint64_t>& keys, float gradient) {
    packed_.push_back(PackRows(keys, std::vector<float>(keys.size() * kWidths[chunk], gradient)));
    return {chunk, ChunkPush{{1, kLife, sequence}, 0, 0.5, packed_.back()}};
  }
  Transfer Pull(int chunk, const std::vector<uint64_t>& keys) {
    keys_.push_back(keys);
    RowPull& pull = pulls_.emplace_back();
    pull.keys = keys_.back();
    pull.rows = rows_.emplace_back(keys.size() * kWidths[chunk], -1.f);
    return {chunk, &pull};
  }

  // ---- A server by hand
  template <typename T>
  T Receive() {
    T value{};
    EXPECT_TRUE(
        far_->Exchange({}, std::as_writable_bytes(std::span(&value, 1)), In(10), abort_).ok());
    return value;
  }
  void Send(std::span<const std::byte> bytes) {
    EXPECT_TRUE(far_->Exchange(bytes, {}, In(10), abort_).ok());
  }
  void Welcome() {
    EXPECT_TRUE(DecodeOpen(Receive<FrameHeader>()).ok());
    std::string none;
    const FrameHeader welcome = EncodeWelcome({}, &none);
    Send(std::as_bytes(std::span(&welcome, 1)));
  }
  // The next request, answered as if there were no rows.
  std::pair<Request, std::vector<RequestPart>> AnswerOne() {
    const FrameHeader header = Receive<FrameHeader>();
    const Request request = *DecodeRequest(header);
    std::vector<RequestPart> parts;
    std::vector<ReplyPart> replies;
    size_t elements = 0;
    for (uint32_t i = 0; i < request.parts; ++i) {
      parts.push_back(Receive<RequestPart>());
      replies.push_back({parts[i].chunk});
      elements += IsPush(request.operation) ? 0 : parts[i].count * kWidths[parts[i].chunk];
    }
    std::vector<std::byte> data(header.payload_bytes - parts.size() * sizeof(RequestPart));
    EXPECT_TRUE(far_->Exchange({}, data, In(10), abort_).ok());
    EXPECT_EQ(Crc32c(data), request.data_crc);
    const std::vector<float> rows(elements, 4);
    const FrameHeader reply = EncodeReply({}, replies, elements * sizeof(float));
    Send(std::as_bytes(std::span(&reply, 1)));
    Send(std::as_bytes(std::span(replies)));
    Send(std::as_bytes(std::span(rows)));
    return {request, parts};
  }

  // ---- A worker by hand: what the server says.
  std::string Refusal(const Request& request, const std::vector<RequestPart>& parts, uint64_t bytes,
                      std::span<const std::byte> data = {}) {
    Connect();
    StartServer();
    FrameHeader header = EncodeOpen(kOpen, 0);
    const auto exchange = [this](std::span<const std::byte> out, std::span<std::byte> in) {
      EXPECT_TRUE(near_->Exchange(out, in, In(10), abort_).ok());
    };
    exchange(std::as_bytes(std::span(&header, 1)), std::as_writable_bytes(std::span(&header, 1)));
    header = EncodeRequest(request, parts, bytes);
    // In one piece: the server may close the connection after the header.
    std::vector<std::byte> out;
    for (const auto piece :
         {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(parts)), data})
      out.insert(out.end(), piece.begin(), piece.end());
    exchange(out, std::as_writable_bytes(std::span(&header, 1)));
    EXPECT_TRUE(IsError(header));
    std::string message(header.payload_bytes, 0);
    exchange({}, std::as_writable_bytes(std::span(message)));
    server_.join();
    EXPECT_FALSE(served_.ok());
    return message;
  }

  ps::ServeOptions options_;
  std::unique_ptr<ps::ShardStore> store_;
  const std::vector<ShardConnection::Pieces> parameters_ = std::vector<ShardConnection::Pieces>(4);
  transport::AbortSignal abort_;
  std::unique_ptr<DataConnection> near_, far_;
  std::unique_ptr<ShardConnection> link_;
  std::thread server_;
  absl::Status served_;
  std::list<std::vector<float>> packed_, rows_;
  std::list<std::vector<uint64_t>> keys_;
  std::list<RowPull> pulls_;
};

TEST_F(RowFrames, OneFrameForAllTablesOfAPullAndOfAPush) {
  Connect();
  Link();
  std::vector<std::pair<Request, std::vector<RequestPart>>> requests;
  std::thread server([&] {
    Welcome();
    for (int i = 0; i < 3; ++i) requests.push_back(AnswerOne());
  });
  const auto answers = Move({Pull(1, {7, 8}), Pull(3, {9}), Pull(1, {}), Push(1, 1, {7}, 1),
                             Push(2, 1, {}, 1), Push(3, 1, {9, 10}, 1), Push(1, 2, {7}, 1)});
  server.join();
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(answers->size(), 7u);
  EXPECT_EQ(requests[0].first.operation, Operation::kPullRows);
  ASSERT_EQ(requests[0].second.size(), 3u);
  EXPECT_EQ(requests[0].second[1].chunk, 3u);
  EXPECT_EQ(requests[0].second[1].count, 1u);
  EXPECT_EQ(requests[1].first.operation, Operation::kPushRows);
  EXPECT_EQ(requests[1].first.sequence, 1u);
  EXPECT_EQ(requests[1].second.size(), 3u);
  EXPECT_EQ(requests[2].first.sequence, 2u) << "another push is another frame";
  EXPECT_EQ(rows_.front(), std::vector<float>(6, 4)) << "rows come to their own places";
}

TEST_F(RowFrames, WhatIsLargeTravelsInSeveral) {
  std::vector<uint64_t> many(25'000);  // 300 kB of rows
  for (size_t i = 0; i < many.size(); ++i) many[i] = i;
  Connect();
  Link();
  std::vector<size_t> parts;
  std::thread server([&] {
    Welcome();
    for (int i = 0; i < 3; ++i) parts.push_back(AnswerOne().second.size());
  });
  const auto answers = Move({Pull(1, many), Pull(2, many), Pull(1, {1}), Push(1, 1, many, 1)});
  server.join();
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(parts, (std::vector<size_t>{1, 2, 1}));
}

TEST_F(RowFrames, EachChunkHasAnAnswerOfItsOwn) {
  Connect();
  StartServer();
  Link();
  auto answers = Move({Push(1, 1, {7, 8}, 1), Push(3, 1, {9}, std::nanf("")), Push(2, 1, {}, 1)});
  ASSERT_TRUE(answers.ok()) << answers.status();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*answers)[i].pushed.refused, i == 1);
    EXPECT_EQ((*answers)[i].pushed.applied, i != 1);
    EXPECT_EQ((*answers)[i].pushed.updates, i == 1 ? 0 : 1);
  }
  // Sent again, with one that is new: each counts once.
  answers = Move({Push(1, 1, {7, 8}, 1), Push(3, 1, {9}, 2), Pull(3, {9, 10}), Pull(1, {8})});
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_FALSE((*answers)[0].pushed.applied);
  EXPECT_TRUE((*answers)[1].pushed.applied);
  EXPECT_EQ(rows_.front(), (std::vector<float>{-1, -1, 0, 0}));
  EXPECT_EQ(rows_.back(), (std::vector<float>{-0.5, -0.5, -0.5}));
  EXPECT_EQ((*answers)[2].pushed.updates, 1);
}

TEST_F(RowFrames, AServerRefusesWhatDoesNotFitAndChangesNothing) {
  const Request push{.operation = Operation::kPushRows, .sequence = 1},
      pull{.operation = Operation::kPullRows};
  const std::vector<float> ones(8, 1);
  const auto data = std::as_bytes(std::span(ones));
  // The first part would do, each time.
  const RequestPart good{1, 5, 0, 0.5};
  EXPECT_THAT(Refusal(push, {good, {4, 5, 0, 0.5}}, 40), HasSubstr("no chunk 4"));
  EXPECT_THAT(Refusal(push, {good, {0, 4, 0, 0.5}}, 36), HasSubstr("chunk 0 is of no embedding"));
  EXPECT_THAT(Refusal(push, {good, {3, 3, 0, 0.5}}, 32),
              HasSubstr("chunk 3: 3 elements are no whole number of rows of width 2"));
  EXPECT_THAT(Refusal(push, {good, {3, 4, 0, 0.5}}, 32), HasSubstr("32 bytes of data, not 36"));
  EXPECT_THAT(Refusal(push, {good, {3, 4, 0, 0.5}}, 40), HasSubstr("40 bytes of data, not 36"));
  EXPECT_THAT(Refusal(push, {{3, ~0u - 3, 0, 0.5}}, 16), HasSubstr("16 bytes of data, not 171798"));
  EXPECT_THAT(Refusal(push, {good}, kMaxRowBytes), HasSubstr("has a payload of 268435480 bytes"));
  EXPECT_THAT(Refusal(pull, {{1, 3}, {3, 2}}, 32), HasSubstr("32 bytes of data, not 40"));
  EXPECT_THAT(Refusal(pull, {{1, ~0u}}, 8), HasSubstr("are asked for at once"));
  EXPECT_THAT(Refusal(pull, {{1, 12'000'000}, {1, 12'000'000}}, 8),
              HasSubstr("are asked for at once"));
  EXPECT_THAT(Refusal({.operation = Operation::kPush}, {{1}}, 0),
              HasSubstr("chunk 1 is of an embedding table"));
  Request request = push;
  request.compression = Compression::kFloat16;
  EXPECT_THAT(Refusal(request, {good}, 20), HasSubstr("more than one of these"));
  request = push;
  request.checksum = true;
  EXPECT_THAT(Refusal(request, {good}, 20, data.first(20)), HasSubstr("damaged on its way"));
  for (int c = 0; c < 4; ++c) EXPECT_EQ(store_->chunk_version(c).updates, 0);
  // A header that speaks of more parts than the payload has room for.
  FrameHeader header = EncodeRequest(pull, std::vector<RequestPart>(2), 0);
  header.payload_bytes = 24;
  EXPECT_FALSE(DecodeRequest(header).ok());
  const std::vector<RequestPart> many(kMaxParts + 1);
  EXPECT_FALSE(DecodeRequest(EncodeRequest(pull, many, 0)).ok());
  EXPECT_THAT(Refusal(pull, std::vector<RequestPart>(), 8), HasSubstr("about 0 chunks"));
}

TEST_F(RowFrames, AWorkerRefusesAnswersThatItDidNotAskFor) {
  struct Bad {
    std::vector<ReplyPart> parts;
    size_t data = 0;
    const char* sentence = "";
    bool damage = false;
  };
  const std::vector<Bad> all = {
      {{{1}}, 24, "answered 48 bytes about 1 chunks, where 80 about 2 were asked for"},
      {{{1}, {3}, {3}}, 32, "about 3 chunks"},
      {{{1}, {3}}, 28, "answered 76 bytes about 2 chunks, where 80"},
      {{{1}, {3}}, 0, "answered 48 bytes about 2 chunks, where 80"},
      {{{1}, {3}}, 1ull << 40, "where 80 about 2"},
      {{{3}, {1}}, 32, "answered about chunk 3, asked about 1"},
      {{{1}, {3, 0, 0, 1}}, 32, "without the parameters of chunk 3"},
      {{{1}, {3}}, 32, "damaged", true},
  };
  for (const Bad& bad : all) {
    Connect();
    Link();
    std::thread server([&] {
      Welcome();
      (void)Receive<FrameHeader>();
      FrameHeader reply = EncodeReply({}, bad.parts, bad.data);
      std::vector<ReplyPart> parts = bad.parts;
      if (bad.damage) parts[1].updates = 5;
      std::vector<std::byte> data(std::min<size_t>(bad.data, 1024));
      Send(std::as_bytes(std::span(&reply, 1)));
      Send(std::as_bytes(std::span(parts)));
      Send(data);
    });
    const absl::Status status = Move({Pull(1, {7, 8}), Pull(3, {9})}).status();
    server.join();
    EXPECT_THAT(std::string(Message(status)), HasSubstr(bad.sentence));
  }
  // Before anything is asked.
  Connect();
  Link();
  std::thread server([&] {
    Welcome();
    const FrameHeader reply = EncodeReply({}, {}, 0);
    Send(std::as_bytes(std::span(&reply, 1)));
  });
  absl::Status status;
  std::vector<ChunkAnswer> answers;
  for (const MonotonicTime deadline = In(10); status.ok() && Clock::now() < deadline;)
    status = link_->Pump(&answers).status();
  server.join();
  EXPECT_THAT(std::string(Message(status)), HasSubstr("answered what it was not asked"));
}

}  // namespace
}  // namespace muster::push_pull
