// Tests that requests of strangers cost a parameter server a limited amount.
#include <limits>
#include <thread>

#include "chief/shards/shard_client.h"
#include "ps/service.h"
#include "tests/unit/ps/ps_cluster.h"
#include "tests/unit/transport/test_authority.h"

namespace muster::ps {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr rpc::BulkCalls::Limits kQuick{
    .most = 2, .silence = milliseconds(500), .standstill = milliseconds(100)};
constexpr rpc::BulkCalls::Limits kPatient{.most = 2, .silence = kLong, .standstill = kLong};

class HostileTest : public ::testing::Test {
 protected:
  HostileTest() : ps_(Options(kPatient)) {}
  static PsServiceOptions Options(const rpc::BulkCalls::Limits& limits) {
    PsServiceOptions options;
    options.task = 0;
    options.bulk = limits;
    return options;
  }
  // Creates one shard with chunks of this size.
  void CreateOne(TestPs& ps, int chunks, int64_t chunk_bytes) {
    job_.variables = {{"w", {chunks * chunk_bytes / static_cast<int64_t>(sizeof(float))}, 0}};
    job_.servers = 1;
    job_.parameter_server = fmt::format(R"({{"chunk_bytes": {}}})", chunk_bytes);
    ASSERT_TRUE(ps.Create(job_.Create(0)).ok());
    ASSERT_EQ(Content(job_, 0, 1).size(), static_cast<size_t>(chunks));
  }
  // Waits until every chunk has content.
  static void AwaitServing(TestPs& ps) {
    const MonotonicTime until = In(kLong);
    for (bool serving = false; !serving; std::this_thread::yield()) {
      const auto beat = ps.Beat();
      ASSERT_TRUE(beat.ok()) << beat.status();
      ASSERT_LT(Clock::now(), until) << "chunks are missing";
      serving = beat->serving_size() > 0;
    }
  }
  // Makes a copy "a" of the shard of CreateOne.
  static void MakeCopy(TestPs& ps) {
    proto::View view;
    view.set_number(1ull << 32 | 1);
    view.set_ticket("ticket");
    proto::ShardPlace& place = *view.add_shards();
    place.set_primary_address(ps.address());
    place.set_backup(-1);
    ASSERT_TRUE(ps.SetView(view).ok());
    ASSERT_TRUE(ps.Cut("a").ok());
  }
  std::string Refused(const std::vector<push_pull::VariableSpec>& variables,
                      const std::string& options = "") {
    proto::CreateRequest request = job_.Create(0);
    *request.mutable_variables() = push_pull::ToMessages(variables);
    if (!options.empty()) request.set_parameter_server(options);
    const auto created = ps_.Create(request);
    EXPECT_FALSE(created.ok());
    return std::string(created.status().message());
  }

