// The functions in this header decide how a run starts, from the job and the content of model_dir.
// docs/restart.md has the rules for users. DecideStart is a pure function.
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

// The content of model_dir, without tensors.
struct ModelDirContent {
  // True if this start continues the run that owner.json names. `result` then belongs to this run.
  // If false, `result` belongs to another run.
  bool same_run = false;
  std::optional<Json> result;  // The content of result.json, nullopt if there is none.
  // The newest complete checkpoint in model_dir, nullopt if model_dir has no checkpoint. An error
  // if model_dir has checkpoints but none of them can be read.
  absl::StatusOr<std::optional<checkpoint::SavedState>> own =
      std::optional<checkpoint::SavedState>();
  // The newest complete checkpoint at the path in the job's `restore`. Read only if `own` is
  // nullopt.
  absl::StatusOr<std::optional<checkpoint::SavedState>> elsewhere =
      std::optional<checkpoint::SavedState>();
};

enum class StartKind {
  kFresh,    // Training starts from the program's initial state.
  kRestore,  // Training starts from ModelDirContent::own.
  kCopy,     // Training starts from ModelDirContent::elsewhere.
  kFinished  // An earlier start completed the run. Nothing is left to do.
};

struct StartDecision {
  StartKind kind = StartKind::kFresh;
  // True if the run continues the totals of the existing result.json.
  bool continues = false;
  // For kRestore: true if the validation and test passes that were due at the checkpoint's step are
  // complete.
  bool passes_done = false;
  std::string reason;  // One sentence, for the log.
};

// Decides how the run starts. Returns a ConfigurationError if a key that must not change has one
// value in the job and another value in the checkpoint's job. The message names the key. Also
// returns a ConfigurationError if there is no checkpoint at the path in `restore`. Returns the read
// error if there are checkpoints but none of them can be read.
absl::StatusOr<StartDecision> DecideStart(const Job& job, const ModelDirContent& content);

// Sets the fields of `state` that tell whether the validation and test passes are due. No pass
// is due if decision.passes_done is true. Both passes are due if the job was made shorter, so
// that the step of `state` is now the last step of the job. Otherwise these fields stay the
// same. Also sets state->extras.finished to false if `job` trains further than the job of
// `state`.
void SetDue(const Job& job, const StartDecision& decision, checkpoint::SavedState* state);

struct PreparedStart {
  StartDecision decision;
  // The state from which training resumes. Set for kRestore and kCopy.
  std::optional<checkpoint::Snapshot> snapshot;
};
// Reads model_dir and the checkpoint at the job's `restore`, calls DecideStart, and loads the
// state. When the function returns, an earlier owner of model_dir can no longer publish
// checkpoints. With `restore: never`, moves the existing checkpoints aside. `previous_run_id` is
// Owner::previous_run_id(). `fence` is called before each change of the checkpoints
// (StoreOptions::fence).
//
// `held` returns whether other tasks hold the run's state. Its result may become true at any time.
// PrepareStart polls `held` while it verifies the checkpoint. Once `held` has returned true, the
// optimizer slots and the rows of embedding tables are perhaps not needed. From then on,
// PrepareStart does not verify the remaining files with slots and rows. Such a file is verified
// when it is first read (Reading::check_later). REQUIRES: this process owns model_dir.
absl::StatusOr<PreparedStart> PrepareStart(checkpoint::FileSystem& files, const Job& job,
                                           const std::string& previous_run_id,
                                           const std::function<absl::Status()>& fence,
                                           const std::function<bool()>& held = nullptr);
// Checks a job whose parameter_server.max_staleness is 0, which asks for synchronous steps. Only
// runs that an older version of Muster began may have this setting. Such runs continue under
// another strategy (StrategyFor). Returns OK if model_dir holds such a run, else the error of
// CheckMaxStaleness.
absl::Status CheckBegunSynchronously(checkpoint::FileSystem& files, const Job& job);
// Returns how a start of the job would begin. Changes no files.
absl::StatusOr<StartState> FindStartState(const Job& job);
// Converts an error of the file system during the start of the run into the error with which the
// job ends. `what` names the purpose of the access, and becomes part of the message. Returns OK,
// DataLoss and Aborted unchanged. PermissionDenied becomes a ConfigurationError. Every other error
// becomes Unavailable, which has a retryable exit code, because the folder may become available
// again.
absl::Status StartError(const absl::Status& status, const std::string& what);

}  // namespace muster::chief
