// One replica: a program with its models, optimizers and metrics on one device, and what a step
// needs to know of them. Used by the replica's own thread, but for construction, which the main
// thread does for one replica after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/data/job_datasets.h"
#include "common/train/embedding_store.h"
#include "common/train/gradient_buckets.h"
#include "common/train/job.h"
#include "common/train/load_spec.h"
#include "common/train/optimizer.h"
#include "common/train/schedule.h"
#include "muster/program.h"

namespace muster {

struct CallbackList;
class KeptWeights;
struct RegisteredCallback;

struct NamedModel {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::vector<std::pair<std::string, at::Tensor>> parameters;  // by their names within the module
  std::vector<std::pair<std::string, at::Tensor>> buffers;
};

// Those of an optimizer's parameters that have been trained, or will be as far as build() knows.
struct TrainedParameters {
  std::unique_ptr<Optimizer> rule;
  // Of the rule's parameters: "<model>.<parameter>", each tensor once; all names of each, that one
  // first; and the group, of AssignGroups.
  std::vector<std::string> parameter_names;
  std::vector<std::vector<std::string>> aliases;
  std::vector<int> groups;
  std::vector<int> place;  // by candidate: its index among the rule's; -1: it has no slots
};

struct NamedOptimizer : TrainedParameters {
  std::string name;
  // All parameters of its models, in their order, the frozen ones too, and the same of them.
  std::vector<at::Tensor> candidates;
  std::vector<std::string> candidate_names;
  std::vector<std::vector<std::string>> candidate_aliases;
  std::vector<int> candidate_groups;
  std::vector<bool> differentiated;  // by candidate: what `gradients` was made for
  std::vector<std::string> models;
  Json spec;  // as ParseOptimizer reads it
  Json learning_rate;
  std::unique_ptr<Schedule> schedule;       // once the length of an epoch is known
  std::unique_ptr<GradientSink> gradients;  // of one generation
  // Of programs that freeze and unfreeze by turns: what the sink before was made for, and the sink
  // of the other turn with what it was made for.
  std::vector<bool> differentiated_before, idle_differentiated;
  std::unique_ptr<GradientSink> idle_gradients;
  std::optional<TrainedParameters> kept;  // Replica::KeepRules
};

struct NamedBuffer {
  std::string name;  // "<model>.<buffer>"
  at::Tensor tensor;
  // Absent: not declared; kMean for those of floating point that steps change, else kSame.
  std::optional<BufferMode> mode;
  bool averaged = false;  // some step changed it, so that it is averaged from then on
};

struct NamedMetric {
  std::string name;
  std::shared_ptr<const Metric> metric;
};

struct NamedEmbedding {
  std::string name;
  EmbeddingTable::Options options;
  Json optimizer, learning_rate;
  std::unique_ptr<Schedule> schedule;  // once the length of an epoch is known
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
  // Makes the program and runs its build(). An exception of the program is a ProgramError with its
  // message.
  // `first`: another replica of this process, where there is one, which shares what is opened once
  // a process: the files of the job's data.
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
  // Some learning rate depends on the number of replicas.
  bool scales_with_replicas() const;
  const std::vector<NamedEmbedding>& embeddings() const { return embeddings_; }
  // The tables of this process, in the order of embeddings().
  LocalEmbeddings& tables() { return *tables_; }
  const LocalEmbeddings& tables() const { return *tables_; }
  // Once a process, for all replicas but the first: they share its tables from then on.
  void ShareTables(const Replica& first) { tables_ = first.tables_, owns_tables_ = false; }
  // The replica that restores the tables, and answers for them, on behalf of all that share them.
  bool owns_tables() const { return owns_tables_; }
  // Where steps and passes look rows up; tables() unless it was set.
  EmbeddingStore& embedding_store() { return remote_ != nullptr ? *remote_ : *tables_; }
  void set_embedding_store(EmbeddingStore* store) { remote_ = store; }
  // Rows are in tables(); else parameter servers hold them.
  bool holds_tables() const { return remote_ == nullptr; }
  const std::map<Split, DatasetDeclaration>& datasets() const { return datasets_; }
  // The files of the job's data.
  data::JobDatasets& job_datasets() const { return *job_datasets_; }
  // Those besides the splits, by handle.
  const std::vector<NamedDataset>& named_datasets() const { return named_datasets_; }
  // Of the program and the job; equal on all replicas.
  const CallbackList& callbacks() const { return *callbacks_; }
  // What they remember.
  KeptWeights& kept() { return *kept_; }
  const KeptWeights& kept() const { return *kept_; }
  int64_t test_every() const { return test_every_; }  // epochs; 0: at the end alone
  // What the program asked to begin with.
  const std::vector<LoadSpec>& loads() const { return loads_; }
  // Of all models, in a fixed order.
  const std::vector<NamedBuffer>& buffers() const { return buffers_; }
  // A step changed these; by index into buffers().
  void MarkAveraged(size_t buffer) { buffers_[buffer].averaged = true; }
  // Those that each replica has of its own.
  std::vector<NamedBuffer> replica_buffers() const;
  // Buffers of floating point (running statistics) that replicas average, as far as steps change
  // them; in a fixed order.
  const std::vector<at::Tensor>& float_buffers() const { return float_buffers_; }
  // Everything a new member must be given but tables: parameters, buffers but those of each
  // replica's own, optimizer slots; in a fixed order. What callbacks
  // remember is in kept().
  std::vector<at::Tensor> state() const;
  // The part of it that each replica has of its own: without the slots of central variables.
  std::vector<at::Tensor> replicated_state() const;
  // 64 bits over all parameters and tables, to compare replicas.
  int64_t Digest() const;

