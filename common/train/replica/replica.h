// A replica is one copy of the program on one device, with its models, optimizers, metrics and
// embedding tables. The main thread constructs one replica after the other. Then each replica is
// used by its own thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/data/job/job_datasets.h"
#include "common/job/job.h"
#include "common/job/load_spec.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"
#include "common/train/embedding/embedding_store.h"
#include "common/train/replica/gradient_buckets.h"
#include "muster/program.h"

namespace muster {

struct CallbackList;
class KeptWeights;
struct RegisteredCallback;

struct NamedModel {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  // Names are those within the module.
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
};

// The rule of an optimizer, with the parameters that it updates: those that build() left trainable,
// and those that the program has trained since.
struct TrainedParameters {
  std::unique_ptr<Optimizer> rule;
  // Indexed by parameter of the rule. `parameter_names` has the first name, "<model>.<parameter>".
  // `aliases` has all names, the first one included. `groups` has the number of the group
  // (AssignGroups).
  std::vector<std::string> parameter_names;
  std::vector<std::vector<std::string>> aliases;
  std::vector<int> groups;
  // Indexed by candidate: the parameter's index in the rule. -1 if it is not in the rule, so that
  // it has no slots.
  std::vector<int> place;
};

struct NamedOptimizer : TrainedParameters {
  std::string name;
  // The candidates: all parameters of the optimizer's models in their order, including frozen ones.
  // `candidate_names`, `candidate_aliases` and `candidate_groups` are like the lists of
  // TrainedParameters, but indexed by candidate.
  std::vector<at::Tensor> candidates;
  std::vector<std::string> candidate_names;
  std::vector<std::vector<std::string>> candidate_aliases;
  std::vector<int> candidate_groups;
  // Indexed by candidate: true if `gradients` has a place for it.
  std::vector<bool> differentiated;
  std::vector<std::string> models;
  Json spec;  // The JSON that ParseOptimizer reads.
  Json learning_rate;
  std::unique_ptr<Schedule> schedule;       // Set once the length of an epoch is known.
  std::unique_ptr<GradientSink> gradients;  // Belongs to one generation.
  // For programs that alternate between two sets of trainable parameters. `differentiated_before`
  // has the candidates of the previous sink. `idle_gradients` is the sink of the set that is not in
  // use, and `idle_differentiated` has its candidates.
  std::vector<bool> differentiated_before, idle_differentiated;
  std::unique_ptr<GradientSink> idle_gradients;
  std::optional<TrainedParameters> kept;  // Set by Replica::RetainRules.
};

struct NamedBuffer {
  std::string name;  // "<model>.<buffer>"
  at::Tensor tensor;
  // Absent if the program does not declare a mode. A floating-point buffer that steps change is
  // then treated as kMean, and any other buffer as kSame.
  std::optional<BufferMode> mode;
  // True for a buffer that replicas average: a step has changed it, or it is declared kMean.
  bool averaged = false;
};

struct NamedMetric {
  std::string name;
  std::shared_ptr<const Metric> metric;
};

struct NamedEmbedding {
  std::string name;
  push_pull::EmbeddingTable::Options options;
  Json optimizer, learning_rate;
  std::unique_ptr<Schedule> schedule;  // Set once the length of an epoch is known.
};

struct DatasetDeclaration {
  std::function<absl::StatusOr<data::DatasetPtr>()> make;
  DatasetOptions options;
};

struct NamedDataset {
  std::string name;
  std::function<absl::StatusOr<data::DatasetPtr>()> make;
  NamedDatasetOptions options;
};

class Replica {
 public:
  // Makes the program and runs its build(). An exception of the program becomes a ProgramError with
  // its message. `first` is another replica of this process, whose open data files the new replica
  // shares. `first` may be null.
  static absl::StatusOr<std::unique_ptr<Replica>> Make(const Job& job,
                                                       const ProgramFactory& factory,
                                                       at::Device device,
                                                       const Replica* first = nullptr);
  ~Replica();

