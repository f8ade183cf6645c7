#include "common/telemetry/task_telemetry.h"

#include <pthread.h>

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

// How long the destructor waits for the sampling thread, which a driver may block.
constexpr Duration kEnd = std::chrono::seconds(1);

// The state of the sampling thread. The thread may outlive the TaskTelemetry if a driver hangs.
struct Sampling {
  void Run();

  TaskMeter meter;
  SystemSampler sampler;  // Used only by the thread once it runs.
  absl::Mutex mu;
  TaskTelemetry::OpenGpus open ABSL_GUARDED_BY(mu);  // The thread calls it if it is set.
  Notification end, done;
};

void Sampling::Run() {
  pthread_setname_np(pthread_self(), "system-stats");
  while (!end.WaitFor(kSampleInterval)) {
    TaskTelemetry::OpenGpus to_open;
    {
      absl::MutexLock lock(&mu);
      to_open.swap(open);
    }
    if (to_open) sampler.set_gpus(to_open());
    meter.SetSystem(sampler.Sample());
  }
  done.Notify();
}

// Returns false for an evaluator, and for a chief with parameter servers, which does not train.
bool HasSteps(const ClusterConfig& cluster) {
  const TaskType role = cluster.role();
  return role != TaskType::kEvaluator && !(role == TaskType::kChief && !cluster.cluster.ps.empty());
}

class TaskTelemetryImpl final : public TaskTelemetry {
 public:
  explicit TaskTelemetryImpl(const ClusterConfig& cluster)
      : task_(cluster.local() ? "worker:0" : cluster.task->ToString()),
        has_steps_(HasSteps(cluster)),
        pulls_(!cluster.local() && !cluster.cluster.ps.empty() &&
               cluster.task->type == TaskType::kWorker) {
    sampling_->meter.SetSystem(sampling_->sampler.Sample());
    thread_ = std::thread([sampling = sampling_] { sampling->Run(); });
  }
  ~TaskTelemetryImpl() override {
    server_.reset();
    sampling_->end.Notify();
    if (sampling_->done.WaitFor(kEnd)) {
      thread_.join();
    } else {
      LogWarning("the GPU driver does not answer: the task ends without its last GPU metrics");
      thread_.detach();
    }
  }

  absl::Status Serve(const web::HttpOptions& options, bool is_open) {
    MUSTER_ASSIGN_OR_RETURN(server_, web::HttpServer::Make(options));
    server_->Get("/metrics", [this](const web::HttpRequest&) { return Metrics(); });
    server_->Start();
    LogInfo("metrics: {}/metrics", server_->url());
    if (is_open)
      LogWarning(
          "status.address is {}, and the task has no run key: every host on the network may read "
          "the metrics",
          options.address);
    return absl::OkStatus();
  }

  TaskMeter* meter() override { return &sampling_->meter; }
  void WatchGpus(OpenGpus open) override {
    absl::MutexLock lock(&sampling_->mu);
    sampling_->open = std::move(open);
  }

 private:
  web::HttpResponse Metrics() {
    const TaskMeter& meter = sampling_->meter;
    TaskMetrics metrics;
    metrics.task = task_;
    metrics.stats = meter.Stats();
    metrics.step = meter.phase().second;
    metrics.has_steps = has_steps_;
    metrics.pulls = pulls_;
    metrics.start_time = start_time_;
    metrics.straggler = meter.stragglers();
    web::HttpResponse response;
    response.type = kMetricsType;
    response.body = MetricsText(metrics);
    return response;
  }

  const std::string task_;
  const bool has_steps_, pulls_;
  const int64_t start_time_ = std::time(nullptr);
  const std::shared_ptr<Sampling> sampling_ = std::make_shared<Sampling>();
  std::unique_ptr<web::HttpServer> server_;  // Null: /metrics is off.
  std::thread thread_;
};

}  // namespace

void TaskTelemetry::WatchGpus(const std::vector<std::string>& uuids) {
  if (!uuids.empty()) WatchGpus([uuids] { return OpenNvml(uuids); });
}

absl::StatusOr<std::unique_ptr<TaskTelemetry>> TaskTelemetry::Start(const ClusterConfig& cluster,
                                                                    const Job& job, int restarts) {
  MUSTER_ASSIGN_OR_RETURN(const int port, web::MetricsPort(cluster, job));
  auto telemetry = std::make_unique<TaskTelemetryImpl>(cluster);
  telemetry->meter()->SetRestarts(restarts);
  if (port != 0) {
    const web::HttpOptions options = web::OptionsFor(cluster, job, port);
    MUSTER_RETURN_IF_ERROR(telemetry->Serve(options, web::IsOpen(cluster, options)));
  }
  return telemetry;
}

}  // namespace muster
