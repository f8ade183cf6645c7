// The implementation of Director. Only the director's own files include this header.
//   director.cc          the director's thread: it collects the situation, decides and acts
//   director_begin.cc    the start, until servers and members are present
//   director_members.cc  members, views, and the restore of shards
//   director_saves.cc    checkpoints
// DirectorImpl owns these parts: ShardServers (ps tasks, views), ServerLinks (calls to ps tasks),
// WorkTable (leases, passes), LeaseCalls (calls of workers), CheckpointCutter, TrainingReporter and
// TrainingCallbacks.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/leases/chief_record.h"
#include "chief/leases/work_table.h"
#include "chief/parameter_server/checkpoint_cutter.h"
#include "chief/parameter_server/director.h"
#include "chief/parameter_server/director_rules.h"
#include "chief/parameter_server/lease_calls.h"
#include "chief/parameter_server/run_setup.h"
#include "chief/parameter_server/tell_call.h"
#include "chief/parameter_server/training_callbacks.h"
#include "chief/parameter_server/training_reporter.h"
#include "chief/shards/server_links.h"
#include "chief/shards/server_rows.h"
#include "chief/shards/shard_servers.h"
#include "common/base/wait.h"

namespace muster::chief {

// After timeouts.resume, a worker may take this much longer to find a restarted chief.
inline constexpr Duration kReturn = std::chrono::seconds(4);
inline constexpr Duration kWaitingLine = std::chrono::seconds(10);
// The longest time that the director's thread waits for an event.
inline constexpr Duration kTick = std::chrono::milliseconds(100);

class DirectorImpl final : public Director,
                           public proto::Leases::CallbackService,
                           private NextCall::Handler,
                           private ViewCall::Handler,
                           private ServerLinks::Handler {
 public:
  DirectorImpl(DirectorOptions options, ShardStateFactory factory);
  ~DirectorImpl() override;

  grpc::Service* service() override { return this; }
  absl::Status Run(const DirectorStart& start) override;
  void RequestStop() override;
  void Abort(const absl::Status& why) override;
  DirectorRecord record() const override;
  bool MayHaveState() const override {
    absl::MutexLock lock(&mu_);
    return servers_.SomeHaveReturned();
  }

  // MemberEvents
  void OnAdmitted(const AdmittedMember& member) override;
  void OnLost(const TaskId& task, uint64_t incarnation, const std::string& why,
              bool ended) override;
  void OnStopRequested() override { RequestStop(); }

  // proto::Leases
  grpc::ServerUnaryReactor* Next(grpc::CallbackServerContext* context,
                                 const proto::NextRequest* request,
                                 proto::NextReply* reply) override;
  grpc::ServerReadReactor<proto::TellPiece>* Tell(grpc::CallbackServerContext* context,
                                                  proto::NextReply* reply) override;
  grpc::ServerUnaryReactor* GetView(grpc::CallbackServerContext* context,
                                    const proto::GetViewRequest* request,
                                    proto::GetViewReply* reply) override;

 private:
  using Answers = LeaseCalls::Answers;

  // Passes that are due: validation, test.
  using Due = std::pair<bool, bool>;
  // The purposes for which a cut of the current state is wanted.
  struct Wanted {
    bool checkpoint = false, histograms = false, weights = false;
    // When the first try began. Reset once a cut was read completely or given up.
    std::optional<MonotonicTime> since;
  };
  // The state to which a shard without any copy rolls back. `files` belong to the last checkpoint,
  // or to the checkpoint from which training began. Without `files`, the shard gets the replica's
  // weights.
  struct Kept {
    checkpoint::TrainingState state;
    std::optional<StateFiles> files;
    absl::Status unloaded;  // DirectorStart::unloaded, if there are no `files`.
  };
  // The part of a ChiefRecord about workers and their work. All fields are of one moment.
  struct Progress {
    Json work;
    std::map<int, uint64_t> workers;
    uint64_t revision = 0;  // The value of WorkTable::revision().
  };
  // The part of a ChiefRecord that the director's thread sets. It belongs to the same moment as the
  // record's steps.
  struct Recorded {
    Due due = {false, false};
    MonotonicTime epoch_start = Clock::now();
    std::optional<std::string> ended;
    Json callbacks;
  };

  // ---- director_begin.cc
  absl::Status Prepare(const DirectorStart& start);
  absl::Status PrepareServers();
  absl::Status AwaitServers();
  absl::StatusOr<bool> ServersReady(MonotonicTime since, std::string* missing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Begin();
  absl::Status AdoptLocked(const ChiefRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeOverCallbacks(const checkpoint::TrainingState& at, const ChiefRecord* record);
  void ReportStart();

  // ---- director.cc
  absl::StatusOr<bool> RunOnce();  // Returns true if the job is done.
  DirectorSituation Look();
  void LookLocked(DirectorSituation* situation, std::optional<WorkTable::PassResult>* pass)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<bool> Act(const DirectorDecision& decision);
  // Returns whether the gate for leases is closed.
  bool ClosedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UpdateGateLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpAbsentLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpSilentLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reports completed steps. Sets `progress`, if not null, to the progress after the last one.
  absl::Status ReportSteps(Progress* progress = nullptr);
  absl::Status EndOfEpoch(const CompletedStep& step, int64_t batches_per_epoch);
  void StartPass();
  absl::Status FinishPass();
  absl::Status BeginCallbacks();
  absl::Status RunCallbacks(DirectorAction action);
  bool RecordIsDue(MonotonicTime next) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RecordProgress();
  void RecordEnd(const absl::Status& outcome);
  absl::Status End(const absl::Status& outcome);
  bool QuietLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  checkpoint::TrainingState state() const ABSL_LOCKS_EXCLUDED(mu_);
  DirectorPhase phase() const ABSL_LOCKS_EXCLUDED(mu_);
  void SetPhase(DirectorPhase phase) ABSL_LOCKS_EXCLUDED(mu_);
  bool IsFinished(const checkpoint::TrainingState& at) const;
  void LogWaiting(const std::string& what);
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelCallsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- director_members.cc
  // NextCall::Handler, ViewCall::Handler
  void OnCall(NextCall::Ptr call) override;
  void OnBroken(NextCall::Ptr call) override;
  void OnCall(ViewCall::Ptr call) override;
  void OnBroken(ViewCall::Ptr call) override;
  // ServerLinks::Handler
  ServerCall ChooseCall(int task) override;
  void OnAnswer(int task, const ServerCall& call, ServerLinks::Answer answer) override;
  void OnFailure(int task, const ServerCall& call, const absl::Status& status) override;
  void SetWorkerLocked(int index, const AdmittedMember& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeServerLocked(const AdmittedMember& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoseServerLocked(int task, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NewViewLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NewWorkersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Progress ProgressLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NewRecordLocked(Progress progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RestoreShards();
  absl::Status FillShard(int shard, ShardClient::Filling* filling) const;
  absl::Status FillAll(const std::vector<std::pair<int, int>>& targets);  // (shard, task)
  void RestoredLocked(const std::vector<std::pair<int, int>>& targets)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- director_saves.cc
  void RequestBest(int64_t step, int64_t epoch);
  void RequestSave();
  absl::Status BeginCut(bool checkpoint);
  absl::Status TakeCut();
  void CommitCut(Cut cut);
  absl::Status GiveUpCut(const absl::Status& why);
  Duration SaveDeadline() const;
  bool IsSaved(int64_t step) const {
    return saved_.step == step && (saved_.ended || !callbacks_->exist() || !callbacks_->ended());
  }

  const DirectorOptions options_;
  const ShardStateFactory factory_;
  rpc::BulkCalls tell_calls_{kTellCallLimits, "the chief ends"};

  // ---- Set before the threads start, constant afterwards
  DirectorStart start_;
  // Used by the director's thread, or by the cutter's thread while it reads.
  std::unique_ptr<ShardState> state_;
  RunSetup setup_;
  std::unique_ptr<ServerRows> rows_;  // Callbacks look up rows here.
  std::unique_ptr<ServerLinks> links_;

  // ---- Used only by the director's thread
  Kept kept_;
  Due due_ = {false, false};
  Wanted wanted_;
  // The save that RequestBest requested, and the time of the request.
  std::optional<std::pair<SaveMoment, MonotonicTime>> best_requested_;
  // The step of the last save, or of the start. `ended` is true if the saved state includes the end
  // of training.
  struct Saved {
    int64_t step = -1;
    bool ended = false;
  } saved_;
  int64_t weights_step_ = -1;  // The step of the replica's weights, -1 if unknown.
  std::optional<CompletedStep> last_step_;
  MonotonicTime next_line_;
  std::unique_ptr<TrainingReporter> reporter_;
  std::unique_ptr<TrainingCallbacks> callbacks_;
  std::unique_ptr<CheckpointCutter> cutter_;

  mutable absl::Mutex mu_;
  CondVar wake_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  DirectorPhase phase_ ABSL_GUARDED_BY(mu_) = DirectorPhase::kPreparing;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  ShardServers servers_ ABSL_GUARDED_BY(mu_);
  std::map<int, AdmittedMember> workers_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<WorkTable> table_ ABSL_GUARDED_BY(mu_);  // Null before Begin.
  LeaseCalls calls_ ABSL_GUARDED_BY(mu_);
  Recorded recorded_ ABSL_GUARDED_BY(mu_);
  uint32_t view_count_ ABSL_GUARDED_BY(mu_) = 0;
  // The number of epochs that callbacks have opened, according to the newest record that a server
  // has stored. callbacks_version_ is the version of the record with the latest number.
  int64_t open_epochs_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t callbacks_version_ ABSL_GUARDED_BY(mu_) = 0;
  // True if this chief filled the servers again. Work of workers that an earlier chief admitted is
  // then void.
  bool servers_reset_ ABSL_GUARDED_BY(mu_) = false;
  // After a restart of the chief: the chief waits until await_workers_until_ for the record's
  // workers to rejoin. It waits until recovery_deadline_ for rejoined workers to report their
  // earlier work.
  std::optional<MonotonicTime> await_workers_until_ ABSL_GUARDED_BY(mu_);
  MonotonicTime recovery_deadline_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::chief
