// What people see of a chief: the progress of the run, the status page, and status.json of the
// model_dir, by which `muster status` finds the chief. Thread-safe after Open().
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

  // Follows training, and the events of the coordinator.
  RunWatch& watch() { return watch_; }
  // Sets the callbacks of the coordinator that report to watch(). This object must outlive it.
  void Follow(CoordinatorOptions* options);

  // Returns the state of a process that trains alone, without the fields that watch() knows.
  using OwnState = std::function<proto::StatusReply()>;
  // Binds the port of the page if the job asks for one. Returns ConfigurationError if it is taken.
  // Called before the coordinator starts, so that members do not join a chief that cannot stay.
  absl::Status Bind();
  // Starts the page that Bind has bound. `coordinator` is null if this process trains alone, and
  // `own` is used then. Both are used until Close().
  void Open(Coordinator* coordinator, OwnState own);
  // Writes status.json. REQUIRES: this process owns the model_dir.
  void WriteFile(const FencedFiles& files) const;
  // Shows the end of the job to those who read the page. A process that trains alone has `verdict`
  // from then on. Otherwise the coordinator has its own.
  void ShowEnd(const Verdict& verdict);
  // Ends the page.
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
