// The base class of the training loops of parameter-server jobs. In such a job, the chief assigns
// batches to workers. An assigned batch is a lease. Workers make their steps independently, and not
// all together. This class therefore refuses the calls of a program that need all workers at once.
//
// One subclass is the loop of a worker (worker/parameter_server/ps_loop.h). Another subclass
// belongs to `muster check`, which runs a program without servers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/train/loop/loop_backend.h"

namespace muster {

class LeasedLoop : public LoopBackend {
 public:
  bool NextOf(DatasetHandle dataset, data::Batch* batch) final;
  void Finish() final;
  std::map<std::string, double> Evaluate(Split split) final;
  Nested Reduce(ReduceOp op, const Nested& value, std::optional<int64_t> axis) final;
  Nested Gather(const Nested& value, int64_t axis) final;
  // Returns a list with `value` as its only element, detached from its graph.
  std::vector<Nested> LocalResults(const Nested& value) final;

 protected:
  // Throws StatusError if `steps` is not 1, because a lease is one step. `steps` is the argument of
  // Loop::next.
  static void CheckSteps(int64_t steps);
  // Returns the error for a program whose run() returned before the chief ended the work.
  static absl::Status ReturnedEarly();
};

}  // namespace muster
