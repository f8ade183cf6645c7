#include "chief/result.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "muster/version.h"

namespace muster {
namespace {

absl::Status NotWritten(const std::string& path, int error) {
  const std::string text = fmt::format("cannot write {}: {}", path, std::strerror(error));
  return error == ENOSPC || error == EDQUOT || error == EIO || error == ESTALE
             ? absl::UnavailableError(text)  // a restart can help
             : ConfigurationError(text);
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool good = fd >= 0;
  for (size_t done = 0; good && done < text.size();) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    good = written >= 0 || errno == EINTR;
    if (written > 0) done += static_cast<size_t>(written);
  }
  good = good && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (good) return absl::OkStatus();
  return NotWritten(path, error);
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores)
                                                         : static_cast<int>(get_nprocs());
}

std::string_view StatusName(const absl::Status& verdict) {
  if (verdict.ok()) return "completed";
  return ExitCodeOf(verdict) == ExitCode::kPreempted ? "preempted" : "failed";
}

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

constexpr const char* kSplits[] = {"train", "validation", "test", "eval"};

}  // namespace

absl::Status WriteJsonFile(const std::string& path, const Json& json) {
  const std::string part = fmt::format("{}.{}.part", path, getpid());
  const std::string text = Dump(json, 2) + '\n';
  absl::Status status = WriteWhole(part, text);
  if (status.ok() && rename(part.c_str(), path.c_str()) != 0) {
    status = NotWritten(path, errno);
  }
  if (!status.ok()) unlink(part.c_str());
  return status;
}

Json HardwareOfThisHost() {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  struct sysinfo memory = {};
  sysinfo(&memory);
  return {{"host", host},
          {"cpu", CpuModel()},
          {"cores", UsableCores()},
          {"memory_bytes", static_cast<uint64_t>(memory.totalram) * memory.mem_unit}};
}

Json OwnVersions() { return {{"muster", MUSTER_VERSION}}; }

void SteadySeries::Add(double value) {
  if (seen_++ % stride_ != 0) return;
  if (values_.size() == kMost) {
    for (size_t i = 0; i < kMost / 2; ++i) values_[i] = values_[2 * i];
    values_.resize(kMost / 2);
    stride_ *= 2;
    if ((seen_ - 1) % stride_ != 0) return;
  }
  values_.push_back(value);
}

double SteadySeries::Median() const {
  if (values_.empty()) return 0;
  // A short run has no steady part: its second half is the best there is.
  const auto warm_up =
      std::min(static_cast<size_t>((kWarmUpSteps + stride_ - 1) / stride_), values_.size() / 2);
  std::vector<double> steady(values_.begin() + static_cast<ptrdiff_t>(warm_up), values_.end());
  const auto middle = steady.begin() + static_cast<ptrdiff_t>(steady.size() / 2);
  std::nth_element(steady.begin(), middle, steady.end());
  if (steady.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(steady.begin(), middle)) / 2;
}

void RunRecord::Continue(const Json& earlier) {
  try {
    if (earlier.contains("best") && earlier["best"].is_object()) {
      earlier_best_ = earlier["best"];
      earlier_best_["checkpoint"] = earlier.at("best_checkpoint");
    }
    for (const char* split : kSplits) {
      const Json& step = earlier.at("metric_steps").at(split);
      if (!step.is_null()) passes_[split] = {step.get<int64_t>(), earlier.at("metrics").at(split)};
    }
    speed_ = {{"examples_per_second", earlier.at("examples_per_second").get<double>()},
              {"step_seconds", earlier.at("step_seconds")}};
  } catch (const Json::exception&) {
    passes_.clear();  // another version's, or damaged
    earlier_best_ = nullptr;
  }
}

