// What a user writes: one class with build, train_step and eval_step. The same program runs under
// every strategy and knows nothing of ranks, devices or RPC. Its interface is in LibTorch's own
// snake_case, and errors are exceptions here: whatever a program throws is caught at the edge of
// its step and ends the job with exit code 1 and its message, or with the code that a StatusError
// says.
//
// One Program object exists for each replica (device); each is used by one thread. Keep models,
// optimizers and metrics in members. A step is a transaction: see Step.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "muster/builder.h"
#include "muster/callback.h"
#include "muster/data.h"
#include "muster/error.h"
#include "muster/loop.h"
#include "muster/metrics.h"
#include "muster/prediction.h"
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
  // The outputs for a batch of an input (`muster predict`): one row for each example. Gradients are
  // off and models in eval mode. An input that is not the program's it refuses by
  // std::invalid_argument, in one sentence: the input's mistake, exit code 2.
  virtual at::Tensor predict(Prediction& prediction, const data::Batch& batch) {
    (void)prediction;
    (void)batch;
    throw std::invalid_argument("the program has no predict(): override Program::predict");
  }
  // A text (`muster predict --prompt`) as a batch for predict(), and what is printed of its
  // outputs; "": nothing.
  virtual data::Batch encode(const std::string& prompt) {
    (void)prompt;
    throw std::invalid_argument("the program takes no text: override Program::encode");
  }
  virtual std::string decode(const at::Tensor& outputs) {
    (void)outputs;
    return "";
  }
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
