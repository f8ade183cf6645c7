// ReplicaCallbacks runs the callbacks of a parameter-server job on the chief's replica of the
// model. It makes the CallbackHost (common/train/callbacks), runs hooks, and carries out the
// decisions of callbacks about weights. For a callback, the replica can keep a copy of its own
// weights, for example of the best weights. ReplicaCallbacks knows the step of each copy. Used by
// one thread at a time, except for WeightsChanged.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chief/parameter_server/shard_state.h"
#include "common/train/callbacks/callback_host.h"

namespace muster::chief {

class ReplicaCallbacks {
 public:
  using Parts = ShardState::CallbackParts;

  // `job` and `replica` must outlive this object.
  ReplicaCallbacks(const Job& job, Replica* replica);

  // Called when the replica was restored from a checkpoint with the state `restored`.
  void Restored(const checkpoint::TrainingState& restored);
  // Thread-safe. Called when the replica receives weights from the servers. The replica then no
  // longer has the weights of the last Restored.
  void WeightsChanged() { restored_step_ = -1; }
  // Sets the optimizer slots of the replica's weights, for callbacks that save weights and slots.
  void SetSlots(const checkpoint::TensorSet& slots) { slots_ = slots; }

  // The following functions implement the functions of ShardState (shard_state.h) with the same
  // names. Begin implements BeginCallbacks. Begin must be called before Fire, Decide and Adopt.
  absl::Status Begin(const Parts& parts, bool begun, checkpoint::CallbackRecord* record);
  absl::Status Fire(Hook hook, CallbackMoment moment);
  absl::StatusOr<std::optional<CallbackDecision>> Decide();
  void Adopt(const checkpoint::CallbackRecord& record) { host_->Adopt(record); }
  double LearningRate(const checkpoint::CallbackRecord& record, int64_t steps) const;
  void PutBackWeights(const std::string& callback);

 private:
  void DropUnknown(checkpoint::CallbackRecord* record) const;
  bool HasKept(const std::string& callback, int64_t step) const;
  void TakeOverWeights(int64_t weights_step, checkpoint::CallbackRecord* record);
  absl::Status AttachSchedules(const Parts& parts);
  std::vector<CallbackHostOptions::Rate> Rates() const;
  CallbackHostOptions HostOptions(const Parts& parts);
  double ScheduledRate(const std::string& optimizer, int64_t steps) const;
  absl::Status SaveModel(const std::string& path, bool with_optimizer) const;
  absl::StatusOr<at::Tensor> Predict(const std::function<bool(int64_t step)>& has_weights,
                                     const data::Batch& batch,
                                     const std::vector<std::string>& columns);

  const Job& job_;
  Replica* const replica_;
  const bool has_slots_;         // True if the optimizers have slots.
  checkpoint::TensorSet slots_;  // Set by SetSlots. Empty if unknown.
  std::unique_ptr<CallbackHost> host_;
  Hook hook_ = Hook::kTrainBegin;  // The hook that runs now or ran last.
  int64_t fired_step_ = 0;         // The step of hook_.
  // The step of the weights that the replica keeps for each callback, keyed by callback.
  std::map<std::string, int64_t> kept_steps_;
  // The step of the last Restored, -1 if WeightsChanged was called since.
  std::atomic<int64_t> restored_step_ = -1;
};

}  // namespace muster::chief
