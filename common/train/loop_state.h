// The part of the training state that is not in the replica's tensors, and its transfer. At the
// start of a generation all replicas take the newest state from its owner. There is one object for
// each local replica. It outlives generations, and checkpoints contain all of it.
#pragma once

#include <ATen/core/Tensor.h>

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
  // False while the owner's state is overwriting this one, and after an interrupted transfer. The
  // tensors then mix two steps, and `steps` is meaningless. The replica has no state until another
  // transfer completes or a checkpoint is restored.
  bool whole = true;
  // The same for the process's tables. Kept in the state of the replica that owns them.
  bool tables_whole = true;
  int64_t steps = 0;        // Completed steps.
  data::Position position;  // The position of the next example.
  int64_t examples = 0;     // Trained on in the whole run.
  // Sum of loss x examples in the epoch of the last step, so far.
  double epoch_loss_sum = 0;
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;  // All metrics' sums, in order of declaration.
  // Passes that belong to this step and are not complete.
  bool validation_due = false, test_due = false;
  std::vector<double> loss_scaler;  // LossScaler::state()
  // The last step's report: objective, learning rate, examples, the program's own values, and the
  // metrics of its completed passes ("validation", "test"). A new chief reports them if the
  // previous one was lost before it could. NaN, 0 and empty before the first step and after a
  // restore.
  double last_loss = std::numeric_limits<double>::quiet_NaN();
  double last_learning_rate = 0;
  int64_t last_examples = 0;
  std::map<std::string, double> last_values;
  std::map<std::string, std::map<std::string, double>> last_passes;
  // State that only some runs have. `batch_steps` belongs to the batch at `position`; above 0, that
  // batch has been started.
  checkpoint::Extras extras;
  int64_t global_batch_size = 0;  // 0: set from the job at the first start.
  // The step of the last state that was handed over for saving, or that a checkpoint restored.
  // Belongs to this process, not to the run. -1: none.
  int64_t saved_step = -1;
  // The step whose saved or restored state includes the callbacks' work at the end of training and
  // the passes after it. Belongs to this process. -1: none.
  int64_t end_saved_step = -1;
  // The step whose state the sink wants but has not received yet. Belongs to this process. -1:
  // none.
  int64_t save_due = -1;

  // True if the owner's process knew at the start of this generation that the job is stopping. All
  // replicas use the owner's value, because they may have learned of a stop at different times.
  bool stop_asked = false;

  // The last step whose update the replica holds. -1: it has no state.
  int64_t last_step() const { return whole ? steps : -1; }
  // The next step is the first one of an epoch.
  bool epoch_begins() const { return position.offset == 0 && extras.batch_steps_done == 0; }
};

// Returns the state of a replica that has not trained.
LoopState InitialLoopState(const Job& job, const Replica& replica);

// Returns the owner's text on all replicas. Throws StatusError.
std::string BroadcastText(const std::string& mine, c10::Device device, Communicator* communicator,
                          int owner);

// All replicas of a generation call these functions, and all receive what `owner` holds. They throw
// StatusError.
//
// BroadcastBatchSize transfers the global batch size and the number of replicas that the learning
// rate is scaled for.
void BroadcastBatchSize(c10::Device device, Communicator* communicator, int owner,
                        LoopState* state);
struct TransferOptions {
  // Maximum size of a piece in which tensors are sent. Bounds the transfer's memory beside the
  // state.
  int64_t piece_bytes = 64 << 20;
  // An older state is kept until the newer one has arrived completely, if it has at most this size
  // and receives no table rows. A larger one is overwritten.
  int64_t staged_bytes = 256 << 20;
  std::function<void()> moment;  // Called before the first piece and after each. May be null.
};
// Transfers the replica's parameters, buffers, slots and tables, and the whole LoopState. `steps`
// is set last: after a failure, a replica still holds its previous state, or has no state
// (LoopState::whole).
void BroadcastState(Replica* replica, Communicator* communicator, int owner, LoopState* state,
                    const TransferOptions& options = {});

}  // namespace muster
