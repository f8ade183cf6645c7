// The base class of loops over batches that the chief of a parameter-server job leases. It refuses
// the calls that need all workers at once. worker/parameter_server/ps_loop.h is the production
// subclass. `muster check` uses another to try a program without servers.
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
  // Returns this worker's value only.
  std::vector<Nested> LocalResults(const Nested& value) final;

 protected:
  // Throws StatusError unless `steps` is 1.
  static void CheckSteps(int64_t steps);
  // Returns the error for a run() that returned before the chief ended the work.
  static absl::Status ReturnedEarly();
};

}  // namespace muster
