// The chief's end of evaluation: announces checkpoints to the evaluator, keeps the one that is
// evaluated from being deleted, takes the metrics, and waits for the final evaluation at the end of
// a job. Needs no LibTorch. docs/evaluator.md tells the protocol, evaluation_rules.h the rules.
//
// The callbacks come from one thread of the service's own, one at a time and without its locks;
// they may take their time. The service must outlive the server it is registered with.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "chief/evaluation_rules.h"
#include "common/checkpoint/file_system.h"
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
  std::function<std::string()> run_id;      // may change until training begins
  std::string job;                          // resolved, JSON: the truth for the evaluator
  checkpoint::FileSystem* files = nullptr;  // announced checkpoints are read from
  // From now until unpin the checkpoint of that step is not deleted. False: it is gone.
  std::function<bool(int64_t step)> pin;
  std::function<void(int64_t step)> unpin;
  std::function<void(const EvaluationResult&)> on_metrics;
  EvaluationRules rules;
  Duration hold = std::chrono::seconds(1);  // of a call to which there is nothing to say
  Duration tick = std::chrono::milliseconds(100);
};

// All methods may be called from any thread.
class EvaluationService {
 public:
  static std::unique_ptr<EvaluationService> Make(EvaluationServiceOptions options);
  // REQUIRES: the server is gone.
  virtual ~EvaluationService() = default;
  virtual grpc::Service* service() = 0;

  // A checkpoint is published; `final`: the last one of the job. Cheap.
  virtual void Announce(int64_t step, const std::string& name, const std::string& path,
                        bool final) = 0;
  // The job is through: until the evaluator, if there is one, has evaluated the newest checkpoint
  // and on_metrics has returned. Gives up, and says so, after EvaluationRules::evaluate, and at
  // once where the evaluator is lost, leaves, or where StopWaiting is called.
  virtual void AwaitFinal() = 0;
  virtual void StopWaiting() = 0;
  // Tells the evaluator, if there is one, how the job ended; waits a little until it knows.
  virtual void End(const Verdict& verdict) = 0;
};

}  // namespace muster
