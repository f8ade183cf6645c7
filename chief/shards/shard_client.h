// ShardClient is the chief's client of proto::ParameterServer on one ps task. Each call blocks, has
// a deadline and is not retried. Errors name the task. Thread-safe. Calls may run in parallel.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "muster/status.h"
#include "proto/parameter_server.grpc.pb.h"

namespace muster::chief {

class ShardClient {
 public:
  struct Options {
    int task = 0;
    std::string address;             // host:port of the gRPC server.
    std::function<uint32_t()> term;  // Returns the chief's term.
    rpc::ChannelOptions channel;     // With TLS, the server must prove that it is this ps task.
    Duration call = std::chrono::seconds(10);
    // Timeout for one piece of a bulk call. There is none for the whole call, which takes longer
    // for larger shards.
    Duration silence = std::chrono::minutes(1);
    Duration cut = std::chrono::minutes(10);  // Timeout of Cut, which copies the shards in memory.
  };
  static absl::StatusOr<std::unique_ptr<ShardClient>> Make(const Options& options);

  absl::StatusOr<proto::CreateReply> Create(proto::CreateRequest request);
  absl::Status SetView(const proto::View& view);
  absl::Status SetWorkers(uint64_t version, const std::map<int, uint64_t>& workers);
  // A stream that sends state to the task, chunk by chunk. The task uses the state once Finish has
  // returned OK.
  class Filling {
   public:
    virtual ~Filling() = default;  // Cancels the stream unless Finish was called.
    virtual absl::Status Write(const proto::ChunkContent& chunk) = 0;
    virtual absl::Status Finish() = 0;
  };
  std::unique_ptr<Filling> Fill();
  absl::StatusOr<std::vector<int>> Cut(const std::string& name);
  // Reads the chunks that are not of tables from the copy `name`, in order. Stops at the first
  // error of `take` and returns it.
  absl::Status Read(const std::string& name, int shard,
                    const std::function<absl::Status(const proto::ChunkContent&)>& take);
  // Reads the rows of tables from the copy `name`, as pieces of a safetensors file. Stops at the
  // first error of `take` and returns it.
  absl::Status ReadRows(const std::string& name, int shard,
                        const std::function<absl::Status(std::string_view)>& take);
  // Reads the current rows of a table into `rows`, of shape [keys][width].
  absl::Status PullRows(int variable, std::span<const uint64_t> keys, std::span<float> rows);
  // Drops a copy that Cut made. If this fails, a later Beat or Cut drops the copy.
  absl::Status Drop(const std::string& name);
  absl::StatusOr<proto::BeatReply> Beat(const std::string& record);

  // Cancel is called when the task's process is lost. It cancels the current calls and makes later
  // calls fail at once. Allow permits calls again. It is called when another process has taken the
  // task.
  void Cancel();
  void Allow();

  // Returns whether the caller should retry the call while the task is a member.
  static bool MayRetry(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  }

 private:
  class Call;
  class BulkCall;
  class FillingImpl;
  explicit ShardClient(const Options& options) : options_(options) {}
  absl::Status Result(const grpc::Status& status, const char* method) const;
  absl::Status DropLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(copies_mu_);
  proto::ReadRequest MakeReadRequest(const std::string& name, int shard) const;

  const Options options_;
  std::unique_ptr<proto::ParameterServer::Stub> stub_;
  absl::Mutex copies_mu_;  // Held during a call that makes or drops a copy.
  std::string undropped_ ABSL_GUARDED_BY(copies_mu_);  // The copy that the task may still hold.
  absl::Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::chief
