// The bar of a pass over examples, on a terminal; nothing elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/telemetry/progress.h"

namespace muster {

// For one thread.
class PassProgress {
 public:
  // `name`: what the pass is over, "test"; `examples` of a batch, but for the last one.
  PassProgress(std::string name, int64_t examples);
  ~PassProgress();
  PassProgress(const PassProgress&) = delete;
  PassProgress& operator=(const PassProgress&) = delete;
  void Show(int64_t done, int64_t total);

 private:
  const std::string name_;
  const int64_t examples_;
  const MonotonicTime start_ = Clock::now();
  std::unique_ptr<ProgressSink> sink_;  // null: no terminal
};

}  // namespace muster
