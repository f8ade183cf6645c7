// What a stranger may ask of a parameter server: it costs a bounded amount.
#include <limits>
#include <thread>

#include "chief/shard_client.h"
#include "ps/service.h"
#include "tests/unit/ps/ps_cluster.h"
#include "tests/unit/transport/test_authority.h"

namespace muster::ps {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class HostileTest : public ::testing::Test {
 protected:
  HostileTest() : ps_(Options()) {}
  static PsServiceOptions Options() {
    PsServiceOptions options;
    options.task = 0;
    options.bulk = {.most = 2, .silence = milliseconds(500), .standstill = milliseconds(100)};
    return options;
  }
  std::string Refused(const std::vector<VariableSpec>& variables, const std::string& options = "") {
    proto::CreateRequest request = job_.Create(0);
    *request.mutable_variables() = ToMessages(variables);
    if (!options.empty()) request.set_parameter_server(options);
    const auto created = ps_.Create(request);
    EXPECT_FALSE(created.ok());
    return std::string(created.status().message());
  }

  TestJob job_;
  TestPs ps_;
};

// A Fill that says nothing, or one that stops in the middle.
class SilentFill {
 public:
  explicit SilentFill(TestPs& ps) : context_(rpc::WithDeadline(kLong)) {
    writer_ = ps.stub().Fill(context_.get(), &reply_);
  }
  ~SilentFill() { context_->TryCancel(); }
  bool Write(const proto::ChunkContent& chunk) {
    proto::FillRequest request;
    request.set_epoch(1);
    *request.mutable_chunk() = chunk;
    return writer_->Write(request);
  }
  grpc::Status End() { return writer_->Finish(); }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  proto::FillReply reply_;
  std::unique_ptr<grpc::ClientWriter<proto::FillRequest>> writer_;
};

TEST_F(HostileTest, ShapesWhoseProductsOverflowAreRefused) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(Refused({{"w", {huge, huge}, 0}}), HasSubstr("elements together"));
  EXPECT_THAT(Refused({{"w", {std::numeric_limits<int64_t>::max(), 3}, 0}}),
              HasSubstr("elements together"));
  EXPECT_THAT(Refused({{"w", {-1}, 0}}), HasSubstr("negative size"));
}

TEST_F(HostileTest, PartsAndChunksAreCountedBeforeTheyAreMade) {
  const int64_t many = int64_t{1} << 40;
  EXPECT_THAT(Refused({{"w", {many}, 0}}, R"({"chunk_bytes": 4})"), HasSubstr("more than"));
  EXPECT_THAT(
      Refused({{"w", {many}, 0}}, R"({"partitioner": {"name": "fixed", "parts": 1000000000000}})"),
      HasSubstr("more than"));
}

