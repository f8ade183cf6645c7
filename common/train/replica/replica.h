// A replica is one copy of the program on one device, with its models, optimizers, metrics and
// embedding tables. The main thread constructs the replicas of a process, one after another. After
// that, only the replica's own thread uses it.
//
// The candidates of an optimizer are all parameters of its models, including frozen ones. The rule
// of an optimizer is the object that updates parameters and has their slots. Slots are the
// optimizer's state for each parameter, such as a momentum. A parameter has slots if it was
// trainable at the end of build() or at any later time.
//
// A generation is a group of processes that train together until one is lost or joins. A replica is
// attached during a generation: it then has gradient sinks and schedules.
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
  // Pairs of a name within the module and a tensor.
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
};

// The rule of an optimizer, and the parameters that have slots in it.
struct TrainedParameters {
  std::unique_ptr<Optimizer> rule;
  // Indexed by parameter of the rule. `parameter_names` has the first name of each parameter,
  // "<model>.<parameter>". `aliases` has all its names, including the first. `groups` has its group
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
  // Indexed by candidate: true if the sink `gradients` takes its gradient.
  std::vector<bool> differentiated;
  std::vector<std::string> models;          // The names of the optimizer's models.
  Json spec;                                // The JSON that ParseOptimizer reads.
  Json learning_rate;                       // A number or a schedule, from the job or program.
  std::unique_ptr<Schedule> schedule;       // Set once the length of an epoch is known.
  std::unique_ptr<GradientSink> gradients;  // Belongs to one generation.
  // A program may alternate between two sets of trainable parameters. The replica then keeps the
  // sink of the other set, which is frozen: `idle_gradients`, with the candidates
  // `idle_differentiated`. `differentiated_before` has the candidates of the sink that was in use
  // before `gradients`.
  std::vector<bool> differentiated_before, idle_differentiated;
  std::unique_ptr<GradientSink> idle_gradients;
  // The rule before the current step, if the step has replaced it (Replica::RetainRules).
  std::optional<TrainedParameters> kept;
};

struct NamedBuffer {
  std::string name;  // "<model>.<buffer>"
  at::Tensor tensor;
  // Absent if the program declares no mode. The buffer is then treated as kMean if it is
  // floating-point and steps change it, and as kSame otherwise.
  std::optional<BufferMode> mode;
  // True if the replicas average the buffer after each step. This is the case if the program
  // declares it kMean, or if a step has changed it.
  bool averaged = false;
};

struct NamedMetric {
  std::string name;
  std::shared_ptr<const Metric> metric;
};

// An embedding table.
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

// A dataset that the program declares besides its splits.
struct NamedDataset {
  std::string name;
  std::function<absl::StatusOr<data::DatasetPtr>()> make;
  NamedDatasetOptions options;
};

