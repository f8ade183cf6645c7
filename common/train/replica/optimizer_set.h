// The optimizers of a replica, each with the parameters that it may train, a rule and a gradient
// sink. A replica is one device's copy of the program (replica.h), and owns one OptimizerSet.
// Programs may freeze and unfreeze parameters during training. The rules and sinks then change.
//
// The candidates of an optimizer are all parameters of its models, including frozen ones. The rule
// of an optimizer is the object that updates parameters and has their slots. Slots are the
// optimizer's state for each parameter, such as a momentum. A parameter has slots if it was
// trainable at the end of build() or at any later time. The sink of an optimizer receives the
// gradients of a backward pass (gradients/gradient_sink.h).
//
// Used by the replica's thread. During a backward pass, autograd may call the hooks of EndBuild
// from its own device thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"
#include "common/train/replica/gradients/gradient_buckets.h"

namespace muster {

struct NamedMetric;

// The rule of an optimizer, and the parameters that have slots in it.
struct TrainedParameters {
  std::unique_ptr<Optimizer> rule;
  // Indexed by parameter of the rule. `parameter_names` has the first name of each parameter,
  // "<model>.<parameter>". `aliases` has all names of each parameter, and `groups` its group
  // (AssignGroups).
  std::vector<std::string> parameter_names;
  std::vector<std::vector<std::string>> aliases;
  std::vector<int> groups;
  // Indexed by candidate: the index of the parameter in the rule. -1 for a candidate without slots.
  std::vector<int> place;
};

struct NamedOptimizer : TrainedParameters {
  std::string name;
  // All parameters of the optimizer's models, in order. `candidate_names`, `candidate_aliases` and
  // `candidate_groups` are like the lists of TrainedParameters, but indexed by candidate.
  std::vector<at::Tensor> candidates;
  std::vector<std::string> candidate_names;
  std::vector<std::vector<std::string>> candidate_aliases;
  std::vector<int> candidate_groups;
  // Indexed by candidate: true if the sink `gradients` receives the candidate's gradient.
  std::vector<bool> differentiated;
  std::vector<std::string> models;          // The names of the optimizer's models.
  Json spec;                                // The JSON that ParseOptimizer reads.
  Json learning_rate;                       // A number or a schedule, from the job or program.
  std::unique_ptr<Schedule> schedule;       // Set once the length of an epoch is known.
  std::unique_ptr<GradientSink> gradients;  // Belongs to one generation.
  // A program may alternate between two sets of trainable parameters. The replica then keeps two
  // sinks: `gradients` for the current set, and `idle_gradients` for the other set.
  // `idle_differentiated` is like `differentiated`, but for the idle sink. `differentiated_before`
  // is like `differentiated`, but for the sink that was in use before `gradients`.
  std::vector<bool> differentiated_before, idle_differentiated;
  std::unique_ptr<GradientSink> idle_gradients;
  // The rule that the current step has replaced, if any (OptimizerSet::RetainRules).
  std::optional<TrainedParameters> kept;
};

class OptimizerSet {
 public:
  // The arguments must outlive this object. `metrics` are the metrics of the replica.
  OptimizerSet(const Job& job, at::Device device, const std::vector<NamedMetric>& metrics)
      : job_(job), device_(device), metrics_(metrics) {}
  OptimizerSet(const OptimizerSet&) = delete;

  std::vector<NamedOptimizer>& optimizers() { return optimizers_; }
  const std::vector<NamedOptimizer>& optimizers() const { return optimizers_; }

  // Replaces the rule of an optimizer by a rule with slots for each candidate i for which
  // with_slots[i] is true. Existing slots keep their values.
  absl::Status MakeRule(int optimizer, const std::vector<bool>& with_slots);
  // Records which parameters are frozen after build(), for ChangedFrozen. Adds an autograd hook to
  // each candidate. The hook passes the candidate's gradient to a sink. Called once, after all
  // rules are made.
  void EndBuild();

  // Trainable returns these flags for each candidate of each optimizer.
  static constexpr uint8_t kRequiresGrad = 1, kHasSlots = 2;
  std::vector<uint8_t> Trainable() const;
  // Applies the flags of another replica, which begin at `trainable[*at]`. Moves `*at` past these
  // flags. New slots get the initial values of the rule. REQUIRES: no sink is attached.
  absl::Status SetTrainable(const std::vector<uint8_t>& trainable, size_t* at);
  // Returns the names "<model>.<parameter>" of all frozen candidates, sorted. Returns nullopt if
  // the frozen candidates are the same as after build().
  std::optional<std::vector<std::string>> ChangedFrozen() const;

  // Adapts the rule and the sink of an optimizer to the program. Both change if the program has
  // frozen or unfrozen parameters since the last reduction, or if more buffers are averaged than
  // the sink has room for. Called by all replicas before the first backward pass of a reduction. An
  // error names a parameter that is trainable on some replicas only, or that cannot be trained.
  absl::Status FollowProgram(int optimizer);
  // RetainRules and PutBackRules let a step undo its rule changes. After RetainRules(true),
  // FollowProgram keeps each rule that it replaces, with the values of its slots. PutBackRules
  // restores the kept rules. RetainRules(false) drops the kept rules, and no more rules are kept.
  void RetainRules(bool keep);
  void PutBackRules();

  // Begins a generation (a period of training with fixed members). Returns a sink for each
  // optimizer. The communicator must outlive the generation. `buffer_room`: see set_buffer_room.
  std::vector<std::unique_ptr<GradientSink>> MakeSinks(collective::Communicator* communicator,
                                                       const CollectiveOptions& options,
                                                       int64_t buffer_room);
  // Begins a generation in which gradients go to parameter servers.
  void BeginOnServers();
  // Ends the generation. Destroys the sinks.
  void Detach();

  // Sets the number of elements of averaged buffers for which the last optimizer's sink must have
  // room. A step reduces these buffers and its other control data together with its last gradients.
  void set_buffer_room(int64_t elements) { buffer_room_ = elements; }
  // A backward pass for one optimizer. While the object exists, the hooks pass gradients to the
  // sink of this optimizer. Otherwise the hooks do nothing. At most one object exists.
  class BackwardPass {
   public:
    BackwardPass(OptimizerSet* set, int optimizer) : set_(set) { set_->active_ = optimizer; }
    ~BackwardPass() { set_->active_ = -1; }
    BackwardPass(const BackwardPass&) = delete;
    BackwardPass& operator=(const BackwardPass&) = delete;

   private:
    OptimizerSet* const set_;
  };

 private:
  void MakeSink(int optimizer);
  // Makes a sink for the candidates that require a gradient now. Takes the idle sink if it has
  // exactly these candidates.
  void ChangeSink(int optimizer);
  // Returns the maximum number of floats of control data in the optimizer's sink.
  int64_t ControlCapacity(int optimizer) const;
  // now[i] is true if candidate i is trainable. Returns an error if `now` differs between
  // replicas.
  absl::Status AgreeOnTrainable(const NamedOptimizer& optimizer, const std::vector<bool>& now);

  const Job& job_;
  const at::Device device_;
  const std::vector<NamedMetric>& metrics_;
  std::vector<NamedOptimizer> optimizers_;
  std::vector<uint8_t> built_trainable_;  // The result of Trainable() after build().
  int active_ = -1;                       // The optimizer of the BackwardPass, or -1.
  bool keeps_rules_ = false;              // The argument of RetainRules.
  // The generation's communicator. Null if gradients go to parameter servers.
  collective::Communicator* communicator_ = nullptr;
  CollectiveOptions collective_;
  int64_t buffer_room_ = 0;
};

}  // namespace muster
