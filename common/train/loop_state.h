// LoopState is the part of the training state that is not in a replica's tensors: counters,
// positions in the data, and the last reports. Each replica has one object, which outlives
// generations. At the start of a generation, the owner of the newest state broadcasts it to all
// replicas. Checkpoints contain a LoopState, except the fields that belong to a process.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/extras.h"
#include "common/collective/communicator.h"
#include "common/data/pipeline.h"
#include "common/train/replica/replica.h"

namespace muster {

struct LoopState {
  // False while the owner's state overwrites this one, and after an interrupted transfer. The
  // tensors then mix two steps, and `steps` is meaningless. The replica gets a state again when
  // another transfer completes or a checkpoint is restored.
  bool whole = true;
  // Like `whole`, for the embedding tables of the process. The field is valid only in the LoopState
  // of the replica that owns the tables.
  bool tables_whole = true;
  int64_t steps = 0;        // Completed steps.
  data::Position position;  // Position of the next example.
  int64_t examples = 0;     // Examples trained on in the whole run.
  // The sum of loss x examples over the completed steps of the last step's epoch.
  double epoch_loss_sum = 0;
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;  // Sums of all metrics, in the order of declaration.
  // True if the validation or test pass after step `steps` must still run or was interrupted.
  bool validation_due = false, test_due = false;
  std::vector<double> loss_scaler;  // LossScaler::state()
  // The report of the last step: objective, learning rate, examples, the program's reported values,
  // and the metrics of the passes completed after that step ("validation", "test"). If the chief is
  // lost before it has reported these values, the next chief reports them. The values are NaN, 0
  // and empty before the first step and after a restore.
  double last_loss = std::numeric_limits<double>::quiet_NaN();
  double last_learning_rate = 0;
  int64_t last_examples = 0;
  std::map<std::string, double> last_values;
  std::map<std::string, std::map<std::string, double>> last_passes;
  // State that only some runs have. If extras.batch_steps is above 0, the run has made some,
  // but not all, steps over the batch at `position`.
  checkpoint::Extras extras;
  int64_t global_batch_size = 0;  // Set from the job at the first start. 0 before.
  // The step of the last state that this process passed to the CheckpointSink or restored from a
  // checkpoint. Belongs to the process, not to the run. -1 if there is none.
  int64_t saved_step = -1;
  // The step of the last saved or restored final state. A final state includes the hooks at the end
  // of training and the passes after them. Belongs to the process. -1 if there is none.
  int64_t end_saved_step = -1;
  // The step of a state that the CheckpointSink wants but has not received yet. Belongs to the
  // process. -1 if there is none.
  int64_t save_due = -1;

  // True if the owner's process knew of a stop request at the start of this generation. Processes
  // may receive the request at different times, so all replicas use the owner's value.
  bool stop_asked = false;

  // Returns the step of the state that the replica holds, or -1 if it has no state.
  int64_t last_step() const { return whole ? steps : -1; }
  // Returns true if the next step is the first step of an epoch.
  bool epoch_begins() const { return position.offset == 0 && extras.batch_steps_done == 0; }
  // Returns the epoch of the last step.
  int64_t last_epoch() const {
    return std::max<int64_t>(0, position.epoch - (epoch_begins() ? 1 : 0));
  }
};

// Returns the state of a replica that has not trained.
LoopState InitialLoopState(const Job& job, const Replica& replica);

// Returns true if training has no step left.
bool IsFinished(const Job& job, const LoopState& state);

// Broadcasts the text `mine` of replica `owner`. Returns it on all replicas. Throws StatusError.
std::string BroadcastText(const std::string& mine, c10::Device device,
                          collective::Communicator* communicator, int owner);

// Broadcast functions. All replicas of a generation call them, and all receive the values of
// replica `owner`. They throw StatusError.
//
// BroadcastBatchSize sends the global batch size, and the number of replicas by which learning
// rates are scaled.
void BroadcastBatchSize(c10::Device device, collective::Communicator* communicator, int owner,
                        LoopState* state);
struct TransferOptions {
  // Tensors are sent in pieces of at most this size. The transfer needs this much memory in
  // addition to the state.
  int64_t piece_bytes = 64 << 20;
  // If the state has at most this size and no table rows are received, a replica keeps its older
  // state until the newer one is complete. Otherwise the older state is overwritten at once.
  int64_t staged_bytes = 256 << 20;
  std::function<void()> moment;  // Called before the first piece and after each piece. May be null.
};
// Sends the replica's parameters, buffers, slots and tables, and the LoopState. Assigns to `state`
// last. After a failure, a replica therefore still holds its previous state, or has none
// (LoopState::whole).
void BroadcastState(Replica* replica, collective::Communicator* communicator, int owner,
                    LoopState* state, const TransferOptions& options = {});

}  // namespace muster
