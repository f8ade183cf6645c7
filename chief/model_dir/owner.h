// owner.json names the process that owns a model_dir, and the run. Only the chief writes it.
//
// The owner rewrites its file every second with a new "beat". To decide whether the owner is alive,
// another process measures with its own monotonic clock how long the file stays unchanged, because
// the wall clocks of hosts that share a file system may differ. On the owner's own host, a dead
// process is detected at once.
//
// To take over, a process renames a new file into place while it holds a lock on owner.lock. The
// owner writes the beat through the open descriptor of its own file. An owner that was frozen and
// superseded therefore writes to a deleted file when it wakes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "chief/model_dir/owner_record.h"
#include "common/base/clock.h"
#include "muster/status.h"

namespace muster {

// Makes a run id for a run without a model_dir, which has no owner.
std::string NewRunId();

struct OwnerOptions {
  std::string model_dir;  // Created if missing.
  RunChoice run = RunChoice::kGoOn;
  Duration refresh = std::chrono::seconds(1);
  // A process without a new beat for this long counts as dead. Must be several times `refresh`.
  Duration watch = std::chrono::seconds(4);
  // Called once, on a thread of the Owner, when another process has taken the directory.
  std::function<void(const absl::Status& superseded)> on_superseded;
  // Describes the task and its place: "chief:0 at node-a:2222, program gpt". A live owner with the
  // same identity is the process that this one replaces, such as a pod that is still saving or a
  // requeued job. Take waits up to `wait` for that owner to leave, or until `give_up` returns true.
  std::string identity;
  Duration wait = std::chrono::seconds(0);
  std::function<bool()> give_up;
  // For tests: called before each write to the file. It may block, as a slow disk does.
  std::function<void()> before_write;
};

// Thread-safe.
class Owner {
 public:
  // Returns ConfigurationError if a live owner of another job has the directory, or if it is not
  // writable. Returns PeerLost if the same job's owner has not released it within
  // OwnerOptions::wait, or if its disk is full or does not answer. Returns Preempted after
  // OwnerOptions::give_up.
  static absl::StatusOr<std::unique_ptr<Owner>> Take(OwnerOptions options);
  virtual ~Owner() = default;  // Releases the directory; the run's identity stays.

  // Returns the run's id. It is made at the first start and kept as long as the directory exists.
  virtual std::string run_id() const = 0;
  // Returns the id of the run that the directory held before this start, if that run had begun,
  // else
  // "". Differs from run_id() if this run is new.
  virtual const std::string& previous_run_id() const = 0;
  // Returns true if this run replaces the directory's run because the job asks for that (restore:
  // never). Also true if an earlier chief was to begin this new run and died before Keep.
  virtual bool anew() const = 0;
  // Returns the random id of this owner, made of letters and digits.
  virtual const std::string& token() const = 0;
  // Returns the chief's term, which is above that of every earlier owner.
  virtual uint32_t epoch() const = 0;
  // Writes to the disk that the run has begun, with this id and at least this term. Called when
  // members hold the run's state. Before this call the directory counts as having no run of its
  // own, so that the successor of a chief that dies early can adopt the members' run. On OK, the id
  // and the term are on the disk. On an error nothing has changed. The caller must then use neither
  // the id nor the term, because a crash would lose them.
  virtual absl::Status Keep(const std::string& run_id, uint32_t epoch) = 0;
  // Reads the file again. Returns OK if this process still owns the directory. Returns Superseded
  // if another process has taken it or the directory is gone; the message says which. Returns
  // kUnavailable if the file cannot be read now. Called before each publish of a checkpoint.
  virtual absl::Status Check() = 0;
};

}  // namespace muster
