// The interface for a program that owns its training loop.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "muster/data.h"
#include "muster/handles.h"
#include "muster/nested.h"
#include "muster/reduce_op.h"
#include "muster/step.h"

namespace muster {

class LoopBackend;

// The result of one step. Equal on every replica, except `results`.
struct StepOutcome {
  int64_t number = 0;  // Steps count from 1.
  double loss = 0;     // The objective over the global batch, before the update.
  double learning_rate = 0;
  int64_t examples = 0;                  // The number of examples in the global batch.
  std::map<std::string, double> values;  // The values that the step reported.
  // The return value of the step's body on this replica, detached from autograd. If
  // accumulate_steps is above 1, this is the return value for the last micro-batch.
  PerReplica results;
};

struct ReplicaContext {
  int replica = 0, num_replicas = 1;
  at::Device device;
};

// A program that owns its training loop calls this interface in Program::run(). Every replica runs
// the same loop in its own thread, and must make the same calls in the same order. After the loss
// of a peer, a call throws an exception that the program must not catch. A stop request during a
// pass, or between two steps of one batch, also causes this exception.
//
// A run that resumes from a checkpoint calls Program::run() again, with the saved steps(), epoch()
// and steps_left(). The program must derive its position from these and from epoch_begins(), not
// from its own counters. Checkpoints save models, optimizers and metrics, but no other state of the
// program.
//
// When Program::run() returns, training ends as after finish().
class Loop {
 public:
  explicit Loop(LoopBackend* backend) : backend_(backend) {}

  int replica() const;  // The number of this thread's replica, from 0.
  int num_replicas() const;
  at::Device device() const;

  // Runs the built-in loop: all epochs, a validation pass after each epoch, and the test pass at
  // the end. The default Program::run calls it.
  void fit();

  // Sets *batch to this replica's slice of the next batch of the training data. Continues with the
  // next epoch at the end of an epoch. Returns false at the end of the job: after all epochs, after
  // max_steps, after finish(), or after a stop request. `steps` is the number of steps that the
  // program runs over the batch. The position in the data advances after the last of these steps. A
  // run that resumes between two steps of a batch gets that batch again for the remaining steps.
  bool next(data::Batch* batch, int64_t steps = 1);
  // Returns the number of steps left for the batch of the last next(), or 0 at the end of the job.
  int64_t steps_left() const;
  // Sets *batch to the next batch of a named data set. The batch is this replica's slice, or the
  // whole batch if the data set is not distributed. Returns false once after the last batch of each
  // pass. The call after that starts the next pass. For a repeating data set, never returns false.
  // Each step saves the position.
  bool next(DatasetHandle dataset, data::Batch* batch);

  // Runs one step over the batch of the last next(). Calls the body with (Step&, const
  // data::Batch&). The body returns void, a tensor, or a Nested.
  template <typename Body>
  StepOutcome step(Body&& body) {
    using Result = std::invoke_result_t<Body&, Step&, const data::Batch&>;
    return RunStep([&body](Step& step, const data::Batch& batch) -> Nested {
      if constexpr (std::is_void_v<Result>) {
        body(step, batch);
        return {};
      } else {
        return body(step, batch);
      }
    });
  }
  // Runs Program::eval_step over a split and returns the metrics over all replicas. A stop request
  // before or during the pass ends the pass and the loop.
  std::map<std::string, double> evaluate(Split split);
  // Ends training after the last step, and saves the state as final. From now on next() returns
  // false. A later start of the job reports that the job is finished. Every replica must call
  // finish().
  void finish();

  // Calls the function on this replica, under the job's precision. Returns its result (void, a
  // tensor, or a Nested), detached from autograd. Models keep their train or eval mode.
  template <typename Function>
  PerReplica run(Function&& function) {
    return Call([&function]() -> Nested {
      if constexpr (std::is_void_v<std::invoke_result_t<Function&>>) {
        function();
        return {};
      } else {
        return function();
      }
    });
  }
  PerReplica values_from_function(const std::function<Nested(const ReplicaContext&)>& function);

  // Reduces the values of all replicas to one value, which every replica receives. Without an axis,
  // the reduction is element by element, and shapes must be equal. With an axis, the reduction also
  // covers that axis of each value. The axis may have different lengths on different replicas, and
  // kMean then averages all elements along the axis. Sums of integers and bools are int64, and
  // their means are float64. Other types are unchanged. If names, types or shapes differ, every
  // replica gets a ProgramError.
  Nested reduce(ReduceOp op, const PerReplica& value, std::optional<int64_t> axis = std::nullopt);
  // Concatenates the values of all replicas along the axis. The shapes may differ only in that
  // axis. Values without dimensions become a vector.
  Nested gather(const PerReplica& value, int64_t axis = 0);
  // Returns the values of this process's replicas, in device order.
  std::vector<Nested> local_results(const PerReplica& value);

  // The same operations for a tensor of this replica.
  at::Tensor reduce_sum(const at::Tensor& value);
  at::Tensor reduce_mean(const at::Tensor& value);
  at::Tensor gather(const at::Tensor& value);
  std::vector<at::Tensor> local_results(const at::Tensor& value);

  int64_t steps() const;  // Returns the number of committed steps.
  int64_t epoch() const;
  // Returns true if the next batch is the first batch of an epoch. If steps() is then above 0, the
  // previous epoch has ended. If the process restarted at that moment, the previous epoch may lack
  // its validation pass.
  bool epoch_begins() const;

 private:
  StepOutcome RunStep(const std::function<Nested(Step&, const data::Batch&)>& body);
  PerReplica Call(const std::function<Nested()>& function);

  LoopBackend* backend_;
};

}  // namespace muster
