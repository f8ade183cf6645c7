// Callbacks observe and control training: they stop training, set learning rates and save
// checkpoints. A program registers its own callbacks in build() (Builder::callback). The job's
// "callbacks" list the built-in callbacks (docs/callbacks.md).
//
// Hooks run once for all replicas, on the chief, in the thread of its first replica. With parameter
// servers, hooks run in the thread that directs training. Hooks read values over all replicas. All
// replicas apply the requests of a hook at the same time: at the end of the current epoch or pass,
// or of training. Requests in step_begin and step_end are applied at once if decides_in_steps() is
// true.
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

// Gives a hook the state of training, and takes the hook's requests. Valid during the hook.
class CallbackContext {
 public:
  // In step_begin and step_end, returns the number of the current step, from 1. In other hooks,
  // returns the number of the last step.
  virtual int64_t step() const = 0;
  // The number of the current epoch, from 0. In epoch_end, the epoch that ends.
  virtual int64_t epoch() const = 0;
  virtual int num_replicas() const = 0;
  virtual Split split() const = 0;  // Valid in pass_begin and pass_end.
  // In epoch_end, the map has the epoch's metrics ("loss", the program's metrics, and the values
  // that the program reported). It also has the validation metrics with the prefix "val_", and
  // "learning_rate", the rate of the first optimizer in the last step. In step_end, the map has the
  // epoch's metrics so far. In pass_end, the map has the metrics of the pass. In other hooks the
  // map is empty.
  virtual const std::map<std::string, double>& metrics() const = 0;
  // The sum of all losses of the last step, before its update.
  virtual double loss() const = 0;

  virtual std::vector<std::string> optimizers() const = 0;
  // Returns the learning rate of the next step. An empty name selects the first optimizer.
  virtual double learning_rate(const std::string& optimizer = "") const = 0;
  // Sets the learning rate from the next step on. An empty name selects all optimizers. Throws if
  // the rate follows a schedule.
  virtual void set_learning_rate(double rate, const std::string& optimizer = "") = 0;
  // Ends training and finishes the run. If a step hook calls stop(), training ends after that step,
  // and the passes at the end of an epoch still run. If epoch_end calls stop(), training ends
  // immediately. `why` is logged.
  virtual void stop(const std::string& why) = 0;
  // Saves a checkpoint of the state after this hook, in addition to the job's regular checkpoints.
  virtual void save() = 0;
  // keep_weights() makes a copy of the models' parameters and buffers. restore_weights() writes
  // this copy back. Each callback has one copy, and a new copy replaces it. Checkpoints save the
  // copies, and copies survive the loss of a member.
  virtual void keep_weights() = 0;
  virtual void restore_weights() = 0;
  // Returns true if a copy exists. With parameter servers, only the chief holds the copy until the
  // next checkpoint. If the chief is lost before that checkpoint, the copy is lost.
  virtual bool has_weights() const = 0;
  // Writes the tensors of the models to one safetensors file. If `with_optimizer` is true, the file
  // also has the tensors of the optimizers. The file appears atomically. Throws if it cannot be
  // written.
  virtual void save_model(const std::string& path, bool with_optimizer) = 0;
  // Calls the program's predict() for the batch with the current weights, on this replica only.
  // Returns one row for each example, on the CPU. `columns` names the batch's components, as in
  // Prediction::columns. If `columns` is empty, a single component has the name "x", and several
  // have the names "0", "1", ... With parameter servers, only epoch_end and train_end may call
  // predict(), because the chief has the weights only then. Throws if the prediction is not
  // possible.
  virtual at::Tensor predict(const data::Batch& batch,
                             const std::vector<std::string>& columns = {}) = 0;

  // These functions write a summary for TensorBoard to the folder "train".
  virtual void scalar(const std::string& tag, double value) = 0;
  virtual void text(const std::string& tag, const std::string& markdown) = 0;
  // The shapes are those of Step::image.
  virtual void image(const std::string& tag, const at::Tensor& images) = 0;
  // Sets callbacks.<name>.<key> in result.json.
  virtual void record(const std::string& key, Json value) = 0;
  // Returns the folder that this process may write to, or "" if it may not write files.
  virtual const std::string& model_dir() const = 0;

 protected:
  ~CallbackContext() = default;
};

// The base class of callbacks. Every replica creates its own object in build(), but hooks run on
// only one of these objects. A hook can change other replicas only through its context.
class Callback {
 public:
  virtual ~Callback() = default;
  // Called when training starts, and when training continues after a restart or after the loss of a
  // member. set_state() is called first.
  virtual void train_begin(CallbackContext&) {}
  // Called after the last epoch_end and before the test pass. Not called if training fails or is
  // preempted.
  virtual void train_end(CallbackContext&) {}
  virtual void epoch_begin(CallbackContext&) {}  // Called before the epoch's first step.
  // Called after the validation pass at the end of the epoch.
  virtual void epoch_end(CallbackContext&) {}
  virtual void step_begin(CallbackContext&) {}
  virtual void step_end(CallbackContext&) {}
  // A pass goes once over the validation or test data.
  virtual void pass_begin(CallbackContext&) {}
  virtual void pass_end(CallbackContext&) {}

  // Returns the state that the callback needs to continue. Checkpoints store this state, and
  // surviving members receive it after a loss, so that each hook counts once. All other state is
  // lost when the process restarts.
  virtual Json state() const { return nullptr; }
  virtual void set_state(const Json& state) { (void)state; }
  // Returns whether requests in step_begin and step_end are applied at once. If false, requests may
  // wait for the end of the epoch, which saves two small messages per step.
  virtual bool decides_in_steps() const { return true; }
};

// Returns a callback that sets the rate of all optimizers before the first step of each epoch. The
// new rate is schedule(epoch, current rate). Epochs count from 0. Equals Keras'
// LearningRateScheduler.
std::shared_ptr<Callback> MakeLearningRateScheduler(
    std::function<double(int64_t epoch, double rate)> schedule);

}  // namespace muster
