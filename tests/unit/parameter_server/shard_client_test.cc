// Tests which process the chief accepts as a parameter server.
#include "chief/shards/shard_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>

#include "common/rpc/server/server.h"
#include "tests/unit/rpc/identities.h"

namespace muster::chief {
namespace {

using ::testing::HasSubstr;

class Servant final : public proto::ParameterServer::Service {
 public:
  grpc::Status Beat(grpc::ServerContext*, const proto::BeatRequest*, proto::BeatReply*) override {
    ++beats;
    return grpc::Status::OK;
  }
  std::atomic<int> beats = 0;
};

class ShardClientTest : public ::testing::Test {
 protected:
  // How a beat ends that the chief sends to ps 1, where a task of that name answers.
  absl::Status BeatTo(const std::string& task) {
    rpc::ServerOptions options;
    options.address = "127.0.0.1:0";
    options.identity = identities_.Of(task);
    const auto server = rpc::Server::Start(options, {&servant_});
    EXPECT_TRUE(server.ok()) << server.status();
    ShardClient::Options client;
    client.task = 1;
    client.address = fmt::format("127.0.0.1:{}", (*server)->port());
    client.term = [] { return 1; };
    client.channel.identity = identities_.Of("chief:0");
    return (*ShardClient::Make(client))->Beat("").status();
  }

  const rpc::TestIdentities identities_;
  Servant servant_;
};

TEST_F(ShardClientTest, ItsServerAnswers) {
  EXPECT_TRUE(BeatTo("ps:1").ok());
  EXPECT_EQ(servant_.beats, 1);
}

// Another task with a certificate of this cluster listens at the address of a ps.
TEST_F(ShardClientTest, NobodyElseIsBelievedToBeItsServer) {
  for (const char* task : {"worker:0", "ps:0", "chief:0", "evaluator:0"}) {
    const absl::Status status = BeatTo(task);
    EXPECT_TRUE(ShardClient::MayRetry(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("Beat of ps 1"));
  }
  EXPECT_EQ(servant_.beats, 0);
}

TEST_F(ShardClientTest, AChannelNamesItsTask) {
  rpc::ChannelOptions options;
  options.identity = identities_.Of("chief:0");
  EXPECT_FALSE(rpc::MakeChannel("127.0.0.1:1", options).ok());
}

}  // namespace
}  // namespace muster::chief