TEST_F(HostileTest, JsonThatIsNestedDeepIsRefused) {
  EXPECT_THAT(Refused(job_.variables, std::string(100'000, '[')), HasSubstr("nested deeper"));
}

TEST_F(HostileTest, AnEpochThatNoRunHasReachedIsRefusedAtFirstToo) {
  proto::CreateRequest request = job_.Create(0);
  request.set_epoch(std::numeric_limits<uint32_t>::max());
  EXPECT_THAT(std::string(ps_.Create(request).status().message()),
              HasSubstr("no run has had so many chiefs"));
  ASSERT_TRUE(ps_.Create(job_.Create(0)).ok());
  EXPECT_TRUE(ps_.Beat("", 1'000'001).ok());
  EXPECT_FALSE(ps_.Beat("", 2'000'001).ok()) << "many steps are a jump too";
}

TEST_F(HostileTest, ASilentFillIsCancelled) {
  ASSERT_TRUE(ps_.Create(job_.Create(0)).ok());
  const MonotonicTime start = Clock::now();
  SilentFill silent(ps_);
  EXPECT_EQ(silent.End().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
}

TEST_F(HostileTest, OneThatStandsStillGivesWay) {
  ASSERT_TRUE(ps_.Create(job_.Create(0)).ok());
  SilentFill first(ps_), second(ps_);
  // Both are under way, each on a thread.
  std::this_thread::sleep_for(milliseconds(200));
  const auto filled = ps_.Fill(Content(job_, 0, 1));
  EXPECT_TRUE(filled.ok()) << filled.status();
}

// What a server takes in one message is bounded: the chief sends large chunks in pieces.
TEST_F(HostileTest, AChunkComesInPieces) {
  job_.variables = {{"w", {1 << 20}, 0}};
  job_.servers = 1;
  job_.optimizer = R"({"name": "sgd", "momentum": 0.5})";
  job_.parameter_server = R"({"chunk_bytes": 4194304})";
  ASSERT_TRUE(ps_.Create(job_.Create(0)).ok());
  ChunkState state;
  for (int i = 0; i < 1 << 20; ++i) {
    state.parameters.push_back(static_cast<float>(i));
    if (i == 0) state.slots.emplace_back();
    state.slots[0].push_back(static_cast<float>(-i));
  }
  state.updates = 3;
  state.last[0] = {7, 9};
  const proto::ChunkContent content = ContentOf(0, 0, state);
  EXPECT_THAT(std::string(ps_.Fill({content}).status().message()), HasSubstr("larger than max"));
  ShardClient::Options options;
  options.address = ps_.rpc_address();
  options.epoch = [] { return 1; };
  const auto client = *ShardClient::Make(options);
  const auto filling = client->Fill();
  ASSERT_TRUE(filling->Write(content).ok());
  const absl::Status filled = filling->Finish();
  ASSERT_TRUE(filled.ok()) << filled;
  proto::View view;
  view.set_number(1ull << 32 | 1);
  view.set_ticket("ticket");
  proto::ShardPlace& place = *view.add_shards();
  place.set_primary_address(ps_.address());
  place.set_backup(-1);
  ASSERT_TRUE(ps_.SetView(view).ok());
  ASSERT_TRUE(ps_.Cut("a").ok());
  const auto read = ps_.Read("a", 0);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1u);
  EXPECT_EQ(read->front().SerializeAsString(), content.SerializeAsString());
}

TEST_F(HostileTest, PiecesMakeNoMoreThanTheirChunkHolds) {
  ASSERT_TRUE(ps_.Create(job_.Create(0)).ok());
  proto::ChunkContent piece = Content(job_, 0, 1)[0];
  piece.set_more(true);
  EXPECT_THAT(std::string(ps_.Fill({piece, piece}).status().message()), HasSubstr("and more came"));
  EXPECT_THAT(std::string(ps_.Fill({piece}).status().message()), HasSubstr("lacks"));
}

// Worker 0 of a view with one server, whose pushes would count as that worker's.
class WorkerTest : public HostileTest {
 protected:
  // What a worker that opens connections as `from` is told.
  std::string Told(TestPs& ps, const std::string& certificate, int from, int speaks_for) {
    job_.servers = 1;
    EXPECT_TRUE(ps.Create(job_.Create(0)).ok());
    const auto filled = ps.Fill(Content(job_, 0, 10));
    EXPECT_TRUE(filled.ok()) << filled.status();
    proto::View view;
    view.set_number(++number_);
    view.set_ticket("ticket");
    proto::ShardPlace& place = *view.add_shards();
    place.set_primary_address(ps.address());
    place.set_backup(-1);
    EXPECT_TRUE(ps.SetView(view).ok());
    EXPECT_TRUE(ps.SetWorkers({{0, kLife}, {1, kLife}}, 1).ok());
    TestWorker worker(from, kLife, job_,
                      certificate.empty() ? nullptr : authority_.Issue(certificate));
    worker.SpeakFor(speaks_for);
    EXPECT_TRUE(worker.Connect(view).ok());
    return std::string(Message(worker.Hear(0)));
  }

  static constexpr uint64_t kLife = 77;
  uint64_t number_ = 1ull << 32;
  muster::testing::TestAuthority authority_;
};

TEST_F(WorkerTest, ComesWithItsOwnCertificate) {
  TestPs ps(Options(), authority_.Issue("ps:0"));
  EXPECT_THAT(Told(ps, "worker:1", 0, 0), HasSubstr("worker:1 may not come as worker:0"));
  EXPECT_THAT(Told(ps, "evaluator:0", 0, 0), HasSubstr("evaluator:0 may not come as worker:0"));
  EXPECT_THAT(Told(ps, "launcher", 0, 0), HasSubstr("launcher may not come as worker:0"));
  EXPECT_EQ(Told(ps, "worker:0", 0, 0), "");
}

TEST_F(WorkerTest, SpeaksForItselfAlone) {
  EXPECT_THAT(Told(ps_, "", 1, 0), HasSubstr("worker 1 came, and speaks for worker 0"));
  EXPECT_EQ(Told(ps_, "", 0, 0), "");
  TestPs secure(Options(), authority_.Issue("ps:0"));
  EXPECT_THAT(Told(secure, "worker:1", 1, 0), HasSubstr("worker 1 came, and speaks for worker 0"));
  EXPECT_EQ(Told(secure, "worker:1", 1, 1), "");
}

TEST_F(HostileTest, ACopyHasAShortName) {
  ASSERT_TRUE(ps_.Create(job_.Create(0)).ok());
  EXPECT_THAT(std::string(ps_.Cut(std::string(1000, 'x')).status().message()),
              HasSubstr("a name of 1 to 256 bytes"));
}

}  // namespace
}  // namespace muster::ps
