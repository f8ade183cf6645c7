// A replica is one copy of the program on one device, with its models, optimizers, metrics and
// embedding tables. A generation is a period of training with fixed members. It ends when a process
// is lost or joins. The main thread makes the replicas of a process one by one, and uses them
// between generations. During a generation, each replica has a thread of its own and is attached:
// it has learning-rate schedules, and a GradientSink for each optimizer. With parameter servers,
// the thread that loads batches also calls Program::prefetch.
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
#include "common/optim/schedule.h"
#include "common/train/embedding/embedding_store.h"
#include "common/train/replica/optimizer_set.h"
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

struct NamedBuffer {
  std::string name;  // "<model>.<buffer>"
  at::Tensor tensor;
  // Absent if the program declares no mode. The buffer is then treated as kMean if it is
  // floating-point and steps change it, and as kSame otherwise.
  std::optional<BufferMode> mode;
  // True if the replicas average the buffer after each step. This is the case if the program
  // declares the buffer kMean. It is also the case if a step has changed a floating-point buffer
  // without a declared mode.
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
  // Makes the program and runs its build(). If the program throws an exception, returns the error
  // of CatchProgramErrors. `first` is another replica of this process, or null. The new replica
  // shares the open data files of `first`. `job` must outlive the replica.
  static absl::StatusOr<std::unique_ptr<Replica>> Make(const Job& job,
                                                       const ProgramFactory& factory,
                                                       at::Device device,
                                                       const Replica* first = nullptr);
  ~Replica();

  Program& program() { return *program_; }
  at::Device device() const { return device_; }
  const std::vector<NamedModel>& models() const { return models_; }
  // Returns the object that owns the optimizers, and adapts them when the program freezes or
  // unfreezes parameters.
  OptimizerSet& optimizer_set() { return optimizer_set_; }
  const OptimizerSet& optimizer_set() const { return optimizer_set_; }
  std::vector<NamedOptimizer>& optimizers() { return optimizer_set_.optimizers(); }
  const std::vector<NamedOptimizer>& optimizers() const { return optimizer_set_.optimizers(); }
  const std::vector<NamedMetric>& metrics() const { return metrics_; }
  // Returns true if a learning rate depends on the number of replicas.
  bool scales_with_replicas() const;
  const std::vector<NamedEmbedding>& embeddings() const { return embeddings_; }
  // Returns the embedding tables of this process, in the order of embeddings().
  LocalEmbeddings& tables() { return *tables_; }
  const LocalEmbeddings& tables() const { return *tables_; }
  // Makes this replica share the tables of `first`, the first replica of the process. Called once
  // for each other replica of the process.
  void ShareTables(const Replica& first) { tables_ = first.tables_, owns_tables_ = false; }
  // Returns true for the first replica of the process. Only this replica restores the shared
  // tables.
  bool owns_tables() const { return owns_tables_; }
  // Returns the store from which steps and passes read rows: the store of set_embedding_store, or
  // tables() if no store is set.
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
  // Returns the number of epochs between two test passes. 0 if the only pass is at the end.
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
  // order. Replicas average such a buffer if steps change it. Running statistics are an example.
  const std::vector<at::Tensor>& float_buffers() const { return float_buffers_; }
  // Returns the tensors that a new process of the job must receive, in a fixed order: parameters,
  // buffers except those of mode kPerReplica, and optimizer slots. A new process also receives
  // tables() and kept(). The result does not contain them.
  std::vector<at::Tensor> state() const;
  // Returns state(), except slots of the central_storage strategy, which exist once for all
  // replicas. Each replica has its own copy of the returned tensors.
  std::vector<at::Tensor> replicated_state() const;
  // Returns a 64-bit digest of all parameters and tables, for comparing replicas.
  int64_t Digest() const;

  // Returns a ProgramError if a module has registered a parameter or buffer after build(). The
  // error names the parameter or buffer.
  absl::Status CheckNothingRegisteredLate() const;

  // Returns the values of OptimizerSet::Trainable(), followed by NamedBuffer::averaged of each
  // buffer.
  std::vector<uint8_t> Trainable() const;
  // Applies the result of another replica's Trainable(). REQUIRES: the replica is not attached.
  absl::Status SetTrainable(const std::vector<uint8_t>& trainable);
  // Return or set requires_grad of the parameters of all models, in a fixed order.
  std::vector<bool> requires_grad() const;
  void set_requires_grad(const std::vector<bool>& requires_grad);

  // Makes the schedules and gradient buckets for a generation. The communicator must outlive the
  // generation.
  absl::Status Attach(collective::Communicator* communicator, const ScheduleContext& context,
                      const CollectiveOptions& options);
  // Makes the schedules, and uses `sinks` instead of gradient buckets. `sinks` has one sink for
  // each optimizer.
  absl::Status Attach(std::vector<std::unique_ptr<GradientSink>> sinks,
                      const ScheduleContext& context);
  // Destroys the sinks. Called at the end of a generation.
  void Detach() { optimizer_set_.Detach(); }

 private:
  friend class BuilderImpl;
  Replica(const Job& job, at::Device device);
  absl::Status AddCallbacks(const std::vector<RegisteredCallback>& registered);
  // Replaces the program's datasets by the datasets of the job's "data".
  absl::Status ReplaceDatasets();
  absl::Status AttachSinks(std::vector<std::unique_ptr<GradientSink>> sinks,
                           const ScheduleContext& context);
  absl::Status MakeScheduleOf(const Json& learning_rate, const ScheduleContext& context,
                              std::unique_ptr<Schedule>* schedule) const;

  const Job& job_;
  const at::Device device_;
  std::unique_ptr<Program> program_;
  std::vector<NamedModel> models_;
  OptimizerSet optimizer_set_;
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

// Returns a 64-bit digest that covers `tensor` and all tensors before it. `hash` is the digest of
// the tensors before it. For the first tensor, `hash` is kDigestSeed.
inline constexpr uint64_t kDigestSeed = 14695981039346656037ull;
uint64_t DigestOfTensor(const at::Tensor& tensor, uint64_t hash);

// Runs `body`. If `body` throws, returns an error that names the operation `where`. For a
// StatusError, returns its status without change. Called around all code of a program.
absl::Status CatchProgramErrors(const std::string& where, const std::function<void()>& body);

}  // namespace muster
