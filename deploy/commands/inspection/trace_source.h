// Requests a trace for `muster trace`. The request is an RPC to the chief (the task that leads the
// job), or a file in the model_dir (the folder of the run's output). A trace consists of spans, the
// timed activities of the threads of all tasks. The last trace of an ended run remains in the
// model_dir.
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
  std::string text;  // The content of the trace file. Empty if no task sent spans.
  int64_t first_step = 0, last_step = 0;
  std::vector<std::string> tasks;    // The tasks that sent spans, such as "worker:1".
  std::vector<std::string> missing;  // One sentence for each task without spans.
  std::string note;                  // A sentence for the user, for example that the run has ended.
};

// Requests a trace from the chief at `address`. Blocks until the trace is complete. The chief
// answers at most 10 s after WantedTrace::limit. Returns PeerLost (muster/status.h) if the chief
// was not reached.
absl::StatusOr<GivenTrace> TraceFromChief(const std::string& address,
                                          const rpc::ChannelOptions& options,
                                          const WantedTrace& wanted);
// Requests a trace from the chief that writes to `model_dir`. If the run has ended or not begun,
// returns the last trace in `model_dir`, or a ConfigurationError if there is no trace. Returns
// PeerLost if the run has not ended and no chief answered.
absl::StatusOr<GivenTrace> TraceFromModelDir(const std::string& model_dir,
                                             const WantedTrace& wanted);

}  // namespace muster
