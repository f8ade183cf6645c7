// Fake workers that complete the leases of a WorkTable, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "chief/leases/work_table.h"

namespace muster::chief {

using Reply = proto::NextReply;

class Crew {
 public:
  Crew(WorkTable* table, int workers) : table_(table) {
    for (int i = 0; i < workers; ++i) table->SetWorker(i, 100 + i, false);
  }

  // Reports the worker's completed work and requests `want` leases.
  Reply Next(int worker, int want = 1) {
    proto::NextRequest& request = requests_[worker];
    request.mutable_worker()->set_worker(worker);
    request.set_want(want);
    EXPECT_TRUE(table_->Take(request).ok());
    Reply reply;
    table_->Answer(request, "", &reply);
    request.clear_done();
    request.clear_evaluated();
    if (reply.has_lease()) request.add_held(reply.lease().id());
    for (const proto::Lease& lease : reply.more()) request.add_held(lease.id());
    if (reply.has_lost()) request.clear_held();
    return reply;
  }
  // Also asks whether the lease may start.
  Reply Start(int worker, const Reply& lease, int want = 0) {
    requests_[worker].set_start(lease.lease().id());
    const Reply reply = Next(worker, want);
    requests_[worker].clear_start();
    return reply;
  }
  void Finish(int worker, const Reply& lease) {
    proto::NextRequest& request = requests_[worker];
    std::vector<int64_t> held(request.held().begin(), request.held().end());
    request.clear_held();
    for (const int64_t id : held)
      if (id != lease.lease().id()) request.add_held(id);
    if (lease.lease().has_evaluation()) {
      proto::EvaluationDone& done = *request.add_evaluated();
      done.set_lease(lease.lease().id());
      done.add_sums(static_cast<double>(lease.lease().end() - lease.lease().begin()) * 2);
      done.add_sums(static_cast<double>(lease.lease().end() - lease.lease().begin()));
      done.add_sums(1);
      return;
    }
    *request.add_done() = Done(lease);
  }
  static proto::BatchDone Done(const Reply& lease) {
    proto::BatchDone done;
    done.set_lease(lease.lease().id());
    done.set_examples(lease.lease().end() - lease.lease().begin());
    done.set_loss(0.5);
    done.set_learning_rate(0.1);
    done.set_staleness_max(3);
    done.set_staleness_mean(1.5);
    done.add_metric_sums(static_cast<double>(lease.lease().begin()));
    return done;
  }
  // Returns the report of the last finished batch, which a test may change before Next.
  proto::BatchDone& LastDone(int worker) {
    return *requests_[worker].mutable_done(requests_[worker].done_size() - 1);
  }
  proto::EvaluationDone& LastEvaluated(int worker) {
    return *requests_[worker].mutable_evaluated(requests_[worker].evaluated_size() - 1);
  }
  void Forget(int worker) { requests_[worker].clear_held(); }
  proto::NextRequest& request(int worker) { return requests_[worker]; }

 private:
  WorkTable* const table_;
  std::map<int, proto::NextRequest> requests_;
};

inline WorkTable::Options Asynchronous(int64_t examples, int64_t batch, int64_t epochs = 1) {
  WorkTable::Options options;
  options.leases = {.examples = examples, .batch = batch, .epochs = epochs};
  options.workers = 3;
  options.metric_sums = 1;
  return options;
}

}  // namespace muster::chief