  // ProgramError naming a parameter or buffer that a module has had since build().
  absl::Status CheckNothingRegisteredLate() const;

  // ---- What is trained (replica_trainable.cc)
  // By optimizer and candidate: flags. Behind them, by buffer: whether it is averaged.
  static constexpr uint8_t kRequiresGrad = 1, kHasSlots = 2;
  std::vector<uint8_t> Trainable() const;
  // The rule of the candidates with these flags, and the slots that they have had so far.
  absl::Status MakeRule(int optimizer, const std::vector<bool>& with_slots);
  // Makes it so; slots that are new begin as the rule says. REQUIRES: not attached.
  absl::Status SetTrainable(const std::vector<uint8_t>& trainable);
  // "<model>.<parameter>" of those candidates that do not require a gradient, where they are others
  // than after build().
  std::optional<std::vector<std::string>> ChangedFrozen() const;
  // Before the first backward pass of a reduction of this optimizer, by all replicas: follows what
  // the program has frozen and unfrozen since, and makes room for the step's buffers. An error
  // names a parameter about which replicas differ, or that cannot be trained.
  absl::Status FollowProgram(int optimizer);
  // From here on FollowProgram keeps the rules that it replaces, with slots that nothing writes to,
  // until it is called again; PutBackRules makes them the optimizers' once more. By
  // KeepRules(false) nothing is kept any longer.
  void KeepRules(bool keep);
  void PutBackRules();
  // Of all models' parameters, in a fixed order.
  std::vector<bool> requires_grad() const;
  void set_requires_grad(const std::vector<bool>& requires_grad);
  // Elements of buffers that a step's control data will carry from now on.
  void set_buffer_room(int64_t elements) { buffer_room_ = elements; }

  // Makes schedules and gradient buckets for a generation.
  absl::Status Attach(Communicator* communicator, const ScheduleContext& context,
                      const CollectiveOptions& options);
  // Likewise, with these as the optimizers' sinks.
  absl::Status Attach(std::vector<std::unique_ptr<GradientSink>> sinks,
                      const ScheduleContext& context);
  void Detach();

  // The buckets that gradients go to during a backward pass; null outside of one.
  void set_active(int optimizer) { active_ = optimizer; }

 private:
  friend class BuilderImpl;
  Replica(const Job& job, at::Device device);
  absl::Status AddCallbacks(const std::vector<RegisteredCallback>& registered);
  void AddHooks();
  // The job's data goes before the program's.
  absl::Status ReplaceDatasets();
  absl::Status AttachSinks(std::vector<std::unique_ptr<GradientSink>> sinks,
                           const ScheduleContext& context);
  void MakeSink(int optimizer);
  absl::Status MakeScheduleOf(const Json& learning_rate, const ScheduleContext& context,
                              std::unique_ptr<Schedule>* schedule) const;
  int64_t ControlCapacity(int optimizer) const;
  absl::Status AgreeOnTrainable(const NamedOptimizer& optimizer, const std::vector<bool>& now);
  // Makes a sink for what requires a gradient now, or takes the idle one.
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
  NamedSchedules schedules_;  // the program's own
  std::vector<LoadSpec> loads_;
  std::unique_ptr<CallbackList> callbacks_;
  std::unique_ptr<KeptWeights> kept_;
  std::vector<NamedBuffer> buffers_;
  std::vector<at::Tensor> float_buffers_;
  std::vector<uint8_t> built_trainable_;  // Trainable() after build()
  int active_ = -1;
  bool keeps_rules_ = false;
  // Of the generation; null where gradients go to parameter servers.
  Communicator* communicator_ = nullptr;
  CollectiveOptions collective_;
  int64_t buffer_room_ = 0;
};

// The modules' modes in a pass: all of them evaluate, and are afterwards as they were, be it frozen
// batch normalisation that a program keeps in evaluation mode, or the end of a pass by an
// exception.
class EvaluationModes {
 public:
  explicit EvaluationModes(Replica* replica);
  ~EvaluationModes();
  EvaluationModes(const EvaluationModes&) = delete;
  EvaluationModes& operator=(const EvaluationModes&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

// 64 bits over the tensor's values, going on from `hash`.
inline constexpr uint64_t kDigestSeed = 14695981039346656037ull;
uint64_t DigestOfTensor(const at::Tensor& tensor, uint64_t hash);

// The program's half of a step's edge: runs `body`, turning whatever it throws into a Status.
// StatusError keeps its own.
absl::Status CatchProgramErrors(const std::string& where, const std::function<void()>& body);

}  // namespace muster
