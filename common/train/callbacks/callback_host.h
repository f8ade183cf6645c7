// Calls the hooks of callbacks and collects their requests. A hook is a method of a callback, such
// as epoch_end. A request is, for example, a stop or a new learning rate. CallbackDecision lists
// the requests.
//
// Only one process of the job has a CallbackHost. In synchronous training, the training loop sends
// each decision to all replicas, which apply it. In a parameter-server job, the chief applies the
// decision. A request has no effect before the decision is applied.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/train/callbacks/callback_decision.h"
#include "common/train/observer.h"
#include "muster/callback.h"
#include "muster/status.h"

namespace muster {

struct NamedCallback {
  std::string name;  // Unique in a run. Checkpoints have the callback's state under this name.
  std::shared_ptr<Callback> callback;
};

// ToText converts a decision to text, and DecisionFromText parses this text.
std::string ToText(const CallbackDecision& decision);
absl::StatusOr<CallbackDecision> DecisionFromText(const std::string& text);

struct CallbackHostOptions {
  std::vector<NamedCallback> callbacks;
  // The learning rate that an optimizer has without callbacks.
  struct Rate {
    std::string optimizer;
    Json learning_rate;  // The job's rate if the job has one, else the program's rate.
  };
  std::vector<Rate> rates;
  std::vector<Observer*> observers;
  std::string model_dir;  // Empty if the run writes nothing.
  // Returns OK as long as this process owns model_dir. Otherwise returns an error, and hooks that
  // write fail with this error. May be null.
  std::function<absl::Status()> may_write;
  int num_replicas = 1;
  // Returns the learning rate of `optimizer` for the next step. Not called for an optimizer whose
  // rate a callback has set.
  std::function<double(const std::string& optimizer)> rate;
  // The implementation of CallbackContext::save_model.
  std::function<absl::Status(const std::string& path, bool with_optimizer)> save_model;
  // The implementation of CallbackContext::predict.
  std::function<absl::StatusOr<at::Tensor>(const data::Batch& batch,
                                           const std::vector<std::string>& columns)>
      predict;
};

// Removes outdated learning rates from `record`. A rate that a callback has set is outdated if the
// job's own rate for the optimizer changed after the callback set the rate. Returns one sentence
// for the log for each removed rate.
std::vector<std::string> DropReplacedRates(const std::vector<CallbackHostOptions::Rate>& rates,
                                           checkpoint::CallbackRecord* record);

// Used by one thread.
class CallbackHost : private CallbackContext {
 public:
  explicit CallbackHost(CallbackHostOptions options) : options_(std::move(options)) {}

  // Starts with `record`, and restores the callbacks' states from `record`. `begun` must be true if
  // the run continues after a completed step. In that case, logs a line for each callback that has
  // no state in `record` and therefore starts over.
  void Begin(const checkpoint::CallbackRecord& record, bool begun);
  // Calls `hook` of all callbacks. Throws StatusError on failure. If a callback throws an
  // exception, the error is a ProgramError with the callback's name.
  void Fire(Hook hook, CallbackMoment moment);
  // Sets `decision` to all requests since the previous call of TakeDecision, and returns true. The
  // decision also has the current states of the callbacks. Returns false if there is no request and
  // no state has changed.
  bool TakeDecision(CallbackDecision* decision);
  // Sets the record that is in effect after a decision was applied. Discards all changes that hooks
  // have made to the previous record.
  void Adopt(const checkpoint::CallbackRecord& record);

 private:
  int64_t step() const override { return moment_.step; }
  int64_t epoch() const override { return moment_.epoch; }
  int num_replicas() const override { return options_.num_replicas; }
  Split split() const override { return moment_.split; }
  const std::map<std::string, double>& metrics() const override { return moment_.metrics; }
  double loss() const override { return moment_.loss; }
  std::vector<std::string> optimizers() const override;
  double learning_rate(const std::string& optimizer) const override;
  void set_learning_rate(double rate, const std::string& optimizer) override;
  void stop(const std::string& why) override;
  void save() override { decision_.save = true; }
  void keep_weights() override;
  void restore_weights() override;
  bool has_weights() const override { return decision_.record.kept.contains(running_); }
  void save_model(const std::string& path, bool with_optimizer) override;
  at::Tensor predict(const data::Batch& batch, const std::vector<std::string>& columns) override;
  void scalar(const std::string& tag, double value) override;
  void text(const std::string& tag, const std::string& markdown) override;
  void image(const std::string& tag, const at::Tensor& images) override;
  void record(const std::string& key, Json value) override;
  const std::string& model_dir() const override { return options_.model_dir; }

  const CallbackHostOptions options_;
  checkpoint::CallbackRecord adopted_;  // Argument of the last Adopt or Begin.
  CallbackDecision decision_;
  CallbackMoment moment_;
  std::string running_;  // Name of the callback whose hook is running.
};

// Returns true if callbacks may set the learning rate of an optimizer. `learning_rate` is the rate
// in the job or program. Callbacks may set a constant rate, but not the rate of a schedule.
bool IsSettable(const Json& learning_rate);

}  // namespace muster
