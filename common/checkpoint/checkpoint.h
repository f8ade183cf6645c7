// A checkpoint: the state of training after a number of steps.
//
//   step-00000500/  model.safetensors      parameters and buffers, "<model>.<name>", or "<name>"
//                                          where the program has one model
//                   optimizer.safetensors  slots, "<optimizer>.<parameter>.<slot>"
//                   replica_buffers.safetensors  only where the program has buffers that differ
//                                          between replicas: named as in the model, with those of
//                                          all replicas stacked
//                   weights.<callback>.safetensors  only where a callback keeps weights, such as a
//                                          moving average or the best ones: named as in the model
//                   tables-00001-of-00004.safetensors  only where parameter servers hold embedding
//                                          tables: the rows of each server, with their slots
//                   state.json             TrainingState
//                   manifest.json          sizes and checksums of the others; written last
//
// The directory appears by one rename, complete and on the disk (store.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/extras.h"
#include "common/checkpoint/row_source.h"
#include "common/checkpoint/tensor.h"
#include "muster/json.h"

namespace muster::checkpoint {

// The state that a step advances, apart from tensors. With it a run resumes at the next step as if
// it had never stopped.
struct TrainingState {
  int64_t step = 0;      // Number of completed steps.
  int64_t epoch = 0;     // Of the next example, from 0.
  int64_t offset = 0;    // Examples of that epoch that are done.
  int64_t examples = 0;  // Done in the whole run.
  // For the epoch of the last step: the sum of loss x examples, and the sums of the metrics.
  double epoch_loss_sum = 0;
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;
  std::vector<double> loss_scaler;  // The value of LossScaler::state().
  // Passes that belong to this step and had not finished when it was saved.
  bool validation_due = false, test_due = false;
  int64_t global_batch_size = 0;  // Fixed at the first start.
  Extras extras;
  // The optimizers' parameters that require no gradient, "<model>.<parameter>". Absent where these
  // are the ones that build() froze.
  std::optional<std::vector<std::string>> frozen;
  // The buffers that steps have changed, "<model>.<buffer>". Replicas average them.
  std::vector<std::string> averaged;

  std::string run_id;
  Json job;                                     // The resolved job.
  std::map<std::string, std::string> versions;  // Keys: "muster", "libtorch".
};
Json ToJson(const TrainingState& state);
// A DataError names the field that is missing or wrong.
absl::StatusOr<TrainingState> TrainingStateFromJson(const Json& json);

// A file of a checkpoint that is written before the other files (Store::StageFile). The destructor
// removes the file unless a checkpoint has taken it. Not thread-safe, except for WriteAt.
class StagedFile {
 public:
  virtual ~StagedFile() = default;
  virtual const std::string& name() const = 0;
  virtual absl::Status Append(std::string_view bytes) = 0;
  // As WritableFile::WriteAt. A file is either appended to or written in pieces.
  virtual absl::Status WriteAt(int64_t offset, std::string_view bytes) = 0;
  virtual int64_t bytes() const = 0;
  // Returns when the whole file is on the disk. No write may follow.
  virtual absl::Status Finish() = 0;
  // Opens the contents for reading. The result stays valid when the file is renamed or removed.
  // REQUIRES: Finish has returned OK, or all pieces were written.
  virtual absl::StatusOr<std::shared_ptr<const RowSource>> Open() const = 0;
};

// The contents of a checkpoint. A snapshot to be written is taken at a step boundary, after which
// training changes its own tensors.
struct Snapshot {
  TrainingState state;
  TensorSet model, optimizer;
  TensorSet replica_buffers;              // Without tensors, the checkpoint has no such file.
  std::map<std::string, TensorSet> kept;  // By callback: the weights that it keeps.
  // When read: the embedding tables of parameter servers, which are in none of the sets, in the
  // order of the files.
  RowSources tables;
  // When written: files that are on the disk already. They replace those of the sets.
  std::vector<std::shared_ptr<StagedFile>> staged;
  double staged_seconds = 0;  // The time that staging them took.
  // Replaces a checkpoint of the same step, because callbacks changed the state at the end of
  // training.
  bool replaces = false;
};

// Convert between a step and its name, such as "step-00000500". StepOfName returns -1 where the
// name is not that of a checkpoint.
std::string CheckpointName(int64_t step);
int64_t StepOfName(std::string_view name);

// Returns the first (dotted) key of the job that differs from the checkpoint's job although it must
// not: program, program_args, optimizer, batch size or seed. Returns "" if none differs.
std::string FirstFixedDifference(const Json& of_checkpoint, const Json& of_job);

}  // namespace muster::checkpoint
