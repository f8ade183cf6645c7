// The process that decides: calls the callbacks' hooks, and gathers what they ask for. What comes
// of it is told to all replicas by the loop (or done by the director of a parameter-server job),
// and counts from then on.
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
  std::string name;  // unique; what its state is saved by
  std::shared_ptr<Callback> callback;
};

std::string ToText(const CallbackDecision& decision);
absl::StatusOr<CallbackDecision> DecisionFromText(const std::string& text);

struct CallbackHostOptions {
  std::vector<NamedCallback> callbacks;
  struct Rate {
    std::string optimizer;
    Json learning_rate;  // the job's or the program's
  };
  std::vector<Rate> rates;
  std::vector<Observer*> observers;
  std::string model_dir;                    // empty: nothing is written
  std::function<absl::Status()> may_write;  // null, or whether model_dir is still this process's
  int num_replicas = 1;
  // The rate of an optimizer's next step where no callback set one.
  std::function<double(const std::string& optimizer)> rate;
  std::function<absl::Status(const std::string& path, bool with_optimizer)> save_model;
  // As CallbackContext's.
  std::function<absl::StatusOr<at::Tensor>(const data::Batch& batch,
                                           const std::vector<std::string>& columns)>
      predict;
};

// A rate that callbacks set counts in the place of the job's as long as that stays as it was: those
// of others go. One sentence for each.
std::vector<std::string> DropReplacedRates(const std::vector<CallbackHostOptions::Rate>& rates,
                                           checkpoint::CallbackRecord* record);

// For one thread.
class CallbackHost : private CallbackContext {
 public:
  explicit CallbackHost(CallbackHostOptions options) : options_(std::move(options)) {}

  // Training begins or goes on with this record: callbacks get their state back. `begun`: steps
  // were made before, so that one without a state is said to begin anew.
  void Begin(const checkpoint::CallbackRecord& record, bool begun);
  // Calls the hook of all callbacks. Throws StatusError: what a callback threw, as a ProgramError
  // with its name.
  void Fire(Hook hook, CallbackMoment moment);
  // False: nothing was asked for, and nothing changed, since the last time.
  bool TakeDecision(CallbackDecision* decision);
  // What counts from now on.
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
  std::string running_;  // the callback whose hook runs
};

// Whether a callback may set this rate: a number is not a schedule.
bool IsSettable(const Json& learning_rate);

}  // namespace muster
