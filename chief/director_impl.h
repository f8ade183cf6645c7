// What the director's files share; nobody else includes it.
//   director.cc        the thread that directs: when what is due
//   director_links.cc  a thread for each ps task: brings it to the levels it should have
//   director_views.cc  members, views, and shards that are restored
//   director_saves.cc  checkpoints as cuts
//   director_steps.cc  what observers are told
//   director_callbacks.cc  callbacks
//   lease_service.cc   proto::Leases
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/chief_record.h"
#include "chief/director.h"
#include "chief/lease_call.h"
#include "chief/lost_pushes.h"
#include "chief/server_rows.h"
#include "chief/shard_client.h"
#include "chief/shard_state.h"
#include "chief/view_rules.h"
#include "chief/work_table.h"
#include "common/base/wait.h"
#include "common/rpc/retry.h"

namespace muster {

class DirectorImpl final : public Director,
                           public proto::Leases::CallbackService,
                           private NextCall::Handler,
                           private ViewCall::Handler {
 public:
  DirectorImpl(DirectorOptions options, ShardStateFactory factory);
  ~DirectorImpl() override;

  grpc::Service* service() override { return this; }
  absl::Status Run(const DirectorStart& start) override;
  void RequestStop() override;
  void Abort(const absl::Status& why) override;
  DirectorRecord record() const override;

  // MemberEvents
  void OnAdmitted(const AdmittedMember& member) override;
  void OnLost(const TaskId& task, uint64_t incarnation, const std::string& why) override;
  void OnStopRequested() override { RequestStop(); }

  // proto::Leases
  grpc::ServerUnaryReactor* Next(grpc::CallbackServerContext* context,
                                 const proto::NextRequest* request,
                                 proto::NextReply* reply) override;
  grpc::ServerUnaryReactor* GetView(grpc::CallbackServerContext* context,
                                    const proto::GetViewRequest* request,
                                    proto::GetViewReply* reply) override;

 private:
  // A ps task. Its levels are what its process has; 0: not yet.
  struct Server {
    std::unique_ptr<ShardClient> client;
    std::thread thread;
    CondVar wake;
    AdmittedMember member;  // incarnation 0: nobody is there
    bool created = false;
    proto::CreateReply holds;  // as Create told
    uint64_t view = 0, workers = 0, record = 0;
    MonotonicTime next_beat, next_try;
    rpc::Backoff backoff;
    std::string trouble;                    // told last
    std::map<int, TableStatistics> tables;  // by variable
    bool present() const { return member.incarnation != 0 && created; }
  };
  struct Answered {  // calls to be finished without the lock
    std::vector<std::pair<NextCall::Ptr, grpc::Status>> next;
    std::vector<std::pair<ViewCall::Ptr, grpc::Status>> view;
    ~Answered();
  };
  // A checkpoint on its way from the servers.
  struct Save {
    checkpoint::TrainingState state;
    bool write = false, must = false, histograms = false, for_callbacks = false;
    std::vector<int> primaries;  // by shard
    // What the thread brought.
    absl::Status status;
    ShardContents contents;
    std::vector<std::shared_ptr<checkpoint::StagedFile>> staged;  // rows of tables, by shard
    checkpoint::RowSources rows;                                  // what is in these files
    std::optional<checkpoint::Snapshot> snapshot;
    double seconds = 0;
    std::string put_back;  // WeightsPutBack
    bool replaces = false;
    IntegerBuffers integers;  // as they were at the cut
  };

  // ---- director.cc: the thread that directs
  absl::Status Prepare(const DirectorStart& start);
  absl::Status AwaitServers();
  absl::Status Begin();
  void SetWorkerLocked(int index, const AdmittedMember& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AdoptLocked(const ChiefRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of what those that are there hold; nullopt: they hold nothing.
  absl::StatusOr<std::optional<ChiefRecord>> NewestRecordLocked() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Placements HeldLocked(const ChiefRecord& record) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<bool> Turn();  // true: all is done
  void RecordProgress();
  void RecordEnd(const absl::Status& outcome);
  absl::Status Advance(bool* through);
  absl::Status AdvancePass(bool* busy);
  void AskForBest(int64_t step, int64_t epoch);
  void AdvanceBest();
  Duration SaveDeadline() const {
    return options_.job.timeouts.phase[static_cast<int>(Phase::kSave)];
  }
  bool Through(const checkpoint::TrainingState& state) const;
  void UpdateGateLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status End(const absl::Status& outcome);
  bool SettledLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool QuietLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SayWaiting(const std::string& what);

  // ---- director_links.cc
  void StartLinks();
  void StopLinks();
  void RunLink(int task);
  bool LinkStep(int task);
  void LinkFailed(int task, uint64_t incarnation, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  proto::CreateRequest MakeCreateRequest() const;
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- director_views.cc
  void TakeMemberLocked(const AdmittedMember& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoseServerLocked(int task, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CreatedLocked(int task, proto::CreateReply reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BeatLocked(int task, const proto::BeatReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool GoOnWithoutBackupsLocked(int task, const proto::BeatReply& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NewViewLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NewWorkersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NewRecordLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RecordLocked(Json work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckLevelsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpAbsentLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpSilentLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool RecordIsKeptLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Present PresentLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RestoreShards();
  absl::Status FillAll(const std::vector<std::pair<int, int>>& targets);  // (shard, task)
  void RestoredLocked(const std::vector<std::pair<int, int>>& targets)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- director_saves.cc
  absl::Status TryCut();
  absl::Status Cut(const std::vector<int>& primaries, const std::string& name);
  void RunSave();
  absl::Status ReadShard(int shard, ShardClient& client, Save* save);
  absl::Status TakeSave();
  absl::Status GiveUpCut(const absl::Status& why);
  bool IsSaved(int64_t step) const {
    return saved_.step == step && (saved_.ended || !callbacks_ || !callbacks_->ended);
  }

  // ---- director_steps.cc
  void ReportStart();
  void ReportSteps(Json* record = nullptr);  // of the work up to there, if it is wanted
  void ReportStep(const CompletedStep& step, double seconds);
  void ReportStaleness(const CompletedStep& step);
  void ReportTables(int64_t step);
  bool HasTables() const;
  void ReportLeftOut(int split, const proto::LeftOut& left_out);
  void ReportShown(int split, int64_t step, const proto::Shown& shown);
  void ReportMetricImages(int split, int64_t step, const std::vector<double>& sums);
  void ReportEpoch(int split, int64_t epoch, int64_t step, int64_t examples, double seconds,
                   std::map<std::string, double> metrics);
  std::map<std::string, double> TrainMetrics(
      const std::vector<double>& sums, double loss_sum, int64_t examples,
      const std::map<std::string, checkpoint::ReportedSum>& values) const;
  template <typename Call>
  void Tell(const Call& call) {
    for (Observer* observer : start_.observers) call(observer);
  }

  // ---- director_callbacks.cc
  bool Stopping() const { return callbacks_ && !callbacks_->stop.empty(); }
  bool CallbacksPending(const checkpoint::TrainingState& at) const;
  // `finished`: training had been stopped there.
  void TakeOverCallbacks(const checkpoint::TrainingState& at,
                         std::optional<checkpoint::CallbackRecord> record, bool finished);
  absl::Status BeginCallbacks();  // once the replica is free
  void CheckWeightsPutBack(int64_t steps);
  bool HasWeights(int64_t step);
  absl::Status AdvanceCallbacks();
  absl::Status EndEpoch(const checkpoint::TrainingState& at);
  absl::Status EndTraining(const checkpoint::TrainingState& at);
  absl::Status Decide();
  void RecordCallbacks();
  std::map<std::string, double> EpochMetrics(const checkpoint::TrainingState& at) const;
  std::string WeightsPutBack() const;
  void GateCallbacksLocked(LeaseTable::Gate* gate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // ---- lease_service.cc
  void OnCall(NextCall::Ptr call) override;
  void OnBroken(NextCall::Ptr call) override;
  void OnCall(ViewCall::Ptr call) override;
  void OnBroken(ViewCall::Ptr call) override;
  grpc::Status CheckCallerLocked(const proto::WorkerIdentity& worker) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  grpc::Status CheckLayoutLocked(const proto::NextRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  grpc::Status TakeIntegersLocked(const proto::NextRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryNextLocked(MonotonicTime now, NextCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryViewLocked(MonotonicTime now, ViewCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string WhyShutLocked(int worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnswerHeldLocked(MonotonicTime now, Answered* answered) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const DirectorOptions options_;
  const ShardStateFactory factory_;

  // ---- Set before the threads start, constant afterwards
  DirectorStart start_;
  ParameterServerOptions server_options_;
  std::unique_ptr<ShardState> state_;  // of the thread that directs, or the one that saves
  Layout layout_;
  std::vector<ServedTable> tables_;
  std::unique_ptr<ServerRows> rows_;  // where callbacks look rows up
  std::string digest_;
  WorkTable::Options table_options_;
  int64_t global_batch_size_ = 0;
  IntegerBuffers built_integers_;  // as the program builds them

  // ---- The thread that directs
  // The last state that was filled or read whole: what is no table's, and where the rows are.
  ShardContents kept_;
  checkpoint::RowSources kept_rows_;
  absl::Status unloaded_;  // DirectorStart's, until a later state is kept
  checkpoint::TrainingState kept_state_;
  bool validation_due_ = false, test_due_ = false;
  bool report_start_ = true;  // observers are to be told where it goes on
  std::optional<CompletedStep> last_step_;
  bool save_wanted_ = false, cut_for_histograms_ = false;
  std::optional<std::pair<SaveMoment, MonotonicTime>> best_asked_;  // AskForBest's, and since when
  std::unique_ptr<Save> save_;                                      // under way
  std::thread saver_;
  // The step that was saved, or begun with, last; and whether its state has training's end in it.
  struct Saved {
    int64_t step = -1;
    bool ended = false;
  } saved_;
  // Since when the state is to be saved; until it was read whole, or was given up.
  std::optional<MonotonicTime> cut_wanted_at_;
  MonotonicTime epoch_start_, step_time_, pass_start_, next_line_;
  int64_t parts_told_ = -1;
  // Since the last summary, by worker: the means of its pushes, and the largest of all.
  std::map<int, std::pair<std::vector<double>, int64_t>> staleness_;
  // Callbacks; absent: there are none.
  std::optional<checkpoint::CallbackRecord> callbacks_;
  bool callbacks_begun_ = false, cut_for_callbacks_ = false, save_requested_ = false;
  absl::Status callback_failed_, steps_failed_;
  int64_t weights_step_ = -1;  // of the replica's weights
  int64_t epochs_open_ = 0;    // may be leased as far as callbacks are concerned
  std::map<std::string, double> validation_metrics_;
  double last_loss_ = 0;

  mutable absl::Mutex mu_;
  CondVar wake_;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  bool running_ ABSL_GUARDED_BY(mu_) = false;  // the table and the rest are there
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  bool save_done_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool linked_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Server>> servers_ ABSL_GUARDED_BY(mu_);
  std::map<int, AdmittedMember> workers_ ABSL_GUARDED_BY(mu_);
  // Of a chief that was restarted: until then those of the record are waited for.
  std::optional<MonotonicTime> await_workers_until_ ABSL_GUARDED_BY(mu_);
  // ... and until then what those that have come have to tell.
  MonotonicTime hear_until_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<WorkTable> table_ ABSL_GUARDED_BY(mu_);

  // Levels that every ps is brought to, in this order: workers, record, view.
  uint64_t workers_version_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int, uint64_t> worker_since_ ABSL_GUARDED_BY(mu_);  // the version that named it
  std::string record_ ABSL_GUARDED_BY(mu_);
  uint64_t record_version_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t view_record_ ABSL_GUARDED_BY(mu_) = 0;  // the first version that tells of `view_`
  proto::View view_ ABSL_GUARDED_BY(mu_);          // number 0: none yet
  Placements placements_ ABSL_GUARDED_BY(mu_);
  uint64_t view_count_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t current_view_ ABSL_GUARDED_BY(mu_) = 0;  // all that are there have it
  LostPushes lost_pushes_ ABSL_GUARDED_BY(mu_);     // as servers tell
  // validation_due_ and test_due_, and epoch_start_, for the record.
  std::pair<bool, bool> recorded_due_ ABSL_GUARDED_BY(mu_);
  MonotonicTime recorded_epoch_start_ ABSL_GUARDED_BY(mu_) = Clock::now();
  std::optional<std::string> ended_ ABSL_GUARDED_BY(mu_);  // the record's
  Json recorded_callbacks_ ABSL_GUARDED_BY(mu_);           // likewise
  uint64_t callbacks_version_ ABSL_GUARDED_BY(mu_) = 0;    // of the record that has them

  // The servers began anew under this chief: whoever worked before has something else under way.
  bool anew_ ABSL_GUARDED_BY(mu_) = false;
  std::map<int, uint64_t> introduced_ ABSL_GUARDED_BY(mu_);  // incarnations, by worker
  // Integer buffers that are not as they were built: a checkpoint's, and what workers told since,
  // the last one's. By process, the push after which it told them.
  IntegerBuffers integers_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<int, uint64_t>, uint64_t> integers_told_ ABSL_GUARDED_BY(mu_);
  std::vector<NextCall::Ptr> held_next_ ABSL_GUARDED_BY(mu_);
  std::vector<ViewCall::Ptr> held_view_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
