// The class that a user writes, with build, train_step and eval_step. The same program runs under
// every strategy and does not handle ranks, devices or RPCs. The interface uses LibTorch's
// snake_case, and errors are exceptions. An exception that a program throws is caught at the edge
// of its step. It ends the job with its message and exit code 1, or with the code of a StatusError.
//
// Each replica (device) has its own Program object, which is used by one thread. Keep models,
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
  // Gradients are off and models are in eval mode.
  virtual void eval_step(Evaluation& evaluation, const data::Batch& batch) = 0;
  virtual void run(Loop& loop) { loop.fit(); }
  // Returns the outputs for a batch of an input (`muster predict`), one row per example. Gradients
  // are off and models are in eval mode. To refuse an invalid input, throw std::invalid_argument
  // with one sentence. The process then exits with code 2.
  virtual at::Tensor predict(Prediction& prediction, const data::Batch& batch) {
    (void)prediction;
    (void)batch;
    throw std::invalid_argument("the program has no predict(): override Program::predict");
  }
  // encode() converts a text (`muster predict --prompt`) to a batch for predict(). decode() returns
  // the text to print for the outputs of predict(), or "" to print nothing.
  virtual data::Batch encode(const std::string& prompt) {
    (void)prompt;
    throw std::invalid_argument("the program takes no text: override Program::encode");
  }
  virtual std::string decode(const at::Tensor& outputs) {
    (void)outputs;
    return "";
  }
  // With parameter servers: names the keys that train_step will look up in `batch`. Their rows are
  // then pulled while the previous step is computed. A key that is not named here, or that this
  // worker updates meanwhile, is pulled at its lookup. Called on a separate thread while a step may
  // run. It may read the batch (in host memory) and the members that build() set, but nothing that
  // steps change.
  virtual void prefetch(Prefetch& rows, const data::Batch& batch) const {
    (void)rows;
    (void)batch;
  }
};

using ProgramFactory = std::function<std::unique_ptr<Program>()>;

}  // namespace muster
