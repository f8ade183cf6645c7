// The chief's client of one ps task's proto::ParameterServer. Each call is one try, blocks, and has
// a deadline; errors name the task. Any thread; calls may be under way side by side.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "muster/status.h"
#include "proto/parameter_server.grpc.pb.h"

namespace muster {

class ShardClient {
 public:
  struct Options {
    int task = 0;
    std::string address;              // gRPC's, host:port
    std::function<uint32_t()> epoch;  // the chief's
    rpc::ChannelOptions channel;
    Duration call = std::chrono::seconds(10);
    Duration bulk = std::chrono::minutes(10);  // Fill, Cut, Read: as long as a shard takes
  };
  static absl::StatusOr<std::unique_ptr<ShardClient>> Make(const Options& options);

  absl::StatusOr<proto::CreateReply> Create(proto::CreateRequest request);
  absl::Status SetView(const proto::View& view);
  absl::StatusOr<proto::SetWorkersReply> SetWorkers(uint64_t version,
                                                    const std::map<int, uint64_t>& workers);
  absl::Status Fill(const std::vector<proto::ChunkContent>& chunks);
  absl::StatusOr<std::vector<int>> Cut(const std::string& name);
  absl::StatusOr<std::vector<proto::ChunkContent>> Read(const std::string& name, int shard);
  absl::Status Drop(const std::string& name);
  absl::StatusOr<proto::BeatReply> Beat(const std::string& record);

  // Calls under way end now, and later ones at once: the process is gone. Allow: another one is
  // there.
  void Cancel();
  void Allow();

  // Worth another try as long as the task is a member.
  static bool MayRetry(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  }

 private:
  class Call;
  explicit ShardClient(const Options& options) : options_(options) {}
  absl::Status Result(const grpc::Status& status, const char* method) const;

  const Options options_;
  std::unique_ptr<proto::ParameterServer::Stub> stub_;
  absl::Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
