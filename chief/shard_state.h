// Between what servers hold, the chief's replica, which has parameters alone, and the files of
// checkpoints: chunk by chunk, so that nobody here needs the memory for slots. Apart from
// MakeShardState nothing here needs LibTorch, so that the director can be tested without.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chief/director.h"
#include "chief/row_filler.h"
#include "chief/slots_file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/push_pull/layout.h"
#include "common/push_pull/variable_messages.h"
#include "common/train/callbacks/callback_decision.h"
#include "common/train/embedding_store.h"
#include "muster/status.h"
#include "proto/parameter_server.pb.h"

namespace muster {

// A state in the files of a checkpoint, which stay open.
struct StateFiles {
  checkpoint::TensorSet model, optimizer;
  checkpoint::RowSources rows;  // of embedding tables
};

// For one thread at a time, but for Encode and Decode.
class ShardState {
 public:
  virtual ~ShardState() = default;

  virtual const std::vector<VariableSpec>& variables() const = 0;
  virtual std::vector<std::string> optimizers() const = 0;  // CreateRequest's
  virtual size_t metric_sums() const = 0;
  // Of a run of so many workers: examples of an epoch, which whole global batches may bound.
  virtual int64_t EpochExamples(int64_t train_examples, int64_t global_batch_size) const = 0;
  virtual int64_t TotalSteps(int64_t steps_per_epoch) const = 0;

  // Before all else, where training goes on from a checkpoint.
  virtual absl::StatusOr<checkpoint::TrainingState> Restore(
      const checkpoint::Snapshot& snapshot) = 0;
  // Embedding tables, whose rows the replica does not hold: they go from files to servers and back.
  virtual std::vector<ServedTable> tables() const { return {}; }
  // Where the replica looks rows up; it outlives this object's use.
  virtual void ServeRows(EmbeddingStore* /*rows*/) {}
  // What Restore was given last; once.
  virtual StateFiles TakeFiles() { return {}; }
  // A chunk of no table as these files have it; null: as the replica has it after `steps` steps,
  // with slots as the rule begins. Several at a time. Errors are those of reading.
  virtual absl::StatusOr<proto::ChunkContent> Encode(const Layout& layout, int shard, int chunk,
                                                     int64_t steps,
                                                     const StateFiles* files) const = 0;
  // From here until ReleaseWeights, Encode without files uses the weights of now, whatever Decode
  // changes. Called again before that it changes nothing.
  virtual void KeepWeights() {}
  virtual void ReleaseWeights() {}
  // Puts a chunk's parameters into the replica, and its slots into the file; null: nowhere. Several
  // at a time. A DataError says what does not fit.
  virtual absl::Status Decode(const Layout& layout, const proto::ChunkContent& content,
                              SlotsFile* slots) = 0;
  // What a SlotsFile is made of; none: no optimizer has slots.
  virtual std::vector<checkpoint::TensorInfo> slots() const { return {}; }
  // The slots that go with the replica's weights, for callbacks that save them.
  virtual void SetSlots(const checkpoint::TensorSet& /*slots*/) {}
  // The replica with that state: what its sets have is the replica's own, and without slots.
  virtual absl::StatusOr<checkpoint::Snapshot> Take(const checkpoint::TrainingState& state) = 0;

  // The replica's integer buffers, which servers do not hold. A DataError names a buffer that is
  // not there, or has another size.
  virtual IntegerBuffers Integers() const = 0;
  virtual absl::Status SetIntegers(const IntegerBuffers& values) = 0;

  virtual std::map<std::string, double> Metrics(const std::vector<double>& sums) const = 0;
  // What metrics show of them, without the step.
  virtual std::vector<ImageReport> MetricImages(const std::vector<double>& /*sums*/) const {
    return {};
  }
  // Fills in the program's name and parameters.
  virtual void Describe(StartReport* report) const = 0;
  virtual std::vector<HistogramReport> Parameters() const = 0;

  // ---- Callbacks, of programs and jobs that have some.
  virtual bool has_callbacks() const { return false; }
  // Training begins, or goes on (or goes back) with this record, whose weights are kept as far as
  // they are known.
  struct CallbackParts {
    std::vector<Observer*> observers;
    CheckpointSink* checkpoints = nullptr;  // null: nothing is written
    int workers = 1;
    int64_t steps_per_epoch = 0;
    int64_t weights_step = -1;       // of the replica's weights; -1: of none that is known
    std::function<int64_t()> steps;  // that are done
    // Whether the replica has the servers' weights after this step.
    std::function<bool(int64_t step)> has_weights;
  };
  virtual absl::Status BeginCallbacks(const CallbackParts& /*parts*/, bool /*begun*/,
                                      checkpoint::CallbackRecord* /*record*/) {
    return absl::OkStatus();
  }
  virtual absl::Status Fire(Hook /*hook*/, CallbackMoment /*moment*/) { return absl::OkStatus(); }
  // nullopt: nothing was decided. What the callbacks remember of weights is done: the replica's are
  // kept, or put back.
  virtual absl::StatusOr<std::optional<CallbackDecision>> Decide() {
    return std::optional<CallbackDecision>();
  }
  virtual void Adopt(const checkpoint::CallbackRecord& /*record*/) {}
  // The first optimizer's rate in the step after so many.
  virtual double LearningRate(const checkpoint::CallbackRecord& /*record*/,
                              int64_t /*steps*/) const {
    return 0;
  }
  // The weights of this callback in the place of the replica's.
  virtual void PutBackWeights(const std::string& /*callback*/) {}
};

absl::StatusOr<std::unique_ptr<ShardState>> MakeShardState(const Job& job, Replica* replica);

using ShardStateFactory = std::function<absl::StatusOr<std::unique_ptr<ShardState>>(
    const Job& job, const DirectorStart& start)>;
// Director::Make is this with MakeShardState.
std::unique_ptr<Director> MakeDirector(DirectorOptions options, ShardStateFactory factory);

}  // namespace muster
