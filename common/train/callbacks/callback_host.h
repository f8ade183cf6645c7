// Calls the hooks of callbacks and collects the requests of the hooks in a CallbackDecision. Only
// one process of the job has a host. In an all-reduce job, the training loop sends each decision to
// all replicas, which apply it. In a parameter-server job, the director applies it. A request has
// no effect until then.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/train/callbacks/callback_decision.h"
#include "common/train/membership.h"
#include "muster/callback.h"
#include "muster/status.h"

namespace muster {

struct NamedCallback {
  std::string name;  // Unique in a run. Checkpoints have the callback's state under this name.
  std::shared_ptr<Callback> callback;
};

std::string ToText(const CallbackDecision& decision);
absl::StatusOr<CallbackDecision> DecisionFromText(const std::string& text);

struct CallbackHostOptions {
  std::vector<NamedCallback> callbacks;
  struct Rate {
    std::string optimizer;
    Json learning_rate;  // The job's rate if the job has one, otherwise the program's.
  };
  std::vector<Rate> rates;
  std::vector<Observer*> observers;
  std::string model_dir;  // Empty if the run writes nothing.
  // Returns OK while this process still owns model_dir. May be null.
  std::function<absl::Status()> may_write;
  int num_replicas = 1;
  // Returns the optimizer's rate for the next step, from its schedule. Not called for an optimizer
  // whose rate a callback has set.
  std::function<double(const std::string& optimizer)> rate;
  std::function<absl::Status(const std::string& path, bool with_optimizer)> save_model;
  // See CallbackContext::predict.
  std::function<absl::StatusOr<at::Tensor>(const data::Batch& batch,
                                           const std::vector<std::string>& columns)>
      predict;
};

// A rate that a callback has set becomes invalid when the job's own rate for the optimizer changes.
// Removes invalid rates from `record`. Returns one sentence for the log for each removed rate.
std::vector<std::string> DropReplacedRates(const std::vector<CallbackHostOptions::Rate>& rates,
                                           checkpoint::CallbackRecord* record);

// Used by one thread.
class CallbackHost : private CallbackContext {
 public:
  explicit CallbackHost(CallbackHostOptions options) : options_(std::move(options)) {}

  // Starts from `record`, and restores the callbacks' states that it has. `begun` is true if the
  // run has completed a step. The log then names each callback that has no saved state and starts
  // over.
  void Begin(const checkpoint::CallbackRecord& record, bool begun);
  // Calls `hook` of all callbacks. Throws StatusError. An exception of a callback becomes a
  // ProgramError with the callback's name.
  void Fire(Hook hook, CallbackMoment moment);
  // Sets `decision` to all requests since the last call, with the states of the callbacks. Returns
  // false if no hook has made a request and no state has changed.
  bool TakeDecision(CallbackDecision* decision);
  // Sets the record that is in effect. Discards changes that hooks have made to the previous one.
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
  checkpoint::CallbackRecord adopted_;
  CallbackDecision decision_;
  CallbackMoment moment_;
  std::string running_;  // Name of the callback whose hook is running.
};

// Returns true if callbacks may set the rate: for a constant rate, not for a schedule.
bool IsSettable(const Json& learning_rate);

}  // namespace muster