class Replica {
 public:
  // Makes the program and runs its build(). If the program throws an exception, returns a
  // ProgramError with the exception's message. `first` is another replica of this process, or null.
  // The new replica shares the open data files of `first`. `job` must outlive the replica.
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
  // Returns the embedding tables of this process, in the order of embeddings().
  LocalEmbeddings& tables() { return *tables_; }
  const LocalEmbeddings& tables() const { return *tables_; }
  // Makes this replica share the tables of `first`, the first replica of the process. Called once
  // for each later replica of the process.
  void ShareTables(const Replica& first) { tables_ = first.tables_, owns_tables_ = false; }
  // Returns true for the first replica of the process. Only this replica restores the shared
  // tables.
  bool owns_tables() const { return owns_tables_; }
  // Returns the store from which steps and passes read rows: the store of set_embedding_store, or
  // tables() if none is set.
  EmbeddingStore& embedding_store() { return remote_ != nullptr ? *remote_ : *tables_; }
  void set_embedding_store(EmbeddingStore* store) { remote_ = store; }
  // Returns true if the rows are in tables(), and false if parameter servers hold them.
  bool holds_tables() const { return remote_ == nullptr; }
  const std::map<Split, DatasetDeclaration>& datasets() const { return datasets_; }
  // Returns the open files of the job's "data".
  data::JobDatasets& job_datasets() const { return *job_datasets_; }
  // Returns the datasets that the program declares besides its splits, indexed by
  // DatasetHandle::index.
  const std::vector<NamedDataset>& named_datasets() const { return named_datasets_; }
  // Returns the callbacks of the program and the job. Equal on all replicas.
  const CallbackList& callbacks() const { return *callbacks_; }
  // Returns the copies of the weights that callbacks keep.
  KeptWeights& kept() { return *kept_; }
  const KeptWeights& kept() const { return *kept_; }
  // Returns the number of epochs between two test passes. 0 if there is only one, at the end.
  int64_t test_every() const { return test_every_; }
  // Returns the files of initial weights that the program names.
  const std::vector<LoadSpec>& loads() const { return loads_; }
  // Returns the buffers of all models, in a fixed order.
  const std::vector<NamedBuffer>& buffers() const { return buffers_; }
  // Records that a step changed this buffer. `buffer` is an index into buffers().
  void MarkAveraged(size_t buffer) { buffers_[buffer].averaged = true; }
  // Returns the buffers of mode BufferMode::kPerReplica.
  std::vector<NamedBuffer> replica_buffers() const;
  // Returns the floating-point buffers that are declared kMean or have no declared mode, in a fixed
  // order. Replicas average them if steps change them. Running statistics are an example.
  const std::vector<at::Tensor>& float_buffers() const { return float_buffers_; }
  // Returns the tensors that a new process of the job must receive, in a fixed order: parameters,
  // buffers except those of mode kPerReplica, and optimizer slots. A new process also receives
  // tables() and kept(), which are not in the result.
  std::vector<at::Tensor> state() const;
  // Returns state() without the slots of the central_storage strategy, which exist once for all
  // replicas. Each replica has its own copy of the returned tensors.
  std::vector<at::Tensor> replicated_state() const;
  // Returns a 64-bit digest of all parameters and tables, for comparing replicas.
  int64_t Digest() const;

  // Returns a ProgramError if a module has registered a parameter or buffer after build(). The
  // error names the parameter or buffer.
  absl::Status CheckNothingRegisteredLate() const;

  // ---- Trainable parameters (replica_trainable.cc)

  // Returns the flags below for each candidate of each optimizer. One value for each buffer
  // follows, which is NamedBuffer::averaged.
  static constexpr uint8_t kRequiresGrad = 1, kHasSlots = 2;
  std::vector<uint8_t> Trainable() const;
  // Replaces the rule of an optimizer by one that has slots for the candidates with a true value in
  // `with_slots`. Slots that exist keep their values.
  absl::Status MakeRule(int optimizer, const std::vector<bool>& with_slots);
  // Applies the result of another replica's Trainable(). New slots get the initial values of the
  // rule. REQUIRES: the replica is not attached.
  absl::Status SetTrainable(const std::vector<uint8_t>& trainable);
  // Returns the names "<model>.<parameter>" of all frozen candidates, sorted. Returns nullopt if
  // exactly those parameters are frozen that were frozen after build().
  std::optional<std::vector<std::string>> ChangedFrozen() const;
  // Adapts the rule and the sink of an optimizer to the program. They change if the program has
  // frozen or unfrozen parameters since the last reduction, or if more buffers are averaged than
  // the sink has room for. Called by all replicas before the first backward pass of a reduction.
  // The error names a parameter that is trainable on some replicas only, or that cannot be trained.
  absl::Status FollowProgram(int optimizer);
  // RetainRules and PutBackRules let a step undo its rule changes. After RetainRules(true),
  // FollowProgram keeps each rule that it replaces, with the values of its slots. PutBackRules
  // restores the kept rules. RetainRules(false) drops the kept rules and ends the keeping.
  void RetainRules(bool keep);
  void PutBackRules();
  // Return or set requires_grad of the parameters of all models, in a fixed order.
  std::vector<bool> requires_grad() const;
  void set_requires_grad(const std::vector<bool>& requires_grad);
  // Sets how many elements of averaged buffers the sinks must have room for. The buffers are part
  // of a step's control data, the numbers that are reduced with the last gradients.
  void set_buffer_room(int64_t elements) { buffer_room_ = elements; }

