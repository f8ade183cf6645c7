// ShardState converts the state of a parameter-server job between three forms: chunks that the
// servers (ps tasks) hold, the chief's replica of the model, and the files of checkpoints. A shard
// is the part of the variables that one server holds. A chunk is a piece of a shard. The replica
// has the parameters only, without optimizer slots. Each conversion handles one chunk, so the chief
// never needs memory for all slots. Only MakeShardState needs LibTorch. Tests of the Director use
// other implementations, without LibTorch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chief/parameter_server/director/director.h"
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

// Only one thread at a time may use the replica's weights, except that several calls of Encode and
// Decode may run in parallel. Functions that do not use the weights may run at the same time.
class ShardState {
 public:
  virtual ~ShardState() = default;

  virtual const std::vector<push_pull::VariableSpec>& variables() const = 0;
  // Returns the value of CreateRequest's `optimizers`.
  virtual std::vector<std::string> optimizers() const = 0;
  virtual size_t metric_sums() const = 0;
  // Returns the number of examples in an epoch. Depending on the job, it is rounded down to whole
  // global batches.
  virtual int64_t EpochExamples(int64_t train_examples, int64_t global_batch_size) const = 0;
  virtual int64_t TotalSteps(int64_t steps_per_epoch) const = 0;

  // Restores the replica from a checkpoint. If training resumes, called before the other functions.
  virtual absl::StatusOr<checkpoint::TrainingState> Restore(
      const checkpoint::Snapshot& snapshot) = 0;
  // Returns the embedding tables. The replica does not hold their rows. The chief copies rows
  // directly between files and servers.
  virtual std::vector<ServedTable> tables() const { return {}; }
  // Sets the store in which the replica looks up rows of embedding tables. `rows` must outlive this
  // object.
  virtual void ServeRows(EmbeddingStore* /*rows*/) {}
  // Returns the files of the last Restore. Called once after each Restore.
  virtual StateFiles TakeFiles() { return {}; }
  // Returns the content of a chunk from `files`. If `files` is null, the content has the replica's
  // weights (see RetainWeights) and no slots, so the server starts with initial slots. `steps` is
  // the number of completed steps. `steps` becomes ChunkContent::updates, except if the optimizer
  // stores its own step. Returns an error if the files cannot be read. REQUIRES: the chunk does not
  // belong to an embedding table.
  virtual absl::StatusOr<proto::ChunkContent> Encode(const push_pull::Layout& layout, int shard,
                                                     int chunk, int64_t steps,
                                                     const StateFiles* files) const = 0;
  // Copies the replica's current weights. Until ReleaseWeights, Encode without `files` uses this
  // copy, even if Decode changes the replica. A second call before ReleaseWeights has no effect.
  virtual void RetainWeights() {}
  virtual void ReleaseWeights() {}
  // Stores the parameters of a chunk in the replica. If `slots` is not null, writes the slots of
  // the chunk to `slots`. Returns DataError if the content does not match the layout.
  virtual absl::Status Decode(const push_pull::Layout& layout, const proto::ChunkContent& content,
                              SlotsFile* slots) = 0;
  // Returns the tensors of a SlotsFile (chief/shards/slots_file.h). Empty if no optimizer has
  // slots.
  virtual std::vector<checkpoint::TensorInfo> slots() const { return {}; }
  // Sets the slots that belong to the replica's weights, for callbacks that save weights and slots.
  virtual void SetSlots(const checkpoint::TensorSet& /*slots*/) {}
  // Returns a snapshot with the replica's weights and `state`. The snapshot has no slots. Its
  // tensors share the replica's memory.
  virtual absl::StatusOr<checkpoint::Snapshot> Take(const checkpoint::TrainingState& state) = 0;

  // Integers returns the replica's integer buffers, which servers do not hold. SetIntegers sets
  // them, or returns a DataError that names the first buffer with an unknown name or a wrong size.
  virtual push_pull::IntegerBuffers Integers() const = 0;
  virtual absl::Status SetIntegers(const push_pull::IntegerBuffers& values) = 0;

  // Returns the values of the program's metrics. `sums` has the sums of all metrics.
  virtual std::map<std::string, double> Metrics(const std::vector<double>& sums) const = 0;
  // Returns the images of the program's metrics. ImageReport::step is not set.
  virtual std::vector<ImageReport> MetricImages(const std::vector<double>& /*sums*/) const {
    return {};
  }
  // Sets the program's name and parameters in `report`.
  virtual void Describe(StartReport* report) const = 0;
  // Returns histograms of the replica's parameters.
  virtual std::vector<HistogramReport> Parameters() const = 0;

  // ---- Callbacks. If has_callbacks returns false, the functions below are not called.
  virtual bool has_callbacks() const { return false; }
  struct CallbackParts {
    std::vector<Observer*> observers;
    CheckpointSink* checkpoints = nullptr;  // Null: the job writes no checkpoints.
    int workers = 1;
    int64_t steps_per_epoch = 0;
    int64_t weights_step = -1;       // The step of the replica's weights, -1 if unknown.
    std::function<int64_t()> steps;  // Returns the number of completed steps.
    // Returns whether the replica has the weights that the servers held after `step`.
    std::function<bool(int64_t step)> has_weights;
  };
  // Called when training begins or resumes. `begun` is true if the run has completed a step.
  // `record` is the state of the callbacks. A callback can keep a copy of the weights in this
  // process. BeginCallbacks removes from `record` the copies that were lost with an earlier chief,
  // the entries of callbacks that the job no longer has, and outdated learning rates.
  virtual absl::Status BeginCallbacks(const CallbackParts& /*parts*/, bool /*begun*/,
                                      checkpoint::CallbackRecord* /*record*/) {
    return absl::OkStatus();
  }
  // Runs the callbacks' functions for `hook`.
  virtual absl::Status Fire(Hook /*hook*/, CallbackMoment /*moment*/) { return absl::OkStatus(); }
  // Returns the decision of the callbacks, nullopt if there is none. Carries out the part of the
  // decision about weights: keeps a copy of the replica's weights, or restores a copy.
  virtual absl::StatusOr<std::optional<CallbackDecision>> Decide() {
    return std::optional<CallbackDecision>();
  }
  // Makes `record` the current state of the callbacks.
  virtual void Adopt(const checkpoint::CallbackRecord& /*record*/) {}
  // Returns the learning rate of the first optimizer for the step after `steps` completed steps.
  virtual double LearningRate(const checkpoint::CallbackRecord& /*record*/,
                              int64_t /*steps*/) const {
    return 0;
  }
  // Replaces the replica's weights by the copy that it keeps for `callback`.
  virtual void PutBackWeights(const std::string& /*callback*/) {}
};

absl::StatusOr<std::unique_ptr<ShardState>> MakeShardState(const Job& job, Replica* replica);

using ShardStateFactory = std::function<absl::StatusOr<std::unique_ptr<ShardState>>(
    const Job& job, const DirectorStart& start)>;
// For tests: makes a Director with the ShardState that `factory` returns. Director::Make passes
// MakeShardState.
std::unique_ptr<Director> MakeDirector(DirectorOptions options, ShardStateFactory factory);

}  // namespace muster::chief
