// The implementation of a program's Loop, whose methods call those of LoopBackend. There is one for
// synchronous training (loop.h) and one for workers of a parameter-server job. Errors are thrown as
// StatusError.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/train/step/step.h"
#include "muster/program.h"

namespace muster {

using LoopBody = std::function<Nested(Step&, const data::Batch&)>;

// Returns what a program sees of a step. `number` is the step's number, and `results` is the return
// value of the step's body.
StepOutcome OutcomeOf(StepResult result, int64_t number, Nested results);
// Returns `value` with all its tensors detached from their graph. Called with what a step's body,
// or a function passed to Loop::run, returned.
Nested Detached(const Nested& value);

class LoopBackend {
 public:
  virtual ~LoopBackend() = default;
  virtual void Fit() = 0;
  virtual bool Next(data::Batch* batch, int64_t steps) = 0;
  virtual bool NextOf(DatasetHandle dataset, data::Batch* batch) = 0;
  virtual StepOutcome RunStep(const LoopBody& body) = 0;
  virtual Nested Call(const std::function<Nested()>& function) = 0;
  virtual void Finish() = 0;
  virtual std::map<std::string, double> Evaluate(Split split) = 0;
  virtual Nested Reduce(ReduceOp op, const Nested& value, std::optional<int64_t> axis) = 0;
  virtual Nested Gather(const Nested& value, int64_t axis) = 0;
  virtual std::vector<Nested> LocalResults(const Nested& value) = 0;
  virtual ReplicaContext context() const = 0;
  virtual int64_t steps_left() const = 0;
  virtual int64_t steps() const = 0;
  virtual int64_t epoch() const = 0;
  virtual bool epoch_begins() const = 0;
};

}  // namespace muster
