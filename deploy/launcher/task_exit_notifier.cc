#include "deploy/launcher/task_exit_notifier.h"

#include <utility>

namespace muster::launcher {

TaskExitNotifier::TaskExitNotifier(std::function<void(const TaskExitNotice&)> notify)
    : notify_(std::move(notify)) {}

TaskExitNotifier::~TaskExitNotifier() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void TaskExitNotifier::Add(TaskExitNotice notice) {
  if (notify_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(notice));
  changed_.SignalAll();
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void TaskExitNotifier::Run() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    while (!ending_ && waiting_.empty()) changed_.Wait(&mutex_);
    if (ending_) return;
    const TaskExitNotice notice = std::move(waiting_.front());
    waiting_.pop_front();
    mutex_.Unlock();
    notify_(notice);
    mutex_.Lock();
  }
}

}  // namespace muster::launcher
