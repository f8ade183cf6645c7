// An evaluator's calls to the chief. Reached in any start order: what is unreachable is tried again
// with backoff, one line every 10 s, until `patience` has passed since the first failure. All
// methods may be called from any thread.
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

namespace muster {

struct ChiefLinkOptions {
  std::string task;           // "evaluator:0"
  std::string chief_task;     // for messages
  std::string chief_address;  // of the cluster spec
  std::string cluster_digest;
  Duration patience = std::chrono::minutes(10);
  Duration fetch = std::chrono::minutes(30);  // of one file
  // Asked once a chief's host has refused connections for `look`, and after as long again: a
  // sentence where model_dir says that the run was trained to its end, else "". Null: it cannot be
  // known.
  std::function<std::string()> finished;
  Duration look = std::chrono::seconds(5);
  rpc::ChannelOptions channel;
};

class ChiefLink {
 public:
  static absl::StatusOr<std::unique_ptr<ChiefLink>> Make(ChiefLinkOptions options);

  // Until the chief answers. Errors: refused (ConfigurationError), out of patience (PeerLost),
  // stopped (Preempted), the chief gone from a finished run (AlreadyExists, with the sentence).
  absl::StatusOr<proto::NextCheckpointReply> Ask(int64_t after_step, bool want_job);
  absl::StatusOr<proto::EvaluationReply> Tell(const proto::EvaluationReport& report);
  // One try of a heartbeat.
  grpc::Status Beat(const proto::EvaluationReport& report, proto::EvaluationReply* reply);
  // The last word, after Stop too: one try, a second at most.
  void SayLeaving(const std::string& reason);
  // One file of the checkpoint in hand, in pieces.
  absl::Status Fetch(int64_t step, const std::string& file,
                     const std::function<absl::Status(const std::string& data)>& on_data);

  // Every call under way ends soon, with Preempted, and none begins.
  void Stop();
  bool stopped() const;
  // Until Stop, or so long.
  void Sleep(Duration duration) const;

 private:
  explicit ChiefLink(ChiefLinkOptions options);
  // For one call.
  std::unique_ptr<proto::Evaluation::Stub> stub() const {
    return proto::Evaluation::NewStub(channel_->Get());
  }
  grpc::Status Once(Duration timeout,
                    const std::function<grpc::Status(grpc::ClientContext*)>& call);
  absl::Status UntilAnswered(const std::function<grpc::Status()>& call);
  // Why there is nothing to follow any more; "" where there may be.
  std::string WhyFinished() const;

  const ChiefLinkOptions options_;
  std::shared_ptr<rpc::RenewableChannel> channel_;
  proto::EvaluatorIdentity identity_;
  mutable absl::Mutex mu_;
  mutable CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mu_);  // under way
};

}  // namespace muster
