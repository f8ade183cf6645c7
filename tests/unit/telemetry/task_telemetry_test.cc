#include "common/telemetry/task_telemetry.h"

#include <gtest/gtest.h>

#include "common/base/wait.h"

namespace muster {
namespace {

// The state that a hanging driver and the test share.
struct Hang {
  Notification entered, leave, left;
};

class HangingReader final : public GpuReader {
 public:
  explicit HangingReader(std::shared_ptr<Hang> hang) : hang_(std::move(hang)) {}
  ~HangingReader() override { hang_->left.Notify(); }
  std::vector<proto::GpuStats> Read() override {
    hang_->entered.Notify();
    hang_->leave.WaitFor(std::chrono::minutes(3));
    return {};
  }

 private:
  const std::shared_ptr<Hang> hang_;
};

TEST(TaskTelemetryTest, EndsWhileAGpuDriverHangs) {
  const auto hang = std::make_shared<Hang>();
  auto telemetry = TaskTelemetry::Start(ClusterConfig(), Job(), 0);
  ASSERT_TRUE(telemetry.ok()) << telemetry.status();
  (*telemetry)->WatchGpus([hang] { return std::make_unique<HangingReader>(hang); });
  ASSERT_TRUE(hang->entered.WaitFor(std::chrono::minutes(1)));
  const MonotonicTime start = Clock::now();
  telemetry->reset();
  EXPECT_LT(Clock::now() - start, std::chrono::minutes(1));
  // The thread ends by itself once the driver answers, with what it uses.
  hang->leave.Notify();
  EXPECT_TRUE(hang->left.WaitFor(std::chrono::minutes(1)));
}

}  // namespace
}  // namespace muster
