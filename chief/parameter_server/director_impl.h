// What the director's files share; no other file includes it.
//   director.cc          the thread that directs: it looks, decides (director_rules), and acts
//   director_begin.cc    its beginning: until servers and members are there
//   director_members.cc  members, views, and shards that are restored
//   director_saves.cc    checkpoints
// The parts that own their state: ShardServers (ps tasks, views), ServerLinks (calls to them),
// WorkTable (leases, passes), LeaseCalls (calls of workers), CheckpointCutter, TrainingReporter,
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
#include "chief/parameter_server/tell_call.h"
#include "chief/parameter_server/training_callbacks.h"
#include "chief/parameter_server/training_reporter.h"
#include "chief/shards/server_links.h"
#include "chief/shards/server_rows.h"
#include "chief/shards/shard_servers.h"
#include "common/base/wait.h"

namespace muster {

// How long after timeouts.resume a worker may take to find a chief that was restarted.
inline constexpr Duration kReturn = std::chrono::seconds(4);
inline constexpr Duration kWaitingLine = std::chrono::seconds(10);
// How long the thread that directs waits for an event.
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
  bool MayBeHeld() const override {
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
  // What a cut of the state of now is wanted for.
  struct Wanted {
    bool checkpoint = false, histograms = false, weights = false;
    std::optional<MonotonicTime> since;  // until the state was read whole, or was given up
  };
  // The state that a shard goes back to which no task has: in the files of the checkpoint that was
  // written last, or that training began with; without one the replica's weights.
  struct Kept {
    checkpoint::TrainingState state;
    std::optional<StateFiles> files;
    absl::Status unloaded;  // DirectorStart's, of the state that training begins with
  };
  // What a record tells of workers and their work: of one moment.
  struct Progress {
    Json work;
    std::map<int, uint64_t> workers;
    uint64_t news = 0;  // WorkTable's
  };
  // As the record tells it, of the same moment as its steps.
  struct Recorded {
    Due due = {false, false};
    MonotonicTime epoch_start = Clock::now();
    std::optional<std::string> ended;
    Json callbacks;
  };

  // ---- director_begin.cc
  absl::Status Prepare(const DirectorStart& start);
  absl::Status PrepareBatches();
  absl::Status PrepareServers();
  absl::Status AwaitServers();
  absl::StatusOr<bool> ServersReady(MonotonicTime since, std::string* missing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Begin();
  absl::Status AdoptLocked(const ChiefRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeOverCallbacks(const checkpoint::TrainingState& at, const ChiefRecord* record);
  void ReportStart();

  // ---- director.cc
  absl::StatusOr<bool> RunOnce();  // true: all is done
  DirectorSituation Look();
  void LookLocked(DirectorSituation* situation, std::optional<WorkTable::PassResult>* pass)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<bool> Act(const DirectorDecision& decision);
  bool ClosedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // the gate
  void UpdateGateLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpAbsentLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpSilentLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ReportSteps(Progress* progress = nullptr);  // up to there, if it is wanted
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
  void AskForBest(int64_t step, int64_t epoch);
  void AskForSave();
  absl::Status BeginCut(bool checkpoint);
  absl::Status TakeCut();
  void Keep(Cut cut);
  absl::Status GiveUpCut(const absl::Status& why);
  Duration SaveDeadline() const;
  bool IsSaved(int64_t step) const {
    return saved_.step == step && (saved_.ended || !callbacks_->exist() || !callbacks_->ended());
  }

  const DirectorOptions options_;
  const ShardStateFactory factory_;
  rpc::BulkCalls tells_{kTellLimits, "the chief ends"};

  // ---- Set before the threads start, constant afterwards
  DirectorStart start_;
  ParameterServerOptions server_options_;
  std::unique_ptr<ShardState> state_;  // of the thread that directs, or of the cutter's
  Layout layout_;
  std::vector<ServedTable> tables_;
  std::unique_ptr<ServerRows> rows_;  // where callbacks look rows up
  std::string digest_;
  WorkTable::Options table_options_;
  int64_t global_batch_size_ = 0;
  IntegerBuffers built_integers_;  // as the program builds them
  std::unique_ptr<ServerLinks> links_;

  // ---- The thread that directs
  Kept kept_;
  Due due_ = {false, false};
  Wanted wanted_;
  std::optional<std::pair<SaveMoment, MonotonicTime>> best_asked_;  // AskForBest's, and since when
  // The step that was saved, or begun with, last; and whether its state has training's end in it.
  struct Saved {
    int64_t step = -1;
    bool ended = false;
  } saved_;
  int64_t weights_step_ = -1;  // of the replica's weights
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
  std::unique_ptr<WorkTable> table_ ABSL_GUARDED_BY(mu_);  // from Begin on
  LeaseCalls calls_ ABSL_GUARDED_BY(mu_);
  Recorded recorded_ ABSL_GUARDED_BY(mu_);
  uint32_t view_count_ ABSL_GUARDED_BY(mu_) = 0;
  // As far as the servers keep it: epochs that callbacks have opened, and the version of the record
  // that says so.
  int64_t open_epochs_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t callbacks_version_ ABSL_GUARDED_BY(mu_) = 0;
  // The servers began anew under this chief: workers of before have other work under way.
  bool servers_reset_ ABSL_GUARDED_BY(mu_) = false;
  // Of a chief that was restarted: until then workers of the record are waited for, and until then
  // what those that have come did before.
  std::optional<MonotonicTime> await_workers_until_ ABSL_GUARDED_BY(mu_);
  MonotonicTime hear_until_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
