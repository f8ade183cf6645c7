// The implementation of Director. Only the director's own files include this header.
//   director.cc        the director's thread: it collects the situation, decides and acts
//   director_begin.cc  the start, until servers and members are present
// DirectorImpl owns these parts: DirectorMembers (calls of members, guarded state), ShardRollback,
// DirectorSaves, DirectorEpochs, TrainingReporter and TrainingCallbacks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "chief/leases/chief_record.h"
#include "chief/parameter_server/director.h"
#include "chief/parameter_server/director_epochs.h"
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
  // ---- director_begin.cc
  absl::Status Prepare(const DirectorStart& start);
  absl::Status PrepareServers();
  absl::Status AwaitServers();
  absl::StatusOr<ShardClient*> PrimaryOf(int shard, bool again);
  absl::Status CheckLoaded(const ChiefRecord& record) const;
  absl::Status Begin();

  // ---- director.cc
  absl::StatusOr<bool> RunOnce();  // Returns true if the job is done.
  DirectorSituation Look();
  absl::StatusOr<bool> Act(const DirectorDecision& decision);
  // Returns whether the gate for leases is closed.
  bool IsClosed(const DirectorState& state) const;
  void UpdateGate(DirectorState& state);
  bool RecordIsDue(MonotonicTime next);
  void RecordEnd(const absl::Status& outcome);
  absl::Status End(const absl::Status& outcome);

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
  std::unique_ptr<TrainingReporter> reporter_;
  std::unique_ptr<TrainingCallbacks> callbacks_;
  std::unique_ptr<DirectorSaves> saves_;
  std::unique_ptr<DirectorEpochs> epochs_;
};

}  // namespace muster::chief
