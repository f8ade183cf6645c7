// What a program that owns its loop calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "muster/data.h"
#include "muster/handles.h"
#include "muster/step.h"

namespace muster {

class LoopBackend;

// For programs that own their loop. Every replica runs the same loop in its own thread and must
// make the same calls in the same order. A lost peer, or a stop that was asked for during a pass,
// ends the loop by an exception that the program must let pass.
//
// A run that goes on from a checkpoint enters run() anew, with steps() and epoch() as they were:
// derive what to do from them (and from epoch_begins()), not from counters of your own. What the
// program keeps besides models, optimizers and metrics is not saved.
class Loop {
 public:
  explicit Loop(LoopBackend* backend) : backend_(backend) {}

  // The built-in loop: all epochs, with validation after each and the test pass at the end. What
  // Program::run does.
  void fit();

  // The next batch of the training data: this replica's slice, across epochs. False at the end of
  // the job (epochs, max_steps, or a requested stop).
  bool next(data::Batch* batch);
  // One step over the last next()'s batch.
  void step(const std::function<void(Step&, const data::Batch&)>& body);
  // A pass over a split with Program::eval_step: its metrics, over all replicas. A stop that is
  // requested meanwhile (or was before) ends it, and with it the loop.
  std::map<std::string, double> evaluate(Split split);

  // Over all replicas of the job. `reduce` needs equal shapes, `gather` concatenates along the
  // first dimension, which may differ; both give every replica the same result.
  at::Tensor reduce_sum(const at::Tensor& value);
  at::Tensor reduce_mean(const at::Tensor& value);
  at::Tensor gather(const at::Tensor& value);
  // The values of this process's replicas, in device order.
  std::vector<at::Tensor> local_results(const at::Tensor& value);

  int64_t steps() const;  // committed so far
  int64_t epoch() const;
  // The next batch is an epoch's first one. With steps() above 0: the epoch before it is over, and
  // a pass that belongs to its end may not have been made before a restart.
  bool epoch_begins() const;

 private:
  LoopBackend* backend_;
};

}  // namespace muster
