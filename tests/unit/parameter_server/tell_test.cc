#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "chief/parameter_server/tell_call.h"
#include "common/rpc/channel.h"
#include "common/rpc/server/server.h"
#include "tests/unit/base/becomes.h"
#include "tests/unit/parameter_server/fake_cluster.h"
#include "tests/unit/rpc/identities.h"

namespace muster::chief::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Job LongJob() {
  Job job;
  job.program = "fake";
  job.global_batch_size = 20;
  job.epochs = 1000;
  job.timeouts.join = job.timeouts.rejoin = std::chrono::seconds(30);
  return job;
}

// A report that is too large for one message comes in pieces. The chief checks their size before it
// stores them.
TEST(Tell, PiecesThatDoNotFitAreRefused) {
  FakeCluster cluster({.job = LongJob()});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 1; }));
  const auto stub = proto::Leases::NewStub(*rpc::MakeChannel(cluster.leases_address()));
  const auto tell = [&](const std::vector<std::string>& pieces, int64_t bytes) {
    const auto context = rpc::WithDeadline(std::chrono::seconds(20));
    proto::NextReply reply;
    const auto writer = stub->Tell(context.get(), &reply);
    for (const std::string& data : pieces) {
      proto::TellPiece piece;
      piece.set_data(data);
      piece.set_bytes(bytes);
      if (!writer->Write(piece)) break;
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    return fmt::format("{} {}", static_cast<int>(status.error_code()), status.error_message());
  };
  proto::NextRequest request;
  request.mutable_worker()->set_worker(0);
  request.mutable_worker()->set_incarnation(1);
  const std::string all = request.SerializeAsString();
  const auto bytes = static_cast<int64_t>(all.size());
  EXPECT_EQ(tell({}, 0), "3 a worker tells 0 bytes, and 0 came");
  EXPECT_EQ(tell({all}, bytes + 1),
            fmt::format("3 a worker tells {} bytes, and {} came", bytes + 1, bytes));
  EXPECT_EQ(tell({all, all}, bytes),
            fmt::format("3 a worker tells {} bytes, and more came", bytes));
  EXPECT_EQ(tell({all}, kMaxTellBytes + 1),
            "3 a worker tells 37748737 bytes, and 37748736 are the most");
  EXPECT_EQ(tell({all}, -1), "3 a worker tells -1 bytes, and 37748736 are the most");
  EXPECT_EQ(tell({""}, 2), "3 a worker tells an empty piece");
  EXPECT_EQ(tell({"\xff\xff"}, 2), "3 what a worker tells is no NextRequest");
  EXPECT_THAT(tell({all.substr(0, 3), all.substr(3)}, bytes), StartsWith("14 this process is not"));
  EXPECT_THAT(tell({std::string(rpc::kMaxRequestBytes, 'x')}, 2 << 20),
              HasSubstr("larger than max"));
  cluster.director().Abort(ProgramError("enough"));
  EXPECT_EQ(Message(cluster.Await()), "enough");
}

