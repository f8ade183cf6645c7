// What looks at training while it runs, and steers it: stops it, sets rates, saves. A program
// registers its own in build() (Builder::callback); the job's "callbacks" name the built-in ones
// (docs/callbacks.md).
//
// Hooks run once for all replicas: on the chief, in the thread of its first replica (on parameter
// servers in the thread that directs), and see numbers of all replicas. What a hook asks for is
// told to all replicas, which obey at the same step: at the end of the hook's epoch, pass or
// training, and in step_begin and step_end at once where decides_in_steps() says so.
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

// What a hook sees, and may ask for. Valid during the hook.
class CallbackContext {
 public:
  // In step_begin and step_end the number of that step, from 1; else of the last one.
  virtual int64_t step() const = 0;
  virtual int64_t epoch() const = 0;  // from 0: the one under way, or that ends
  virtual int num_replicas() const = 0;
  virtual Split split() const = 0;  // in pass_begin and pass_end
  // In epoch_end the epoch's ("loss", the program's metrics and what it reports), those of the
  // validation at its end with "val_" before their names, and "learning_rate", the first
  // optimizer's in the last step; in step_end the epoch's so far; in pass_end the pass's; else
  // none.
  virtual const std::map<std::string, double>& metrics() const = 0;
  virtual double loss() const = 0;  // of the last step: the whole objective before the update

  virtual std::vector<std::string> optimizers() const = 0;
  // Of the next step. Without a name: the first optimizer's.
  virtual double learning_rate(const std::string& optimizer = "") const = 0;
  // From the next step on. Without a name: of all optimizers. Throws where the rate follows a
  // schedule.
  virtual void set_learning_rate(double rate, const std::string& optimizer = "") = 0;
  // Training ends, and is finished: in a step after it, with the passes that end an epoch; at an
  // epoch's end right there. `why` is said in the log.
  virtual void stop(const std::string& why) = 0;
  // A checkpoint of the state after this hook, besides those that the job asks for.
  virtual void save() = 0;
  // Remembers the models' parameters and buffers (in place of what this callback has remembered
  // before), and puts them back. They are saved, and survive the loss of a member.
  virtual void keep_weights() = 0;
  virtual void restore_weights() = 0;
  // They were remembered, and not lost with a chief since (on parameter servers, where it alone has
  // them until the next checkpoint).
  virtual bool has_weights() const = 0;
  // Writes the models' tensors, and with_optimizer the optimizers', to one safetensors file, which
  // appears whole. Throws what keeps it from being written.
  virtual void save_model(const std::string& path, bool with_optimizer) = 0;
  // What the program's predict() makes of the batch with the weights of now, on this replica alone:
  // one row for each example, on the CPU. `columns` names the batch's components, as
  // Prediction::columns; without them one is "x", several are "0", "1", ... On parameter servers in
  // epoch_end and train_end alone, where the chief has their weights. Throws what keeps it from
  // that.
  virtual at::Tensor predict(const data::Batch& batch,
                             const std::vector<std::string>& columns = {}) = 0;

  // For TensorBoard, in the folder train.
  virtual void scalar(const std::string& tag, double value) = 0;
  virtual void text(const std::string& tag, const std::string& markdown) = 0;
  virtual void image(const std::string& tag, const at::Tensor& images) = 0;  // as Step::image
  // result.json's callbacks.<name>.<key>.
  virtual void record(const std::string& key, Json value) = 0;
  // Where this process may write; empty where nothing is to be written.
  virtual const std::string& model_dir() const = 0;

 protected:
  ~CallbackContext() = default;
};

// Every replica makes one in build(), of which one alone hears of training: what the others need to
// know must go by the context.
class Callback {
 public:
  virtual ~Callback() = default;
  // Training begins, or goes on after a restart or the loss of a member (set_state() came before).
  virtual void train_begin(CallbackContext&) {}
  // Training is through, the last epoch's end too, but not the test pass; not where it fails or is
  // preempted.
  virtual void train_end(CallbackContext&) {}
  virtual void epoch_begin(CallbackContext&) {}  // before its first step
  // After the validation that belongs to the epoch's end.
  virtual void epoch_end(CallbackContext&) {}
  virtual void step_begin(CallbackContext&) {}
  virtual void step_end(CallbackContext&) {}
  virtual void pass_begin(CallbackContext&) {}  // over validation or test data
  virtual void pass_end(CallbackContext&) {}

  // What it must know to go on, for checkpoints and for the members that go on after a loss: each
  // hook counts once. What is not in here starts anew with the process.
  virtual Json state() const { return nullptr; }
  virtual void set_state(const Json& state) { (void)state; }
  // False: what it asks for in step_begin and step_end may wait for the end of the epoch (which
  // saves two small messages a step).
  virtual bool decides_in_steps() const { return true; }
};

// Sets the rate of all optimizers before each epoch's first step, from 0, to what the function
// makes of the epoch and the rate so far: Keras' LearningRateScheduler.
std::shared_ptr<Callback> MakeLearningRateScheduler(
    std::function<double(int64_t epoch, double rate)> schedule);

}  // namespace muster
