#include "common/train/state/checkpoint_replicas.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "common/base/process/cores.h"
#include "common/job/program_path.h"
#include "common/train/state/snapshot.h"

namespace muster {
namespace {

// Returns "; the checkpoint is of program X, and the job's is Y". Returns "" if the programs are
// the same.
std::string OtherProgram(const checkpoint::Snapshot& snapshot, const Job& job) {
  const Json& of = snapshot.state.job;
  if (!of.is_object() || !of.contains("program")) return "";
  const Json theirs = PortableProgram(of.at("program")), ours = PortableProgram(job.program);
  if (theirs == ours) return "";
  return fmt::format("; the checkpoint is of program {}, and the job's is {}", Dump(theirs),
                     Dump(ours));
}

}  // namespace

absl::StatusOr<CheckpointReplicas> CheckpointReplicas::Make(
    const Job& job, const ProgramFactory& factory, const std::vector<c10::Device>& devices) {
  // Without callbacks, because they only act on training.
  Job without_callbacks = job;
  without_callbacks.callbacks = Json::array();
  CheckpointReplicas all(job);
  for (const c10::Device& device : devices) {
    const Replica* first = all.replicas_.empty() ? nullptr : all.replicas_[0].get();
    MUSTER_ASSIGN_OR_RETURN(auto replica, Replica::Make(without_callbacks, factory, device, first));
    if (first != nullptr) replica->ShareTables(*first);
    all.replicas_.push_back(std::move(replica));
  }
  return all;
}

absl::Status CheckpointReplicas::Restore(const checkpoint::Snapshot& snapshot) {
  const std::string other = OtherProgram(snapshot, *job_);
  for (auto& replica : replicas_) {
    const absl::Status restored = RestoreModels(snapshot, replica.get());
    if (ExitCodeOf(restored) == ExitCode::kConfiguration)
      return ConfigurationError(fmt::format("{}{}", Message(restored), other));
    MUSTER_RETURN_IF_ERROR(restored);
  }
  return absl::OkStatus();
}

absl::Status CheckpointReplicas::Run(const std::function<absl::Status(int)>& work,
                                     const std::function<void(const absl::Status&)>& failed) {
  static const int allowed = at::get_num_threads();
  const int threads = std::clamp(AvailableCores() / size(), 1, std::max(1, allowed));
  std::vector<absl::Status> results(size());
  const auto run = [&](int i) {
    at::set_num_threads(threads);
    const c10::DeviceGuard device(replicas_[i]->device());
    results[i] = work(i);
    if (!results[i].ok()) failed(results[i]);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < size(); ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& thread : others) thread.join();
  absl::Status failure;
  for (const absl::Status& result : results) {
    if (!result.ok() && (failure.ok() || ExitCodeOf(failure) == ExitCode::kRetryable))
      failure = result;
  }
  return failure;
}

}  // namespace muster
