// Requests a trace for `muster trace`, either by an RPC to the chief or through files in the
// model_dir. Traces of ended runs remain in the model_dir.
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
  std::string text;  // The content of the file. Empty if no task delivered spans.
  int64_t first_step = 0, last_step = 0;
  std::vector<std::string> tasks;    // "worker:1".
  std::vector<std::string> missing;  // One sentence for each task without spans.
  std::string note;                  // A sentence for the user, such as that the run has ended.
};

// Requests a trace from the chief at `address`. Blocks until the trace is complete, at most
// slightly longer than WantedTrace::limit. Returns PeerLost if the chief was not reached.
absl::StatusOr<GivenTrace> TraceFromChief(const std::string& address,
                                          const rpc::ChannelOptions& options,
                                          const WantedTrace& wanted);
// Requests a trace from the chief that owns model_dir. If the run has ended, returns the last trace
// in model_dir, or a ConfigurationError. Returns PeerLost if the run has not ended and no chief
// answered.
absl::StatusOr<GivenTrace> TraceFromModelDir(const std::string& model_dir,
                                             const WantedTrace& wanted);

}  // namespace muster
