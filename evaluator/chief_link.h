// ChiefLink makes the evaluator's calls to the chief. Chief and evaluator may start in any order.
// Calls to an unreachable chief are retried with backoff until `patience` has passed since the
// first failure. Such failures are logged every 10 s. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "common/rpc/renewable_channel.h"
#include "muster/status.h"
#include "proto/evaluation.grpc.pb.h"

namespace muster::evaluator {

struct ChiefLinkOptions {
  std::string task;           // "evaluator:0".
  std::string chief_task;     // For messages.
  std::string chief_address;  // From the cluster spec.
  std::string cluster_digest;
  Duration patience = std::chrono::minutes(10);
  Duration fetch = std::chrono::minutes(30);  // Timeout for one file.
  // Returns a sentence if model_dir shows that the run's training is complete, else "". Called at
  // most once every `look`, while the chief's host refuses connections. Null counts as "".
  std::function<std::string()> finished;
  Duration look = std::chrono::seconds(5);
  rpc::ChannelOptions channel;
};

class ChiefLink {
 public:
  static absl::StatusOr<std::unique_ptr<ChiefLink>> Make(ChiefLinkOptions options);

  // Ask and Tell block until the chief answers. They return ConfigurationError if the chief refuses
  // this evaluator, PeerLost after `patience`, and Preempted after Stop. If the chief of a finished
  // run has exited, they return AlreadyExists with the sentence of `finished`.
  absl::StatusOr<proto::NextCheckpointReply> NextCheckpoint(int64_t after_step, bool want_job);
  absl::StatusOr<proto::EvaluationReply> SendReport(const proto::EvaluationReport& report);
  // Sends one heartbeat, without a retry.
  grpc::Status SendHeartbeat(const proto::EvaluationReport& report, proto::EvaluationReply* reply);
  // Reports to the chief that this process leaves. Works also after Stop. Blocks for at most one
  // second and does not retry.
  void NotifyLeaving(const std::string& reason);
  // Fetches one file of the current checkpoint in pieces.
  absl::Status Fetch(int64_t step, const std::string& file,
                     const std::function<absl::Status(const std::string& data)>& on_data);

  // Makes all calls in progress return Preempted soon, and all later calls at once.
  void Stop();
  bool stopped() const;
  // Blocks for `duration`, or until Stop.
  void Sleep(Duration duration) const;

 private:
  explicit ChiefLink(ChiefLinkOptions options);
  // Returns a stub for one call. Do not keep it, because the channel may be renewed before the next
  // call.
  std::unique_ptr<proto::Evaluation::Stub> stub() const {
    return proto::Evaluation::NewStub(channel_->Get());
  }
  grpc::Status Once(Duration timeout,
                    const std::function<grpc::Status(grpc::ClientContext*)>& call);
  absl::Status RetryUntilAnswered(const std::function<grpc::Status()>& call);
  // Returns why no further checkpoint can come, "" if one can.
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
