#include "common/push_pull/view_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace muster::push_pull {

ViewCache::ViewCache(Options options) : options_(std::move(options)), thread_([this] { Run(); }) {}

ViewCache::~ViewCache() { Stop(); }

void ViewCache::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    wanted_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const ClientView> ViewCache::current() const {
  absl::MutexLock lock(&mutex_);
  return view_;
}

void ViewCache::ReportFailure(const void* channel, uint64_t number, const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (number == (view_ == nullptr ? 0 : view_->number))
    failing_.try_emplace(channel, Waiting{why, calls_});
  wanted_.Signal();
}

void ViewCache::ReportSuccess(const void* channel) {
  absl::MutexLock lock(&mutex_);
  failing_.erase(channel);
}

void ViewCache::Run() {
  for (;;) {
    uint64_t newer_than = 0, call = 0;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && failing_.empty()) wanted_.Wait(&mutex_);
      if (stopping_) return;
      newer_than = view_ == nullptr ? 0 : view_->number;
      call = ++calls_;
    }
    absl::StatusOr<ClientView> next = options_.next_view(newer_than);
    absl::Status failed;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      if (next.ok()) {
        view_ = std::make_shared<const ClientView>(*std::move(next));
        failing_.clear();
      } else {
        // A failure that began during the call has not waited for the whole call.
        const auto waited = std::find_if(failing_.begin(), failing_.end(),
                                         [call](const auto& t) { return t.second.since < call; });
        if (waited == failing_.end()) continue;
        failed = Annotate(next.status(), fmt::format("There is no other view of the parameter "
                                                     "servers, and {}: ",
                                                     Message(waited->second.why)));
      }
    }
    if (!failed.ok()) return options_.failed(failed);
    options_.changed();
  }
}

}  // namespace muster::push_pull
