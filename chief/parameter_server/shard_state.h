// ShardState converts between the servers' state, the chief's replica (parameters only) and the
// files of checkpoints. It works chunk by chunk, so the chief never needs memory for all slots.
// Only MakeShardState needs LibTorch, so tests of the Director need none.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chief/parameter_server/director.h"
#include "chief/shards/row_filler.h"
#include "chief/shards/slots_file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/variable_messages.h"
#include "common/train/callbacks/callback_decision.h"
#include "common/train/embedding/embedding_store.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

// The open files of a checkpoint.
struct StateFiles {
  checkpoint::TensorSet model, optimizer;
  checkpoint::RowSources rows;  // The rows of embedding tables.
};

// Used by one thread at a time, except for Encode and Decode: several calls may run in parallel.
class ShardState {
 public:
  virtual ~ShardState() = default;

  virtual const std::vector<push_pull::VariableSpec>& variables() const = 0;
  // Returns the value of CreateRequest's `optimizers`.
  virtual std::vector<std::string> optimizers() const = 0;
  virtual size_t metric_sums() const = 0;
  // Returns the number of examples in an epoch. The job may round it down to whole global batches.
  virtual int64_t EpochExamples(int64_t train_examples, int64_t global_batch_size) const = 0;
  virtual int64_t TotalSteps(int64_t steps_per_epoch) const = 0;

  // Called first if training resumes from a checkpoint.
  virtual absl::StatusOr<checkpoint::TrainingState> Restore(
      const checkpoint::Snapshot& snapshot) = 0;
  // Returns the embedding tables. The replica does not hold their rows, which move between files
  // and servers.
  virtual std::vector<ServedTable> tables() const { return {}; }
  // Sets the store in which the replica looks up rows. `rows` must outlive this use.
  virtual void ServeRows(EmbeddingStore* /*rows*/) {}
  // Returns the files of the last Restore. Called once after each Restore.
  virtual StateFiles TakeFiles() { return {}; }
  // Returns the content of a chunk from `files`. If `files` is null, the content is the replica's
  // parameters after `steps` steps and the optimizer rule's initial slots. Returns an error if the
  // files cannot be read. Several calls may run in parallel. REQUIRES: the chunk does not belong to
  // a table.
  virtual absl::StatusOr<proto::ChunkContent> Encode(const push_pull::Layout& layout, int shard,
                                                     int chunk, int64_t steps,
                                                     const StateFiles* files) const = 0;
  // Copies the replica's current weights. Until ReleaseWeights, Encode without files uses this
  // copy, even if Decode changes the replica. A second call before ReleaseWeights has no effect.
  virtual void RetainWeights() {}
  virtual void ReleaseWeights() {}
  // Writes a chunk's parameters to the replica and its slots to `slots`, unless that is null.
  // Several calls may run in parallel. Returns DataError if the content does not match the layout.
  virtual absl::Status Decode(const push_pull::Layout& layout, const proto::ChunkContent& content,
                              SlotsFile* slots) = 0;
  // Returns the tensors of a SlotsFile; empty if no optimizer has slots.
  virtual std::vector<checkpoint::TensorInfo> slots() const { return {}; }
  // Sets the slots that belong to the replica's weights, for callbacks that save weights and slots.
  virtual void SetSlots(const checkpoint::TensorSet& /*slots*/) {}
  // Returns a snapshot of the replica with `state`. The snapshot has no slots, and its tensors are
  // views of the replica's memory.
  virtual absl::StatusOr<checkpoint::Snapshot> Take(const checkpoint::TrainingState& state) = 0;

  // The replica's integer buffers, which servers do not hold. SetIntegers returns a DataError that
  // names the first buffer with an unknown name or another size.
  virtual push_pull::IntegerBuffers Integers() const = 0;
  virtual absl::Status SetIntegers(const push_pull::IntegerBuffers& values) = 0;

  virtual std::map<std::string, double> Metrics(const std::vector<double>& sums) const = 0;
  // Returns the images of the metrics, without the step.
  virtual std::vector<ImageReport> MetricImages(const std::vector<double>& /*sums*/) const {
    return {};
  }
  // Fills in the program's name and parameters.
  virtual void Describe(StartReport* report) const = 0;
  virtual std::vector<HistogramReport> Parameters() const = 0;

  // ---- Callbacks, for programs and jobs that have some.
  virtual bool has_callbacks() const { return false; }
  // The arguments of BeginCallbacks. It is called when training begins, resumes or rolls back with
  // `record`. BeginCallbacks removes the entries of `record` for weights that this process does not
  // have.
  struct CallbackParts {
    std::vector<Observer*> observers;
    CheckpointSink* checkpoints = nullptr;  // Null: nothing is written.
    int workers = 1;
    int64_t steps_per_epoch = 0;
    int64_t weights_step = -1;       // The step of the replica's weights, -1 if unknown.
    std::function<int64_t()> steps;  // Returns the number of completed steps.
    // Returns whether the replica has the weights that the servers had after `step`.
    std::function<bool(int64_t step)> has_weights;
  };
  virtual absl::Status BeginCallbacks(const CallbackParts& /*parts*/, bool /*begun*/,
                                      checkpoint::CallbackRecord* /*record*/) {
    return absl::OkStatus();
  }
  virtual absl::Status Fire(Hook /*hook*/, CallbackMoment /*moment*/) { return absl::OkStatus(); }
  // Returns the decision of the callbacks, nullopt if there is none. Carries out the decision about
  // weights: saves the replica's weights or restores saved ones.
  virtual absl::StatusOr<std::optional<CallbackDecision>> Decide() {
    return std::optional<CallbackDecision>();
  }
  virtual void Adopt(const checkpoint::CallbackRecord& /*record*/) {}
  // Returns the first optimizer's learning rate for the step after `steps`.
  virtual double LearningRate(const checkpoint::CallbackRecord& /*record*/,
                              int64_t /*steps*/) const {
    return 0;
  }
  // Replaces the replica's weights by those that `callback` saved.
  virtual void PutBackWeights(const std::string& /*callback*/) {}
};

absl::StatusOr<std::unique_ptr<ShardState>> MakeShardState(const Job& job, Replica* replica);

using ShardStateFactory = std::function<absl::StatusOr<std::unique_ptr<ShardState>>(
    const Job& job, const DirectorStart& start)>;
// Makes a Director with another ShardState, for tests. Director::Make passes MakeShardState.
std::unique_ptr<Director> MakeDirector(DirectorOptions options, ShardStateFactory factory);

}  // namespace muster::chief
