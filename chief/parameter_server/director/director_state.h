// DirectorState is the Director's data about the members of a parameter-server job and their work:
//   ShardServers  the ps tasks (servers), and the view: which server serves which shard
//   WorkTable     the leases: the batches that the chief has assigned to workers
//   LeaseCalls    the calls of workers
//   ChiefRecord   the record of this data on the servers, from which a restarted chief continues
// A shard is the part of the variables that one server holds. An event of a member often changes
// several of these objects. For example, a lost worker loses its leases, and after a new view the
// servers need a new record. The functions of DirectorState make all changes that an event
// requires, and wake the links to the servers that must receive the changes.
//
// DirectorMembers owns the DirectorState and guards it with a mutex. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chief/coordinator/member_events.h"
#include "chief/leases/chief_record.h"
#include "chief/leases/work_table.h"
#include "chief/parameter_server/director/director.h"
#include "chief/parameter_server/lease_calls.h"
#include "chief/shards/server_links.h"
#include "chief/shards/shard_servers.h"

namespace muster::chief {

class DirectorState {
 public:
  // Copies of shards, each as (shard, task that stores the copy).
  using Targets = std::vector<std::pair<int, int>>;
  // The part of a ChiefRecord about workers and their work. All fields are read at the same moment.
  struct Progress {
    Json work;                        // The value of WorkTable::ToRecord().
    std::map<int, uint64_t> workers;  // The value of WorkTable::workers().
    uint64_t revision = 0;            // The value of WorkTable::revision().
  };
  // The part of a ChiefRecord that the thread of Director::Run sets. Its values must belong to the
  // state after the last step that the record contains.
  struct Recorded {
    // {the validation pass is due, the test pass is due}.
    std::pair<bool, bool> due = {false, false};
    MonotonicTime epoch_start = Clock::now();
    std::optional<std::string> ended;
    Json callbacks;
  };

  // `options` must outlive this object.
  explicit DirectorState(const DirectorOptions& options);

  // ---- Before training
  //
  // Called once. `links` must outlive this object. `integers` has the integer buffers whose values
  // have changed since the program's build(). `copies` is the number of copies of each shard.
  void Prepare(LeaseCalls::Program program, push_pull::IntegerBuffers integers, int64_t copies,
               ServerLinks* links);
  // Returns true if enough ps tasks are present to begin. Otherwise adds the names of the missing
  // tasks to `missing`. `since` is the time at which the wait for ps tasks began. After a request
  // to stop, returns Preempted if there is nothing to save, or if the servers have not returned to
  // a restarted chief in time. Returns the error passed to Fail, if Fail was called, and the errors
  // of ShardServers::NewestRecord.
  absl::StatusOr<bool> ServersReady(MonotonicTime since, std::string* missing) const;
  // Begins at the state `at`, which the servers do not hold yet. Begin, Adopt and Open REQUIRE that
  // Prepare was called.
  void Begin(const WorkTable::Options& options, const checkpoint::TrainingState& at);
  // Continues from the record of an earlier chief. The servers hold the run's state. `built` has
  // the integer buffers' values after the program's build().
  absl::Status Adopt(const ChiefRecord& record, const WorkTable::Options& options,
                     const push_pull::IntegerBuffers& built);
  // From this call on, calls of workers are answered. `adopted` is true if Adopt was called.
  // REQUIRES: Begin or Adopt was called.
  void Open(bool adopted);

  // ---- Events
  void Admit(const AdmittedMember& member);
  // Called when the process of `task` with this incarnation is lost. `ended` is true if the process
  // has certainly ended. Returns false if the task is a worker and the lost process is not the
  // worker's current one.
  bool Lose(const TaskId& task, uint64_t incarnation, const std::string& why, bool ended);
  // Answered is called when a ps task has answered a call, and CallFailed when a call has failed.
  // Both return false if the thread of Director::Run has nothing to do, because the called process
  // is lost or the call is retried.
  bool Answered(int task, const ServerCall& call, ServerLinks::Answer answer);
  bool CallFailed(int task, const ServerCall& call, const absl::Status& status);
  void RequestStop() { stop_ = true; }
  // Ends the job with an error. Director::Run soon returns `why`. Only the first call has an
  // effect.
  void Fail(const absl::Status& why);
  void CancelCalls();  // Cancels the calls to ps tasks.

  // ---- For the thread of Director::Run
  bool stop_requested() const { return stop_; }
  const absl::Status& failed() const { return failed_; }
  //
  // The functions from `quiet` to `NewRecord` REQUIRE has_begun().
  //
  // Returns true if each shard is served, no lease is open, and all completed steps were taken from
  // the WorkTable (WorkTable::TakeCompleted).
  bool quiet() const;
  // Has an effect only after a restart of the chief. Marks workers of the earlier chief as lost if
  // they have not joined this chief in time.
  void GiveUpAbsent();
  // Returns the names of the workers that must still report their work for the earlier chief to a
  // restarted chief. Returns "" if there are no such workers. Stops waiting for their reports after
  // timeouts.rejoin.
  std::string GiveUpSilent();
  // Called when the chief has filled `targets` with the state after `step`.
  void Restored(const Targets& targets, int64_t step);
  Progress progress() const;
  // Makes a new record from which a restarted chief continues. The servers receive the record with
  // the chief's next calls to them.
  void NewRecord(Progress progress);
  Recorded& recorded() { return recorded_; }
  DirectorRecord counters() const;  // All 0 before Begin and Adopt.

  ShardServers& servers() { return servers_; }
  LeaseCalls& calls() { return calls_; }
  bool has_begun() const { return table_ != nullptr; }
  WorkTable& work() { return *table_; }  // REQUIRES: has_begun().

 private:
  void SetWorker(int index, const AdmittedMember& member);
  void TakeServer(const AdmittedMember& member);
  void LoseServer(int task, const std::string& why);
  void NewView();
  void NewWorkers();

  const DirectorOptions& options_;
  ServerLinks* links_ = nullptr;  // Null before Prepare.
  bool stop_ = false;
  absl::Status failed_;
  ShardServers servers_;
  std::map<int, AdmittedMember> workers_;
  std::unique_ptr<WorkTable> table_;  // Null before Begin and Adopt.
  LeaseCalls calls_;
  Recorded recorded_;
  uint32_t view_count_ = 0;  // The number of views that this chief has made.
  // True if Begin was called. This chief then fills the servers. Workers that an earlier chief
  // admitted compute from another state, so their work is void.
  bool servers_reset_ = false;
  // After a restart of the chief, the workers in the record may rejoin until await_workers_until_.
  // Workers that have rejoined may report their work for the earlier chief until
  // recovery_deadline_.
  std::optional<MonotonicTime> await_workers_until_;
  MonotonicTime recovery_deadline_;
};

}  // namespace muster::chief