TEST(Tell, OneThatStandsStillGivesWay) {
  FakeCluster cluster({.job = LongJob()});
  ASSERT_TRUE(cluster.Start());
  ASSERT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() >= 1; }));
  const auto stub = proto::Leases::NewStub(*rpc::MakeChannel(cluster.leases_address()));
  struct Silent {
    std::unique_ptr<grpc::ClientContext> context = rpc::WithDeadline(std::chrono::seconds(30));
    proto::NextReply reply;
    std::unique_ptr<grpc::ClientWriter<proto::TellPiece>> writer;
  };
  std::vector<Silent> silent(kTellCallLimits.most);
  for (Silent& call : silent) {
    call.writer = stub->Tell(call.context.get(), &call.reply);
    proto::TellPiece piece;
    piece.set_data(std::string(70 << 10, 'x'));
    piece.set_bytes(2 << 20);
    // These are larger than the window of HTTP/2. The second write completes only if the server has
    // read the first piece, and has thus admitted the call.
    ASSERT_TRUE(call.writer->Write(piece));
    ASSERT_TRUE(call.writer->Write(piece));
  }
  // Another call must be retried until one of these has been stalled for long enough.
  const int64_t steps = cluster.notes().steps();
  ASSERT_TRUE(cluster.AwaitThat([&] {
    Silent next;
    next.writer = stub->Tell(next.context.get(), &next.reply);
    next.writer->WritesDone();
    const grpc::Status status = next.writer->Finish();
    if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) return true;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    return false;
  }));
  // The call that gave way ends: with CANCELLED, or with the error of a request that is cut short.
  std::atomic<int> ended = 0;
  std::vector<std::thread> waiting;
  for (Silent& call : silent)
    waiting.emplace_back([&call, &ended] {
      EXPECT_FALSE(call.writer->Finish().ok());
      ++ended;
    });
  // The threads are joined in any case.
  EXPECT_TRUE(cluster.AwaitThat([&] { return ended > 0; }));
  EXPECT_TRUE(cluster.AwaitThat([&] { return cluster.notes().steps() > steps; }));
  cluster.director().Abort(ProgramError("enough"));
  EXPECT_EQ(Message(cluster.Await()), "enough");
  for (Silent& call : silent) call.context->TryCancel();
  for (std::thread& thread : waiting) thread.join();
}

class Leases final : public proto::Leases::CallbackService, public NextCall::Handler {
 public:
  void OnCall(NextCall::Ptr call) override { call->Answer(grpc::Status::OK); }
  void OnBroken(NextCall::Ptr) override {}
  grpc::ServerReadReactor<proto::TellPiece>* Tell(grpc::CallbackServerContext* context,
                                                  proto::NextReply* reply) override {
    auto* const call = OpenTellCall(this, &calls_, context, reply);
    ++opened;
    return call;
  }
  std::atomic<int> opened{0};

 private:
  rpc::BulkCalls calls_{kTellCallLimits, "the chief ends"};
};

TEST(Tell, AWorkerHoldsOnePlace) {
  const rpc::TestIdentities identities;
  Leases service;
  rpc::ServerOptions options;
  options.address = "127.0.0.1:0";
  options.identity = identities.Of("chief:0");
  const auto server = rpc::Server::Start(options, {&service});
  ASSERT_TRUE(server.ok()) << Message(server.status());
  const auto stub_of = [&](const std::string& task) {
    rpc::ChannelOptions channel;
    channel.identity = identities.Of(task);
    channel.server_task = "chief:0";
    return proto::Leases::NewStub(
        *rpc::MakeChannel(fmt::format("127.0.0.1:{}", (*server)->port()), channel));
  };
  struct Open {
    std::unique_ptr<grpc::ClientContext> context = rpc::WithDeadline(std::chrono::seconds(30));
    proto::NextReply reply;
    std::unique_ptr<grpc::ClientWriter<proto::TellPiece>> writer;
  };
  const auto first = stub_of("worker:0"), second = stub_of("worker:1");
  std::vector<Open> calls(kTellCallLimits.most + 1);
  for (Open& call : calls) {
    const int before = service.opened;
    call.writer = first->Tell(call.context.get(), &call.reply);
    proto::TellPiece piece;
    piece.set_data("x");
    piece.set_bytes(100);
    ASSERT_TRUE(call.writer->Write(piece));
    ASSERT_TRUE(testing_support::Becomes([&] { return service.opened > before; }))
        << "the call does not reach the service";
  }
  for (size_t i = 0; i + 1 < calls.size(); ++i)
    EXPECT_EQ(calls[i].writer->Finish().error_code(), grpc::StatusCode::CANCELLED) << i;
  proto::NextRequest request;
  request.mutable_worker()->set_worker(1);
  proto::TellPiece piece;
  piece.set_data(request.SerializeAsString());
  piece.set_bytes(static_cast<int64_t>(piece.data().size()));
  Open other;
  other.writer = second->Tell(other.context.get(), &other.reply);
  EXPECT_TRUE(other.writer->Write(piece));
  other.writer->WritesDone();
  const grpc::Status status = other.writer->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  calls.back().context->TryCancel();
  (void)calls.back().writer->Finish();
}

}  // namespace
}  // namespace muster::chief::testing
