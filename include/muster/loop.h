// What a program that owns its loop calls.
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

// Of one step, the same on every replica but for `results`.
struct StepOutcome {
  int64_t number = 0;  // of the step, from 1
  double loss = 0;     // the whole objective before the update, over the global batch
  double learning_rate = 0;
  int64_t examples = 0;                  // of the global batch
  std::map<std::string, double> values;  // what the step reported
  // What the body returned here, detached; with accumulate_steps above 1 for its last part.
  PerReplica results;
};

struct ReplicaContext {
  int replica = 0, num_replicas = 1;
  at::Device device;
};

// For programs that own their loop. Every replica runs the same loop in its own thread and must
// make the same calls in the same order. A lost peer, or a stop that was asked for during a pass or
// between two steps of one batch, ends the loop by an exception that the program must let pass.
//
// A run that goes on from a checkpoint enters run() anew, with steps(), epoch() and steps_left() as
// they were: derive what to do from them (and from epoch_begins()), not from counters of your own.
// What the program keeps besides models, optimizers and metrics is not saved.
//
// run() that returns has finished training, as with finish().
class Loop {
 public:
  explicit Loop(LoopBackend* backend) : backend_(backend) {}

  int replica() const;  // of this thread, from 0
  int num_replicas() const;
  at::Device device() const;

  // The built-in loop: all epochs, with validation after each and the test pass at the end. What
  // Program::run does.
  void fit();

  // The next batch of the training data: this replica's slice, across epochs. False at the end of
  // the job (epochs, max_steps, finish, or a requested stop). `steps`: how many steps are made over
  // the batch; the position in the data moves on after the last of them. A run that goes on between
  // two of them is given that batch once more, for those that are left.
  bool next(data::Batch* batch, int64_t steps = 1);
  // Of the last next()'s batch; 0 also at the end of the job.
  int64_t steps_left() const;
  // The next batch of a data set of the program's own: this replica's slice, or all of it where it
  // is not distributed. False once after the last batch of each pass over it (never where it
  // repeats); the call after that begins the next pass. Its position is saved with each step.
  bool next(DatasetHandle dataset, data::Batch* batch);

  // One step over the last next()'s batch. The body is called with (Step&, const data::Batch&) and
  // returns nothing, a tensor, or a Nested.
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
  // A pass over a split with Program::eval_step: its metrics, over all replicas. A stop that is
  // requested meanwhile (or was before) ends it, and with it the loop.
  std::map<std::string, double> evaluate(Split split);
  // Training is over after the last step: the state is saved as the final one, next() is false from
  // now on, and a later start of the job says that it is finished. On every replica.
  void finish();

  // What the function returns (nothing, a tensor, or a Nested) on each replica, detached. It runs
  // under the job's precision; models keep their modes.
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

  // One value of all replicas', the same on each of them. Without an axis element by element, so
  // that shapes must be equal. With one, over that axis of each replica's value too, which may have
  // another length on each: kMean is then the mean of all elements along it. Sums of integers and
  // bools are int64, their means float64; else types stay. A ProgramError on every replica where
  // names, types or shapes differ.
  Nested reduce(ReduceOp op, const PerReplica& value, std::optional<int64_t> axis = std::nullopt);
  // The replicas' values one after another along the axis, in which alone they may differ. Those
  // without dimensions become a vector.
  Nested gather(const PerReplica& value, int64_t axis = 0);
  // The values of this process's replicas, in device order.
  std::vector<Nested> local_results(const PerReplica& value);

  // The same for a tensor of this replica's.
  at::Tensor reduce_sum(const at::Tensor& value);
  at::Tensor reduce_mean(const at::Tensor& value);
  at::Tensor gather(const at::Tensor& value);
  std::vector<at::Tensor> local_results(const at::Tensor& value);

  int64_t steps() const;  // committed so far
  int64_t epoch() const;
  // The next batch is an epoch's first one. With steps() above 0: the epoch before it is over, and
  // a pass that belongs to its end may not have been made before a restart.
  bool epoch_begins() const;

 private:
  StepOutcome RunStep(const std::function<Nested(Step&, const data::Batch&)>& body);
  PerReplica Call(const std::function<Nested()>& function);

  LoopBackend* backend_;
};

}  // namespace muster
