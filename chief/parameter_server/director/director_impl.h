// The implementation of Director (director.h). "The director's thread" is the thread that calls
// Director::Run. The methods are in two files:
//   director.cc        Run: collects the situation, decides and acts, until the job is done
//   director_begin.cc  the start of the job, until calls of workers are answered
// DirectorImpl owns DirectorMembers, ShardRollback, DirectorSaves, DirectorEpochs, TrainingReporter
// and TrainingCallbacks. Each has a header of its own. DirectorMembers handles calls from workers,
// makes calls to ps tasks, and has the state that its mutex guards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "chief/leases/chief_record.h"
#include "chief/parameter_server/director/director.h"
#include "chief/parameter_server/director/director_epochs.h"
#include "chief/parameter_server/director/director_members.h"
#include "chief/parameter_server/director/director_rules.h"
#include "chief/parameter_server/director/director_saves.h"
#include "chief/parameter_server/director/waiting_log.h"
#include "chief/parameter_server/run_setup.h"
#include "chief/parameter_server/shard_rollback.h"
#include "chief/parameter_server/training_callbacks.h"
#include "chief/parameter_server/training_reporter.h"
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
  // Implements ServerRows::Primary.
  absl::StatusOr<ShardClient*> PrimaryOf(int shard, bool again);
  absl::Status CheckLoaded(const ChiefRecord& record) const;
  absl::Status Begin();

  // ---- director.cc
  absl::StatusOr<bool> RunOnce();  // Returns true if the job is done.
  DirectorSituation Look();
  absl::StatusOr<bool> Act(const DirectorDecision& decision);
  // Returns true if no new lease (batch for a worker) may be given out.
  bool IsClosed(const DirectorState& state) const;
  void UpdateGate(DirectorState& state);
  bool RecordIsDue(MonotonicTime next);
  void RecordEnd(const absl::Status& outcome);
  absl::Status End(const absl::Status& outcome);

  const DirectorOptions options_;
  const ShardStateFactory factory_;
  const std::unique_ptr<DirectorMembers> members_;

  // ---- Set before other threads start, and constant afterwards
  DirectorStart start_;
  // The pointer is constant, the object is not. The director's thread uses the object. While
  // CheckpointCutter's thread reads a cut (a consistent copy of the servers' state), only that
  // thread uses the weights in the object.
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
