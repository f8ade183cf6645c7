// owner.json: which process owns a model_dir, and the run's identity. Written by the chief alone.
//
// The owner rewrites its own file every second (a new "beat"). Whether another owner lives is
// judged by watching the file change, on a monotonic clock: wall clocks of hosts that share a file
// system differ. On the owner's own host a process that is gone is seen at once.
//
// Taking over is a rename of a new file, under a lock on owner.lock that is held only meanwhile.
// The beat is written in place, through the descriptor of the owner's own file: an owner that was
// frozen and taken over for dead writes to a file that has no name any more, whenever it wakes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "chief/owner_record.h"
#include "common/base/clock.h"
#include "muster/status.h"

namespace muster {

// For a run without a model_dir, which nobody can own.
std::string NewRunId();

struct OwnerOptions {
  std::string model_dir;  // made if missing
  RunChoice run = RunChoice::kGoOn;
  Duration refresh = std::chrono::seconds(1);
  Duration watch = std::chrono::seconds(4);  // several refreshes: a live owner is seen to live
  // Told once, on a thread of the Owner's, when another process has taken the directory.
  std::function<void(const absl::Status& superseded)> on_superseded;
  // What is started here, and where: "chief:0 at node-a:2222, program gpt". An owner that lives and
  // is the same is the process that this one comes to replace (a pod that still saves, a requeued
  // job): it is waited for, for `wait`, and `give_up` ends the wait.
  std::string identity;
  Duration wait = std::chrono::seconds(0);
  std::function<bool()> give_up;
  // Tests: called before each write to the file, as long as the disk takes for it.
  std::function<void()> before_write;
};

// All methods may be called from any thread.
class Owner {
 public:
  // ConfigurationError where another job owns the directory and lives, or it is not writable;
  // PeerLost where the same job's owner has not left it within OwnerOptions::wait, or its disk is
  // full or does not answer; Preempted after OwnerOptions::give_up.
  static absl::StatusOr<std::unique_ptr<Owner>> Take(OwnerOptions options);
  virtual ~Owner() = default;  // Leaves the directory to the next one; the run's identity stays.

  // Made at the first start, kept for as long as the directory lives.
  virtual std::string run_id() const = 0;
  // The last run of the directory that had begun before; "" where there was none. Another one than
  // run_id() where this one is new.
  virtual const std::string& previous_run_id() const = 0;
  // The run takes the place of what the directory holds (restore: never). Also where a chief before
  // this one was to begin it, and ended before it had.
  virtual bool anew() const = 0;
  // Of this owner alone; letters and digits.
  virtual const std::string& token() const = 0;
  // Above that of every owner before.
  virtual uint32_t epoch() const = 0;
  // The run, from now on with this id and (at least) this epoch, begins: members hold its state.
  // Before that the directory counts as one without a run of its own, so that a chief that dies
  // early leaves nothing that would keep its successor from going on with the members' own run. On
  // the disk when it returns OK; else nothing has changed, and nobody may use either: a crash would
  // forget them.
  virtual absl::Status Keep(const std::string& run_id, uint32_t epoch) = 0;
  // Reads the file again: OK, or Superseded where another process has taken it or the directory is
  // gone (then the message says which), or kUnavailable where it cannot be read just now. Before
  // each publish of a checkpoint.
  virtual absl::Status Check() = 0;
};

}  // namespace muster
