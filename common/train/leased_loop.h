// The base class of the loops of parameter-server jobs, whose batches the chief leases to workers.
// It refuses the calls of a program that need all workers at once. The loop of a worker is in
// worker/parameter_server/ps_loop.h. `muster check` has another subclass, which tries a program
// without servers.
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
  // Returns only this worker's value.
  std::vector<Nested> LocalResults(const Nested& value) final;

 protected:
  // Throws StatusError unless `steps` is 1.
  static void CheckSteps(int64_t steps);
  // Returns the error for a program whose run() returned before the chief ended the work.
  static absl::Status ReturnedEarly();
};

}  // namespace muster
