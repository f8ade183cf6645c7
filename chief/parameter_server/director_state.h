// DirectorState is what the chief of a parameter-server job knows about the members and their work:
// the ps tasks (ShardServers), the workers, their leases (WorkTable), their calls (LeaseCalls), and
// the record for a later chief (ChiefRecord). An event of a member often changes several of these,
// and DirectorState makes all of the changes: a lost worker loses its leases, a new view goes into
// a new record, and each change wakes the links to the servers that must know of it.
//
// DirectorMembers owns it and guards it. Used by one thread at a time.
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
#include "chief/parameter_server/director.h"
#include "chief/parameter_server/lease_calls.h"
#include "chief/shards/server_links.h"
#include "chief/shards/shard_servers.h"

namespace muster::chief {

class DirectorState {
 public:
  // (shard, task) for each copy of a shard.
  using Targets = std::vector<std::pair<int, int>>;
  // The part of a ChiefRecord about workers and their work. All fields are of one moment.
  struct Progress {
    Json work;
    std::map<int, uint64_t> workers;
    uint64_t revision = 0;  // The value of WorkTable::revision().
  };
  // The part of a ChiefRecord that the director's thread sets. It belongs to the same moment as the
  // record's steps.
  struct Recorded {
    std::pair<bool, bool> due = {false, false};  // Passes that are due: validation, test.
    MonotonicTime epoch_start = Clock::now();
    std::optional<std::string> ended;
    Json callbacks;
  };

  // `options` must outlive this object.
  explicit DirectorState(const DirectorOptions& options);

  // ---- Before training
  //
  // Called once. `links` must outlive this object. `integers` has the integer
  // buffers that differ from the program's.
  void Prepare(LeaseCalls::Program program, push_pull::IntegerBuffers integers, int64_t copies,
               ServerLinks* links);
  // Returns whether training can begin. Otherwise `missing` names the missing ps tasks. `since` is
  // when the wait for them began. Returns Preempted if a stop was requested and there is nothing to
  // save, or the error of Fail.
  absl::StatusOr<bool> ServersReady(MonotonicTime since, std::string* missing) const;
  // Begins at the state `at`, which the servers do not hold yet. Begin, Adopt and Open REQUIRE that
  // Prepare was called.
  void Begin(const WorkTable::Options& options, const checkpoint::TrainingState& at);
  // Continues from the record of an earlier chief. The servers already hold the run's state.
  // `built` has the integer buffers' values after build().
  absl::Status Adopt(const ChiefRecord& record, const WorkTable::Options& options,
                     const push_pull::IntegerBuffers& built);
  // Answers calls of workers from now on. REQUIRES: Begin or Adopt was called.
  void Open(bool adopted);

  // ---- Events
  void Admit(const AdmittedMember& member);
  // For a worker, returns false if the process is not the one that this object knows.
  bool Lose(const TaskId& task, uint64_t incarnation, const std::string& why, bool ended);
  // Answered and CallFailed return false if nothing has changed for the director: the call's
  // process was lost meanwhile, or the call is made again.
  bool Answered(int task, const ServerCall& call, ServerLinks::Answer answer);
  bool CallFailed(int task, const ServerCall& call, const absl::Status& status);
  void RequestStop() { stop_ = true; }
  // Keeps the first error. Director::Run soon returns it.
  void Fail(const absl::Status& why);
  void CancelCalls();  // Calls to servers.

  // ---- For the director's thread
  bool stop_requested() const { return stop_; }
  const absl::Status& failed() const { return failed_; }
  //
  // The functions from `quiet` to `NewRecord` REQUIRE has_begun().
  // Returns whether the servers hold the state after the last reported step.
  bool quiet() const;
  // Workers of an earlier chief that do not connect are lost.
  void GiveUpAbsent();
  // Returns the workers that must still report their earlier work, "" if there are none. Stops
  // waiting for them after timeouts.rejoin.
  std::string GiveUpSilent();
  // Called when the targets were filled with the state after `step`.
  void Restored(const Targets& targets, int64_t step);
  Progress progress() const;
  // Makes the record from which a restarted chief continues. The servers get it.
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
  uint32_t view_count_ = 0;
  // True if this chief filled the servers again. Work of workers that an earlier chief admitted is
  // then void.
  bool servers_reset_ = false;
  // After a restart of the chief: the chief waits until await_workers_until_ for the record's
  // workers to rejoin. It waits until recovery_deadline_ for rejoined workers to report their
  // earlier work.
  std::optional<MonotonicTime> await_workers_until_;
  MonotonicTime recovery_deadline_;
};

}  // namespace muster::chief
