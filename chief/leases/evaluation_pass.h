// An EvaluationPass is one validation or test pass of a parameter-server job. The chief divides the
// examples of the split into parts of a few batches each. EvaluationPass assigns parts to workers
// and sums up the workers' results. WorkTable (work_table.h) owns it. Used by one thread at a time.
//
// The id of a part is kEndOfLeaseIds | split << 56 | step << 20 | part, where `step` is the number
// of completed training steps and `part` is the part's index. Such an id differs from all ids of
// LeaseTable (lease_table.h). A restarted chief can therefore tell parts from training leases, the
// batches that workers train on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chief/leases/lease_table.h"
#include "common/checkpoint/checkpoint.h"
#include "proto/parameter_server.pb.h"

namespace muster::chief {

class EvaluationPass {
 public:
  struct Options {
    int split = 0;         // 1: validation, 2: test.
    int64_t examples = 0;  // Examples of the split.
    int64_t batch = 0;     // Examples per batch.
    int64_t step = 0;      // The number of completed training steps.
    int workers = 1;       // The number of workers in the cluster spec.
    // The number of sums from which all metrics are computed: the total of Metric::width.
    size_t metric_sums = 0;
    // True if the worker of the first part has to send images and histograms for TensorBoard.
    bool summary = false;
  };
  struct Result {
    int64_t done = 0, total = 0;  // The number of completed parts and the number of all parts.
    // The sum of losses, the number of examples, and the sums of the metrics, in this order.
    std::vector<double> sums;
    double loss_divisor = 0;  // The mean loss is sums[0] / loss_divisor. 0: there are no losses.
    std::map<std::string, checkpoint::ReportedSum> values;  // Values that the program reported.
    proto::LeftOut left_out;  // Damaged examples that workers have left out.
  };

  explicit EvaluationPass(const Options& options);

  // Returns whether `worker` holds the part with this id.
  bool Holds(int worker, int64_t id) const;
  // Assigns a part to the worker that sent `request`. Sets `offer` to this part, but does not set
  // the field `steps` of `offer`. Returns "" if a part was assigned. If there is no part for the
  // worker now, returns the reason.
  std::string Offer(const proto::NextRequest& request, proto::Lease* offer);
  // Adds the result of a part to the sums. Ignores a second result of the same part.
  void Take(const proto::EvaluationDone& done);
  // Takes back the parts of a lost worker, so that other workers can get them.
  void Lose(int worker);
  // Makes the worker pull all parameters with its next part. Each worker also does this with its
  // first part.
  void PullAgain(int worker) { pull_requested_.erase(worker); }
  // Adds to `workers` the workers that hold unfinished parts. Returns true if there are unfinished
  // parts that no worker holds.
  bool AddOutstanding(std::set<int>* workers) const;

  Result result() const;
  proto::Shown TakeShown() { return std::move(shown_); }

 private:
  struct Part {
    int64_t begin = 0, end = 0;
    int holder = -1;  // The worker that has the part, -1 if none.
    bool done = false;
  };
  int Find(int64_t id) const;  // Returns the index of the part with this id, -1 if there is none.

  const Options options_;
  const int64_t first_id_;
  std::vector<Part> parts_;
  std::set<int> pull_requested_;  // Workers that were asked to pull all parameters.
  int64_t done_ = 0;
  std::vector<double> sums_;
  std::optional<double> loss_weights_;
  std::map<std::string, checkpoint::ReportedSum> values_;
  proto::Shown shown_;
  proto::LeftOut left_out_;
};

}  // namespace muster::chief
