#include "chief/model_dir/run_history.h"

#include <algorithm>
#include <utility>

namespace muster::chief {

void RunHistory::Continue(const Json& earlier, bool killed, double silent_seconds,
                          MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  try {
    const int64_t restarts = earlier.at("restarts").get<int64_t>();
    const int64_t generations = earlier.at("generations").get<int64_t>();
    const int64_t losses = earlier.at("losses").get<int64_t>();
    const double seconds = earlier.at("seconds_lost").get<double>();
    std::deque<Loss> last;
    for (const Json& loss : earlier.at("last_losses"))
      last.push_back({loss.at("step").get<int64_t>(), loss.at("seconds").get<double>(),
                      loss.at("cause").get<std::string>()});
    restarts_ = restarts;
    generations_ = generations;
    losses_ = losses;
    seconds_ = seconds;
    last_ = std::move(last);
  } catch (const Json::exception&) {  // Written by another version, or damaged.
  }
  ++restarts_;
  if (!killed) return;
  open_ = Open{{.cause = "the chief was lost"}, now};
  open_->loss.seconds = std::max(0.0, silent_seconds);
}

void RunHistory::AddLocked(Loss loss) {
  ++losses_;
  seconds_ += loss.seconds;
  last_.push_back(std::move(loss));
  if (last_.size() > kMaxLosses) last_.pop_front();
}

void RunHistory::OnLost(const std::string& task, const std::string& why, MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  const std::string what = task + " was lost" + (why.empty() ? "" : ": " + why);
  if (independent_) return AddLocked({step_, 0, what});
  if (!open_) open_ = Open{{}, progress_at_.value_or(now)};
  std::string& cause = open_->loss.cause;
  if (cause.size() > 1000) return;  // Limits the text if hundreds of members are lost at once.
  cause += (cause.empty() ? "" : "; ") + what;
}

void RunHistory::OnStart(int64_t step, MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  // No loss was reported: a new member joined, or a link broke.
  if (!open_ && progress_at_)
    open_ = Open{{.cause = "the members formed another generation"}, *progress_at_};
  ++generations_;
  step_ = step;
  progress_at_ = now;
  if (!open_) return;
  open_->loss.step = step;
  open_->mustered = true;
}

void RunHistory::OnProgress(MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  progress_at_ = now;
}

bool RunHistory::OnStep(int64_t step, MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  step_ = step;
  progress_at_ = now;
  if (!open_ || !open_->mustered) return false;
  Loss loss = std::move(open_->loss);
  loss.seconds += Seconds(now - open_->since);
  open_.reset();
  AddLocked(std::move(loss));
  return true;
}

void RunHistory::OnEnd(MonotonicTime now) {
  absl::MutexLock lock(&mu_);
  if (!open_) return;
  Loss loss = std::move(open_->loss);
  loss.step = step_;
  loss.seconds += Seconds(now - open_->since);
  open_.reset();
  AddLocked(std::move(loss));
}

int64_t RunHistory::generations() const {
  absl::MutexLock lock(&mu_);
  return generations_;
}

Json RunHistory::ToJson() const {
  absl::MutexLock lock(&mu_);
  Json last = Json::array();
  for (const Loss& loss : last_)
    last.push_back({{"step", loss.step}, {"seconds", loss.seconds}, {"cause", loss.cause}});
  return {{"restarts", restarts_},
          {"generations", generations_},
          {"losses", losses_},
          {"seconds_lost", seconds_},
          {"last_losses", std::move(last)}};
}

}  // namespace muster::chief
