#include "deploy/launcher/death_notices.h"

#include <utility>

namespace muster::launcher {

DeathNotices::DeathNotices(std::function<void(const DeathNotice&)> tell) : tell_(std::move(tell)) {}

DeathNotices::~DeathNotices() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void DeathNotices::Add(DeathNotice notice) {
  if (tell_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(notice));
  changed_.SignalAll();
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void DeathNotices::Run() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    while (!ending_ && waiting_.empty()) changed_.Wait(&mutex_);
    if (ending_) return;
    const DeathNotice notice = std::move(waiting_.front());
    waiting_.pop_front();
    mutex_.Unlock();
    tell_(notice);
    mutex_.Lock();
  }
}

}  // namespace muster::launcher
