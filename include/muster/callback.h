// Callbacks observe and control training: they stop training, set learning rates and save
// checkpoints. A program registers its own callbacks in build() (Builder::callback). The job's
// "callbacks" list the built-in callbacks (docs/callbacks.md).
//
// Hooks are the member functions of a callback, such as epoch_end(), that Muster calls during
// training. A replica is one device's copy of the program. The chief is the task that leads the
// job. Muster calls each hook once for all replicas: on the chief, in the thread of its first
// replica. With parameter servers, the chief's directing thread calls the hooks. The numbers that
// hooks read cover all replicas.
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

// Gives a hook the state of training, and takes the hook's requests, such as stop(). Valid only
// during the hook. All replicas apply the requests together, right after the hook returns. There
// are three exceptions. Requests of pass_begin are applied after pass_end. Requests of step_begin
// and step_end are applied after the next epoch_end or pass_end, if decides_in_steps() is false for
// all callbacks. With parameter servers, requests are applied at the end of the epoch.
class CallbackContext {
 public:
  // In step_begin and step_end, returns the number of the current step, from 1. In other hooks,
  // returns the number of the last step.
  virtual int64_t step() const = 0;
  // Returns the number of the current epoch, from 0. In epoch_end, this is the epoch that ends.
  virtual int64_t epoch() const = 0;
  virtual int num_replicas() const = 0;
  virtual Split split() const = 0;  // Valid in pass_begin and pass_end.
  // Returns values by name. In epoch_end, the map has the training metrics of the epoch: "loss",
  // the program's metrics, and the values that the program reported (Step::report). The map also
  // has the validation metrics, with the prefix "val_". The entry "learning_rate" is the rate of
  // the first optimizer in the last step. In step_end, the map has the training metrics of the
  // epoch's steps up to the current step. In pass_end, the map has the metrics of the pass. In
  // other hooks, the map is empty.
  virtual const std::map<std::string, double>& metrics() const = 0;
  // Returns the sum of all losses of the last step, computed before the step's update.
  virtual double loss() const = 0;

  virtual std::vector<std::string> optimizers() const = 0;
  // Returns the learning rate of the next step. An empty name selects the first optimizer.
  virtual double learning_rate(const std::string& optimizer = "") const = 0;
  // Sets the learning rate from the next step on. An empty name selects all optimizers. Throws if
  // the rate follows a schedule.
  virtual void set_learning_rate(double rate, const std::string& optimizer = "") = 0;
  // Ends training and marks the run as finished. If step_begin or step_end calls stop(), training
  // ends after the current step. The passes at the end of an epoch still run. If epoch_end calls
  // stop(), no further step runs. `why` is logged.
  virtual void stop(const std::string& why) = 0;
  // Requests a checkpoint, in addition to the job's regular checkpoints. The checkpoint includes
  // the effects of this hook's requests.
  virtual void save() = 0;
  // keep_weights() makes a copy of the models' parameters and buffers. restore_weights() writes the
  // copy back into the models. Each callback has at most one copy, which the next keep_weights()
  // replaces. Checkpoints save the copies, and the copies survive the loss of a training process.
  virtual void keep_weights() = 0;
  virtual void restore_weights() = 0;
  // Returns true if keep_weights() has made a copy. With parameter servers, the copy is only in the
  // chief's memory until the next checkpoint. If the chief is lost before that checkpoint, the copy
  // is lost.
  virtual bool has_weights() const = 0;
  // Writes the tensors of the models to one safetensors file. If `with_optimizer` is true, the file
  // also has the tensors of the optimizers. The file appears atomically. Throws if the file cannot
  // be written.
  virtual void save_model(const std::string& path, bool with_optimizer) = 0;
  // Calls the program's predict() for the batch with the current weights, on this replica only.
  // Returns one row for each example, on the CPU. `columns` names the batch's components, as in
  // Prediction::columns. If `columns` is empty, a single component has the name "x", and several
  // components have the names "0", "1", ... With parameter servers, only epoch_end and train_end
  // may call predict(), because the chief has the weights only in these two hooks. Throws if the
  // prediction is not possible.
  virtual at::Tensor predict(const data::Batch& batch,
                             const std::vector<std::string>& columns = {}) = 0;

  // scalar(), text() and image() write TensorBoard summaries to the run's folder "train".
  virtual void scalar(const std::string& tag, double value) = 0;
  virtual void text(const std::string& tag, const std::string& markdown) = 0;
  // `images` has a shape that Step::image accepts.
  virtual void image(const std::string& tag, const at::Tensor& images) = 0;
  // Sets the entry callbacks.<name>.<key> in the run's result.json. <name> is the callback's name.
  virtual void record(const std::string& key, Json value) = 0;
  // Returns the job's model_dir, the folder to which callbacks may write files. Returns "" if this
  // process must not write files.
  virtual const std::string& model_dir() const = 0;

 protected:
  ~CallbackContext() = default;
};

// The base class of callbacks. Every replica creates its own object in build(), but Muster calls
// the hooks of only one of these objects. A hook can affect other replicas only through its
// CallbackContext.
class Callback {
 public:
  virtual ~Callback() = default;
  // Called when training starts. Also called when training continues after a restart, or after the
  // loss of a training process. set_state() is called before train_begin().
  virtual void train_begin(CallbackContext&) {}
  // Called after the last epoch_end() and before the final test pass. Not called if training fails
  // or is preempted.
  virtual void train_end(CallbackContext&) {}
  virtual void epoch_begin(CallbackContext&) {}  // Called before the epoch's first step.
  // Called after the validation pass at the end of the epoch.
  virtual void epoch_end(CallbackContext&) {}
  virtual void step_begin(CallbackContext&) {}
  virtual void step_end(CallbackContext&) {}
  // Called before and after a pass. A pass reads the validation or test data once.
  virtual void pass_begin(CallbackContext&) {}
  virtual void pass_end(CallbackContext&) {}

  // Returns the state that the callback needs to continue. Checkpoints store this state. After the
  // loss of a training process, Muster may call a hook a second time. Before the second call,
  // set_state() receives the state that the callback had before the first call. The state therefore
  // contains the hook's changes only once. A restart of the process loses all other data of the
  // callback.
  virtual Json state() const { return nullptr; }
  virtual void set_state(const Json& state) { (void)state; }
  // Returns true if requests of step_begin and step_end must be applied right after these hooks.
  // This costs two small messages per step. If the function returns false, the requests may wait
  // until the end of the epoch.
  virtual bool decides_in_steps() const { return true; }
};

// Returns a callback that sets the learning rate of all optimizers before the first step of each
// epoch. The new rate is schedule(epoch, current rate). Epochs count from 0. Works like Keras'
// LearningRateScheduler.
std::shared_ptr<Callback> MakeLearningRateScheduler(
    std::function<double(int64_t epoch, double rate)> schedule);

}  // namespace muster
