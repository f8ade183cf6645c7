// An Owner holds a model_dir for one chief. owner.json in the model_dir names the owning process
// and the run. Only chiefs write this file.
//
// The owner rewrites the file every second with a new "beat". Another process measures with its own
// monotonic clock how long the file stays unchanged. An owner without a new beat counts as dead.
// Wall clocks play no part, because those of hosts that share a file system may differ. A process
// on the owner's own host detects a dead owner at once.
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

namespace muster::chief {

// Returns a new run id for a run without a model_dir, which has no Owner.
std::string NewRunId();

struct OwnerOptions {
  std::string model_dir;  // Created if missing.
  RunChoice run = RunChoice::kContinue;
  Duration refresh = std::chrono::seconds(1);
  // An owner without a new beat for this long counts as dead. Must be several times `refresh`.
  Duration watch = std::chrono::seconds(4);
  // Called once, on a thread of the Owner, when another process has taken the directory.
  std::function<void(const absl::Status& superseded)> on_superseded;
  // Describes the task and its program, such as `chief:0, program "gpt"`. It has no address,
  // because the address may change between two starts. A live owner with the same identity is a
  // process that this one replaces, for example a pod that still saves. Take waits for that owner
  // to leave, up to `wait` or until `give_up` returns true.
  std::string identity;
  Duration wait = std::chrono::seconds(0);
  std::function<bool()> give_up;
  // For tests: called before each write to the file. May block, to imitate a slow disk.
  std::function<void()> before_write;
};

// Thread-safe.
class Owner {
 public:
  // Takes the directory. Returns ConfigurationError if a live owner of another job has the
  // directory, or if the directory is not writable. Returns PeerLost if the same job's owner has
  // not released it within OwnerOptions::wait, or if the disk is full or does not answer. Returns
  // Preempted if OwnerOptions::give_up returned true.
  static absl::StatusOr<std::unique_ptr<Owner>> Take(OwnerOptions options);
  virtual ~Owner() = default;  // Releases the directory. owner.json keeps the run's id.

  // Returns the id of the run in this directory, which is the same at every restart of the run.
  virtual std::string run_id() const = 0;
  // Returns the id of the directory's run before this start if that run had begun, else "". The id
  // differs from run_id() if this run is new.
  virtual const std::string& previous_run_id() const = 0;
  // Returns true if this run replaces the directory's earlier run because the job asks for a new
  // one (restore: never). Also true if an earlier chief started this new run and died before Keep.
  virtual bool starts_new_run() const = 0;
  // Returns the random id of this owner, made of letters and digits.
  virtual const std::string& token() const = 0;
  // Returns the chief's term, which is higher than the term of every earlier owner.
  virtual uint32_t term() const = 0;
  // Writes to the disk that the run has begun, with this id and at least this term. Called before
  // the first generation with this id or term is formed. Until this call the directory counts as
  // having no run, so the successor of a chief that dies early can adopt the members' run. On OK,
  // the id and the term are on the disk. On an error nothing has changed, and the caller must use
  // neither the id nor the term.
  virtual absl::Status RecordRun(const std::string& run_id, uint32_t term) = 0;
  // Reads the file again. Returns OK if this process still owns the directory. Returns Superseded
  // if another process has taken the directory or the directory is gone; the message says which.
  // Returns kUnavailable if the file cannot be read now. Called before each publish of a
  // checkpoint.
  virtual absl::Status Check() = 0;
};

}  // namespace muster::chief
