// A parameter-server job in one process, for tests of the Director. The Director is real and has
// its own port. Fake workers complete leases, and fake ps tasks add up the pushes. Every element of
// every shard is the number of pushed examples, so tests can check the content of a checkpoint.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "chief/parameter_server/director.h"
#include "chief/parameter_server/shard_state.h"
#include "common/checkpoint/files/memory_file_system.h"
#include "common/checkpoint/store.h"
#include "common/rpc/server.h"
#include "proto/parameter_server.grpc.pb.h"

namespace muster::chief::testing {

inline constexpr Duration kPatience = std::chrono::seconds(60);

// A fake ps task. Replace simulates a new process of the task, without state.
class FakePs final : public proto::ParameterServer::Service {
 public:
  FakePs(int task, int servers);
  std::string address() const;
  void Replace();

  // Applies a worker's push. A key (incarnation, sequence) counts once. Returns false if this task
  // is not the shard's primary in this view.
  bool Push(uint64_t view, int shard, std::pair<uint64_t, int64_t> key, double examples);
  double value(int shard) const;  // -1: the task does not hold the shard.
  // Returns whether this task is the shard's primary.
  bool serves(int shard) const;
  // Copies the primary's state of a shard to this backup. Returns false if one of the two processes
  // was replaced.
  bool Copy(int shard, const FakePs& from);
  // Sets BeatReply.synced.
  void SetSynced(std::vector<int> shards);
  // Sets BeatReply.waiting: by shard, for how many seconds a push has waited for the backup.
  void SetWaiting(std::map<int, double> shards);
  std::map<int, uint64_t> workers() const;
  std::string record() const;
  std::string digest() const;  // The digest in the last call of Create.
  // The next `count` calls of Read fail, as if the process had been replaced.
  void FailReads(int count);
  // While `lose` is true, SetView takes effect but returns an error.
  void LoseViewAnswers(bool lose);
  proto::View view() const;
  // While `hold` is true, calls of Read block.
  void HoldReads(bool hold);
  int reads() const;                         // The number of calls of Read.
  void OnCut(std::function<void()> on_cut);  // Cut calls this function.

  grpc::Status Create(grpc::ServerContext*, const proto::CreateRequest*,
                      proto::CreateReply*) override;
  grpc::Status SetView(grpc::ServerContext*, const proto::SetViewRequest*,
                       proto::SetViewReply*) override;
  grpc::Status SetWorkers(grpc::ServerContext*, const proto::SetWorkersRequest*,
                          proto::SetWorkersReply*) override;
  grpc::Status Fill(grpc::ServerContext*, grpc::ServerReader<proto::FillRequest>*,
                    proto::FillReply*) override;
  grpc::Status Cut(grpc::ServerContext*, const proto::CutRequest*, proto::CutReply*) override;
  grpc::Status Read(grpc::ServerContext*, const proto::ReadRequest*,
                    grpc::ServerWriter<proto::ChunkContent>*) override;
  grpc::Status Drop(grpc::ServerContext*, const proto::DropRequest*, proto::DropReply*) override;
  grpc::Status Beat(grpc::ServerContext*, const proto::BeatRequest*, proto::BeatReply*) override;

 private:
  struct Shard {
    double value = 0;
    std::set<std::pair<uint64_t, int64_t>> seen;
  };
  grpc::Status Known() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsPrimary(uint64_t view, int shard) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int task_;
  mutable absl::Mutex mu_;
  bool created_ ABSL_GUARDED_BY(mu_) = false;
  std::map<int, Shard> shards_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::map<int, Shard>> cuts_ ABSL_GUARDED_BY(mu_);
  proto::View view_ ABSL_GUARDED_BY(mu_);
  uint32_t term_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int, uint64_t> workers_ ABSL_GUARDED_BY(mu_);
  std::string record_ ABSL_GUARDED_BY(mu_), digest_ ABSL_GUARDED_BY(mu_);
  std::vector<int> synced_ ABSL_GUARDED_BY(mu_);
  std::map<int, double> waiting_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_cut_ ABSL_GUARDED_BY(mu_);
  int reads_ ABSL_GUARDED_BY(mu_) = 0, failing_reads_ ABSL_GUARDED_BY(mu_) = 0;
  bool hold_reads_ ABSL_GUARDED_BY(mu_) = false, lose_view_answers_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<rpc::Server> server_;
};

// Records the reports and the checkpoints of the director.
class Notes : public Observer, public CheckpointSink {
 public:
  Notes();
  void OnStart(const StartReport& report) override;
  void OnStep(const StepReport& report) override;
  void OnEpoch(const EpochReport& report) override;
  void OnSave(int64_t step) override;
  void OnCallback(const std::string& name, const Json& note) override;
  void OnScalars(const std::string& split, const ScalarReport& report) override;
  void OnImages(const std::string& split, const ImageReport& report) override;
  void OnHistogram(const std::string& split, const HistogramReport& report) override;
  bool Wanted(const SaveMoment& moment) override;
  bool IsSaving() const override { return saving; }
  absl::StatusOr<std::shared_ptr<checkpoint::StagedFile>> StageFile(
      const std::string& name) override;
  void Save(checkpoint::Snapshot snapshot) override;
  void Failed(const absl::Status&) override { ++failed; }
  absl::Status Drain() override { return absl::OkStatus(); }

