// The membership of a single process. All replicas are local, and none can be lost.
#include <atomic>

#include "common/collective/group/formation.h"
#include "common/collective/nccl/nccl.h"
#include "common/train/membership.h"

namespace muster {
namespace {

class LocalMembership : public Membership {
 public:
  LocalMembership(int num_replicas, Duration timeout, std::vector<int> cuda_devices)
      : num_replicas_(num_replicas), timeout_(timeout), cuda_devices_(std::move(cuda_devices)) {}

  absl::StatusOr<Generation> NextGeneration(int64_t last_step) override {
    Generation generation;
    generation.id = ++formed_;
    generation.replicas_per_rank = {num_replicas_};
    generation.replicas_on_host = num_replicas_;
    generation.owner_step = last_step;
    MUSTER_ASSIGN_OR_RETURN(auto made, MakeCommunicators());
    for (auto& communicator : made) generation.replicas.push_back(std::move(communicator));
    return generation;
  }
  void SetPhase(Phase, int64_t) override {}
  absl::Status Explain(const absl::Status& local) override { return local; }
  void ReportFailure(const absl::Status&) override {}
  void RequestStop() override { stop_ = true; }
  bool StopRequested() const override { return stop_; }
  absl::Status Finish(int64_t, const absl::Status& outcome) override { return outcome; }

 private:
  absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>> MakeCommunicators() const {
    if (cuda_devices_.empty()) return collective::MakeThreadCommunicators(num_replicas_, timeout_);
    collective::NcclOptions options;
    options.devices = cuda_devices_;
    options.timeout = timeout_;
    return collective::MakeNcclCommunicators(
        std::move(collective::MakeThreadCommunicators(1, timeout_)[0]), {num_replicas_}, options,
        [] { return false; });
  }

  const int num_replicas_;
  const Duration timeout_;
  const std::vector<int> cuda_devices_;
  uint64_t formed_ = 0;
  std::atomic<bool> stop_ = false;
};

}  // namespace

std::unique_ptr<Membership> MakeLocalMembership(int num_replicas, Duration timeout,
                                                std::vector<int> cuda_devices) {
  return std::make_unique<LocalMembership>(num_replicas, timeout, std::move(cuda_devices));
}

}  // namespace muster
