// ReplicaCallbacks runs the callbacks of a parameter-server job on the chief's replica. It makes
// their CallbackHost, runs hooks and carries out the callbacks' decisions about weights. It knows
// the steps of the weights that the replica keeps for callbacks. Used by one thread at a time,
// except for WeightsChanged.
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
  // Thread-safe. Called when the replica's weights are no longer those of the last Restored.
  void WeightsChanged() { restored_step_ = -1; }
  // Sets the optimizers' slots that belong to the replica's weights, for callbacks that save both.
  void SetSlots(const checkpoint::TensorSet& slots) { slots_ = slots; }

  // The other functions implement those of ShardState. Begin is BeginCallbacks, and must be called
  // before Fire, Decide and Adopt.
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
  const bool has_slots_;         // A checkpoint has slots of optimizers.
  checkpoint::TensorSet slots_;  // Empty if the slots of the replica's weights are unknown.
  std::unique_ptr<CallbackHost> host_;
  Hook hook_ = Hook::kTrainBegin;  // The current or the last hook.
  int64_t fired_step_ = 0;         // The step of the current hook.
  // The steps of the weights that the replica keeps for callbacks, by callback.
  std::map<std::string, int64_t> kept_steps_;
  // The step of the replica's own restored weights, -1 if they have changed.
  std::atomic<int64_t> restored_step_ = -1;
};

}  // namespace muster::chief
