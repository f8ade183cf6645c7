// Reads the state of a run from the files of its model_dir. Calls no process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "muster/json.h"
#include "muster/status.h"
#include "proto/coordinator.pb.h"

namespace muster::status {

struct RunFiles {
  std::string directory;
  // The content of NAME.json. Null if the file is missing or damaged.
  Json job, owner, recovery, result, status;
  std::string checkpoint;            // From checkpoints/latest: "step-00000500". Empty: none.
  std::vector<std::string> damaged;  // One sentence for each file that cannot be read.
};

// Reads the existing files. Returns ConfigurationError if `directory` is not a model_dir.
absl::StatusOr<RunFiles> ReadRunFiles(const std::string& directory);

// Returns the model_dir in the chief's reply, "" if the run has none.
std::string ModelDirOf(const proto::StatusReply& reply);
// Returns the run id in owner.json, "" if absent.
std::string RunIdOf(const RunFiles& run);
// Returns the chief's address in status.json, "" if absent.
std::string ChiefAddressOf(const RunFiles& run);
// Returns the pid of the chief if it runs on this host, else 0. Compares the start time too,
// because pids are reused.
int64_t LocalPidOf(const RunFiles& run);
// Returns true if the run's owner has not left model_dir and updates its heartbeat within `wait`.
// Blocks for at most `wait`.
bool OwnerLives(const RunFiles& run, Duration wait);

// Returns false if the run has only been started: its tasks never joined.
bool HasBegun(const RunFiles& run);

// Returns the state of the run in the form of a chief's reply. It has no members, and the ages of
// its events are unknown (negative). Without a result.json, the step, the loss and the rates are
// the last values in the event files of train/.
proto::StatusReply StatusOfFiles(const RunFiles& run);
// Returns lines with the results that a StatusReply cannot hold, such as step times and losses.
// Empty without a result.json.
std::vector<std::string> OutcomeLines(const RunFiles& run);

}  // namespace muster::status
