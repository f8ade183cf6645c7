// An EvaluationPass is a validation or test pass of a parameter-server job. It hands out the parts
// of the split to workers and sums up their results. WorkTable owns it. Used by one thread at a
// time.
//
// The id of a part is 1 << 62 | split << 56 | step << 20 | part. It differs from every lease id of
// LeaseTable, so a restarted chief can tell parts from leases.
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

// Returns whether the worker reports that it holds the lease, or the part of a pass, with this id.
bool HoldsId(const proto::NextRequest& request, int64_t id);

class EvaluationPass {
 public:
  struct Options {
    int split = 0;
    int64_t examples = 0;
    int64_t batch = 0;  // In examples.
    int64_t step = 0;   // The number of completed steps.
    int workers = 1;    // Number of declared workers.
    size_t metric_sums = 0;
    bool summary = false;  // The first part's worker sends data for summaries.
  };
  struct Result {
    int64_t done = 0, total = 0;  // Numbers of completed parts and of all parts.
    std::vector<double> sums;     // The sums of losses, examples and metrics.
    double loss_divisor = 0;      // Divisor of the sum of losses; 0: no losses.
    std::map<std::string, checkpoint::ReportedSum> values;  // Reported by programs.
    proto::LeftOut left_out;
  };

  explicit EvaluationPass(const Options& options);

  // Returns whether `id` belongs to a part of a pass, not to a lease of LeaseTable.
  static bool IsPart(int64_t id);
  bool Holds(int worker, int64_t id) const;
  // Sets `offer` to the worker's next part, without Lease::steps. Returns the reason if there is no
  // part now, otherwise "".
  std::string Offer(const proto::NextRequest& request, proto::Lease* offer);
  // Takes the result of a part. Each part counts once.
  void Take(const proto::EvaluationDone& done);
  // Hands out the worker's parts again.
  void Lose(int worker);
  // Makes the worker pull all parameters with its next part, as each worker does with its first.
  void PullAgain(int worker) { told_to_pull_.erase(worker); }
  // Adds the workers with unfinished parts. Returns whether parts are left that no worker has.
  bool AddOutstanding(std::set<int>* workers) const;

  Result result() const;
  proto::Shown TakeShown() { return std::move(shown_); }

 private:
  struct Part {
    int64_t begin = 0, end = 0;
    int holder = -1;
    bool done = false;
  };
  int Find(int64_t id) const;  // Returns the part's index, -1 if there is none.

  const Options options_;
  const int64_t first_id_;
  std::vector<Part> parts_;
  std::set<int> told_to_pull_;  // Workers whose offers contained the request to pull.
  int64_t done_ = 0;
  std::vector<double> sums_;
  std::optional<double> loss_weights_;
  std::map<std::string, checkpoint::ReportedSum> values_;
  proto::Shown shown_;
  proto::LeftOut left_out_;
};

}  // namespace muster::chief
