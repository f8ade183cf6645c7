#include "common/membership/metered_membership.h"

#include <algorithm>

namespace muster::membership {
namespace {

class MeteredMembership final : public Membership {
 public:
  MeteredMembership(Membership* membership, TaskMeter* meter) : to_(*membership), meter_(*meter) {}

  absl::StatusOr<Generation> NextGeneration(int64_t last_step) override {
    meter_.EnterPhase(Phase::kForming, std::max<int64_t>(last_step, 0) + 1);
    absl::StatusOr<Generation> generation = to_.NextGeneration(last_step);
    if (generation.ok() && !generation->job_done) meter_.AddGeneration();
    return generation;
  }
  void SetPhase(Phase phase, int64_t step) override {
    to_.SetPhase(phase, step);
    meter_.EnterPhase(phase, step);
  }
  absl::Status Explain(const absl::Status& local) override { return to_.Explain(local); }
  void ReportFailure(const absl::Status& failure) override { to_.ReportFailure(failure); }
  void RequestStop() override { to_.RequestStop(); }
  bool StopRequested() const override { return to_.StopRequested(); }
  absl::Status Finish(int64_t last_step, const absl::Status& outcome) override {
    meter_.EnterPhase(Phase::kEnding, last_step);
    return to_.Finish(last_step, outcome);
  }
  bool JobEnded() const override { return to_.JobEnded(); }

 private:
  Membership& to_;
  TaskMeter& meter_;
};

}  // namespace

std::unique_ptr<Membership> MakeMeteredMembership(Membership* membership, TaskMeter* meter) {
  return std::make_unique<MeteredMembership>(membership, meter);
}

}  // namespace muster::membership
