// LoopState is the part of the training state that is not in a replica's tensors. The base,
// checkpoint::TrainingState, is what checkpoints contain: counters, positions in the data and sums.
// The fields of LoopState itself are not in checkpoints. A replica is one device's copy of the
// model, with its own thread. Each replica has one LoopState as long as its process lives.
//
// A generation is a period of training with fixed members. It ends when a member is lost or joins.
// At the start of a generation, one replica with the newest state, the owner, sends this state to
// all other replicas. In this header, "the last step" is the newest completed step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/collective/communicator.h"
#include "common/train/replica/replica.h"

namespace muster {

struct LoopState : checkpoint::TrainingState {
  // False in three cases: the process has started without a state, the owner's state is overwriting
  // this replica's state, or such a transfer was interrupted. The tensors may then mix two states,
  // and `step` is meaningless. Becomes true when a transfer completes or a checkpoint is restored.
  bool whole = true;
  // Like `whole`, for the embedding tables of the process. Used only in the LoopState of the
  // process's first replica, because that replica receives the tables for the process.
  bool tables_whole = true;
  // The numbers in the report of the last step: loss, learning rate, examples and the values that
  // the program reported. `last_passes` has the metrics of the passes completed after that step,
  // keyed by "validation" or "test". If the chief is lost before it has published these numbers,
  // the next chief publishes them. Before the first step and after a restore, these fields are NaN,
  // 0 or empty.
  double last_loss = std::numeric_limits<double>::quiet_NaN();
  double last_learning_rate = 0;
  int64_t last_examples = 0;
  std::map<std::string, double> last_values;
  std::map<std::string, std::map<std::string, double>> last_passes;
  // Belongs to the process. The step of the last state that this process gave to the CheckpointSink
  // (checkpointing.h) or restored from a checkpoint. -1 if there is none.
  int64_t saved_step = -1;
  // Belongs to the process. Like `saved_step`, but only for the final state of a run with
  // callbacks. This state includes the effects of the hooks and passes at the end of training. -1
  // if there is none.
  int64_t end_saved_step = -1;
  // Belongs to the process. The step of a state that the CheckpointSink wants, but has not received
  // yet. -1 if there is none.
  int64_t save_due = -1;

  // True if a stop was requested before this generation started. All replicas use the owner's
  // value, because processes may receive the request at different times.
  bool stop_asked = false;

  // Returns the step of the state that the replica holds, or -1 if it has no state.
  int64_t last_step() const { return whole ? step : -1; }
};

// Returns the state of a replica before the first step of a run.
LoopState InitialLoopState(const Job& job, const Replica& replica);

// Returns true if training has ended: no step is left, or the program or a callback ended it.
bool IsFinished(const Job& job, const LoopState& state);

// Returns, on all replicas, the text that replica `owner` passed as `mine`. Called by all replicas
// of a generation. Throws StatusError.
std::string BroadcastText(const std::string& mine, c10::Device device,
                          collective::Communicator* communicator, int owner);

// Sends the owner's global batch size to all replicas. Also sends the number of replicas by which
// learning rates are scaled. Called by all replicas of a generation. Throws StatusError.
void BroadcastBatchSize(c10::Device device, collective::Communicator* communicator, int owner,
                        LoopState* state);
struct TransferOptions {
  // The maximum size of a piece. Tensors are sent in pieces, and each replica needs memory for one
  // piece in addition to the state.
  int64_t piece_bytes = 64 << 20;
  // A replica receives a state of at most this size into new memory, and keeps its old state until
  // the new state is complete. A larger state overwrites the old state piece by piece. A state with
  // embedding rows that the replica must receive always overwrites the old state.
  int64_t staged_bytes = 256 << 20;
  // Called before the first piece and after each piece. May be null.
  std::function<void()> moment;
};
// Sends the owner's state to all replicas: parameters, buffers, optimizer slots, embedding tables
// and the LoopState. Called by all replicas of a generation. Assigns to `*state` last. After a
// failure, each replica therefore has its previous state, or has no state (LoopState::whole is
// false). Throws StatusError.
void BroadcastState(Replica* replica, collective::Communicator* communicator, int owner,
                    LoopState* state, const TransferOptions& options);

}  // namespace muster
