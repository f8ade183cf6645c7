// The implementation of Director. Only the director's own files include this header.
//   director.cc        the director's thread: it collects the situation, decides and acts
//   director_begin.cc  the start, until servers and members are present
// DirectorImpl owns these parts: DirectorMembers (calls of members, guarded state), ShardRollback,
// DirectorSaves, TrainingReporter and TrainingCallbacks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "chief/leases/chief_record.h"
#include "chief/leases/work_table.h"
#include "chief/parameter_server/director.h"
#include "chief/parameter_server/director_members.h"
#include "chief/parameter_server/director_rules.h"
#include "chief/parameter_server/director_saves.h"
#include "chief/parameter_server/run_setup.h"
#include "chief/parameter_server/shard_rollback.h"
#include "chief/parameter_server/training_callbacks.h"
#include "chief/parameter_server/training_reporter.h"
#include "chief/parameter_server/waiting_log.h"
#include "chief/shards/server_rows.h"

namespace muster::chief {

class DirectorImpl final : public Director {
 public:
  DirectorImpl(DirectorOptions options, ShardStateFactory factory);
  ~DirectorImpl() override;

  grpc::Service* service() override { return members_.get(); }
  absl::Status Run(const DirectorStart& start) override;
  void RequestStop() override { members_->OnStopRequested(); }
  void Abort(const absl::Status& why) override { members_->Abort(why); }
  DirectorRecord record() const override {
    return DirectorMembers::Lock(members_.get())->counters();
  }
  bool MayHaveState() const override {
    return DirectorMembers::Lock(members_.get())->servers().SomeHaveReturned();
  }

  // MemberEvents
  void OnAdmitted(const AdmittedMember& member) override { members_->OnAdmitted(member); }
  void OnLost(const TaskId& task, uint64_t incarnation, const std::string& why,
              bool ended) override {
    members_->OnLost(task, incarnation, why, ended);
  }
  void OnStopRequested() override { members_->OnStopRequested(); }

 private:
  // Passes that are due: validation, test.
  using Due = std::pair<bool, bool>;

  // ---- director_begin.cc
  absl::Status Prepare(const DirectorStart& start);
  absl::Status PrepareServers();
  absl::Status AwaitServers();
  absl::StatusOr<ShardClient*> PrimaryOf(int shard, bool again);
  absl::Status CheckLoaded(const ChiefRecord& record) const;
  absl::Status Begin();
  absl::Status TakeOverCallbacks(const checkpoint::TrainingState& at, const ChiefRecord* record);
  void ReportStart();

  // ---- director.cc
  absl::StatusOr<bool> RunOnce();  // Returns true if the job is done.
  DirectorSituation Look();
  absl::StatusOr<bool> Act(const DirectorDecision& decision);
  // Returns whether the gate for leases is closed.
  bool IsClosed(const DirectorState& state) const;
  void UpdateGate(DirectorState& state);
  // Reports completed steps. Sets `progress`, if not null, to the progress after the last one.
  absl::Status ReportSteps(DirectorState::Progress* progress = nullptr);
  absl::Status EndOfEpoch(const CompletedStep& step, int64_t batches_per_epoch);
  void StartPass();
  absl::Status FinishPass();
  absl::Status BeginCallbacks();
  absl::Status RunCallbacks(DirectorAction action);
  bool RecordIsDue(MonotonicTime next);
  absl::Status RecordProgress();
  void RecordEnd(const absl::Status& outcome);
  absl::Status End(const absl::Status& outcome);
  checkpoint::TrainingState state() const;
  bool IsFinished(const checkpoint::TrainingState& at) const;

  const DirectorOptions options_;
  const ShardStateFactory factory_;
  const std::unique_ptr<DirectorMembers> members_;

  // ---- Set before the threads start, constant afterwards
  DirectorStart start_;
  // Used by the director's thread, or by the cutter's thread while it reads.
  std::unique_ptr<ShardState> state_;
  RunSetup setup_;
  std::unique_ptr<ServerRows> rows_;  // Callbacks look up rows here.

  // ---- Used only by the director's thread
  DirectorPhase phase_ = DirectorPhase::kPreparing;
  WaitingLog waiting_;
  std::unique_ptr<ShardRollback> rollback_;
  Due due_ = {false, false};
  std::optional<CompletedStep> last_step_;
  std::unique_ptr<TrainingReporter> reporter_;
  std::unique_ptr<TrainingCallbacks> callbacks_;
  std::unique_ptr<DirectorSaves> saves_;
  // The number of epochs that callbacks have opened, according to the newest record that a server
  // has stored. callbacks_version_ is the version of the record with the latest number.
  int64_t open_epochs_ = 0;
  uint64_t callbacks_version_ = 0;
};

}  // namespace muster::chief
