#include "common/telemetry/task_telemetry.h"

#include <ctime>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/base/wait.h"
#include "common/telemetry/metrics_text.h"
#include "common/web/access.h"

namespace muster {
namespace {

constexpr Duration kSampleInterval = std::chrono::seconds(1);

class TaskTelemetryImpl final : public TaskTelemetry {
 public:
  explicit TaskTelemetryImpl(const ClusterConfig& cluster)
      : task_(cluster.local() ? "worker:0" : cluster.task->ToString()) {
    meter_.SetSystem(sampler_.Sample());
    thread_ = std::thread([this] { Run(); });
  }
  ~TaskTelemetryImpl() override {
    server_.reset();
    end_.Notify();
    thread_.join();
  }

  absl::Status Serve(const web::HttpOptions& options) {
    MUSTER_ASSIGN_OR_RETURN(server_, web::HttpServer::Make(options));
    server_->Get("/metrics", [this](const web::HttpRequest&) { return Metrics(); });
    server_->Start();
    LogInfo("metrics: {}/metrics", server_->url());
    return absl::OkStatus();
  }

  TaskMeter* meter() override { return &meter_; }
  void WatchGpus(const std::vector<std::string>& uuids) override {
    absl::MutexLock lock(&mu_);
    uuids_ = uuids;
  }

 private:
  web::HttpResponse Metrics() {
    TaskMetrics metrics;
    metrics.task = task_;
    metrics.stats = meter_.Stats();
    std::tie(metrics.phase, metrics.step) = meter_.phase();
    metrics.start_time = start_time_;
    metrics.straggler = meter_.stragglers();
    web::HttpResponse response;
    response.type = kMetricsType;
    response.body = MetricsText(metrics);
    return response;
  }

  // A driver that hangs blocks only this thread.
  void Run() {
    while (!end_.WaitFor(kSampleInterval)) {
      std::vector<std::string> uuids;
      {
        absl::MutexLock lock(&mu_);
        uuids.swap(uuids_);
      }
      if (!uuids.empty()) sampler_.set_gpus(OpenNvml(uuids));
      meter_.SetSystem(sampler_.Sample());
    }
  }

  const std::string task_;
  const int64_t start_time_ = std::time(nullptr);
  TaskMeter meter_;
  SystemSampler sampler_;  // Used by thread_ once that runs.
  absl::Mutex mu_;
  std::vector<std::string> uuids_ ABSL_GUARDED_BY(mu_);  // GPUs to look for.
  Notification end_;
  std::unique_ptr<web::HttpServer> server_;  // Null: /metrics is off.
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TaskTelemetry>> TaskTelemetry::Start(const ClusterConfig& cluster,
                                                                    const Job& job, int restarts) {
  MUSTER_ASSIGN_OR_RETURN(const int port, web::MetricsPort(cluster, job));
  auto telemetry = std::make_unique<TaskTelemetryImpl>(cluster);
  telemetry->meter()->SetRestarts(restarts);
  if (port != 0) MUSTER_RETURN_IF_ERROR(telemetry->Serve(web::OptionsFor(cluster, job, port)));
  return telemetry;
}

}  // namespace muster
