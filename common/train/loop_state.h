// What a step moves forward apart from the replica's tensors, and how a generation agrees on it:
// everybody takes what the owner of the newest state holds. One object for each local replica; it
// outlives generations, and a checkpoint holds all of it.
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
#include "common/train/replica.h"

namespace muster {

struct LoopState {
  // False while the owner's state comes in over this one, and after a transfer that was cut short:
  // the tensors are of two steps then, and `steps` tells nothing about them. Until another transfer
  // has come to its end, or a checkpoint was restored, the replica has no state.
  bool whole = true;
  // Likewise of the process's tables, in the state of the replica that owns them.
  bool tables_whole = true;
  int64_t steps = 0;          // done
  data::Position position;    // of the next example
  int64_t examples = 0;       // done in the whole run
  double epoch_loss_sum = 0;  // of loss x examples in the last step's epoch so far
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;  // all metrics' sums, in order of declaration
  // Passes that belong to this step and are not through.
  bool validation_due = false, test_due = false;
  std::vector<double> loss_scaler;  // LossScaler::state()
  // Of the last step, for whoever has to tell of it in the place of a chief that could not: the
  // objective, its examples, the program's own values, and of the passes at it that are through
  // ("validation", "test") the metrics. NaN, 0 and empty before the first step and after a
  // checkpoint.
  double last_loss = std::numeric_limits<double>::quiet_NaN();
  double last_learning_rate = 0;
  int64_t last_examples = 0;
  std::map<std::string, double> last_values;
  std::map<std::string, std::map<std::string, double>> last_passes;
  // What only some runs have. `batch_steps` is of the batch at `position`, which is begun where it
  // is above 0.
  checkpoint::Extras extras;
  int64_t global_batch_size = 0;  // 0: the job says it, at the first start
  // Of this process, not of the run: the step whose state was handed over to be saved last, or came
  // from a checkpoint; -1: none.
  int64_t saved_step = -1;
  // Likewise: the step whose saved state, or that of the checkpoint, has in it what callbacks did
  // at the end of training, and the passes after that; -1: none.
  int64_t end_saved_step = -1;
  // Likewise: the step whose state is wanted to be saved and is not handed over yet; -1: none.
  int64_t save_due = -1;

  // Of this generation: its owner's process knew as it began that the job stops. All go by that,
  // and not by what each has heard until then.
  bool stop_asked = false;

  // The last step whose update the replica holds; -1: it has no state.
  int64_t last_step() const { return whole ? steps : -1; }
  // The next step is an epoch's first one: the last step, if there was one, ended its epoch.
  bool epoch_begins() const { return position.offset == 0 && extras.batch_steps_done == 0; }
};

// That of a replica that has trained nothing.
LoopState InitialLoopState(const Job& job, const Replica& replica);

// A text of the owner's, on all replicas. Throws StatusError.
std::string BroadcastText(const std::string& mine, c10::Device device, Communicator* communicator,
                          int owner);

// Each of these is called by all replicas of a generation, and gives all of them what `owner`
// holds. They throw StatusError.
// The global batch and the replicas that the rate is scaled for.
void BroadcastBatchSize(c10::Device device, Communicator* communicator, int owner,
                        LoopState* state);
struct TransferOptions {
  // Tensors travel in pieces of at most this: the memory that a transfer takes beside the state.
  int64_t piece_bytes = 64 << 20;
  // An older state of the run is kept until all of the newer one is there if it has at most so many
  // bytes and no table; a larger one is overwritten.
  int64_t staged_bytes = 256 << 20;
  std::function<void()> moment;  // before the first piece and after each; null: nothing
};
// The replica's parameters, buffers, slots and tables, and the whole LoopState, of which `steps` is
// set last: whoever fails in here holds what it held before, or has no state (LoopState::whole).
void BroadcastState(Replica* replica, Communicator* communicator, int owner, LoopState* state,
                    const TransferOptions& options = {});

}  // namespace muster
