// A checkpoint is the state of training after a number of steps. Slots are an optimizer's state for
// each parameter, such as momentum. A checkpoint is a directory with these files:
//
//   step-00000500/
//     model.safetensors      parameters and buffers, named "<model>.<name>", or "<name>" if the
//                            program has one model
//     optimizer.safetensors  slots, named "<optimizer>.<parameter>.<slot>"
//     state.json             SavedState
//     manifest.json          sizes and checksums of the other files; written last
//
// Some checkpoints also have these files:
//
//     replica_buffers.safetensors        buffers that differ between replicas, named as in the
//                                        model; a tensor has the buffers of all replicas, stacked
//     weights.<callback>.safetensors     weights that a callback keeps, such as a moving average or
//                                        the best weights, named as in the model
//     tables-00001-of-00004.safetensors  the rows of embedding tables that one parameter server
//                                        holds, with their slots
//
// After all files are complete and on the disk, one rename gives the directory its name
// (store.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/row_source.h"
#include "common/checkpoint/state/extras.h"
#include "common/checkpoint/tensor.h"
#include "muster/json.h"

namespace muster::checkpoint {

// The state of training apart from tensors. The training loop counts in this struct (LoopState in
// common/train/state/loop_state.h), and so does the chief of a parameter-server job.
struct TrainingState {
  int64_t step = 0;      // The number of completed steps.
  int64_t epoch = 0;     // The epoch of the next example, from 0.
  int64_t offset = 0;    // The number of examples of `epoch` in completed steps.
  int64_t examples = 0;  // The number of examples in all completed steps of the run.
  // Sums over the completed steps in the epoch of the last step. For each step, epoch_loss_sum adds
  // the mean loss times the number of examples. epoch_examples adds the number of examples.
  // epoch_metric_sums adds the sums of each metric, in the order of declaration.
  double epoch_loss_sum = 0;
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;
  std::vector<double> loss_scaler;  // The value of LossScaler::state().
  // True if a validation or test pass must follow this step and is not complete.
  bool validation_due = false, test_due = false;
  int64_t global_batch_size = 0;  // Set from the job at the first start of the run. 0 until then.
  Extras extras;                  // State that only some runs have.

  // Returns true if the next step is the first step of an epoch.
  bool epoch_begins() const { return offset == 0 && extras.batch_steps_done == 0; }
  // Returns the epoch of the last step. Returns 0 if no step is complete.
  int64_t last_epoch() const { return std::max<int64_t>(0, epoch - (epoch_begins() ? 1 : 0)); }
};

// The contents of state.json. With this state and the tensors, a run resumes at the next step as if
// it had never stopped.
struct SavedState : TrainingState {
  // The names "<model>.<parameter>" of the optimizers' parameters that require no gradient. Absent
  // if the program's build() froze exactly these parameters.
  std::optional<std::vector<std::string>> frozen;
  // The names "<model>.<buffer>" of the buffers that steps have changed. Replicas average these
  // buffers.
  std::vector<std::string> averaged;

  std::string run_id;
  Json job;                                     // The result of JobToJson.
  std::map<std::string, std::string> versions;  // Keys: "muster", "libtorch".
};
Json ToJson(const SavedState& state);
// Returns a DataError that names the missing or wrong field.
absl::StatusOr<SavedState> SavedStateFromJson(const Json& json);

// A file that is written before the other files of its checkpoint (Store::StageFile). If
// Store::Write has not moved the file into a checkpoint, the destructor removes the file. Only
// WriteAt is thread-safe.
class StagedFile {
 public:
  virtual ~StagedFile() = default;
  virtual const std::string& name() const = 0;
  virtual absl::Status Append(std::string_view bytes) = 0;
  // As WritableFile::WriteAt (files/file_system.h). A file must not be written with both Append and
  // WriteAt.
  virtual absl::Status WriteAt(int64_t offset, std::string_view bytes) = 0;
  virtual int64_t bytes() const = 0;
  // Blocks until the whole file is on the disk. No write may follow.
  virtual absl::Status Finish() = 0;
  // Opens the file for reading. The result stays valid when the file is renamed or removed.
  // REQUIRES: Finish has returned OK, or WriteAt has written the whole file.
  virtual absl::StatusOr<std::shared_ptr<const RowSource>> Open() const = 0;
};

// The contents of a checkpoint. A snapshot to be written is a copy, taken between two steps, so
// training can continue while the snapshot is written.
struct Snapshot {
  SavedState state;
  TensorSet model, optimizer;
  TensorSet replica_buffers;              // If empty, the checkpoint has no such file.
  std::map<std::string, TensorSet> kept;  // The weights that each callback keeps.
  // Only in a snapshot that was read: the embedding tables of parameter servers, in the order of
  // their files. No other member contains these tables.
  RowSources tables;
  // Only in a snapshot to be written: files that are already on the disk. Each of these files
  // replaces the file of the same name that Store::Write would make from the members above.
  std::vector<std::shared_ptr<StagedFile>> staged;
  double staged_seconds = 0;  // The time to write `staged`.
  // If true, Store::Write replaces an existing checkpoint of the same step. True if callbacks
  // changed the state at the end of training.
  bool replaces = false;
};

// Convert between a step and its checkpoint's name, such as "step-00000500". StepOfName returns -1
// for any other name.
std::string CheckpointName(int64_t step);
int64_t StepOfName(std::string_view name);

// Compares the job in a checkpoint with the job that is to resume from the checkpoint. The keys
// program, program_args, optimizer, global_batch_size, per_replica_batch_size and seed must be
// equal. Returns the dotted path of the first difference in these keys, or "" if there is none.
std::string FirstFixedDifference(const Json& of_checkpoint, const Json& of_job);

}  // namespace muster::checkpoint
