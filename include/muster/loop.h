// The interface for a program that owns its training loop. A replica is one device's copy of the
// program. A process has one replica for each of its devices.
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

// The result of one step. All fields except `results` are equal on every replica.
struct StepOutcome {
  int64_t number = 0;  // The number of the step, from 1.
  double loss = 0;     // The loss over the global batch, computed before the update.
  double learning_rate = 0;
  int64_t examples = 0;                  // The number of examples in the global batch.
  std::map<std::string, double> values;  // The values that the step reported.
  // The result of the body (Loop::step) on this replica, detached from autograd. If the job's
  // "accumulate_steps" is above 1, the body runs for each micro-batch, and `results` is the result
  // for the last micro-batch.
  PerReplica results;
};

struct ReplicaContext {
  int replica = 0, num_replicas = 1;
  at::Device device;
};

// A program that owns its training loop calls this interface in Program::run(). Every replica runs
// the same loop in its own thread, and must make the same calls in the same order. In two cases, a
// call throws an exception that the program must not catch. In the first case, another process of
// the job was lost. In the second case, a user or the cluster requests that the job stops, and the
// request arrives during evaluate() or between two steps over one batch (see next()).
//
// When a run resumes from a checkpoint, Muster calls Program::run() again. steps(), epoch() and
// steps_left() then return the saved values. The program must derive its position from these values
// and from epoch_begins(), not from its own counters. Checkpoints save models, optimizers and
// metrics, but no other state of the program.
//
// If Program::run() returns, training ends as after a call of finish().
class Loop {
 public:
  explicit Loop(LoopBackend* backend) : backend_(backend) {}

  int replica() const;  // The number of this thread's replica, from 0.
  int num_replicas() const;
  at::Device device() const;

  // Runs the built-in loop: all epochs, a validation pass after each epoch, and a test pass at the
  // end. The default Program::run() calls fit().
  void fit();

  // Sets *batch to this replica's slice of the next batch of the training data. After the last
  // batch of an epoch, continues with the first batch of the next epoch. Returns false at the end
  // of the job: after all epochs, after the job's max_steps, after finish(), or after a stop
  // request. `steps` is the number of steps that the program will run over the batch. The position
  // in the data advances after the last of these steps. A run that resumes between two steps over a
  // batch gets that batch again for the remaining steps.
  bool next(data::Batch* batch, int64_t steps = 1);
  // Returns the number of steps that the program must still run over the batch of the last next().
  // Returns 0 at the end of the job.
  int64_t steps_left() const;
  // Sets *batch to the next batch of a named data set (Builder::dataset). The batch is this
  // replica's slice, or the whole batch if the data set is not `distributed`. After the last batch
  // of a pass over the data set, one call returns false. The next call starts the next pass. If the
  // data set has `repeat`, every call returns a batch and true. Each step saves the position in the
  // data set.
  bool next(DatasetHandle dataset, data::Batch* batch);

  // Runs one step over the batch of the last next(). `body` is a function (Step&, const
  // data::Batch&) that returns void, a tensor, or a Nested.
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
  // Makes a pass: runs Program::eval_step over all batches of a split. Returns the metrics over all
  // replicas. A stop request before or during the pass ends both the pass and the training loop.
  std::map<std::string, double> evaluate(Split split);
  // Ends training after the most recent step, and saves the final state. After this call, next()
  // returns false. A later start of the job reports that the job is finished. Every replica must
  // call finish().
  void finish();

  // Calls `function` on this replica, with autocast as the job's "precision" requires. Returns the
  // function's result (void, a tensor, or a Nested), detached from autograd. Models keep their
  // train or eval mode.
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
  // each element is reduced over the replicas, and the shapes must be equal. With an axis, each
  // value is also reduced along that axis. The axis may have a different length on each replica. In
  // that case, kMean gives each element along the axis the same weight. Sums of integers and bools
  // are int64. Means of integers and bools are float64. Other results keep the type of the value.
  // If the replicas pass different names, types or shapes, every replica gets a ProgramError.
  Nested reduce(ReduceOp op, const PerReplica& value, std::optional<int64_t> axis = std::nullopt);
  // Concatenates the values of all replicas along the axis, in the order of the replicas. The
  // shapes may differ only in that axis. Scalar tensors become a vector.
  Nested gather(const PerReplica& value, int64_t axis = 0);
  // Returns the values of this process's replicas, in device order.
  std::vector<Nested> local_results(const PerReplica& value);

  // These functions take a single tensor instead of a PerReplica. The reductions have no axis, and
  // gather() concatenates along the first dimension.
  at::Tensor reduce_sum(const at::Tensor& value);
  at::Tensor reduce_mean(const at::Tensor& value);
  at::Tensor gather(const at::Tensor& value);
  std::vector<at::Tensor> local_results(const at::Tensor& value);

  int64_t steps() const;  // Returns the number of completed steps.
  int64_t epoch() const;
  // Returns true if the next batch is the first batch of an epoch. If the result is true and
  // steps() is above 0, the previous epoch has ended. The validation pass of the previous epoch may
  // be missing, because the process may have restarted right after the epoch's last step.
  bool epoch_begins() const;

 private:
  StepOutcome RunStep(const std::function<Nested(Step&, const data::Batch&)>& body);
  PerReplica Call(const std::function<Nested()>& function);

  LoopBackend* backend_;
};

}  // namespace muster
