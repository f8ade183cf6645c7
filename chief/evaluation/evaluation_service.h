// The evaluator is a separate task that evaluates checkpoints. EvaluationService is the chief's
// side of this evaluation. It announces checkpoints to the evaluator, and protects the checkpoint
// under evaluation from deletion. It receives the metrics. At the end of a job, it waits until the
// last checkpoint is evaluated. It needs no LibTorch. See docs/evaluator.md for the protocol and
// chief/evaluation/evaluation_rules.h for the rules.
//
// The thread of the service calls the callbacks in EvaluationServiceOptions, one at a time and
// without locks of the service. The callbacks may therefore block. The service must outlive the
// gRPC server on which it is registered.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "chief/evaluation/evaluation_rules.h"
#include "common/checkpoint/files/file_system.h"
#include "common/cluster/verdict.h"

namespace muster::chief {

struct EvaluationResult {
  int64_t step = 0;
  std::map<std::string, double> metrics;  // "loss", "accuracy", ...
  int64_t examples = 0;
  double seconds = 0;
};

struct EvaluationServiceOptions {
  std::string cluster_digest;
  // Returns the id of the run. The id may change until training begins.
  std::function<std::string()> run_id;
  std::string job;  // The chief's job as JSON, with defaults filled in. The evaluator uses it.
  checkpoint::FileSystem* files = nullptr;  // Has the announced checkpoints. Not owned.
  // `pin` protects the checkpoint of `step` from deletion until `unpin` is called for `step`. `pin`
  // returns false if the checkpoint is gone.
  std::function<bool(int64_t step)> pin;
  std::function<void(int64_t step)> unpin;
  std::function<void(const EvaluationResult&)> on_metrics;
  EvaluationRules rules;
  // A call of the evaluator waits at most this long for news, such as a new checkpoint.
  Duration hold = std::chrono::seconds(1);
  Duration tick = std::chrono::milliseconds(100);  // Interval between checks of deadlines.
};

// Thread-safe.
class EvaluationService {
 public:
  static std::unique_ptr<EvaluationService> Make(EvaluationServiceOptions options);
  // REQUIRES: the gRPC server is destroyed.
  virtual ~EvaluationService() = default;
  virtual grpc::Service* service() = 0;

  // Announces a published checkpoint. `final` is true for the last checkpoint of the job. Does not
  // block.
  virtual void Announce(int64_t step, const std::string& name, const std::string& path,
                        bool final) = 0;
  // Called when training is complete. Blocks until the evaluator has evaluated the newest
  // checkpoint and on_metrics has returned. Returns at once if there is no evaluator. Returns early
  // in three cases: the evaluator is lost or leaves, the time EvaluationRules::evaluate has passed,
  // or StopWaiting or End is called.
  virtual void AwaitFinal() = 0;
  // Makes AwaitFinal return.
  virtual void StopWaiting() = 0;
  // Sends the job's verdict (its outcome) to the evaluator, if there is one. Blocks until the
  // evaluator has received the verdict, but at most for 5 seconds.
  virtual void End(const Verdict& verdict) = 0;
};

}  // namespace muster::chief
