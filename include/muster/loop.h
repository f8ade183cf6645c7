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
  int64_t number = 0;  // The number of the step, from 1.
  double loss = 0;     // The whole objective before the update, over the global batch.
  double learning_rate = 0;
  int64_t examples = 0;                  // In the global batch.
  std::map<std::string, double> values;  // The values that the step reported.
  // The body's return value on this replica, detached. If accumulate_steps is above 1, it is the
  // return value for the last micro-batch.
  PerReplica results;
};

struct ReplicaContext {
  int replica = 0, num_replicas = 1;
  at::Device device;
};

// The calls of a program that owns its loop. Every replica runs the same loop in its own thread and
// must make the same calls in the same order. The loss of a peer ends the loop by an exception,
// which the program must not catch. A stop that is requested during a pass, or between two steps of
// one batch, does the same.
//
// A run that resumes from a checkpoint calls Program::run() again, with the saved steps(), epoch()
// and steps_left(). Derive the position from these and from epoch_begins(), not from counters of
// the program. Only models, optimizers and metrics are saved, no other state of the program.
//
// When Program::run() returns, training is finished, as after finish().
class Loop {
 public:
  explicit Loop(LoopBackend* backend) : backend_(backend) {}

  int replica() const;  // This thread's replica, from 0.
  int num_replicas() const;
  at::Device device() const;

  // Runs the built-in loop: all epochs, with validation after each and the test pass at the end.
  // The default Program::run calls it.
  void fit();

  // Returns this replica's slice of the next batch of the training data, across epochs. Returns
  // false at the end of the job: after all epochs, after max_steps, after finish(), or after a
  // requested stop. `steps` is the number of steps over the batch. The position in the data
  // advances after the last of them. A run that resumes between two of them gets that batch again
  // for the remaining steps.
  bool next(data::Batch* batch, int64_t steps = 1);
  // Steps left for the batch of the last next(). 0 at the end of the job.
  int64_t steps_left() const;
  // Returns the next batch of a named data set: this replica's slice, or the whole batch if the
  // data set is not distributed. Returns false once after the last batch of each pass, and the
  // following call starts the next pass. A repeating data set never returns false. The position is
  // saved with each step.
  bool next(DatasetHandle dataset, data::Batch* batch);

  // Runs one step over the batch of the last next(). The body is called with (Step&, const
  // data::Batch&). It returns void, a tensor, or a Nested.
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
  // Runs Program::eval_step over a split and returns its metrics over all replicas. A stop that was
  // requested before or during the pass ends the pass and the loop.
  std::map<std::string, double> evaluate(Split split);
  // Ends training with the last step. The state after it is saved as final. From now on next()
  // returns false, and a later start of the job reports that it is finished. Call it on every
  // replica.
  void finish();

  // Returns the function's result (void, a tensor, or a Nested) on each replica, detached. Runs
  // under the job's precision. Models keep their train or eval mode.
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

  // Reduces the values of all replicas to one, which is the same on each of them. Without an axis,
  // the reduction is element by element and shapes must be equal. With an axis, it also covers that
  // axis of each value. The axis may have different lengths on different replicas, and kMean is the
  // mean of all elements along it. Sums of integers and bools are int64, their means are float64.
  // Other types are unchanged. If names, types or shapes differ, every replica gets a ProgramError.
  Nested reduce(ReduceOp op, const PerReplica& value, std::optional<int64_t> axis = std::nullopt);
  // Concatenates the values of all replicas along the axis. Their shapes may differ only in that
  // axis. Values without dimensions become a vector.
  Nested gather(const PerReplica& value, int64_t axis = 0);
  // Returns the values of this process's replicas, in device order.
  std::vector<Nested> local_results(const PerReplica& value);

  // The same operations for a tensor of this replica.
  at::Tensor reduce_sum(const at::Tensor& value);
  at::Tensor reduce_mean(const at::Tensor& value);
  at::Tensor gather(const at::Tensor& value);
  std::vector<at::Tensor> local_results(const at::Tensor& value);

  int64_t steps() const;  // Committed so far.
  int64_t epoch() const;
  // True if the next batch is the first one of an epoch. If steps() is above 0, the previous epoch
  // is then over. Its validation pass may be missing if a restart prevented it.
  bool epoch_begins() const;

 private:
  StepOutcome RunStep(const std::function<Nested(Step&, const data::Batch&)>& body);
  PerReplica Call(const std::function<Nested()>& function);

  LoopBackend* backend_;
};

}  // namespace muster
