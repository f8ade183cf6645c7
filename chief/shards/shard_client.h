// ShardClient is the chief's gRPC client for one ps task (service proto::ParameterServer). A shard
// is the part of the variables that one ps task holds. A chunk is a piece of a shard. Each call
// blocks, has a deadline, and is not retried. A bulk call has a timeout for each message in place
// of a deadline. Error messages name the task. Thread-safe. Calls may run in parallel.
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
    std::string address;  // host:port of the gRPC server.
    // Returns the chief's term: a number above the terms of all earlier chiefs of the run.
    std::function<uint32_t()> term;
    rpc::ChannelOptions channel;  // With TLS, the server must prove that it is this ps task.
    Duration call = std::chrono::seconds(10);  // Timeout of all calls except bulk calls and Cut.
    // Timeout for one message of a bulk call (Fill, Read, ReadRows). The whole call has no timeout,
    // because the call takes longer for a larger shard.
    Duration silence = std::chrono::minutes(1);
    Duration cut = std::chrono::minutes(10);  // Timeout of Cut.
  };
  static absl::StatusOr<std::unique_ptr<ShardClient>> Make(const Options& options);

  // Tells the task which variables it serves.
  absl::StatusOr<proto::CreateReply> Create(proto::CreateRequest request);
  // Sends a view: the assignment of shards to ps tasks.
  absl::Status SetView(const proto::View& view);
  // Sends the workers whose pushes the task may accept. `workers` maps each worker to its
  // incarnation (a random number that identifies the process).
  absl::Status SetWorkers(uint64_t version, const std::map<int, uint64_t>& workers);
  // A stream that sends the content of a shard to the task, chunk by chunk. The task uses the
  // content once Finish has returned OK.
  class Filling {
   public:
    virtual ~Filling() = default;  // Cancels the stream unless Finish was called.
    virtual absl::Status Write(const proto::ChunkContent& chunk) = 0;
    virtual absl::Status Finish() = 0;
  };
  std::unique_ptr<Filling> Fill();
  // Makes a copy of the shards of which the task is the primary, that is, the shards that the task
  // serves to workers. The copy gets the name `name`. Returns the indices of these shards. The copy
  // is lazy: the task copies a value when it is about to update the value.
  absl::StatusOr<std::vector<int>> Cut(const std::string& name);
  // Reads the chunks of a shard from the copy `name`, in order. Omits chunks of embedding tables.
  // Calls `take` with each chunk. Stops at the first error of `take` and returns this error.
  absl::Status Read(const std::string& name, int shard,
                    const std::function<absl::Status(const proto::ChunkContent&)>& take);
  // Reads the rows of embedding tables from the copy `name`, as a safetensors file. Calls `take`
  // with each piece of the file. Stops at the first error of `take` and returns this error.
  absl::Status ReadRows(const std::string& name, int shard,
                        const std::function<absl::Status(std::string_view)>& take);
  // Reads the current rows of an embedding table into `rows`, one row after the other in the order
  // of `keys`.
  absl::Status PullRows(int variable, std::span<const uint64_t> keys, std::span<float> rows);
  // Drops the copy `name` that Cut made. If Drop fails, a later Beat or Cut drops the copy.
  absl::Status Drop(const std::string& name);
  // Sends a heartbeat with the chief's record, which the task stores (chief/leases/chief_record.h).
  absl::StatusOr<proto::BeatReply> Beat(const std::string& record);

  // Cancel is called when the task's process is lost. It cancels the current calls. After Cancel,
  // new calls fail at once until Allow is called. Allow is called when the task has a new process.
  void Cancel();
  void Allow();

  // Returns whether the caller should retry a call that failed with `status`. The caller retries
  // until the coordinator reports the loss of the task.
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
  // The name of the copy that the task may hold, "" if none.
  std::string undropped_ ABSL_GUARDED_BY(copies_mu_);
  absl::Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::chief
