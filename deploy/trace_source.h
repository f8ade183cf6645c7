// Where `muster trace` gets a trace: from a chief that it calls, or from a model_dir, through which
// it asks the chief of a running job and in which traces stay.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "muster/status.h"

namespace muster {

struct WantedTrace {
  int steps = 5;
  Duration limit = std::chrono::seconds(60);
};

struct GivenTrace {
  std::string text;  // The file. Empty if no task delivered spans.
  int64_t first_step = 0, last_step = 0;
  std::vector<std::string> tasks;    // "worker:1".
  std::vector<std::string> missing;  // One sentence for each task that was left out.
  std::string note;                  // A sentence for the user, such as that the run has ended.
};

// Asks the chief at `address`. Blocks until the trace is complete, at most for a little longer than
// the limit. PeerLost: the chief was not reached.
absl::StatusOr<GivenTrace> TraceFromChief(const std::string& address,
                                          const rpc::ChannelOptions& options,
                                          const WantedTrace& wanted);
// Asks the chief that runs in model_dir. If the run has ended, returns the last trace of model_dir,
// or a ConfigurationError. PeerLost: the run has not ended, and no chief answered.
absl::StatusOr<GivenTrace> TraceFromModelDir(const std::string& model_dir,
                                             const WantedTrace& wanted);

}  // namespace muster
