#include <atomic>

#include "common/base/logging.h"
#include "common/base/process/termination_message.h"
#include "common/membership/faulty_membership.h"
#include "common/membership/member_options.h"
#include "common/process/task_process.h"
#include "ps/task.h"

namespace muster::ps {
namespace {

class PsMember final : public PsMembership {
 public:
  // `faulty` applies --fault to the process's links. May be null.
  PsMember(const PsMembershipOptions& options, membership::FaultyMember* faulty) {
    membership::MemberOptions member = membership::MemberOptionsOf(options.cluster, options.job);
    member.num_replicas = 0;
    member.versions = options.versions;
    member.data_address = options.data_address;
    member.form = [](const collective::GroupSpec&, const std::vector<int>&,
                     const std::function<bool()>&) {
      return std::vector<std::unique_ptr<collective::Communicator>>();
    };
    member.on_verdict = [told = options.on_verdict, self = member.task](const Verdict& verdict) {
      told(StatusOf(verdict, self, /*is_chief=*/false));
    };
    member.on_stuck = [log = options.termination_log](const std::string& why) {
      EndNow(why + "; ending this process", log, ExitCode::kRetryable);
    };
    member.stats = options.stats;
    member.spans = options.spans;
    membership::ReportSilentChief(supervisor_.get(), &member);
    if (faulty != nullptr) faulty->Adapt(&member);
    member_ = membership::Member::Make(std::move(member));
  }

  absl::Status WaitForVerdict() override {
    absl::Status result;
    do {
      const absl::StatusOr<Generation> generation = member_->NextGeneration(updates_);
      result = generation.status();
      if (!result.ok() || generation->job_done) break;
      member_->SetPhase(Phase::kUpdate, updates_);
      LogInfo("this server is in run {}", generation->run_id);
      result = member_->WaitOver();
    } while (!member_->JobEnded());
    if (result.ok()) return result;
    return absl::Status(result.code(), member_->FinalLine(result));
  }
  void RequestStop() override { member_->RequestStop(); }
  void ReportFailure(const absl::Status& failure) override { member_->ReportFailure(failure); }
  void SetUpdates(int64_t updates) override {
    updates_ = updates;
    member_->SetPhase(Phase::kUpdate, updates);
  }

 private:
  const std::unique_ptr<Supervisor> supervisor_ = MakeSupervisor();
  std::atomic<int64_t> updates_ = 0;
  std::unique_ptr<membership::Member> member_;
};

}  // namespace
}  // namespace muster::ps

// muster-ps: holds part of the variables of a parameter-server job.
int main(int argc, char** argv) {
  using namespace muster;
  std::unique_ptr<membership::FaultyMember> faults;
  ps::PsParts parts;
  parts.join = [&faults](const ps::PsMembershipOptions& options) {
    return std::make_unique<ps::PsMember>(options, faults.get());
  };
  parts.fail_early = membership::FailEarly;
  parts.finished_without_chief = membership::FinishedWithoutChief;
  parts.adapt = [&faults](Faults* planned, transport::ListenerOptions* options) {
    faults = std::make_unique<membership::FaultyMember>(planned);
    faults->Adapt(options);
  };
  parts.termination_log = TerminationLog();
  return ps::RunPs(argc, argv, parts);
}
