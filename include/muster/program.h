// What a user writes: one class with build, train_step and eval_step. The same program runs under
// every strategy and knows nothing of ranks, devices or RPC. Its interface is in LibTorch's own
// snake_case, and errors are exceptions here: whatever a program throws is caught at the edge of
// its step and ends the job with exit code 1 and its message.
//
// One Program object exists for each replica (device); each is used by one thread. Keep models,
// optimizers and metrics in members. A step is a transaction: see Step.
#pragma once

#include <functional>
#include <memory>

#include "muster/builder.h"
#include "muster/data.h"
#include "muster/loop.h"
#include "muster/metrics.h"
#include "muster/stamp.h"
#include "muster/step.h"

namespace muster {

class Program {
 public:
  virtual ~Program() = default;
  virtual void build(Builder& builder) = 0;
  virtual void train_step(Step& step, const data::Batch& batch) = 0;
  // Gradients are off and models in eval mode.
  virtual void eval_step(Evaluation& evaluation, const data::Batch& batch) = 0;
  virtual void run(Loop& loop) { loop.fit(); }
  // With parameter servers: the keys that train_step will look up in `batch`, whose rows are then
  // on their way while the step before it is computed. What is not told, or was updated by this
  // worker meanwhile, is pulled when it is looked up. Called on another thread than everything
  // else, while a step may run: it reads the batch (in host memory) and what build() left in
  // members, and nothing that steps change.
  virtual void prefetch(Prefetch& rows, const data::Batch& batch) const {
    (void)rows;
    (void)batch;
  }
};

using ProgramFactory = std::function<std::unique_ptr<Program>()>;

}  // namespace muster
