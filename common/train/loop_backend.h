// The implementation behind a program's Loop: the synchronous loop (loop.h), or the loop of a
// worker in a parameter-server job. Errors are thrown as StatusError.
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

// `results` is the body's return value.
StepOutcome OutcomeOf(StepResult result, int64_t number, Nested results);
// Returns the value that a step's body, or run()'s function, returned, detached from its graph.
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
