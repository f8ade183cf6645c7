// DirectorEpochs follows a parameter-server job through its steps and epochs. It reports completed
// steps, knows which passes over validation and test data are due, runs the hooks of callbacks, and
// records all this for a later chief. Used by the director's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "chief/leases/chief_record.h"
#include "chief/leases/work_table.h"
#include "chief/parameter_server/director.h"
#include "chief/parameter_server/director_members.h"
#include "chief/parameter_server/director_rules.h"
#include "chief/parameter_server/director_saves.h"
#include "chief/parameter_server/run_setup.h"
#include "chief/parameter_server/shard_state.h"
#include "chief/parameter_server/training_callbacks.h"
#include "chief/parameter_server/training_reporter.h"

namespace muster::chief {

class DirectorEpochs {
 public:
  using Due = std::pair<bool, bool>;  // Passes that are due: validation, test.

  // All must outlive this object.
  struct Parts {
    const DirectorOptions* options = nullptr;
    const DirectorStart* start = nullptr;
    const RunSetup* setup = nullptr;
    ShardState* state = nullptr;
    DirectorMembers* members = nullptr;
    DirectorSaves* saves = nullptr;
    TrainingReporter* reporter = nullptr;
    TrainingCallbacks* callbacks = nullptr;
  };
  explicit DirectorEpochs(const Parts& parts) : parts_(parts) {}

  // ---- The start
  //
  // Takes due passes and the callbacks' state from `record`, or else from `loaded`, the state of
  // the checkpoint. Stores both in `state->recorded()`. REQUIRES: `state` has begun or has adopted
  // `record`.
  absl::Status TakeOver(const checkpoint::TrainingState& loaded, const ChiefRecord* record,
                        DirectorState* state);
  void ReportStart();

  // ---- Actions
  //
  // Reports completed steps. Sets `progress`, if not null, to the progress after the last one.
  absl::Status ReportSteps(DirectorState::Progress* progress = nullptr);
  void StartPass();
  void ReportPass(const WorkTable::PassResult& pass);  // Reports how far the pass is.
  absl::Status FinishPass();
  absl::Status BeginCallbacks();
  // Runs the hooks for kEndEpoch, kEndTraining or kBeginEpoch.
  absl::Status RunCallbacks(DirectorAction action);
  // Reports steps and makes a record that includes them.
  absl::Status RecordProgress();

  // ---- State
  Due due() const { return due_; }
  // Sets the fields of `now` about passes and callbacks. `at` is the state after the last step.
  void Describe(const checkpoint::TrainingState& at,
                const std::optional<WorkTable::PassResult>& pass, DirectorSituation* now) const;
  // Returns the number of epochs that callbacks have opened, according to the newest record that a
  // server has stored; nullopt if there are no callbacks.
  std::optional<int64_t> OpenEpochs(const ShardServers& servers);

 private:
  absl::Status TakeOverCallbacks(const checkpoint::TrainingState& at,
                                 const checkpoint::TrainingState& loaded,
                                 const ChiefRecord* record);
  absl::Status EndEpoch(const CompletedStep& step, int64_t batches_per_epoch);
  checkpoint::TrainingState CurrentState() const;
  int DueSplit() const { return due_.first ? 1 : 2; }  // Indexes kSplitNames.

  const Parts parts_;
  Due due_ = {false, false};
  std::optional<CompletedStep> last_step_;  // The last step that was reported since RecordProgress.
  int64_t open_epochs_ = 0;                 // The result of OpenEpochs.
  // A record of this version or a later one has the latest number of open epochs.
  uint64_t callbacks_version_ = 0;
};

}  // namespace muster::chief
