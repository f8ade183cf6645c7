// ChiefLink makes the evaluator's gRPC calls to the chief. Chief and evaluator may start in any
// order. If the chief is unreachable, NextCheckpoint and SendReport retry with backoff, for at most
// ChiefLinkOptions::patience. During retries, they log the reason every 10 s. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "common/job/timeouts.h"
#include "common/rpc/renewable_channel.h"
#include "muster/status.h"
#include "proto/evaluation.grpc.pb.h"

namespace muster::evaluator {

struct ChiefLinkOptions {
  std::string task;           // "evaluator:0".
  std::string chief_task;     // The name of the chief's task, for messages.
  std::string chief_address;  // From the cluster spec.
  std::string cluster_digest;
  Duration patience = Timeouts().join;
  Duration fetch = std::chrono::minutes(30);  // Timeout for fetching one file.
  // Returns a sentence if the files in model_dir show that training is complete. Otherwise returns
  // "". While the chief's host refuses connections, the link calls this function at most once in
  // each period of length `look`. May be null.
  std::function<std::string()> finished;
  Duration look = std::chrono::seconds(5);  // The shortest time between two calls of `finished`.
  rpc::ChannelOptions channel;
};

class ChiefLink {
 public:
  static absl::StatusOr<std::unique_ptr<ChiefLink>> Make(ChiefLinkOptions options);

  // NextCheckpoint and SendReport block until the chief answers. They return ConfigurationError if
  // the chief refuses this evaluator, PeerLost after `patience`, and Preempted after Stop. If
  // `finished` returns a sentence, they return AlreadyExists with this sentence.
  absl::StatusOr<proto::NextCheckpointReply> NextCheckpoint(int64_t after_step, bool want_job);
  absl::StatusOr<proto::EvaluationReply> SendReport(const proto::EvaluationReport& report);
  // Sends one heartbeat, without a retry.
  grpc::Status SendHeartbeat(const proto::EvaluationReport& report, proto::EvaluationReply* reply);
  // Reports to the chief that this process is about to end. May be called after Stop. Blocks for at
  // most one second and does not retry.
  void NotifyLeaving(const std::string& reason);
  // Fetches one file of the checkpoint of `step`. Passes each piece of the file to `on_data`. If
  // `on_data` returns an error, stops and returns this error.
  absl::Status Fetch(int64_t step, const std::string& file,
                     const std::function<absl::Status(const std::string& data)>& on_data);

  // Ends this link. Calls in progress return Preempted soon. Later calls return Preempted at once.
  void Stop();
  bool stopped() const;
  // Blocks for `duration`, or until Stop.
  void Sleep(Duration duration) const;

 private:
  explicit ChiefLink(ChiefLinkOptions options);
  // Returns a stub for one call. Callers must not reuse a stub, because the channel may be replaced
  // before the next call.
  std::unique_ptr<proto::Evaluation::Stub> stub() const {
    return proto::Evaluation::NewStub(channel_->Get());
  }
  grpc::Status Once(Duration timeout,
                    const std::function<grpc::Status(grpc::ClientContext*)>& call);
  absl::Status RetryUntilAnswered(const std::function<grpc::Status()>& call);
  // Returns the sentence of ChiefLinkOptions::finished if the chief's host refuses connections.
  // Otherwise returns "".
  std::string WhyFinished() const;

  const ChiefLinkOptions options_;
  std::shared_ptr<rpc::RenewableChannel> channel_;
  proto::EvaluatorIdentity identity_;
  mutable absl::Mutex mu_;
  mutable CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);  // Calls in progress.
};

}  // namespace muster::evaluator
