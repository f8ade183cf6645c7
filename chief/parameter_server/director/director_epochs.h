// DirectorEpochs follows a parameter-server job through its steps and epochs. It reports completed
// steps. It knows whether a pass over the validation or test data is due. It runs the hooks of
// callbacks. It updates the ChiefRecord, from which a restarted chief continues
// (chief/leases/chief_record.h). Used only by the thread of Director::Run.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "chief/leases/chief_record.h"
#include "chief/leases/work_table.h"
#include "chief/parameter_server/director/director.h"
#include "chief/parameter_server/director/director_members.h"
#include "chief/parameter_server/director/director_rules.h"
#include "chief/parameter_server/director/director_saves.h"
#include "chief/parameter_server/run_setup.h"
#include "chief/parameter_server/shard_state.h"
#include "chief/parameter_server/training_callbacks.h"
#include "chief/parameter_server/training_reporter.h"

namespace muster::chief {

class DirectorEpochs {
 public:
  using Due = std::pair<bool, bool>;  // {the validation pass is due, the test pass is due}.

  // All objects must outlive the DirectorEpochs.
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
  // Takes the due passes and the state of callbacks from `record`. If `record` is null, takes them
  // from `loaded`, the state of the checkpoint. Stores them in `state->recorded()`. REQUIRES:
  // DirectorState::Begin or DirectorState::Adopt was called.
  absl::Status TakeOver(const checkpoint::TrainingState& loaded, const ChiefRecord* record,
                        DirectorState* state);
  void ReportStart();

  // ---- Actions
  //
  // Reports completed steps to the observers. If `progress` is not null, sets it to the progress
  // after the last of these steps.
  absl::Status ReportSteps(DirectorState::Progress* progress = nullptr);
  void StartPass();
  void ReportPass(const WorkTable::PassResult& pass);  // Reports the progress of the running pass.
  absl::Status FinishPass();
  absl::Status BeginCallbacks();
  // Runs the hooks of callbacks for kEndEpoch, kEndTraining or kBeginEpoch.
  absl::Status RunCallbacks(DirectorAction action);
  // Calls ReportSteps. Then makes a new ChiefRecord, which includes the reported steps.
  absl::Status RecordProgress();

  // ---- State
  Due due() const { return due_; }
  // Sets the fields of `now` that describe passes and callbacks. `at` is the state after the newest
  // completed step. `pass` is the running pass.
  void Describe(const checkpoint::TrainingState& at,
                const std::optional<WorkTable::PassResult>& pass, DirectorSituation* now) const;
  // Callbacks run their hooks for the start of an epoch before the first lease (batch) of that
  // epoch is given out. Returns the number of epochs for which these hooks have run and a server
  // has stored a record with the results of the hooks. The chief must not give out leases of
  // further epochs yet. Returns nullopt if there are no callbacks.
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
  // The newest step that was reported after the last RecordProgress.
  std::optional<CompletedStep> last_step_;
  int64_t open_epochs_ = 0;  // The last result of OpenEpochs.
  // The version (ShardServers::record_version) of the record that first contained the results of
  // the last hooks.
  uint64_t callbacks_version_ = 0;
};

}  // namespace muster::chief
