#include "deploy/tool/pass_progress.h"

#include <unistd.h>

#include <utility>

namespace muster {

PassProgress::PassProgress(std::string name, int64_t examples)
    : name_(std::move(name)), examples_(examples) {
  if (isatty(STDERR_FILENO)) sink_ = MakeProgressPrinter();
}

PassProgress::~PassProgress() {
  if (sink_ == nullptr) return;
  ProgressState state;
  state.kind = ProgressState::Kind::kEnd;
  sink_->Show(state);
}

void PassProgress::Show(int64_t done, int64_t total) {
  if (sink_ == nullptr || done == 0) return;
  const double seconds = Seconds(Clock::now() - start_);
  ProgressState state;
  state.kind = ProgressState::Kind::kEvaluate;
  state.split = name_;
  state.done = done;
  state.total = total;
  if (seconds > 0) state.examples_per_second = static_cast<double>(done * examples_) / seconds;
  state.seconds_left = seconds / static_cast<double>(done) * static_cast<double>(total - done);
  sink_->Show(state);
}

}  // namespace muster