  int64_t steps() const;             // The number of reported steps.
  int64_t every_steps = 0;           // Checkpoints are wanted at multiples of this. 0: none.
  bool saves_validated = false;      // A checkpoint is wanted after each validation.
  std::atomic<bool> saving = false;  // The result of IsSaving.
  std::atomic<int> failed = 0;       // The number of calls of Failed.
  checkpoint::MemoryFileSystem files;
  Duration flush = Duration::zero();  // The time that OnSave takes.
  mutable absl::Mutex mu;
  std::vector<StartReport> starts ABSL_GUARDED_BY(mu);
  std::vector<StepReport> told ABSL_GUARDED_BY(mu);
  std::vector<EpochReport> epochs ABSL_GUARDED_BY(mu);
  std::vector<ScalarReport> scalars ABSL_GUARDED_BY(mu);
  std::vector<std::pair<std::string, ImageReport>> images ABSL_GUARDED_BY(mu);
  std::vector<std::pair<std::string, HistogramReport>> histograms ABSL_GUARDED_BY(mu);
  std::vector<checkpoint::Snapshot> saves ABSL_GUARDED_BY(mu);
  std::map<std::string, Json> callbacks ABSL_GUARDED_BY(mu);  // The last note of each callback.

 private:
  std::unique_ptr<checkpoint::Store> store_;
};

// The callbacks of a fake job. There is one, named "one".
struct FakeCallbacks {
  // Called for each hook, on the director's thread. May change the decision. May be null.
  std::function<void(Hook hook, const CallbackMoment& moment, CallbackDecision* decision)> on_hook;
  std::function<void()> on_begin;  // Called when training begins or continues. May be null.
  int64_t Count(Hook hook) const;
  mutable absl::Mutex mu;
  std::vector<std::pair<Hook, CallbackMoment>> fired ABSL_GUARDED_BY(mu);
};

class FakeCluster {
 public:
  struct Options {
    Job job;
    int workers = 2, servers = 2;
    int64_t global_batch_size = 20;  // The value that leases must have.
    int64_t train = 200, validation = 0, test = 0;
    Duration batch_time = std::chrono::milliseconds(1);
    std::set<Split> damaged = {};                   // Splits whose examples are all damaged.
    std::shared_ptr<FakeCallbacks> callbacks = {};  // May be null.
  };
  explicit FakeCluster(Options options);
  ~FakeCluster();

  // Starts a director on a thread and admits all tasks. `term` is the chief's term.
  void Start(uint32_t term = 1, std::optional<checkpoint::Snapshot> restore = {});
  // Ends the director abruptly and starts that of a new chief, which admits the present tasks.
  void RestartChief(std::optional<checkpoint::Snapshot> restore = {});
  absl::Status Await();  // Blocks until the director's Run returns. Returns its result.
  // Blocks until `condition` returns true.
  void AwaitThat(const std::function<bool()>& condition);

  void LosePs(int task);
  void ReturnPs(int task);  // Admits a new process of the task.
  void CutPs(int task);     // The director regards the task as lost. Its process keeps its state.
  void HealPs(int task);    // Admits the process of CutPs again.
  void AdmitAllAgain();     // Admits the same processes again, as after broken sessions.
  void LoseWorker(int worker);
  void Mute(int worker);  // The worker makes no more calls, but is not lost.
  void StartWorker(int worker, bool again = false);

  Director& director() { return *director_; }
  FakePs& ps(int task) { return *ps_[task]; }
  Notes& notes() { return notes_; }
  std::string leases_address() const {
    absl::MutexLock lock(&mu_);
    return address_;
  }
  // Returns the shard's value on its primary.
  double value(int shard) const;
  // Returns how often each batch was pushed completely, by (epoch, begin).
  std::map<std::pair<int64_t, int64_t>, int> batches() const;
  std::vector<int> evaluated(int split) const;  // How often each example was evaluated.
  uint64_t incarnation(int worker) const { return incarnations_.at(worker); }

 private:
  struct Worker;
  void RunWorker(Worker* worker);
  bool PushAll(Worker* worker, const proto::Lease& lease);
  void Admit(const std::string& task, uint64_t incarnation, bool again);

  const Options options_;
  std::vector<std::unique_ptr<FakePs>> ps_;
  std::vector<uint64_t> ps_incarnations_;
  std::set<int> absent_ps_;
  std::map<int, uint64_t> incarnations_;
  uint64_t next_incarnation_ = 100;
  uint32_t term_ = 1;
  Notes notes_;
  std::unique_ptr<Director> director_;
  std::unique_ptr<rpc::Server> server_;
  std::thread run_;
  std::atomic<bool> over_ = false;  // The director's Run has returned.
  absl::Status outcome_;
  std::map<int, std::unique_ptr<Worker>> workers_;
  mutable absl::Mutex mu_;
  std::string address_ ABSL_GUARDED_BY(mu_);  // The address of the Leases service.
  std::map<std::pair<int64_t, int64_t>, int> batches_ ABSL_GUARDED_BY(mu_);
  std::map<int, std::vector<int>> evaluated_ ABSL_GUARDED_BY(mu_);
};

// Makes states with this many variables. With as many variables as servers, each server has one
// shard with content.
ShardStateFactory FakeStates(int variables, std::shared_ptr<FakeCallbacks> callbacks = {});
// Returns the value of each shard in a snapshot of a fake state.
std::vector<double> ValuesOf(const checkpoint::Snapshot& snapshot);
// Returns the snapshot's integer buffer "net.count", in eight digits. Each fake worker counts its
// batches in this buffer.
std::string CountOf(const checkpoint::Snapshot& snapshot);

}  // namespace muster::chief::testing
