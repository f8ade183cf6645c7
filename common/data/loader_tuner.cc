#include "common/data/loader_tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace muster::data {
namespace {

constexpr int kMaxPatience = 64;

std::string Text(const LoaderSetting& setting) {
  return fmt::format("{} thread{}, {} batches ahead", setting.threads,
                     setting.threads == 1 ? "" : "s", setting.prefetch);
}

}  // namespace

LoaderTuner::LoaderTuner(const LoaderLimits& limits) : limits_(limits) {
  if (limits_.threads) setting_.threads = std::max(1, *limits_.threads);
  setting_.prefetch = limits_.prefetch ? *limits_.prefetch : PrefetchFor(setting_.threads, 0);
  setting_.threads = std::min(setting_.threads, MostThreads());
}

// More threads than batches ahead would stay idle.
int LoaderTuner::MostThreads() const {
  const int useful = limits_.prefetch ? std::max(1, *limits_.prefetch * limits_.replicas)
                                      : kMaxPrefetch * limits_.replicas;
  return std::min(useful,
                  limits_.threads ? std::max(1, *limits_.threads) : std::max(1, limits_.cores));
}

int LoaderTuner::MostPrefetch(int64_t batch_bytes) const {
  if (limits_.prefetch) return *limits_.prefetch;
  const int64_t one = std::max<int64_t>(1, batch_bytes) * limits_.replicas;
  return static_cast<int>(std::clamp<int64_t>(limits_.bytes / one, 2, kMaxPrefetch));
}

int LoaderTuner::PrefetchFor(int threads, int64_t batch_bytes) const {
  const int each = (threads + limits_.replicas - 1) / limits_.replicas;
  return std::clamp(each + 1, 2, std::max(2, MostPrefetch(batch_bytes)));
}

bool LoaderTuner::Complete(const LoaderWindow& window) const {
  const int64_t each = window.batches / limits_.replicas;
  return (each >= 8 && window.seconds >= 0.25) || (each >= 2 && window.seconds >= 10);
}

std::optional<LoaderSetting> LoaderTuner::Grown(const LoaderWindow& window) const {
  LoaderSetting more = setting_;
  const int most_ahead = MostPrefetch(window.batch_bytes);
  const bool more_ahead = !limits_.prefetch && setting_.prefetch < most_ahead;
  // If waits come in bursts, all batches are ready at some times and none at others. The threads
  // are then fast enough on average.
  const bool bursts = window.full * 4 >= window.batches;
  if (!(bursts && more_ahead) && setting_.threads < MostThreads()) {
    const bool far = window.wait_seconds > 0.5 * window.seconds;
    more.threads = std::min(setting_.threads + (far ? setting_.threads : 1), MostThreads());
    if (!limits_.prefetch)
      more.prefetch = std::max(setting_.prefetch, PrefetchFor(more.threads, window.batch_bytes));
    return more;
  }
  if (!more_ahead) return std::nullopt;
  more.prefetch = std::min(2 * setting_.prefetch, most_ahead);
  return more;
}

std::string LoaderTuner::Fit(int64_t batch_bytes) {
  const int most = MostPrefetch(batch_bytes);
  if (setting_.prefetch <= most) return "";
  setting_.prefetch = most;
  if (trial_) trial_->before.prefetch = std::min(trial_->before.prefetch, most);
  return fmt::format("{}: a batch has {} MiB", Text(setting_), batch_bytes >> 20);
}

std::string LoaderTuner::Decide(const LoaderWindow& window) {
  if (fixed() || window.batches <= 0 || window.seconds <= 0) return "";
  const auto batches = static_cast<double>(window.batches) / limits_.replicas;
  const double seconds = window.seconds / batches, wait = window.wait_seconds / batches;
  std::string why;
  if (trial_) {
    // The second condition accepts a shorter wait without a shorter step, because all processes
    // wait for the slowest loader, which may be another process's.
    const bool helped = (wait <= 0.9 * trial_->wait && seconds <= 0.98 * trial_->seconds) ||
                        (wait <= 0.5 * trial_->wait && seconds <= 1.02 * trial_->seconds);
    if (!helped) {
      setting_ = trial_->before;
      trial_.reset();
      hold_ = patience_;
      patience_ = std::min(2 * patience_, kMaxPatience);
      return fmt::format("{} again: more did not help", Text(setting_));
    }
    trial_.reset();
    patience_ = 1;
  }
  const bool starved = window.wait_seconds > kStarved * window.seconds;
  if (starved) {
    idle_ = 0;
    if (shrunk_from_) {
      idle_needed_ = std::min(2 * idle_needed_, kMaxPatience);
      setting_.threads = *std::exchange(shrunk_from_, std::nullopt);
      return fmt::format("{} again: fewer were too slow", Text(setting_));
    }
    if (hold_ > 0) {
      --hold_;
      return "";
    }
    const std::optional<LoaderSetting> more = Grown(window);
    if (!more) return "";
    trial_ = Trial{setting_, seconds, wait};
    setting_ = *more;
    return fmt::format("{}: {:.0f} % of the time was spent waiting", Text(setting_),
                       100 * window.wait_seconds / window.seconds);
  }
  hold_ = std::max(0, hold_ - 1);
  if (limits_.threads || setting_.threads == 1 || window.full < window.batches) {
    idle_ = 0;
    return "";
  }
  if (++idle_ < idle_needed_) return "";
  idle_ = 0;
  shrunk_from_ = setting_.threads;
  --setting_.threads;
  return fmt::format("{}: all batches were ready at every step", Text(setting_));
}

}  // namespace muster::data
