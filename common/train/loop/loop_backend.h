// The interface behind muster::Loop, the training loop that a program sees. Each method of Loop
// calls the LoopBackend method of the same or a similar name. Synchronous training has one
// implementation (loop.h), and workers of a parameter-server job have another (leased_loop.h). All
// methods throw StatusError on an error. include/muster/program.h documents the calls.
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

// The program's code for one step.
using LoopBody = std::function<Nested(Step&, const data::Batch&)>;

// Returns the outcome that the program sees for a step. `number` is the number of the step, from 1.
// `results` is the value that the body of the step returned.
StepOutcome OutcomeOf(StepResult result, int64_t number, Nested results);
// Returns `value` with all tensors detached from their graphs. Called for the value that a LoopBody
// or a function of Loop::run returned.
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
