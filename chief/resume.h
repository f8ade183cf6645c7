// What a start does with what its model_dir holds: the decision is a pure function, so that a test
// can try every case. docs/restart.md tells users the rules.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/checkpoint/store.h"
#include "common/train/job.h"
#include "common/train/job_beginning.h"
#include "muster/json.h"

namespace muster {

// What was found, apart from tensors.
struct Found {
  // owner.json names a run that this start goes on with; else result.json is somebody else's.
  bool same_run = false;
  std::optional<Json> result;  // result.json
  // The newest whole checkpoint in model_dir; nullopt: there is none at all. An error: there are
  // some, and none of them can be read.
  absl::StatusOr<std::optional<checkpoint::TrainingState>> own =
      std::optional<checkpoint::TrainingState>();
  // Likewise of the path that the job's `restore` names. Only looked at where there is no own one.
  absl::StatusOr<std::optional<checkpoint::TrainingState>> elsewhere =
      std::optional<checkpoint::TrainingState>();
};

enum class StartKind {
  kFresh,    // from the program's own initial state
  kRestore,  // from `own`
  kCopy,     // from `elsewhere`
  kFinished  // there is nothing left to do
};

struct StartDecision {
  StartKind kind = StartKind::kFresh;
  // Of the result.json that is there: its totals are this run's, too.
  bool goes_on = false;
  // kRestore: the passes over validation and test data that belong to that step were all made.
  bool passes_done = false;
  std::string reason;  // one sentence, for the log
};

// An error refuses the start: a ConfigurationError that names the key of the job that must stay as
// it was, or what kept the checkpoints from being read.
absl::StatusOr<StartDecision> DecideStart(const Job& job, const Found& found);

// The passes that are due of a step are due again, unless they were done or their time has not
// come; and those of an end that came by itself, because the job has become shorter.
void SetDue(const Job& job, const StartDecision& decision, checkpoint::TrainingState* state);

// `restore` is the path of something to begin with.
bool RestoresPath(const Job& job);

// What model_dir (if there is one) and the job's `restore` hold, and what that means.
struct Beginning {
  StartDecision decision;
  std::optional<checkpoint::Snapshot> snapshot;  // kRestore and kCopy: what training goes on with
};
// Reads it. From here on no owner before this one publishes anything; with `restore: never`, the
// checkpoints that are there are moved aside. `previous_run_id`: of owner.json; "" for none.
// `fence`: StoreOptions'. `held`, from any time on: others hold the run, and rows of tables may
// never be needed (ReadCheckpoint's rows_later). REQUIRES: this process owns model_dir.
absl::StatusOr<Beginning> ReadBeginning(checkpoint::FileSystem& files, const Job& job,
                                        const std::string& previous_run_id,
                                        const std::function<absl::Status()>& fence,
                                        const std::function<bool()>& held = nullptr);
// Of a job that asks for parameter servers with synchronous steps, of which StrategyFor made
// another strategy: OK where model_dir holds a run that was begun so, by an older version.
absl::Status CheckBegunSynchronously(checkpoint::FileSystem& files, const Job& job);
// The same decision, without any of these acts: what a start would do.
absl::StatusOr<JobBeginning> LookForBeginning(const Job& job);
// An error of the file system at the start, as this process's own: it says what it was about and
// has the exit code of a configuration that cannot work (no permission), or of a place that may
// come back.
absl::Status StartError(const absl::Status& status, const std::string& what);

}  // namespace muster
