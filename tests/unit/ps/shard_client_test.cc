// Tests the chief's calls to ps tasks that transfer much data and may take long.
#include "chief/shards/shard_client.h"

#include <absl/synchronization/notification.h>
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "chief/shards/row_filler.h"
#include "chief/shards/server_rows.h"
#include "tests/unit/ps/ps_cluster.h"

namespace muster::ps {
namespace {

using ::testing::HasSubstr;

constexpr Duration kSilence = std::chrono::milliseconds(500);

std::unique_ptr<chief::ShardClient> ClientOf(const std::string& address) {
  chief::ShardClient::Options options;
  options.address = address;
  options.term = [] { return 1; };
  options.silence = kSilence;
  auto client = chief::ShardClient::Make(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

// A file of a checkpoint with the rows of one server, on a slow disk.
class SlowRows final : public checkpoint::RowSource {
 public:
  explicit SlowRows(int server) {
    for (uint64_t key = 0; keys_.size() < 8; ++key)
      if (push_pull::PlaceOfRow(key, 2).server == server) keys_.push_back(key);
    const auto rows = static_cast<int64_t>(keys_.size());
    tensors_ = {{"users.keys", checkpoint::DType::kInt64, {rows}},
                {"users.rows", checkpoint::DType::kFloat32, {rows, 1}},
                {"users.step", checkpoint::DType::kInt64, {}}};
  }
  const std::vector<checkpoint::TensorInfo>& tensors() const override { return tensors_; }
  absl::Status ReadBytes(size_t tensor, int64_t begin, int64_t bytes, char* out) const override {
    if (tensor == 0) {
      std::this_thread::sleep_for(2 * kSilence);
      std::memcpy(out, reinterpret_cast<const char*>(keys_.data()) + begin,
                  static_cast<size_t>(bytes));
    } else {
      std::memset(out, 0, static_cast<size_t>(bytes));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<uint64_t> keys_;
  std::vector<checkpoint::TensorInfo> tensors_;
};

// The stream of one server is idle while rows are sent to the other. Both are idle while the disk
// is read.
TEST(ShardClient, FillsTablesForLongerThanAServerMayBeSilent) {
  TestJob job;
  job.variables = {{"w", {40}, 0}, {"users", {0, 1}, 0}};
  job.variables[1].table = push_pull::TableSpec{1, 0, 0, 9};
  std::vector<std::unique_ptr<TestPs>> servers;
  std::vector<std::unique_ptr<chief::ShardClient>> clients;
  std::vector<std::unique_ptr<chief::ShardClient::Filling>> fillings;
  chief::RowFiller::Fillings by_shard;
  checkpoint::RowSources files;
  const push_pull::Layout layout = job.layout();
  for (int task : {0, 1}) {
    PsServiceOptions options;
    options.task = task;
    servers.push_back(std::make_unique<TestPs>(options));
    ASSERT_TRUE(servers[task]->Create(job.Create(task)).ok());
    clients.push_back(ClientOf(servers[task]->rpc_address()));
    fillings.push_back(clients[task]->Fill());
    by_shard[task] = {fillings[task].get()};
    files.push_back(std::make_shared<SlowRows>(task));
    for (const proto::ChunkContent& chunk : Content(job, task, 0))
      if (!layout.chunks[task][chunk.chunk()].rows()) {
        ASSERT_TRUE(fillings[task]->Write(chunk).ok());
      }
  }
  push_pull::EmbeddingTable::Options table{.width = 1, .rule = SgdSpec{}, .shards = 1};
  const absl::Status filled = chief::RowFiller(layout, by_shard).Fill({1, "users", table}, files);
  EXPECT_TRUE(filled.ok()) << filled;
  for (const auto& filling : fillings) {
    const absl::Status finished = filling->Finish();
    EXPECT_TRUE(finished.ok()) << finished;
  }
}

// A ps task that receives everything and replies only at the end of a stream.
class SilentPs final : public proto::ParameterServer::Service {
 public:
  grpc::Status Fill(grpc::ServerContext*, grpc::ServerReader<proto::FillRequest>*,
                    proto::FillReply*) override {
    end_.WaitForNotification();
    return grpc::Status::OK;
  }
  void End() { end_.Notify(); }

 private:
  absl::Notification end_;
};

TEST(ShardClient, DoesNotWaitForEverForASilentServer) {
  SilentPs silent;
  auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {&silent});
  ASSERT_TRUE(server.ok());
  const auto client = ClientOf(fmt::format("127.0.0.1:{}", (*server)->port()));
  const auto filling = client->Fill();
  ASSERT_TRUE(filling->Write({}).ok());
  const absl::Status finished = filling->Finish();
  EXPECT_TRUE(absl::IsDeadlineExceeded(finished)) << finished;
  EXPECT_THAT(std::string(finished.message()), HasSubstr("nothing passed for 0.5 s"));
  silent.End();
}

// A ps task that makes copies. A test can make its calls of Cut and Drop fail.
class CopyingPs final : public proto::ParameterServer::Service {
 public:
  grpc::Status Cut(grpc::ServerContext*, const proto::CutRequest* request,
                   proto::CutReply*) override {
    copy = request->name();
    return cut;
  }
  grpc::Status Drop(grpc::ServerContext*, const proto::DropRequest* request,
                    proto::DropReply*) override {
    ++drops;
    if (drop.ok() && copy == request->name()) copy.clear();
    return drop;
  }
  grpc::Status Beat(grpc::ServerContext*, const proto::BeatRequest*, proto::BeatReply*) override {
    return grpc::Status::OK;
  }
  std::string copy;
  int drops = 0;
  grpc::Status cut, drop;
};

TEST(ShardClient, ACopyThatCouldNotBeDroppedIsDroppedWithALaterBeat) {
  const grpc::Status away(grpc::StatusCode::UNAVAILABLE, "away");
  CopyingPs ps;
  auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {&ps});
  ASSERT_TRUE(server.ok());
  const auto client = ClientOf(fmt::format("127.0.0.1:{}", (*server)->port()));
  ASSERT_TRUE(client->Cut("step-5").ok());
  ps.drop = away;
  EXPECT_FALSE(client->Drop("step-5").ok());
  EXPECT_TRUE(client->Beat("").ok());
  EXPECT_EQ(ps.copy, "step-5");
  ps.drop = grpc::Status::OK;
  EXPECT_TRUE(client->Beat("").ok());
  EXPECT_EQ(ps.copy, "");
  EXPECT_TRUE(client->Beat("").ok());
  EXPECT_EQ(ps.drops, 3) << "there is none any more";

  // A copy made later under the same name is another copy.
  ps.drop = away;
  EXPECT_FALSE(client->Drop("step-5").ok());
  ps.drop = grpc::Status::OK;
  ASSERT_TRUE(client->Cut("step-5").ok());
  EXPECT_TRUE(client->Beat("").ok());
  EXPECT_EQ(ps.copy, "step-5");

  // The copy is made, but the chief does not receive the reply.
  ps.cut = away;
  EXPECT_FALSE(client->Cut("step-6").ok());
  EXPECT_TRUE(client->Beat("").ok());
  EXPECT_EQ(ps.copy, "");
}

// A ps task with a table of width 1. The value of a row is its key.
class RowsPs final : public proto::ParameterServer::Service {
 public:
  grpc::Status PullRows(grpc::ServerContext*, const proto::PullRowsRequest* request,
                        proto::PullRowsReply* reply) override {
    ++questions;
    const std::vector<float> rows(request->keys().begin(), request->keys().end());
    reply->set_rows(rows.data(), rows.size() * sizeof(float));
    return grpc::Status::OK;
  }
  int questions = 0;
};

TEST(ServerRows, AsksForNoMoreKeysThanAMessageHolds) {
  RowsPs ps;
  auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {&ps});
  ASSERT_TRUE(server.ok());
  const auto client = ClientOf(fmt::format("127.0.0.1:{}", (*server)->port()));
  const push_pull::EmbeddingTable::Options table{.width = 1, .rule = SgdSpec{}, .shards = 1};
  chief::ServerRows served(
      {{1, "users", table}}, 1, Duration::zero(),
      [&](int, bool) -> absl::StatusOr<chief::ShardClient*> { return client.get(); });
  std::vector<uint64_t> keys(300'000);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<float> rows(keys.size());
  const RowRead read{.table = 0, .keys = keys, .rows = rows};
  const absl::Status pulled = served.Pull({&read, 1});
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_TRUE(std::equal(keys.begin(), keys.end(), rows.begin()));
  EXPECT_EQ(ps.questions, 3);
}

}  // namespace
}  // namespace muster::ps
