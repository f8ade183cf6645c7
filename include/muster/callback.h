// Callbacks observe training and control it: they stop it, set learning rates and save checkpoints.
// A program registers its own in build() (Builder::callback). The job's "callbacks" list the
// built-in ones (docs/callbacks.md).
//
// Hooks run once for all replicas, on the chief, in the thread of its first replica. With parameter
// servers they run in the thread that directs training. They see values over all replicas. All
// replicas apply the requests of a hook at the same step: at the end of the hook's epoch, pass or
// training. Requests in step_begin and step_end are applied at once if decides_in_steps() is true.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/data.h"
#include "muster/handles.h"
#include "muster/json.h"

namespace muster {

// The state of training that a hook reads, and the requests that it can make. Valid during the
// hook.
class CallbackContext {
 public:
  // The number of the current step, from 1, in step_begin and step_end. Otherwise the number of the
  // last step.
  virtual int64_t step() const = 0;
  virtual int64_t epoch() const = 0;  // From 0: the current epoch, or the one that ends.
  virtual int num_replicas() const = 0;
  virtual Split split() const = 0;  // Valid in pass_begin and pass_end.
  // In epoch_end, these are the epoch's metrics ("loss", the program's metrics and its reported
  // values), its validation metrics with the prefix "val_", and "learning_rate", the rate of the
  // first optimizer in the last step. In step_end, they are the epoch's metrics so far. In
  // pass_end, they are the metrics of the pass. In other hooks the map is empty.
  virtual const std::map<std::string, double>& metrics() const = 0;
  virtual double loss() const = 0;  // The whole objective of the last step, before its update.

  virtual std::vector<std::string> optimizers() const = 0;
  // Returns the rate of the next step. An empty name means the first optimizer.
  virtual double learning_rate(const std::string& optimizer = "") const = 0;
  // Takes effect from the next step on. An empty name means all optimizers. Throws if the rate
  // follows a schedule.
  virtual void set_learning_rate(double rate, const std::string& optimizer = "") = 0;
  // Ends training and finishes the run. In a step hook, training ends after that step and the
  // passes at the end of an epoch still run. At the end of an epoch, training ends immediately.
  // `why` is logged.
  virtual void stop(const std::string& why) = 0;
  // Saves a checkpoint of the state after this hook, in addition to those that the job asks for.
  virtual void save() = 0;
  // Keeps a copy of the models' parameters and buffers, or restores that copy. A new copy replaces
  // the previous copy of this callback. Copies are saved in checkpoints and survive the loss of a
  // member.
  virtual void keep_weights() = 0;
  virtual void restore_weights() = 0;
  // True if a copy exists. With parameter servers only the chief holds the copy until the next
  // checkpoint, so the loss of the chief can lose it.
  virtual bool has_weights() const = 0;
  // Writes the models' tensors, and the optimizers' if `with_optimizer`, to one safetensors file.
  // The file appears atomically. Throws if it cannot be written.
  virtual void save_model(const std::string& path, bool with_optimizer) = 0;
  // Returns the program's predict() for the batch with the current weights, computed on this
  // replica only: one row for each example, on the CPU. `columns` names the batch's components, as
  // Prediction::columns does. Without them a single component is "x", several are "0", "1", ...
  // With parameter servers, callable only in epoch_end and train_end, where the chief has their
  // weights. Throws if the prediction is not possible.
  virtual at::Tensor predict(const data::Batch& batch,
                             const std::vector<std::string>& columns = {}) = 0;

  // Writes a summary for TensorBoard to the folder "train".
  virtual void scalar(const std::string& tag, double value) = 0;
  virtual void text(const std::string& tag, const std::string& markdown) = 0;
  // Same shapes as Step::image.
  virtual void image(const std::string& tag, const at::Tensor& images) = 0;
  // Sets callbacks.<name>.<key> in result.json.
  virtual void record(const std::string& key, Json value) = 0;
  // The folder that this process may write to. Empty if nothing may be written.
  virtual const std::string& model_dir() const = 0;

 protected:
  ~CallbackContext() = default;
};

// Every replica creates a callback in build(), but the hooks run on only one of the objects.
// Information for the other replicas must go through the context.
class Callback {
 public:
  virtual ~Callback() = default;
  // Training starts, or continues after a restart or the loss of a member. set_state() is called
  // before it.
  virtual void train_begin(CallbackContext&) {}
  // Training is finished, including the end of the last epoch, but the test pass has not run. Not
  // called if training fails or is preempted.
  virtual void train_end(CallbackContext&) {}
  virtual void epoch_begin(CallbackContext&) {}  // Called before the epoch's first step.
  // Called after the validation that belongs to the end of the epoch.
  virtual void epoch_end(CallbackContext&) {}
  virtual void step_begin(CallbackContext&) {}
  virtual void step_end(CallbackContext&) {}
  virtual void pass_begin(CallbackContext&) {}  // A pass is over validation or test data.
  virtual void pass_end(CallbackContext&) {}

  // The state that the callback needs to continue. It is stored in checkpoints and passed to the
  // surviving members after a loss, so that each hook counts once. State that is not returned here
  // is lost when the process restarts.
  virtual Json state() const { return nullptr; }
  virtual void set_state(const Json& state) { (void)state; }
  // False: requests in step_begin and step_end may wait for the end of the epoch. This saves two
  // small messages per step.
  virtual bool decides_in_steps() const { return true; }
};

// Sets the rate of all optimizers before the first step of each epoch (from 0) to schedule(epoch,
// current rate). Equals Keras' LearningRateScheduler.
std::shared_ptr<Callback> MakeLearningRateScheduler(
    std::function<double(int64_t epoch, double rate)> schedule);

}  // namespace muster
