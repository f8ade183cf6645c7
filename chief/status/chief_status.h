// ChiefStatus shows the chief's state to users. It has the progress of the run, serves the status
// page over HTTP, and writes status.json to the model_dir. `muster status` finds the chief through
// status.json. Thread-safe after Open().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "chief/coordinator/coordinator.h"
#include "chief/model_dir/fenced_files.h"
#include "chief/status/run_watch.h"
#include "chief/status/status_page.h"
#include "common/base/clock.h"
#include "common/cluster/cluster_config.h"
#include "common/cluster/verdict.h"
#include "common/job/job.h"

namespace muster::chief {

class ChiefStatus {
 public:
  // `cluster` and `job` must outlive this object.
  ChiefStatus(const ClusterConfig& cluster, const Job& job);

  // Returns the observer of training and of the coordinator's events.
  RunWatch& watch() { return watch_; }
  // Sets callbacks in `options` that report events of the coordinator to watch(). This object must
  // outlive the coordinator.
  void Follow(CoordinatorOptions* options);

  // Returns the state of a process that trains alone, without a coordinator. The progress and the
  // events may be empty, because RunWatch::Describe sets them afterwards.
  using OwnState = std::function<proto::StatusReply()>;
  // Binds the port of the status page, if the job sets one. Returns ConfigurationError if the port
  // is in use. Called before the coordinator starts, so that no member joins a chief that fails
  // here.
  absl::Status Bind();
  // Starts to serve the page. The page shows the state of `coordinator`. If the process trains
  // alone, `coordinator` is null, and the page shows the result of `own`. `coordinator` or `own` is
  // used until Close().
  void Open(Coordinator* coordinator, OwnState own);
  // Writes status.json. REQUIRES: this process owns the model_dir.
  void WriteFile(const FencedFiles& files) const;
  // Shows the end of the job to the readers of the page. Blocks for a moment if there are readers.
  // `verdict` is the outcome of the job. The page shows `verdict` only if the process trains alone,
  // because a coordinator has its own verdict.
  void ShowEnd(const Verdict& verdict);
  // Stops serving the page.
  void Close() { page_.reset(); }

 private:
  // Returns the state of a process that trains alone, with verdict and progress.
  proto::StatusReply Alone(const OwnState& own);

  const ClusterConfig& cluster_;
  const Job& job_;
  const MonotonicTime started_ = Clock::now();
  RunWatch watch_;
  absl::Mutex mu_;
  std::optional<proto::Verdict> verdict_ ABSL_GUARDED_BY(mu_);  // None until ShowEnd.
  std::unique_ptr<StatusPage> page_;                            // Null if status.port is unset.
};

}  // namespace muster::chief
