// A loop over the batches that the chief of a parameter-server job leases: what every such loop
// refuses, for workers do not meet. worker/ps_loop.h is the real one; `muster check` tries a
// program without servers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/train/loop_backend.h"

namespace muster {

class LeasedLoop : public LoopBackend {
 public:
  bool NextOf(DatasetHandle dataset, data::Batch* batch) final;
  void Finish() final;
  std::map<std::string, double> Evaluate(Split split) final;
  Nested Reduce(ReduceOp op, const Nested& value, std::optional<int64_t> axis) final;
  Nested Gather(const Nested& value, int64_t axis) final;
  // This worker's own.
  std::vector<Nested> LocalResults(const Nested& value) final;

 protected:
  // Throws unless next() was called for one step.
  static void CheckSteps(int64_t steps);
  // Why a run() that returned before the chief said that there is no more work is refused.
  static absl::Status ReturnedEarly();
};

}  // namespace muster
