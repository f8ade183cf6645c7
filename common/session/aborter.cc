#include "common/session/aborter.h"

#include <pthread.h>

#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"

namespace muster {

struct Aborter::State {
  using Work = std::vector<std::pair<std::shared_ptr<collective::Communicator>, absl::Status>>;

  absl::Mutex mu;
  CondVar changed;
  Work queue ABSL_GUARDED_BY(mu);
  bool exiting ABSL_GUARDED_BY(mu) = false;
  bool exited ABSL_GUARDED_BY(mu) = false;
};

Aborter::Aborter() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { Run(state); }).detach();
}

Aborter::~Aborter() {
  absl::MutexLock lock(&state_->mu);
  state_->exiting = true;
  state_->changed.SignalAll();
  const MonotonicTime until = Clock::now() + kPatience;
  while (!state_->exited)
    if (state_->changed.WaitUntil(&state_->mu, until)) break;
}

void Aborter::Abort(std::vector<std::shared_ptr<collective::Communicator>> communicators,
                    const absl::Status& why) {
  absl::MutexLock lock(&state_->mu);
  for (auto& communicator : communicators) state_->queue.emplace_back(std::move(communicator), why);
  state_->changed.SignalAll();
}

void Aborter::Run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "aborter");
  while (true) {
    State::Work work;
    {
      absl::MutexLock lock(&state->mu);
      while (!state->exiting && state->queue.empty()) state->changed.Wait(&state->mu);
      work.swap(state->queue);
      if (work.empty()) {
        state->exited = true;
        state->changed.SignalAll();
        return;
      }
    }
    for (const auto& [communicator, why] : work) communicator->Abort(why);
  }
}

}  // namespace muster
