// What is behind a program's Loop: the synchronous loop (loop.h), or a worker's of a
// parameter-server job. Errors are thrown as StatusError.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/train/step.h"
#include "muster/program.h"

namespace muster {

class LoopBackend {
 public:
  virtual ~LoopBackend() = default;
  virtual void Fit() = 0;
  virtual bool Next(data::Batch* batch) = 0;
  virtual void RunStep(const StepRunner::Body& body) = 0;
  virtual std::map<std::string, double> Evaluate(Split split) = 0;
  virtual at::Tensor Reduce(const at::Tensor& value, ReduceOp op) = 0;
  virtual at::Tensor Gather(const at::Tensor& value) = 0;
  virtual std::vector<at::Tensor> LocalResults(const at::Tensor& value) = 0;
  virtual int64_t steps() const = 0;
  virtual int64_t epoch() const = 0;
  virtual bool epoch_begins() const = 0;
};

}  // namespace muster
