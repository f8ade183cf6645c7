#include "chief/model_dir/result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "common/base/process/cores.h"
#include "muster/version.h"

namespace muster::chief {
namespace {

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string_view StatusName(const absl::Status& verdict) {
  if (verdict.ok()) return "completed";
  return ExitCodeOf(verdict) == ExitCode::kPreempted ? "preempted" : "failed";
}

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

constexpr const char* kSplits[] = {"train", "validation", "test", "eval"};

}  // namespace

Json HardwareOfThisHost() {
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  struct sysinfo memory = {};
  sysinfo(&memory);
  return {{"host", host},
          {"cpu", CpuModel()},
          {"cores", AvailableCores()},
          {"memory_bytes", static_cast<uint64_t>(memory.totalram) * memory.mem_unit}};
}

Json OwnVersions() { return {{"muster", MUSTER_VERSION}}; }

void SteadySeries::Add(double value) {
  if (seen_++ % stride_ != 0) return;
  if (values_.size() == kMax) {
    for (size_t i = 0; i < kMax / 2; ++i) values_[i] = values_[2 * i];
    values_.resize(kMax / 2);
    stride_ *= 2;
    if ((seen_ - 1) % stride_ != 0) return;
  }
  values_.push_back(value);
}

double SteadySeries::Median() const {
  if (values_.empty()) return 0;
  // A short run has no steady part, so the second half is used.
  const auto warm_up =
      std::min(static_cast<size_t>((kWarmUpSteps + stride_ - 1) / stride_), values_.size() / 2);
  std::vector<double> steady(values_.begin() + static_cast<ptrdiff_t>(warm_up), values_.end());
  const auto middle = steady.begin() + static_cast<ptrdiff_t>(steady.size() / 2);
  std::nth_element(steady.begin(), middle, steady.end());
  if (steady.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(steady.begin(), middle)) / 2;
}

void InputWait::Add(const StepReport& report) {
  if (steps_++ < warm_up_steps_) {
    warm_up_input_ += report.input_seconds;
    warm_up_seconds_ += report.step_seconds;
  } else {
    input_ += report.input_seconds;
    seconds_ += report.step_seconds;
  }
}

double InputWait::Seconds() const { return input_ + (all() ? warm_up_input_ : 0); }

double InputWait::Share() const {
  const double seconds = seconds_ + (all() ? warm_up_seconds_ : 0);
  return seconds > 0 ? std::clamp(Seconds() / seconds, 0.0, 1.0) : 0;
}

std::string InputWaitHint(double share, const Json& data) {
  const auto key = [](const Json& json, const char* name) {
    return json.is_object() && json.contains(name) ? json[name] : Json();
  };
  std::vector<std::string> raise;
  for (const char* name : {"threads", "prefetch"}) {
    if (const Json value = key(data, name); value.is_number())
      raise.push_back(
          fmt::format("raise data.{} from {} or set it to \"auto\"", name, value.dump()));
  }
  const Json train = key(data, "train");
  if (train.is_object() && key(train, "cache").is_null())
    raise.emplace_back("set data.train.cache to \"memory\" or {\"disk\": a folder}");
  if (raise.empty()) {
    raise.emplace_back(
        "give the loader more cores (data.threads is \"auto\"), or make an example cheaper to load "
        "(cache it, or store it smaller)");
  }
  return fmt::format("{:.0f} % of the time of steps is spent waiting for input: {} (docs/data.md)",
                     100 * share, fmt::join(raise, ", or "));
}

void RunRecord::Continue(const Json& earlier) {
  try {
    if (earlier.contains("left_out")) {
      left_out_ = earlier["left_out"].at("examples").get<std::map<std::string, int64_t>>();
      damaged_ = earlier["left_out"].at("damaged").get<std::vector<std::string>>();
    }
    if (earlier.contains("best") && earlier["best"].is_object()) {
      earlier_best_ = earlier["best"];
      earlier_best_["checkpoint"] = earlier.at("best_checkpoint");
    }
    for (const char* split : kSplits) {
      const Json& step = earlier.at("metric_steps").at(split);
      if (!step.is_null()) passes_[split] = {step.get<int64_t>(), earlier.at("metrics").at(split)};
    }
    speed_ = {{"examples_per_second", earlier.at("examples_per_second").get<double>()},
              {"step_seconds", earlier.at("step_seconds")},
              {"input_wait_share", earlier.value("input_wait_share", 0.0)}};
  } catch (const Json::exception&) {
    passes_.clear();  // Written by another version, or damaged.
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
  // Metrics of later steps are void, because those steps were lost.
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
  input_wait_.Add(report);
}

void RunRecord::OnEpoch(const EpochReport& report) {
  passes_[report.split] = {report.step, report.metrics};
}

void RunRecord::OnLeftOut(const std::string& split, int64_t examples,
                          const std::vector<std::string>& names) {
  left_out_[split] += examples;
  for (const std::string& name : names) {
    if (damaged_.size() < kMaxDamaged &&
        std::find(damaged_.begin(), damaged_.end(), name) == damaged_.end())
      damaged_.push_back(name);
  }
}

void RunRecord::OnEvaluation(int64_t step, const std::map<std::string, double>& metrics) {
  Pass& pass = passes_["eval"];
  if (pass.metrics.is_null() || step >= pass.step) pass = {step, metrics};
}

std::vector<std::pair<std::string, int64_t>> CountsOf(
    const push_pull::TableStatistics& statistics) {
  return {{"rows", statistics.rows},           {"bytes", statistics.bytes},
          {"lookups", statistics.lookups},     {"hits", statistics.hits},
          {"evictions", statistics.evictions}, {"refused", statistics.refused}};
}

Json RunRecord::Speed() const {
  if (!speed_.is_null()) return speed_;
  return {{"examples_per_second", rate_.Median()},
          {"step_seconds",
           {{"compute", compute_.Median()}, {"wait", wait_.Median()}, {"input", input_.Median()}}},
          {"input_wait_share", input_wait_.Share()}};
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
      {"recovery", ending.recovery},
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
  if (!left_out_.empty()) result["left_out"] = {{"examples", left_out_}, {"damaged", damaged_}};
  if (!ending.parameter_server.is_null()) result["parameter_server"] = ending.parameter_server;
  for (const auto& [name, statistics] : tables_)
    for (const auto& [what, count] : CountsOf(statistics)) result["embeddings"][name][what] = count;
  result.update(Speed());
  return result;
}

}  // namespace muster::chief
