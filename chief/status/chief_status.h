// The chief's state for users: the progress of the run, the status page, and status.json in the
// model_dir, with which `muster status` finds the chief. Thread-safe after Open().
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
  // Sets the callbacks of the coordinator that report to watch(). This object must outlive it.
  void Follow(CoordinatorOptions* options);

  // Returns the state of a process without a cluster, except for the fields that watch() sets.
  using OwnState = std::function<proto::StatusReply()>;
  // Binds the port of the page if the job sets one. Returns ConfigurationError if the port is in
  // use. Called before the coordinator starts, so that members do not join a chief that fails here.
  absl::Status Bind();
  // Starts to serve the page. `coordinator` is null for a process without a cluster. The page then
  // uses `own` instead. Both are used until Close().
  void Open(Coordinator* coordinator, OwnState own);
  // Writes status.json. REQUIRES: this process owns the model_dir.
  void WriteFile(const FencedFiles& files) const;
  // Shows the end of the job to the readers of the page. Blocks for a moment if there are readers.
  // `verdict` is used only for a process without a cluster, because otherwise the coordinator has
  // the verdict.
  void ShowEnd(const Verdict& verdict);
  // Stops the page.
  void Close() { page_.reset(); }

 private:
  proto::StatusReply Alone(const OwnState& own);

  const ClusterConfig& cluster_;
  const Job& job_;
  const MonotonicTime started_ = Clock::now();
  RunWatch watch_;
  absl::Mutex mu_;
  std::optional<proto::Verdict> verdict_ ABSL_GUARDED_BY(mu_);  // None until ShowEnd.
  std::unique_ptr<StatusPage> page_;                            // Null without status.port.
};

}  // namespace muster::chief