  TestJob job_;
  TestPs ps_;
};

// A call of Fill that sends nothing, or stops in the middle.
class SilentFill {
 public:
  explicit SilentFill(TestPs& ps) : SilentFill(ps.stub()) {}
  explicit SilentFill(proto::ParameterServer::Stub& stub) : context_(rpc::WithDeadline(kLong)) {
    writer_ = stub.Fill(context_.get(), &reply_);
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

// A call of Read for the copy "a" that reads only the first chunk.
class SilentRead {
 public:
  explicit SilentRead(TestPs& ps) : context_(rpc::WithDeadline(kLong)) {
    proto::ReadRequest request;
    request.set_epoch(1);
    request.set_name("a");
    reader_ = ps.stub().Read(context_.get(), request);
    proto::ChunkContent chunk;
    EXPECT_TRUE(reader_->Read(&chunk));
  }
  ~SilentRead() { context_->TryCancel(); }
  // Reads the remaining chunks first, because gRPC returns the status after them.
  grpc::Status End() {
    for (proto::ChunkContent chunk; reader_->Read(&chunk);) ++chunks;
    return reader_->Finish();
  }
  int chunks = 1;  // The number of received chunks.

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<proto::ChunkContent>> reader_;
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
  TestPs ps(Options(kQuick));
  ASSERT_TRUE(ps.Create(job_.Create(0)).ok());
  SilentFill silent(ps);
  EXPECT_EQ(silent.End().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(HostileTest, AFillThatStopsInTheMiddleIsCancelled) {
  TestPs ps(Options(kQuick));
  ASSERT_TRUE(ps.Create(job_.Create(0)).ok());
  SilentFill stalled(ps);
  ASSERT_TRUE(stalled.Write(Content(job_, 0, 1)[0]));
  EXPECT_EQ(stalled.End().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(HostileTest, AReadThatIsNotReadIsCancelled) {
  TestPs ps(Options({.most = 1, .silence = milliseconds(500), .standstill = kLong}));
  CreateOne(ps, 32, 512 << 10);  // More than gRPC buffers for a client that does not read.
  ASSERT_TRUE(ps.Fill(Content(job_, 0, 1)).ok());
  MakeCopy(ps);
  SilentRead stalled(ps);
  const MonotonicTime until = In(kLong);
  // Waits until the stalled call has ended.
  while (absl::IsResourceExhausted(ps.Fill({}).status())) {
    ASSERT_LT(Clock::now(), until) << "the call continues";
    std::this_thread::yield();
  }
  EXPECT_EQ(stalled.End().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_LT(stalled.chunks, 32);
}

TEST_F(HostileTest, WhoHasItsAnswerHasMadeRoom) {
  TestPs ps(Options({.most = 1, .silence = kLong, .standstill = kLong}));
  CreateOne(ps, 1, 256);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(ps.Fill(Content(job_, 0, 1)).ok()) << i;
}

TEST_F(HostileTest, StreamsThatStandStillHoldNoThread) {
  constexpr int kConnections = 4, kEach = 30;  // More calls than gRPC has threads.
  TestPs ps(Options({.most = kConnections * kEach, .silence = kLong, .standstill = kLong}));
  CreateOne(ps, kConnections * kEach, 256);
  const std::vector<proto::ChunkContent> chunks = Content(job_, 0, 1);
  std::vector<std::unique_ptr<proto::ParameterServer::Stub>> stubs;
  std::vector<std::unique_ptr<SilentFill>> silent;
  for (const proto::ChunkContent& chunk : chunks) {
    if (chunk.chunk() % kEach == 0)
      stubs.push_back(proto::ParameterServer::NewStub(*rpc::MakeChannel(ps.rpc_address())));
    silent.push_back(std::make_unique<SilentFill>(*stubs.back()));
    ASSERT_TRUE(silent.back()->Write(chunk));
  }
  AwaitServing(ps);
  EXPECT_EQ(ps.Fill({}).status().code(), absl::StatusCode::kResourceExhausted) << "all are there";
}

TEST_F(HostileTest, StopEndsStreamsAtOnce) {
  TestPs ps(Options({.most = 8, .silence = kLong, .standstill = kLong}));
  CreateOne(ps, 32, 512 << 10);
  std::vector<proto::ChunkContent> chunks = Content(job_, 0, 1);
  SilentFill fill(ps);
  ASSERT_TRUE(fill.Write(chunks.back()));
  chunks.pop_back();
  ASSERT_TRUE(ps.Fill(chunks).ok());
  AwaitServing(ps);
  MakeCopy(ps);
  SilentRead read(ps);
  const MonotonicTime start = Clock::now();
  ps.service->Stop();
  EXPECT_LT(Clock::now() - start, kLong / 2);
  EXPECT_EQ(fill.End().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(read.End().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_LT(read.chunks, 31);
  for (const absl::Status& status : {ps.Beat().status(), ps.Fill({}).status(),
                                     ps.Read("a", 0).status(), ps.ReadRows("a", 0).status()}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is ending"));
  }
}

TEST_F(HostileTest, StreamsNeedADeadline) {
  grpc::ClientContext context;
  proto::FillReply reply;
  const auto writer = ps_.stub().Fill(&context, &reply);
  EXPECT_THAT(writer->Finish().error_message(), HasSubstr("Fill was called without a deadline"));
  grpc::ClientContext reading;
  const auto reader = ps_.stub().ReadRows(&reading, {});
  EXPECT_THAT(reader->Finish().error_message(), HasSubstr("ReadRows was called without"));
}

TEST_F(HostileTest, OneThatStandsStillGivesWay) {
  TestPs ps(Options({.most = 2, .silence = kLong, .standstill = milliseconds(100)}));
  ASSERT_TRUE(ps.Create(job_.Create(0)).ok());
  SilentFill first(ps), second(ps);
  // Unless the machine holds them up, both calls start and stand still for longer than the limit.
  const MonotonicTime until = In(kLong / 2);
  absl::Status filled;
  do {
    std::this_thread::sleep_for(milliseconds(200));
    filled = ps.Fill(Content(job_, 0, 1)).status();
  } while (absl::IsResourceExhausted(filled) && Clock::now() < until);
  EXPECT_TRUE(filled.ok()) << filled;
}

// The size of a message is limited, so the chief sends large chunks in pieces.
TEST_F(HostileTest, AChunkComesInPieces) {
  job_.variables = {{"w", {1 << 20}, 0}};
  job_.servers = 1;
  job_.optimizer = R"({"name": "sgd", "momentum": 0.5})";
  job_.parameter_server = R"({"chunk_bytes": 4194304})";
  TestPs ps(Options({}));
  ASSERT_TRUE(ps.Create(job_.Create(0)).ok());
  ChunkState state;
  for (int i = 0; i < 1 << 20; ++i) {
    state.parameters.push_back(static_cast<float>(i));
    if (i == 0) state.slots.emplace_back();
    state.slots[0].push_back(static_cast<float>(-i));
  }
  state.updates = 3;
  state.last[0] = {7, 9};
  const proto::ChunkContent content = ContentOf(0, 0, state);
  EXPECT_THAT(std::string(ps.Fill({content}).status().message()), HasSubstr("larger than max"));
  chief::ShardClient::Options options;
  options.address = ps.rpc_address();
  options.term = [] { return 1; };
  const auto client = *chief::ShardClient::Make(options);
  const auto filling = client->Fill();
  ASSERT_TRUE(filling->Write(content).ok());
  const absl::Status filled = filling->Finish();
  ASSERT_TRUE(filled.ok()) << filled;
  MakeCopy(ps);
  const auto read = ps.Read("a", 0);
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

// Tests which process may push as worker 0, in a view with one server.
class WorkerTest : public HostileTest {
 protected:
  // Returns the server's answer to a worker that dials as `from` and opens as `speaks_for`.
  std::string Answer(TestPs& ps, const std::string& certificate, int from, int speaks_for) {
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

  uint64_t number_ = 1ull << 32;
  muster::testing::TestAuthority authority_;
};

TEST_F(WorkerTest, ComesWithItsOwnCertificate) {
  TestPs ps(Options(kPatient), authority_.Issue("ps:0"));
  EXPECT_THAT(Answer(ps, "worker:1", 0, 0), HasSubstr("worker:1 may not come as worker:0"));
  EXPECT_THAT(Answer(ps, "evaluator:0", 0, 0), HasSubstr("evaluator:0 may not come as worker:0"));
  EXPECT_THAT(Answer(ps, "launcher", 0, 0), HasSubstr("launcher may not come as worker:0"));
  EXPECT_EQ(Answer(ps, "worker:0", 0, 0), "");
}

TEST_F(WorkerTest, SpeaksForItselfAlone) {
  EXPECT_THAT(Answer(ps_, "", 1, 0), HasSubstr("worker 1 came, and speaks for worker 0"));
  EXPECT_EQ(Answer(ps_, "", 0, 0), "");
  TestPs secure(Options(kPatient), authority_.Issue("ps:0"));
  EXPECT_THAT(Answer(secure, "worker:1", 1, 0),
              HasSubstr("worker 1 came, and speaks for worker 0"));
  EXPECT_EQ(Answer(secure, "worker:1", 1, 1), "");
}

TEST_F(HostileTest, ACopyHasAShortName) {
  ASSERT_TRUE(ps_.Create(job_.Create(0)).ok());
  EXPECT_THAT(std::string(ps_.Cut(std::string(1000, 'x')).status().message()),
              HasSubstr("a name of 1 to 256 bytes"));
}

}  // namespace
}  // namespace muster::ps
