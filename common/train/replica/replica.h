// One replica: a program with its models, optimizers and metrics on one device, and the data about
// them that a step needs. Used by the replica's thread, except for construction: the main thread
// constructs one replica after the other.
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
  // Named as within the module.
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
};

// The parameters of an optimizer that have been trained, or that build() left trainable.
struct TrainedParameters {
  std::unique_ptr<Optimizer> rule;
  // The rule's parameters, each tensor once. parameter_names: "<model>.<parameter>". aliases: all
  // names of each, starting with that one. groups: see AssignGroups.
  std::vector<std::string> parameter_names;
  std::vector<std::vector<std::string>> aliases;
  std::vector<int> groups;
  std::vector<int> place;  // Indexed by candidate: its index in the rule. -1: it has no slots.
};

struct NamedOptimizer : TrainedParameters {
  std::string name;
  // All parameters of the optimizer's models in their order, including frozen ones. The lists
  // candidate_* correspond to those of TrainedParameters.
  std::vector<at::Tensor> candidates;
  std::vector<std::string> candidate_names;
  std::vector<std::vector<std::string>> candidate_aliases;
  std::vector<int> candidate_groups;
  std::vector<bool> differentiated;  // Indexed by candidate: whether `gradients` has it.
  std::vector<std::string> models;
  Json spec;  // As for ParseOptimizer.
  Json learning_rate;
  std::unique_ptr<Schedule> schedule;       // Set once the length of an epoch is known.
  std::unique_ptr<GradientSink> gradients;  // Belongs to one generation.
  // Used by programs that alternate between freezing and unfreezing. differentiated_before: the
  // candidates of the previous sink. idle_gradients: the sink of the other set, with its candidates
  // in idle_differentiated.
  std::vector<bool> differentiated_before, idle_differentiated;
  std::unique_ptr<GradientSink> idle_gradients;
  std::optional<TrainedParameters> kept;  // See Replica::KeepRules.
};

struct NamedBuffer {
  std::string name;  // "<model>.<buffer>"
  at::Tensor tensor;
  // Absent: not declared. It then counts as kMean for floating-point buffers that steps change,
  // else as kSame.
  std::optional<BufferMode> mode;
  bool averaged = false;  // A step has changed it, so it is averaged from then on.
};

struct NamedMetric {
  std::string name;
  std::shared_ptr<const Metric> metric;
};

struct NamedEmbedding {
  std::string name;
  EmbeddingTable::Options options;
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
  // its message. `first` is another replica of this process, or null. The new replica shares its
  // open data files.
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
  // Returns whether a learning rate depends on the number of replicas.
  bool scales_with_replicas() const;
  const std::vector<NamedEmbedding>& embeddings() const { return embeddings_; }
  // The tables of this process, in the order of embeddings().
  LocalEmbeddings& tables() { return *tables_; }
  const LocalEmbeddings& tables() const { return *tables_; }
  // Makes this replica share the first one's tables. Called once for each replica except the first.
  void ShareTables(const Replica& first) { tables_ = first.tables_, owns_tables_ = false; }
  // Returns whether this replica restores the tables and reports on them, for all that share them.
  bool owns_tables() const { return owns_tables_; }
  // The store of rows for steps and passes. tables() unless set.
  EmbeddingStore& embedding_store() { return remote_ != nullptr ? *remote_ : *tables_; }
  void set_embedding_store(EmbeddingStore* store) { remote_ = store; }
  // Returns whether rows are in tables(). Otherwise parameter servers hold them.
  bool holds_tables() const { return remote_ == nullptr; }
  const std::map<Split, DatasetDeclaration>& datasets() const { return datasets_; }
  // The files of the job's data.
  data::JobDatasets& job_datasets() const { return *job_datasets_; }
  // The program's named datasets, indexed by handle.
  const std::vector<NamedDataset>& named_datasets() const { return named_datasets_; }
  // Returns the callbacks of the program and the job. Equal on all replicas.
  const CallbackList& callbacks() const { return *callbacks_; }
  // The weights that callbacks remember.
  KeptWeights& kept() { return *kept_; }
  const KeptWeights& kept() const { return *kept_; }
  int64_t test_every() const { return test_every_; }  // In epochs. 0: only at the end.
  // The initial weights that the program names.
  const std::vector<LoadSpec>& loads() const { return loads_; }
  // Returns the buffers of all models, in a fixed order.
  const std::vector<NamedBuffer>& buffers() const { return buffers_; }
  // Records that a step changed this buffer. `buffer` is an index into buffers().
  void MarkAveraged(size_t buffer) { buffers_[buffer].averaged = true; }
  // Returns the buffers of mode BufferMode::kPerReplica.
  std::vector<NamedBuffer> replica_buffers() const;
  // The floating-point buffers that replicas average if steps change them (running statistics), in
  // a fixed order.
  const std::vector<at::Tensor>& float_buffers() const { return float_buffers_; }
  // Returns the tensors that a new member must receive, in a fixed order: parameters, optimizer
  // slots, and all buffers except kPerReplica. Tables are transferred separately, and kept() has
  // the callbacks' weights.
  std::vector<at::Tensor> state() const;
  // Returns the part of state() that each replica holds itself: without the slots of central
  // variables.
  std::vector<at::Tensor> replicated_state() const;
  // Returns 64 bits over all parameters and tables, to compare replicas.
  int64_t Digest() const;