  Program& program() { return *program_; }
  at::Device device() const { return device_; }
  const std::vector<NamedModel>& models() const { return models_; }
  std::vector<NamedOptimizer>& optimizers() { return optimizers_; }
  const std::vector<NamedOptimizer>& optimizers() const { return optimizers_; }
  const std::vector<NamedMetric>& metrics() const { return metrics_; }
  // Returns true if a learning rate depends on the number of replicas.
  bool scales_with_replicas() const;
  const std::vector<NamedEmbedding>& embeddings() const { return embeddings_; }
  // Returns the tables of this process, in the order of embeddings().
  LocalEmbeddings& tables() { return *tables_; }
  const LocalEmbeddings& tables() const { return *tables_; }
  // Makes this replica share the tables of the process's first replica. Called once for each other
  // replica.
  void ShareTables(const Replica& first) { tables_ = first.tables_, owns_tables_ = false; }
  // Returns true for the one replica that restores the shared tables and reports on them.
  bool owns_tables() const { return owns_tables_; }
  // Returns the store from which steps and passes read rows. It is tables() unless another store is
  // set.
  EmbeddingStore& embedding_store() { return remote_ != nullptr ? *remote_ : *tables_; }
  void set_embedding_store(EmbeddingStore* store) { remote_ = store; }
  // Returns true if rows are in tables(), and false if parameter servers hold them.
  bool holds_tables() const { return remote_ == nullptr; }
  const std::map<Split, DatasetDeclaration>& datasets() const { return datasets_; }
  // Returns the open files of the job's data.
  data::JobDatasets& job_datasets() const { return *job_datasets_; }
  // Returns the program's named datasets, indexed by handle.
  const std::vector<NamedDataset>& named_datasets() const { return named_datasets_; }
  // Returns the callbacks of the program and the job. Equal on all replicas.
  const CallbackList& callbacks() const { return *callbacks_; }
  // Returns the weights that callbacks keep.
  KeptWeights& kept() { return *kept_; }
  const KeptWeights& kept() const { return *kept_; }
  int64_t test_every() const { return test_every_; }  // In epochs. 0 if only at the end.
  // Returns the initial weights that the program names.
  const std::vector<LoadSpec>& loads() const { return loads_; }
  // Returns the buffers of all models, in a fixed order.
  const std::vector<NamedBuffer>& buffers() const { return buffers_; }
  // Records that a step changed this buffer. `buffer` is an index into buffers().
  void MarkAveraged(size_t buffer) { buffers_[buffer].averaged = true; }
  // Returns the buffers of mode BufferMode::kPerReplica.
  std::vector<NamedBuffer> replica_buffers() const;
  // Returns the floating-point buffers that replicas average if steps change them, such as running
  // statistics. The order is fixed.
  const std::vector<at::Tensor>& float_buffers() const { return float_buffers_; }
  // Returns the tensors that a new member must receive, in a fixed order: parameters, buffers
  // except kPerReplica, and optimizer slots. A new member also receives tables() and kept(), which
  // are not included.
  std::vector<at::Tensor> state() const;
  // Returns the part of state() of which each replica has its own copy: all tensors except the
  // slots of central variables.
  std::vector<at::Tensor> replicated_state() const;
  // Returns a 64-bit digest of all parameters and tables, for comparing replicas.
  int64_t Digest() const;

  // Returns a ProgramError that names a parameter or buffer that a module registered after build().
  absl::Status CheckNothingRegisteredLate() const;

  // ---- Trainable parameters (replica_trainable.cc)
  //
  // Trainable() returns the flags below for each candidate of each optimizer. One value for each
  // buffer follows: 1 if it is averaged.
  static constexpr uint8_t kRequiresGrad = 1, kHasSlots = 2;
  std::vector<uint8_t> Trainable() const;
  // Makes the rule of an optimizer for the candidates whose flag in `with_slots` is true. Existing
  // slots keep their values.
  absl::Status MakeRule(int optimizer, const std::vector<bool>& with_slots);
  // Applies flags from Trainable(). New slots get the rule's initial values. REQUIRES: the replica
  // is not attached.
  absl::Status SetTrainable(const std::vector<uint8_t>& trainable);
  // Returns the sorted names "<model>.<parameter>" of all frozen candidates. Returns nullopt if
  // nothing was frozen or unfrozen since build().
  std::optional<std::vector<std::string>> ChangedFrozen() const;
  // Adapts the optimizer's rule and sink if the program froze or unfroze parameters since the last
  // reduction, or if the step has more buffers. Called by all replicas before the first backward
  // pass of a reduction. The error names a parameter that is trainable on some replicas only, or
  // that cannot be trained.
  absl::Status FollowProgram(int optimizer);
  // RetainRules and PutBackRules undo rule changes of a step. After RetainRules(true),
  // FollowProgram keeps each rule that it replaces, with unchanged slots. PutBackRules restores the
  // kept rules. RetainRules(false) drops the kept rules. FollowProgram then keeps no more rules.
  void RetainRules(bool keep);
  void PutBackRules();
  // These two functions cover the parameters of all models, in a fixed order.
  std::vector<bool> requires_grad() const;
  void set_requires_grad(const std::vector<bool>& requires_grad);
  // Sets how many buffer elements the control data of later steps has.
  void set_buffer_room(int64_t elements) { buffer_room_ = elements; }

