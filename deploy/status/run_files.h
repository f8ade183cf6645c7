// Reads the state of a run from the files of its model_dir, the folder of the run's output. Makes
// no network calls.
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
  // The contents of job.json, owner.json, recovery.json, result.json and status.json. Null if the
  // file is missing or damaged. owner.json describes the chief process that writes to the
  // model_dir.
  Json job, owner, recovery, result, status;
  std::string checkpoint;            // The name of the latest checkpoint, "step-00000500".
  std::vector<std::string> damaged;  // One sentence for each file that cannot be read.
};

// Reads the existing files. Returns ConfigurationError if `directory` is not a model_dir.
absl::StatusOr<RunFiles> ReadRunFiles(const std::string& directory);

// Returns the model_dir in the chief's reply, "" if the run has none. This function is not inline,
// because protobuf's inline accessor would copy data of libmuster_core.so into the calling program.
std::string ModelDirOf(const proto::StatusReply& reply);
// Returns the run id in owner.json, "" if absent.
std::string RunIdOf(const RunFiles& run);
// Returns the chief's address in status.json, "" if absent.
std::string ChiefAddressOf(const RunFiles& run);
// Returns the pid of the chief, or 0 if the chief does not run on this host. Pids are reused, so
// the function also compares the start time of the process.
int64_t LocalPidOf(const RunFiles& run);
// Returns true if a chief process writes a new heartbeat to owner.json within `wait`. Returns false
// if the chief has released the model_dir. Blocks for at most `wait`.
bool OwnerLives(const RunFiles& run, Duration wait);

// Returns true if training has begun. This is so if there is a checkpoint or result.json. Otherwise
// the field "begun" of owner.json decides. If owner.json has no such field, returns true.
bool HasBegun(const RunFiles& run);

// Returns the state of the run in the form of a chief's reply. The result lists no members (chief
// and workers). The ages of its events are unknown and therefore negative. If there is no
// result.json, the step, the loss and the rates are the last values in the TensorBoard folder
// train/.
proto::StatusReply StatusOfFiles(const RunFiles& run);
// Returns lines with the results for which StatusReply has no fields, such as step times and losses
// of processes. Returns no lines if there is no result.json.
std::vector<std::string> OutcomeLines(const RunFiles& run);

}  // namespace muster::status
