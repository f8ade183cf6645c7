// owner.json: the process that owns a model_dir, and the run's identity. Only the chief writes it.
//
// The owner rewrites its file every second with a new "beat". Another process watches for changes
// of the file, on a monotonic clock, to decide whether the owner is alive. The wall clocks of hosts
// that share a file system may differ. On the owner's own host, a dead process is detected at once.
//
// To take over, a process renames a new file into place while it holds a lock on owner.lock. The
// owner writes the beat in place, through the descriptor of its own file. An owner that was frozen
// and superseded thus writes to a file without a name when it wakes.
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
  // Several times `refresh`, so that a live owner is detected.
  Duration watch = std::chrono::seconds(4);
  // Called once, on a thread of the Owner, when another process has taken the directory.
  std::function<void(const absl::Status& superseded)> on_superseded;
  // Describes the task and its place: "chief:0 at node-a:2222, program gpt". A live owner with the
  // same identity is the process that this one replaces (a pod that still saves, a requeued job).
  // Take then waits for it for up to `wait`; `give_up` ends the wait.
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

  // The id is made at the first start and kept as long as the directory exists.
  virtual std::string run_id() const = 0;
  // The directory's last run that had begun before this start, "" if none. Differs from run_id() if
  // this run is new.
  virtual const std::string& previous_run_id() const = 0;
  // True if the run replaces the one in the directory (restore: never). Also true if an earlier
  // chief was to begin this run and ended before it had.
  virtual bool anew() const = 0;
  // Unique to this owner; letters and digits.
  virtual const std::string& token() const = 0;
  // The term, above that of every earlier owner.
  virtual uint32_t epoch() const = 0;
  // Records that the run begins with this id and at least this term, because members now hold its
  // state. Until then the directory counts as having no run of its own. A chief that dies early
  // thus does not keep its successor from adopting the members' run. Both are on the disk when this
  // returns OK. On an error nothing has changed, and the caller must use neither, because a crash
  // would lose them.
  virtual absl::Status Keep(const std::string& run_id, uint32_t epoch) = 0;
  // Reads the file again. Returns OK if this process still owns the directory. Returns Superseded
  // if another process has taken it or the directory is gone; the message says which. Returns
  // kUnavailable if the file cannot be read now. Called before each publish of a checkpoint.
  virtual absl::Status Check() = 0;
};

}  // namespace muster
