#include "worker/aborter.h"

#include <pthread.h>

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster {

struct Aborter::State {
  using Work = std::vector<std::pair<std::shared_ptr<Communicator>, absl::Status>>;

  absl::Mutex mu;
  Work queue ABSL_GUARDED_BY(mu);
  bool exiting ABSL_GUARDED_BY(mu) = false;
  bool exited ABSL_GUARDED_BY(mu) = false;

  bool Wanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return exiting || !queue.empty(); }
};

Aborter::Aborter() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { Run(state); }).detach();
}

Aborter::~Aborter() {
  absl::MutexLock lock(&state_->mu);
  state_->exiting = true;
  state_->mu.AwaitWithTimeout(absl::Condition(&state_->exited), absl::FromChrono(kPatience));
}

void Aborter::Abort(std::vector<std::shared_ptr<Communicator>> communicators,
                    const absl::Status& why) {
  absl::MutexLock lock(&state_->mu);
  for (auto& communicator : communicators) state_->queue.emplace_back(std::move(communicator), why);
}

void Aborter::Run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "aborter");
  while (true) {
    State::Work work;
    {
      absl::MutexLock lock(&state->mu);
      state->mu.Await(absl::Condition(state.get(), &State::Wanted));
      work.swap(state->queue);
      if (work.empty()) {
        state->exited = true;
        return;
      }
    }
    for (const auto& [communicator, why] : work) communicator->Abort(why);
  }
}

}  // namespace muster