  // Returns a ProgramError that names a parameter or buffer that a module registered after build().
  absl::Status CheckNothingRegisteredLate() const;

  // ---- Trainable parameters (replica_trainable.cc)
  //
  // Trainable() returns flags by optimizer and candidate, followed by one flag for each buffer:
  // whether it is averaged.
  static constexpr uint8_t kRequiresGrad = 1, kHasSlots = 2;
  std::vector<uint8_t> Trainable() const;
  // Makes the rule for the candidates with these flags. Existing slots keep their values.
  absl::Status MakeRule(int optimizer, const std::vector<bool>& with_slots);
  // Applies these flags. New slots get the rule's initial values. Requires that the replica is not
  // attached.
  absl::Status SetTrainable(const std::vector<uint8_t>& trainable);
  // Returns the sorted names "<model>.<parameter>" of all frozen candidates, or nullopt if nothing
  // was frozen or unfrozen since build().
  std::optional<std::vector<std::string>> ChangedFrozen() const;
  // Called by all replicas before the first backward pass of this optimizer's reduction. Applies
  // the program's freezing and unfreezing since the last one, and makes room for the step's
  // buffers. The error names a parameter that is trainable on some replicas only, or that cannot be
  // trained.
  absl::Status FollowProgram(int optimizer);
  // KeepRules(true) makes FollowProgram keep each rule that it replaces. The slots of a kept rule
  // stay unchanged until the next call of KeepRules. PutBackRules restores the kept rules.
  // KeepRules(false) drops them and keeps no more.
  void KeepRules(bool keep);
  void PutBackRules();
  // These two cover the parameters of all models, in a fixed order.
  std::vector<bool> requires_grad() const;
  void set_requires_grad(const std::vector<bool>& requires_grad);
  // Sets the number of buffer elements in a step's control data from now on.
  void set_buffer_room(int64_t elements) { buffer_room_ = elements; }

  // Makes schedules and gradient buckets for a generation.
  absl::Status Attach(Communicator* communicator, const ScheduleContext& context,
                      const CollectiveOptions& options);
  // Attaches with these sinks for the optimizers instead of buckets.
  absl::Status Attach(std::vector<std::unique_ptr<GradientSink>> sinks,
                      const ScheduleContext& context);
  void Detach();

  // Sets the optimizer whose gradients the current backward pass collects. -1: no pass is running.
  void set_active(int optimizer) { active_ = optimizer; }

 private:
  friend class BuilderImpl;
  Replica(const Job& job, at::Device device);
  absl::Status AddCallbacks(const std::vector<RegisteredCallback>& registered);
  void AddHooks();
  // Replaces the program's datasets by the job's data.
  absl::Status ReplaceDatasets();
  absl::Status AttachSinks(std::vector<std::unique_ptr<GradientSink>> sinks,
                           const ScheduleContext& context);
  void MakeSink(int optimizer);
  absl::Status MakeScheduleOf(const Json& learning_rate, const ScheduleContext& context,
                              std::unique_ptr<Schedule>* schedule) const;
  int64_t ControlCapacity(int optimizer) const;
  absl::Status AgreeOnTrainable(const NamedOptimizer& optimizer, const std::vector<bool>& now);
  // Makes a sink for the candidates that require a gradient now, or takes the idle one.
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
  NamedSchedules schedules_;  // The program's own.
  std::vector<LoadSpec> loads_;
  std::unique_ptr<CallbackList> callbacks_;
  std::unique_ptr<KeptWeights> kept_;
  std::vector<NamedBuffer> buffers_;
  std::vector<at::Tensor> float_buffers_;
  std::vector<uint8_t> built_trainable_;  // Trainable() after build().
  int active_ = -1;
  bool keeps_rules_ = false;
  // Belongs to the generation. Null if gradients go to parameter servers.
  Communicator* communicator_ = nullptr;
  CollectiveOptions collective_;
  int64_t buffer_room_ = 0;
};

// Puts all modules into evaluation mode for a pass. Restores their previous modes on destruction,
// also after an exception. Some modules may have been in evaluation mode before, such as frozen
// batch normalisation.
class EvaluationModes {
 public:
  explicit EvaluationModes(Replica* replica);
  ~EvaluationModes();
  EvaluationModes(const EvaluationModes&) = delete;
  EvaluationModes& operator=(const EvaluationModes&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

// Returns 64 bits over the tensor's values, continuing from `hash`.
inline constexpr uint64_t kDigestSeed = 14695981039346656037ull;
uint64_t DigestOfTensor(const at::Tensor& tensor, uint64_t hash);

// Runs `body` and converts any exception into a Status. A StatusError keeps its own status. Used
// wherever a program's code is called.
absl::Status CatchProgramErrors(const std::string& where, const std::function<void()>& body);

}  // namespace muster
