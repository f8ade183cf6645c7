// The chief's side of evaluation. It announces checkpoints to the evaluator and protects the one
// under evaluation from deletion. It takes the metrics, and waits for the final evaluation at the
// end of a job. Needs no LibTorch. See docs/evaluator.md for the protocol and evaluation_rules.h
// for the rules.
//
// One thread of the service calls the callbacks, one at a time and without the service's locks, so
// they may block. The service must outlive the server that it is registered with.
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

namespace muster {

struct EvaluationResult {
  int64_t step = 0;
  std::map<std::string, double> metrics;  // "loss", "accuracy", ...
  int64_t examples = 0;
  double seconds = 0;
};

struct EvaluationServiceOptions {
  std::string cluster_digest;
  std::function<std::string()> run_id;      // May change until training begins.
  std::string job;                          // Resolved, as JSON; the evaluator must use this one.
  checkpoint::FileSystem* files = nullptr;  // Announced checkpoints are read from it.
  // Protects the checkpoint of `step` from deletion until unpin. Returns false if it is gone.
  std::function<bool(int64_t step)> pin;
  std::function<void(int64_t step)> unpin;
  std::function<void(const EvaluationResult&)> on_metrics;
  EvaluationRules rules;
  // Time for which a call is held while there is no answer.
  Duration hold = std::chrono::seconds(1);
  Duration tick = std::chrono::milliseconds(100);
};

// Thread-safe.
class EvaluationService {
 public:
  static std::unique_ptr<EvaluationService> Make(EvaluationServiceOptions options);
  // REQUIRES: the server is gone.
  virtual ~EvaluationService() = default;
  virtual grpc::Service* service() = 0;

  // Reports that a checkpoint was published. `final`: it is the job's last one. Does not block.
  virtual void Announce(int64_t step, const std::string& name, const std::string& path,
                        bool final) = 0;
  // Called when training is complete. Blocks until the evaluator, if there is one, has evaluated
  // the newest checkpoint and on_metrics has returned. Gives up with a log line after
  // EvaluationRules::evaluate, and at once if the evaluator is lost or leaves, or on StopWaiting.
  virtual void AwaitFinal() = 0;
  virtual void StopWaiting() = 0;
  // Sends the evaluator, if there is one, the job's verdict. Waits for a short time until the
  // evaluator has received it.
  virtual void End(const Verdict& verdict) = 0;
};

}  // namespace muster