void RunRecord::OnStart(const StartReport& report) {
  world_size_ = report.world_size;
  num_replicas_ = report.num_replicas;
  steps_ = report.start_step;
  examples_ = report.start_examples;
  epochs_ = 0;
  finished_ = report.finished;
  const double scale = loss_scale_ ? loss_scale_->scale : 0;
  loss_scale_ = report.loss_scale;
  if (loss_scale_ && loss_scale_->scale == 0) loss_scale_->scale = scale;
  if (report.epochs_begun >= 0) {
    epochs_ = report.epochs_begun;
  } else if (report.steps_per_epoch > 0) {
    epochs_ = (report.start_step + report.steps_per_epoch - 1) / report.steps_per_epoch;
  }
  // What was measured on a state that was lost is void.
  std::erase_if(passes_, [&](const auto& pass) { return pass.second.step > report.start_step; });
  if (!report.train_metrics.empty()) passes_["train"] = {report.start_step, report.train_metrics};
  for (const EpochReport& pass : report.passes) passes_[pass.split] = {pass.step, pass.metrics};
}

void RunRecord::OnStep(const StepReport& report) {
  steps_ = report.step;
  epochs_ = report.epoch + 1;
  examples_ += report.examples;
  loss_scale_ = report.loss_scale;
  speed_ = nullptr;
  if (report.total_seconds > 0) {
    rate_.Add(static_cast<double>(report.examples) / report.total_seconds);
  }
  compute_.Add(report.compute_seconds);
  wait_.Add(report.wait_seconds);
  input_.Add(report.input_seconds);
}

void RunRecord::OnEpoch(const EpochReport& report) {
  passes_[report.split] = {report.step, report.metrics};
}

void RunRecord::OnEvaluation(int64_t step, const std::map<std::string, double>& metrics) {
  Pass& pass = passes_["eval"];
  if (pass.metrics.is_null() || step >= pass.step) pass = {step, metrics};
}

Json RunRecord::Speed() const {
  if (!speed_.is_null()) return speed_;
  return {{"examples_per_second", rate_.Median()},
          {"step_seconds",
           {{"compute", compute_.Median()}, {"wait", wait_.Median()}, {"input", input_.Median()}}}};
}

Json RunRecord::Best(const CheckpointRecord& checkpoints) const {
  if (checkpoints.best.empty() || checkpoints.best_metric.empty()) return nullptr;
  Json best = {{"metric", checkpoints.best_metric}, {"value", checkpoints.best_value}};
  if (!checkpoints.best_metrics.empty()) {
    best["metrics"] = checkpoints.best_metrics;
  } else if (earlier_best_.is_object() && earlier_best_["checkpoint"] == checkpoints.best &&
             earlier_best_.contains("metrics")) {
    best["metrics"] = earlier_best_["metrics"];
  }
  return best;
}

Json RunRecord::Result(const Ending& ending) const {
  Json metrics, metric_steps;
  for (const char* split : kSplits) {
    const auto pass = passes_.find(split);
    metrics[split] = pass == passes_.end() ? Json() : pass->second.metrics;
    metric_steps[split] = pass == passes_.end() ? Json() : Json(pass->second.step);
  }
  const CheckpointRecord& checkpoints = ending.checkpoints;
  Json result = {
      {"status", StatusName(ending.verdict)},
      {"cause", ending.verdict.ok() ? Json() : Json(std::string(Message(ending.verdict)))},
      {"steps", steps_},
      {"epochs", epochs_},
      {"examples", examples_},
      {"world_size", world_size_},
      {"num_replicas", num_replicas_},
      {"generations", ending.generations},
      {"wall_seconds", ending.wall_seconds},
      {"metrics", metrics},
      {"metric_steps", metric_steps},
      {"checkpoint", OrNull(checkpoints.newest)},
      {"best_checkpoint", OrNull(checkpoints.best)},
      {"best", Best(checkpoints)},
      {"saves",
       {{"written", checkpoints.written},
        {"dropped", checkpoints.dropped},
        {"failed", checkpoints.failed},
        {"last_error", OrNull(checkpoints.last_error)}}},
      {"hardware", ending.hardware},
      {"versions", ending.versions}};
  if (finished_ && ending.verdict.ok()) result["finished"] = true;
  if (loss_scale_) {
    const auto& [scale, skipped_steps, skipped] = *loss_scale_;
    result["float16"] = {{"loss_scale", scale > 0 ? Json(scale) : Json()},
                         {"skipped_steps", skipped_steps}};
  }
  if (!callbacks_.empty()) result["callbacks"] = callbacks_;
  if (!ending.parameter_server.is_null()) result["parameter_server"] = ending.parameter_server;
  result.update(Speed());
  return result;
}

}  // namespace muster
