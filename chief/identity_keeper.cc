#include "chief/identity_keeper.h"

#include <utility>

namespace muster {

IdentityKeeper::~IdentityKeeper() {
  if (thread_.joinable()) thread_.join();
}

void IdentityKeeper::Start(const std::string& run_id, uint32_t epoch) {
  if (std::exchange(under_way_, true)) return;
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread([this, run_id, epoch] {
    const absl::Status status = keep_ ? keep_(run_id, epoch) : absl::OkStatus();
    {
      absl::MutexLock lock(&mu_);
      result_ = Result{run_id, epoch, status};
    }
    if (status.ok()) wake_();
  });
}

std::optional<IdentityKeeper::Result> IdentityKeeper::TakeResult() {
  absl::MutexLock lock(&mu_);
  if (result_) under_way_ = false;
  return std::exchange(result_, std::nullopt);
}

}  // namespace muster
