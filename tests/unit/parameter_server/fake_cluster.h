// A director on a port of its own, ps tasks that add what is pushed to them, and workers that do
// what they are told: all in one process. Every element of every shard is the number of examples
// that were pushed, so what a checkpoint holds can be checked.
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

namespace muster::testing {

inline constexpr Duration kPatience = std::chrono::seconds(60);

// One ps task; Replace makes it another process, with nothing in it.
class FakePs final : public proto::ParameterServer::Service {
 public:
  FakePs(int task, int servers);
  std::string address() const;
  void Replace();

  // What a worker's connection does; false: it is not primary of the shard in this view.
  // Each key (incarnation, sequence) counts once.
  bool Push(uint64_t view, int shard, std::pair<uint64_t, int64_t> key, double examples);
  double value(int shard) const;
  bool serves(int shard) const;
  // By a primary: what its backup has from now on. False: one of the two is another process now.
  bool Copy(int shard, const FakePs& from);
  void SetSynced(std::vector<int> shards);
  // By a primary: for how many seconds pushes have waited for the backup, by shard.
  void SetWaiting(std::map<int, double> shards);
  std::map<int, uint64_t> workers() const;
  std::string record() const;
  std::string digest() const;  // of the layout, as it was told
  // The next `count` copies that are to be read have gone: as of a process that was replaced.
  void FailReads(int count);
  // Views arrive, and nobody hears that they did.
  void LoseViewAnswers(bool lose);
  proto::View view() const;
  // Copies are not read until they may be.
  void HoldReads(bool hold);
  int reads() const;                         // that were begun
  void OnCut(std::function<void()> on_cut);  // what happens while a copy is made

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
  uint32_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int, uint64_t> workers_ ABSL_GUARDED_BY(mu_);
  std::string record_ ABSL_GUARDED_BY(mu_), digest_ ABSL_GUARDED_BY(mu_);
  std::vector<int> synced_ ABSL_GUARDED_BY(mu_);
  std::map<int, double> waiting_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_cut_ ABSL_GUARDED_BY(mu_);
  int reads_ ABSL_GUARDED_BY(mu_) = 0, failing_reads_ ABSL_GUARDED_BY(mu_) = 0;
  bool hold_reads_ ABSL_GUARDED_BY(mu_) = false, lose_view_answers_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<rpc::Server> server_;
};

// What was told, and saved.
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

  int64_t steps() const;  // told so far
  int64_t every_steps = 0;
  bool saves_validated = false;      // as if each validation found the best
  std::atomic<bool> saving = false;  // as if one was being written
  std::atomic<int> failed = 0;       // that could not be written
  checkpoint::MemoryFileSystem files;
  Duration flush = Duration::zero();  // what the log takes to be kept
  mutable absl::Mutex mu;
  std::vector<StartReport> starts ABSL_GUARDED_BY(mu);
  std::vector<StepReport> told ABSL_GUARDED_BY(mu);
  std::vector<EpochReport> epochs ABSL_GUARDED_BY(mu);
  std::vector<ScalarReport> scalars ABSL_GUARDED_BY(mu);
  std::vector<std::pair<std::string, ImageReport>> images ABSL_GUARDED_BY(mu);
  std::vector<std::pair<std::string, HistogramReport>> histograms ABSL_GUARDED_BY(mu);
  std::vector<checkpoint::Snapshot> saves ABSL_GUARDED_BY(mu);
  std::map<std::string, Json> callbacks ABSL_GUARDED_BY(mu);  // what they noted last

 private:
  std::unique_ptr<checkpoint::Store> store_;
};

// The callbacks of a fake job: one, "one".
struct FakeCallbacks {
  // What it asks for in a hook; may be null. On the thread that directs.
  std::function<void(Hook hook, const CallbackMoment& moment, CallbackDecision* decision)> on_hook;
  std::function<void()> on_begin;  // training begins, or goes on; may be null
  int64_t Count(Hook hook) const;
  mutable absl::Mutex mu;
  std::vector<std::pair<Hook, CallbackMoment>> fired ABSL_GUARDED_BY(mu);
};

class FakeCluster {
 public:
  struct Options {
    Job job;
    int workers = 2, servers = 2;
    int64_t global_batch_size = 20;  // of the run, as leases are to tell it
    int64_t train = 200, validation = 0, test = 0;
    Duration batch_time = std::chrono::milliseconds(1);
    std::set<Split> damaged = {};                   // workers leave all examples of these out
    std::shared_ptr<FakeCallbacks> callbacks = {};  // null: none
  };
  explicit FakeCluster(Options options);
  ~FakeCluster();

  // Admits everybody and directs, on a thread.
  void Start(uint32_t epoch = 1, std::optional<checkpoint::Snapshot> restore = {});
  // Everybody that is there is admitted by a new chief; the old one is gone in the middle of it
  // all.
  void RestartChief(std::optional<checkpoint::Snapshot> restore = {});
  absl::Status Await();  // the end of Run, which has to come
  // Until `condition` holds.
  void AwaitThat(const std::function<bool()>& condition);

  void LosePs(int task);
  void ReturnPs(int task);  // another process
  void CutPs(int task);     // the chief takes it for lost, and it holds what it held
  void HealPs(int task);    // it comes back so
  void AdmitAllAgain();     // the same processes: their sessions were interrupted
  void LoseWorker(int worker);
  void Mute(int worker);  // asks and tells nothing any more, and is there
  void StartWorker(int worker, bool again = false);

  Director& director() { return *director_; }
  FakePs& ps(int task) { return *ps_[task]; }
  Notes& notes() { return notes_; }
  std::string leases_address() const {
    absl::MutexLock lock(&mu_);
    return address_;
  }
  // What the shard holds, wherever it is served.
  double value(int shard) const;
  // Of batches whose push was whole: by (epoch, begin).
  std::map<std::pair<int64_t, int64_t>, int> batches() const;
  std::vector<int> evaluated(int split) const;  // how often each example
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
  uint32_t epoch_ = 1;
  Notes notes_;
  std::unique_ptr<Director> director_;
  std::unique_ptr<rpc::Server> server_;
  std::thread run_;
  std::atomic<bool> over_ = false;  // Run has returned
  absl::Status outcome_;
  std::map<int, std::unique_ptr<Worker>> workers_;
  mutable absl::Mutex mu_;
  std::string address_ ABSL_GUARDED_BY(mu_);  // of the leases
  std::map<std::pair<int64_t, int64_t>, int> batches_ ABSL_GUARDED_BY(mu_);
  std::map<int, std::vector<int>> evaluated_ ABSL_GUARDED_BY(mu_);
};

// Two variables, so that two servers hold one shard each.
ShardStateFactory FakeStates(int variables, std::shared_ptr<FakeCallbacks> callbacks = {});
// The elements of each shard in a snapshot that a fake state took.
std::vector<double> ValuesOf(const checkpoint::Snapshot& snapshot);
// Its integer buffer "net.count", eight digits: each fake worker counts its batches there.
std::string CountOf(const checkpoint::Snapshot& snapshot);

}  // namespace muster::testing
