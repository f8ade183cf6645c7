#include "worker/aborter.h"

#include <pthread.h>

namespace muster {

Aborter::~Aborter() {
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
  }
  thread_.join();
}

void Aborter::Abort(std::vector<std::shared_ptr<Communicator>> communicators,
                    const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  for (auto& communicator : communicators) queue_.emplace_back(std::move(communicator), why);
}

void Aborter::Run() {
  pthread_setname_np(pthread_self(), "aborter");
  while (true) {
    std::vector<std::pair<std::shared_ptr<Communicator>, absl::Status>> work;
    {
      absl::MutexLock lock(&mu_);
      const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return exiting_ || !queue_.empty();
      };
      mu_.Await(absl::Condition(&wanted));
      work.swap(queue_);
      if (work.empty()) return;
    }
    for (const auto& [communicator, why] : work) communicator->Abort(why);
  }
}

}  // namespace muster
