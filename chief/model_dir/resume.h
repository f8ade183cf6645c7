// Decides from the content of model_dir how a run starts. The decision is a pure function, so that
// a test can try every case. docs/restart.md has the rules for users.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/checkpoint/store.h"
#include "common/job/job.h"
#include "common/job/start_state.h"
#include "muster/json.h"

namespace muster {

// The content of model_dir, apart from tensors.
struct Found {
  // owner.json names a run that this start resumes. Otherwise result.json belongs to another run.
  bool same_run = false;
  std::optional<Json> result;
  // The newest complete checkpoint in model_dir, nullopt if there is none. An error means that
  // there are checkpoints and none can be read.
  absl::StatusOr<std::optional<checkpoint::TrainingState>> own =
      std::optional<checkpoint::TrainingState>();
  // As `own`, for the path in the job's `restore`. Read only if `own` is nullopt.
  absl::StatusOr<std::optional<checkpoint::TrainingState>> elsewhere =
      std::optional<checkpoint::TrainingState>();
};

enum class StartKind {
  kFresh,    // Starts from the program's own initial state.
  kRestore,  // Starts from `own`.
  kCopy,     // Starts from `elsewhere`.
  kFinished  // Nothing is left to do.
};

struct StartDecision {
  StartKind kind = StartKind::kFresh;
  // The totals of the existing result.json count for this run, too.
  bool goes_on = false;
  // kRestore: the validation and test passes due at that step are complete.
  bool passes_done = false;
  std::string reason;  // One sentence, for the log.
};

// Returns an error to refuse the start. It is a ConfigurationError that names the job's key that
// must not change, or the error of reading the checkpoints.
absl::StatusOr<StartDecision> DecideStart(const Job& job, const Found& found);

// Corrects which passes of `state` are due: none if decision.passes_done. Both are due if the job
// has become shorter, so that the state is now at the job's end.
void SetDue(const Job& job, const StartDecision& decision, checkpoint::TrainingState* state);

// Returns whether `restore` is the path of a checkpoint.
bool RestoresPath(const Job& job);

// The content of model_dir (if there is one) and of the job's `restore`, and the decision on it.
struct PreparedStart {
  StartDecision decision;
  // kRestore and kCopy: the state from which training resumes.
  std::optional<checkpoint::Snapshot> snapshot;
};
// Reads the start state. Afterwards no earlier owner can publish anything. With `restore: never` it
// moves the existing checkpoints aside. `previous_run_id` is from owner.json, "" if none. `fence`:
// see StoreOptions. `held` returns whether other tasks hold the run, and may become true at any
// time. The rows of tables may then never be needed (see rows_later of ReadCheckpoint). REQUIRES:
// this process owns model_dir.
absl::StatusOr<PreparedStart> PrepareStart(checkpoint::FileSystem& files, const Job& job,
                                           const std::string& previous_run_id,
                                           const std::function<absl::Status()>& fence,
                                           const std::function<bool()>& held = nullptr);
// For a job that asks for parameter servers with synchronous steps, for which StrategyFor chose
// another strategy. Returns OK if model_dir holds a run that an older version began in this way,
// else the error of CheckMaxStaleness.
absl::Status CheckBegunSynchronously(checkpoint::FileSystem& files, const Job& job);
// Returns the same decision without side effects: what a start would do.
absl::StatusOr<StartState> LookForBeginning(const Job& job);
// Wraps a file system error at the start as this process's own. It says what the access was for.
// Its exit code is that of a configuration that cannot work (no permission), or of a place that may
// become available again.
absl::Status StartError(const absl::Status& status, const std::string& what);

}  // namespace muster
