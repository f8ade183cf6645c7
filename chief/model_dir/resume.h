// Decides how a run starts, from the content of model_dir. DecideStart is a pure function, so a
// test can try every case. docs/restart.md has the rules for users.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/checkpoint/store.h"
#include "common/job/job.h"
#include "common/job/start_state.h"
#include "muster/json.h"

namespace muster::chief {

// The content of model_dir, apart from tensors.
struct ModelDirContent {
  // True if owner.json names a run that this start resumes. Otherwise result.json belongs to
  // another run.
  bool same_run = false;
  std::optional<Json> result;
  // The newest complete checkpoint in model_dir, nullopt if there is none. An error: model_dir has
  // checkpoints, but none can be read.
  absl::StatusOr<std::optional<checkpoint::TrainingState>> own =
      std::optional<checkpoint::TrainingState>();
  // The same for the path in the job's `restore`. Read only if `own` is nullopt.
  absl::StatusOr<std::optional<checkpoint::TrainingState>> elsewhere =
      std::optional<checkpoint::TrainingState>();
};

enum class StartKind {
  kFresh,    // Starts from the program's initial state.
  kRestore,  // Starts from Found::own.
  kCopy,     // Starts from Found::elsewhere.
  kFinished  // Nothing is left to do.
};

struct StartDecision {
  StartKind kind = StartKind::kFresh;
  // This run continues the totals of the existing result.json.
  bool continues = false;
  // kRestore: the validation and test passes that were due at the checkpoint's step are complete.
  bool passes_done = false;
  std::string reason;  // One sentence, for the log.
};

// Decides how the run starts. An error refuses the start: a ConfigurationError that names the key
// of the job that must not change, or the error of reading the checkpoints.
absl::StatusOr<StartDecision> DecideStart(const Job& job, const ModelDirContent& content);

// Sets which passes are due in `state`. No pass is due if decision.passes_done. Both passes are due
// if the job has become shorter, so that the state is now at the job's end.
void SetDue(const Job& job, const StartDecision& decision, checkpoint::TrainingState* state);

// Returns whether `restore` is the path of a checkpoint.
bool RestoresPath(const Job& job);

// The decision on a start, and the state that it needs.
struct PreparedStart {
  StartDecision decision;
  // Set for kRestore and kCopy: the state from which training resumes.
  std::optional<checkpoint::Snapshot> snapshot;
};
// Reads model_dir and the checkpoint in the job's `restore`, decides, and loads the state.
// Afterwards no earlier owner can publish anything. With `restore: never`, moves the existing
// checkpoints aside. `previous_run_id` is from owner.json, "" if none. `fence`: see StoreOptions.
// `held` returns whether other tasks hold the run's state; the result may become true at any time.
// The rows of tables may then not be needed (see rows_later of ReadCheckpoint). REQUIRES: this
// process owns model_dir.
absl::StatusOr<PreparedStart> PrepareStart(checkpoint::FileSystem& files, const Job& job,
                                           const std::string& previous_run_id,
                                           const std::function<absl::Status()>& fence,
                                           const std::function<bool()>& held = nullptr);
// Checks a job that asks for parameter servers with synchronous steps. StrategyFor has chosen
// another strategy for it. Returns OK if model_dir holds a run that an older version began in this
// way, else the error of CheckMaxStaleness.
absl::Status CheckBegunSynchronously(checkpoint::FileSystem& files, const Job& job);
// Returns what a start would do, without side effects.
absl::StatusOr<StartState> FindStartState(const Job& job);
// Converts a file system error at the start. `what` says what the access was for, and becomes part
// of the message. The exit code is that of a wrong configuration (such as no permission), or a
// retryable one if the place may become available again.
absl::Status StartError(const absl::Status& status, const std::string& what);

}  // namespace muster::chief
