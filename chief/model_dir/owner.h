// An Owner holds a model_dir for one chief, so that two chiefs do not use the same model_dir. The
// file owner.json in the model_dir names the owning process and the run. Only chiefs write this
// file.
//
// The owner writes a new heartbeat number to owner.json every second. Another process that wants
// the model_dir measures with its own monotonic clock how long the number stays the same. An owner
// whose number stays the same for 4 s counts as dead. Wall clocks are not used, because hosts that
// share a file system may have different times. A process on the owner's host and in the owner's
// PID namespace waits only if the owner's process still exists.
//
// A process takes the model_dir of a dead owner by renaming a new file to owner.json, while it
// holds a lock on owner.lock. An owner writes the number through the open descriptor of its own
// file. An owner that was frozen and superseded (replaced by another owner) therefore writes to a
// deleted file when it wakes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "chief/model_dir/owner_record.h"
#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::chief {

struct OwnerOptions {
  std::string model_dir;  // Created if missing.
  RunChoice run = RunChoice::kContinue;
  Duration refresh = std::chrono::seconds(1);
  // An owner counts as dead if its heartbeat number stays the same for this long. Must be several
  // times `refresh`.
  Duration watch = std::chrono::seconds(4);
  // Called at most once, on a thread of the Owner, when another process has taken the directory or
  // the directory is gone.
  std::function<void(const absl::Status& superseded)> on_superseded;
  // Describes the task and its program, such as `chief:0, program "gpt"`. Contains no address,
  // because the address may change between two starts. If the directory has a live owner with the
  // same identity, this process is the owner's replacement. The live owner may, for example, be a
  // pod that writes its last checkpoint. Take then waits until the live owner leaves, `give_up`
  // returns true, or the time `wait` has passed.
  std::string identity;
  Duration wait = std::chrono::seconds(0);
  std::function<bool()> give_up;
  // For tests: called before each write to owner.json. May block, to imitate a slow disk.
  std::function<void()> before_write;
};

// Thread-safe.
class Owner {
 public:
  // Takes the directory. Returns ConfigurationError if a live owner has another
  // OwnerOptions::identity, or if the directory is not writable. Returns PeerLost if a live owner
  // with the same identity has not left within OwnerOptions::wait, or if several processes compete
  // for the directory. Also returns PeerLost if the disk is full or does not answer. Returns
  // Preempted if OwnerOptions::give_up returned true.
  static absl::StatusOr<std::unique_ptr<Owner>> Take(OwnerOptions options);
  virtual ~Owner() = default;  // Releases the directory. The run's id stays in owner.json.

  // Returns the id of the run in this directory, which is the same at every restart of the run.
  virtual std::string run_id() const = 0;
  // Returns the id of the last run that had begun in this directory before this owner took the
  // directory, "" if none. The id equals run_id() if this owner continues that run.
  virtual const std::string& previous_run_id() const = 0;
  // Returns true if this owner begins a new run in place of the directory's earlier run, because
  // the job asks for it (restore: never). Also returns true if the previous chief began such a run
  // but died before RecordRun, and this owner resumes it (RunChoice::kResume).
  virtual bool starts_new_run() const = 0;
  // Returns the random id of this owner, made of letters and digits.
  virtual const std::string& token() const = 0;
  // Returns the chief's term: a number above the terms of all earlier owners of the directory.
  virtual uint32_t term() const = 0;
  // Records on the disk: the run `run_id` has begun, and this owner's term is at least `term`.
  // Called before the first generation (period of training) with this id or term is formed. On an
  // error, the caller must not use the id or the term. Before the first call, a new run counts as
  // not begun. If the chief dies before the first call, any state of the members belongs to an
  // earlier run, and the chief's successor can continue that run.
  virtual absl::Status RecordRun(const std::string& run_id, uint32_t term) = 0;
  // Reads owner.json again. Returns OK if this process still owns the directory. Returns Superseded
  // if another process has taken the directory, or if the directory is gone. The message says which
  // of the two is the case. Returns kUnavailable if owner.json cannot be read. Called before each
  // checkpoint is published.
  virtual absl::Status Check() = 0;
};

}  // namespace muster::chief