  // Makes the schedules and gradient buckets for a generation. The communicator must outlive the
  // generation.
  absl::Status Attach(collective::Communicator* communicator, const ScheduleContext& context,
                      const CollectiveOptions& options);
  // Makes the schedules, and uses `sinks` instead of gradient buckets. `sinks` has one for each
  // optimizer.
  absl::Status Attach(std::vector<std::unique_ptr<GradientSink>> sinks,
                      const ScheduleContext& context);
  // Destroys the sinks. Called at the end of a generation.
  void Detach();

  // Sets the optimizer that receives the gradients of the current backward pass. -1 if there is no
  // backward pass.
  void set_active(int optimizer) { active_ = optimizer; }

 private:
  friend class BuilderImpl;
  Replica(const Job& job, at::Device device);
  absl::Status AddCallbacks(const std::vector<RegisteredCallback>& registered);
  // Adds an autograd hook to each candidate. The hook passes the candidate's gradient to a sink.
  void AddHooks();
  // Replaces the program's datasets by those of the job's "data".
  absl::Status ReplaceDatasets();
  absl::Status AttachSinks(std::vector<std::unique_ptr<GradientSink>> sinks,
                           const ScheduleContext& context);
  void MakeSink(int optimizer);
  absl::Status MakeScheduleOf(const Json& learning_rate, const ScheduleContext& context,
                              std::unique_ptr<Schedule>* schedule) const;
  // Returns the maximum number of floats of control data in the optimizer's sink.
  int64_t ControlCapacity(int optimizer) const;
  // Returns an error if `now`, which is true for each trainable candidate, differs between
  // replicas.
  absl::Status AgreeOnTrainable(const NamedOptimizer& optimizer, const std::vector<bool>& now);
  // Makes a sink for the candidates that require a gradient now. Takes the idle sink if it has
  // exactly these candidates.
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
  EmbeddingStore* remote_ = nullptr;  // The argument of set_embedding_store.
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
  std::vector<uint8_t> built_trainable_;  // The result of Trainable() after build().
  int active_ = -1;                       // The argument of set_active.
  bool keeps_rules_ = false;              // The argument of RetainRules.
  // The generation's communicator. Null if gradients go to parameter servers.
  collective::Communicator* communicator_ = nullptr;
  CollectiveOptions collective_;
  int64_t buffer_room_ = 0;
};

// During the lifetime of this object, all modules of the replica are in evaluation mode. The
// destructor restores the previous mode of each module, also after an exception. Some modules, such
// as frozen batch normalisation, may have been in evaluation mode before.
class EvaluationModes {
 public:
  explicit EvaluationModes(Replica* replica);
  ~EvaluationModes();
  EvaluationModes(const EvaluationModes&) = delete;
  EvaluationModes& operator=(const EvaluationModes&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

// Returns a 64-bit digest of the tensor's values that continues from `hash`. For the first tensor,
// `hash` is kDigestSeed.
inline constexpr uint64_t kDigestSeed = 14695981039346656037ull;
uint64_t DigestOfTensor(const at::Tensor& tensor, uint64_t hash);

// Runs `body`. If `body` throws, returns an error that names the operation `where`. For a
// StatusError, returns its status without change. Called around all code of a program.
absl::Status CatchProgramErrors(const std::string& where, const std::function<void()>& body);

}  // namespace muster
