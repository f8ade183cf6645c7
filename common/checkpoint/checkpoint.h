// A checkpoint: the state of training after a number of steps.
//
//   step-00000500/  model.safetensors      parameters and buffers, "<model>.<name>", or "<name>"
//                                          where the program has one model
//                   optimizer.safetensors  slots, "<optimizer>.<parameter>.<slot>"
//                   replica_buffers.safetensors  only where the program has buffers that each
//                                          replica has of its own: as in the model, those of all
//                                          replicas stacked
//                   weights.<callback>.safetensors  only where a callback remembers weights: the
//                                          moving average, the best ones; named as in the model
//                   tables-00001-of-00004.safetensors  only where parameter servers hold embedding
//                                          tables: the rows of each server, with their slots
//                   state.json             TrainingState
//                   manifest.json          sizes and checksums of the others; written last
//
// The directory appears by one rename, whole and on the disk (store.h).
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

// What a step moves forward apart from tensors. Everything that a run needs to go on at the next
// step as if it had never stopped.
struct TrainingState {
  int64_t step = 0;      // done
  int64_t epoch = 0;     // of the next example, from 0
  int64_t offset = 0;    // examples of that epoch that are done
  int64_t examples = 0;  // done in the whole run
  // Of the epoch of the last step: sum of loss x examples, and the metrics' sums.
  double epoch_loss_sum = 0;
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;
  std::vector<double> loss_scaler;  // LossScaler::state()
  // Passes that belong to this step and were not through when it was saved.
  bool validation_due = false, test_due = false;
  int64_t global_batch_size = 0;  // fixed at the first start
  Extras extras;
  // The optimizers' parameters that require no gradient, "<model>.<parameter>"; absent where they
  // are those that build() froze.
  std::optional<std::vector<std::string>> frozen;
  // The buffers that steps have changed, so that replicas average them, "<model>.<buffer>".
  std::vector<std::string> averaged;

  std::string run_id;
  Json job;                                     // resolved
  std::map<std::string, std::string> versions;  // "muster", "libtorch"
};
Json ToJson(const TrainingState& state);
// A DataError names the field that is missing or wrong.
absl::StatusOr<TrainingState> TrainingStateFromJson(const Json& json);

// A file of a checkpoint that is written before the rest (Store::StageFile). Removed with it,
// unless a checkpoint took it over. One thread at a time, but for WriteAt.
class StagedFile {
 public:
  virtual ~StagedFile() = default;
  virtual const std::string& name() const = 0;
  virtual absl::Status Append(std::string_view bytes) = 0;
  // As WritableFile's: a file is either appended to, or written in pieces.
  virtual absl::Status WriteAt(int64_t offset, std::string_view bytes) = 0;
  virtual int64_t bytes() const = 0;
  // All of it is on the disk when it returns; nothing may follow.
  virtual absl::Status Finish() = 0;
  // What it holds, whatever becomes of its name. REQUIRES: Finish has returned OK, or it was
  // written in pieces, and none is missing.
  virtual absl::StatusOr<std::shared_ptr<const RowSource>> Open() const = 0;
};

// What is written: taken at a step boundary, after which training goes on and changes its own
// tensors.
struct Snapshot {
  TrainingState state;
  TensorSet model, optimizer;
  TensorSet replica_buffers;              // may have no tensors: then there is no such file
  std::map<std::string, TensorSet> kept;  // weights that callbacks remember, by callback
  // Embedding tables of parameter servers, which are in no set. Of what was read, in the order of
  // the files.
  RowSources tables;
  // Of what is to be written: files that are on the disk already, in the place of those of the
  // sets.
  std::vector<std::shared_ptr<StagedFile>> staged;
  double staged_seconds = 0;  // that this took
  // It replaces one of the same step: what callbacks did at the end of training changed the state.
  bool replaces = false;
};

// "step-00000500", and back; -1 where the name is none of a checkpoint.
std::string CheckpointName(int64_t step);
int64_t StepOfName(std::string_view name);

// The first key (dotted) of the job that must not differ from the one that a checkpoint was written
// with (program, program_args, optimizer, batch size, seed); "" if none does.
std::string FirstFixedDifference(const Json& of_checkpoint, const Json& of_job);

}  // namespace muster::checkpoint
