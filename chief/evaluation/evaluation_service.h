// EvaluationService is the chief's side of evaluation. It announces checkpoints to the evaluator
// and protects the checkpoint under evaluation from deletion. It receives the metrics, and waits
// for the final evaluation at the end of a job. It needs no LibTorch. See docs/evaluator.md for the
// protocol and evaluation_rules.h for the rules.
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

namespace muster::chief {

struct EvaluationResult {
  int64_t step = 0;
  std::map<std::string, double> metrics;  // "loss", "accuracy", ...
  int64_t examples = 0;
  double seconds = 0;
};

struct EvaluationServiceOptions {
  std::string cluster_digest;
  std::function<std::string()> run_id;  // The result may change until training begins.
  std::string job;                      // The resolved job as JSON, which the evaluator must use.
  checkpoint::FileSystem* files = nullptr;  // Holds the announced checkpoints.
  // `pin` protects the checkpoint of `step` from deletion until `unpin`. It returns false if the
  // checkpoint is gone.
  std::function<bool(int64_t step)> pin;
  std::function<void(int64_t step)> unpin;
  std::function<void(const EvaluationResult&)> on_metrics;
  EvaluationRules rules;
  // The longest time for which the service holds a call that has no answer yet.
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

  // Announces a published checkpoint. `final`: it is the job's last one. Does not block.
  virtual void Announce(int64_t step, const std::string& name, const std::string& path,
                        bool final) = 0;
  // Called when training is complete. Blocks until the evaluator, if there is one, has evaluated
  // the newest checkpoint and on_metrics has returned. Logs and returns early after
  // EvaluationRules::evaluate, on StopWaiting, or if the evaluator is lost or leaves.
  virtual void AwaitFinal() = 0;
  virtual void StopWaiting() = 0;
  // Sends the job's verdict to the evaluator, if there is one. Blocks for a short time until the
  // evaluator has received it.
  virtual void End(const Verdict& verdict) = 0;
};

}  // namespace muster::chief
