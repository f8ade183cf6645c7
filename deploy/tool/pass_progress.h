// PassProgress shows the progress bar of a pass. A pass reads the training, validation or test data
// once. Without a terminal, PassProgress shows nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/telemetry/progress.h"

namespace muster {

// Not thread-safe.
class PassProgress {
 public:
  // `name` is the label of the pass, such as "test". `examples` is the batch size. The last batch
  // may be smaller.
  PassProgress(std::string name, int64_t examples);
  ~PassProgress();
  PassProgress(const PassProgress&) = delete;
  PassProgress& operator=(const PassProgress&) = delete;
  void Show(int64_t done, int64_t total);

 private:
  const std::string name_;
  const int64_t examples_;
  const MonotonicTime start_ = Clock::now();
  std::unique_ptr<ProgressSink> sink_;  // Null without a terminal.
};

}  // namespace muster
