#include "common/membership/faulty_membership.h"

#include <algorithm>

#include "common/transport/listener/data_listener.h"

namespace muster::membership {
namespace {

class FaultyMembership final : public Membership {
 public:
  FaultyMembership(Membership* membership, Faults* faults) : to_(*membership), faults_(*faults) {}

  absl::StatusOr<Generation> NextGeneration(int64_t last_step) override {
    faults_.At(Phase::kStarting, std::max<int64_t>(last_step, 0) + 1);
    return to_.NextGeneration(last_step);
  }
  void SetPhase(Phase phase, int64_t step) override {
    to_.SetPhase(phase, step);
    // These two phases concern the state after the previous step.
    const bool done = phase == Phase::kSave || phase == Phase::kEvaluate;
    faults_.At(phase, done ? step - 1 : step);
  }
  absl::Status Explain(const absl::Status& local) override { return to_.Explain(local); }
  void ReportFailure(const absl::Status& failure) override { to_.ReportFailure(failure); }
  void RequestStop() override { to_.RequestStop(); }
  bool StopRequested() const override { return to_.StopRequested(); }
  absl::Status Finish(int64_t last_step, const absl::Status& outcome) override {
    faults_.At(Phase::kEnding, last_step);
    return to_.Finish(last_step, outcome);
  }
  bool JobEnded() const override { return to_.JobEnded(); }

 private:
  Membership& to_;
  Faults& faults_;
};

}  // namespace

std::unique_ptr<Membership> MakeFaultyMembership(Membership* membership, Faults* faults) {
  return std::make_unique<FaultyMembership>(membership, faults);
}

FaultyMember::FaultyMember(Faults* faults) : faults_(faults) {
  faults_->SetLinks({[this](FaultLink link) { Drop(link); },
                     [this](FaultLink link, Duration time) { Freeze(link, time); }});
}

FaultyMember::~FaultyMember() { faults_->SetLinks({}); }

void FaultyMember::Adapt(transport::ListenerOptions* options) {
  options->wrap = [this](auto stream) { return links_.Wrap(std::move(stream)); };
}

void FaultyMember::Adapt(MemberOptions* options) {
  options->session_fault = [this] { return TakeSessionFault(); };
  options->form = [faults = faults_, form = std::move(options->form)](
                      const collective::GroupSpec& spec, const std::vector<int>& replicas_per_rank,
                      const std::function<bool()>& aborted) {
    faults->At(Phase::kForming);
    return form(spec, replicas_per_rank, aborted);
  };
}

void FaultyMember::Drop(FaultLink link) {
  if (link != FaultLink::kControl) links_.Cut();
  if (link != FaultLink::kData) drop_control_ = true;
}

void FaultyMember::Freeze(FaultLink link, Duration time) {
  if (link != FaultLink::kControl) links_.Freeze(time);
  if (link != FaultLink::kData)
    control_frozen_until_ = (Clock::now() + time).time_since_epoch().count();
}

SessionFault FaultyMember::TakeSessionFault() {
  const Duration::rep until = control_frozen_until_;
  if (until != 0) {
    if (Clock::now().time_since_epoch().count() < until) return SessionFault::kSilent;
    control_frozen_until_ = 0;
    return SessionFault::kBroken;  // The reports that were held back are repeated over a new
                                   // session.
  }
  return drop_control_.exchange(false) ? SessionFault::kBroken : SessionFault::kNone;
}

}  // namespace muster::membership
