// The base class of a user's program. A subclass defines at least build, train_step and eval_step.
// The same program runs under every strategy (docs/job_file.md), and needs no code for ranks,
// devices or RPCs. As in LibTorch, names are in snake_case and errors are exceptions. If a program
// throws an exception, the job ends with the exception's message and exit code 1. A StatusError
// (muster/error.h) sets another exit code.
//
// Each replica (device) has its own Program object. One thread calls all functions of the object,
// except prefetch(). A program keeps its models and its handles of optimizers and metrics in data
// members. muster/step.h describes a step.
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
  // Called for each batch of a validation or test pass, with gradients off and models in eval mode.
  virtual void eval_step(Evaluation& evaluation, const data::Batch& batch) = 0;
  virtual void run(Loop& loop) { loop.fit(); }
  // Returns the outputs for a batch of input, one row per example. `muster predict` and
  // CallbackContext::predict call this function, with gradients off and models in eval mode. For an
  // invalid input, throw std::invalid_argument with one sentence. `muster predict` then exits with
  // code 2.
  virtual at::Tensor predict(Prediction& prediction, const data::Batch& batch) {
    (void)prediction;
    (void)batch;
    throw std::invalid_argument("the program has no predict(): override Program::predict");
  }
  // For `muster predict --prompt`, encode() converts the prompt to a batch for predict(). decode()
  // converts the outputs of predict() to the text to print. "" means that nothing is printed.
  virtual data::Batch encode(const std::string& prompt) {
    (void)prompt;
    throw std::invalid_argument("the program takes no text: override Program::encode");
  }
  virtual std::string decode(const at::Tensor& outputs) {
    (void)outputs;
    return "";
  }
  // Reports the keys that train_step will look up in embedding tables for `batch`. Called only with
  // parameter servers. The worker pulls the rows of these keys while it computes the previous step.
  // Step::lookup pulls rows that the previous step updates, and rows that were not prefetched.
  // Called on a separate thread, while a step may run. An implementation may read the batch (in
  // host memory) and the data members that build() set. It must not read data that steps change.
  virtual void prefetch(Prefetch& rows, const data::Batch& batch) const {
    (void)rows;
    (void)batch;
  }
};

using ProgramFactory = std::function<std::unique_ptr<Program>()>;

}  // namespace muster
