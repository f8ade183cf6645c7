// The progress bar of a pass over examples. Shown on a terminal only.
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
  // `name` is the subject of the pass, such as "test". `examples` is the size of every batch except
  // the last one.
  PassProgress(std::string name, int64_t examples);
  ~PassProgress();
  PassProgress(const PassProgress&) = delete;
  PassProgress& operator=(const PassProgress&) = delete;
  void Show(int64_t done, int64_t total);

 private:
  const std::string name_;
  const int64_t examples_;
  const MonotonicTime start_ = Clock::now();
  std::unique_ptr<ProgressSink> sink_;  // Null: no terminal.
};

}  // namespace muster
