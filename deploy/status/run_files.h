// What the files of a model_dir say of its run. Reads what exists, and no port.
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
  // Of the files with these names. Null if there is none, or if it is damaged.
  Json job, owner, recovery, result, status;
  std::string checkpoint;  // The newest, from checkpoints/latest: "step-00000500". Empty: none.
  std::vector<std::string> damaged;  // One sentence for each file that cannot be read.
};

// Returns ConfigurationError if `directory` is no model_dir.
absl::StatusOr<RunFiles> ReadRunFiles(const std::string& directory);

// Returns the model_dir that the chief names; "" if the run has none.
std::string ModelDirOf(const proto::StatusReply& reply);
// Returns the id of the run, as owner.json has it; "" if there is none.
std::string RunIdOf(const RunFiles& run);
// Returns the address of the chief, as status.json has it; "" if there is none.
std::string ChiefAddressOf(const RunFiles& run);
// Returns the pid of the chief if it runs on this host, else 0. A process that has got the pid of a
// chief that is gone is none.
int64_t LocalPidOf(const RunFiles& run);
// Returns true if the owner has not left, and writes its beat within `wait`.
bool OwnerLives(const RunFiles& run, Duration wait);

// Returns the state of the run as a chief tells it. It has no members, and the ages of its events
// are negative. Without a result.json, the step, the loss and the rates are the last ones in the
// event files of train/.
proto::StatusReply StatusOfFiles(const RunFiles& run);
// Returns lines that StatusOfFiles has no place for: the outcome, times, hosts.
std::vector<std::string> OutcomeLines(const RunFiles& run);

}  // namespace muster::status