  // Makes the schedules and gradient buckets for a generation.
  absl::Status Attach(collective::Communicator* communicator, const ScheduleContext& context,
                      const CollectiveOptions& options);
  // Makes the schedules, and uses `sinks` instead of buckets, one for each optimizer.
  absl::Status Attach(std::vector<std::unique_ptr<GradientSink>> sinks,
                      const ScheduleContext& context);
  void Detach();

  // Sets the optimizer whose gradients the current backward pass collects. -1 if no pass runs.
  void set_active(int optimizer) { active_ = optimizer; }

 private:
  friend class BuilderImpl;
  Replica(const Job& job, at::Device device);
  absl::Status AddCallbacks(const std::vector<RegisteredCallback>& registered);
  void AddHooks();
  // Replaces datasets of the program with the job's data.
  absl::Status ReplaceDatasets();
  absl::Status AttachSinks(std::vector<std::unique_ptr<GradientSink>> sinks,
                           const ScheduleContext& context);
  void MakeSink(int optimizer);
  absl::Status MakeScheduleOf(const Json& learning_rate, const ScheduleContext& context,
                              std::unique_ptr<Schedule>* schedule) const;
  int64_t ControlCapacity(int optimizer) const;
  absl::Status AgreeOnTrainable(const NamedOptimizer& optimizer, const std::vector<bool>& now);
  // Makes a sink for the candidates that require a gradient now, or takes the idle sink if it fits.
  void ChangeSink(int optimizer);

  const Job& job_;
  const at::Device device_;
  std::unique_ptr<Program> program_;
  std::vector<NamedModel> models_;
  std::vector<NamedOptimizer> optimizers_;
  std::vector<NamedMetric> metrics_;
  std::vector<NamedEmbedding> embeddings_;
  std::shared_ptr<LocalEmbeddings> tables_;
  bool owns_tables_ = true;
  EmbeddingStore* remote_ = nullptr;
  std::shared_ptr<data::JobDatasets> job_datasets_;
  std::map<Split, DatasetDeclaration> datasets_;
  std::vector<NamedDataset> named_datasets_;
  int64_t test_every_ = 0;
  NamedSchedules schedules_;  // Schedules that the program registers.
  std::vector<LoadSpec> loads_;
  std::unique_ptr<CallbackList> callbacks_;
  std::unique_ptr<KeptWeights> kept_;
  std::vector<NamedBuffer> buffers_;
  std::vector<at::Tensor> float_buffers_;
  std::vector<uint8_t> built_trainable_;  // Trainable() after build().
  int active_ = -1;
  bool keeps_rules_ = false;
  // The generation's communicator. Null if gradients go to parameter servers.
  collective::Communicator* communicator_ = nullptr;
  CollectiveOptions collective_;
  int64_t buffer_room_ = 0;
};

// While an object exists, all modules of the replica are in evaluation mode. The destructor
// restores their previous modes, also after an exception. Some modules may have been in evaluation
// mode before, such as frozen batch normalisation.
class EvaluationModes {
 public:
  explicit EvaluationModes(Replica* replica);
  ~EvaluationModes();
  EvaluationModes(const EvaluationModes&) = delete;
  EvaluationModes& operator=(const EvaluationModes&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

// Returns a 64-bit digest of the tensor's values. It continues from `hash`, which is kDigestSeed
// for the first tensor.
inline constexpr uint64_t kDigestSeed = 14695981039346656037ull;
uint64_t DigestOfTensor(const at::Tensor& tensor, uint64_t hash);

// Runs `body` and converts an exception to a status. The status of a StatusError is unchanged.
// `where` names the operation in the error. Used wherever a program's code is called.
absl::Status CatchProgramErrors(const std::string& where, const std::function<void()>& body);

}  // namespace muster
