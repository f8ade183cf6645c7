#include "deploy/launcher/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/telemetry/input_wait.h"
#include "common/telemetry/progress.h"
#include "deploy/launcher/shell_word.h"
#include "muster/status.h"

namespace muster::launcher {
namespace {

// Returns "test accuracy 0.9051, test loss 0.2711".
std::string Metrics(const Json& result) {
  std::string text;
  const Json metrics = result.value("metrics", Json::object());
  for (const char* split : {"test", "validation", "train"}) {
    if (!metrics.contains(split) || !metrics[split].is_object()) continue;
    for (const auto& [name, value] : metrics[split].items()) {
      if (!value.is_number()) continue;
      text +=
          fmt::format("{}{} {} {:.4f}", text.empty() ? "" : ", ", split, name, value.get<double>());
    }
    if (!text.empty()) return text;
  }
  return text;
}

// Returns "loss 0.2500".
std::string BestValue(const Json& result) {
  const Json best = result.value("best", Json());
  if (!best.is_object() || !best.contains("metric") || !best.contains("value")) return "";
  if (!best["metric"].is_string() || !best["value"].is_number()) return "";
  return fmt::format("{} {:.4f}", best["metric"].get<std::string>(), best["value"].get<double>());
}

// Returns "checkpoint runs/a/checkpoints/step-00000500, the best one
// runs/a/checkpoints/step-00000400 (loss 0.2500)".
std::string Checkpoints(const Json& result, const std::string& model_dir) {
  const auto path = [&](const char* key) {
    const auto value = result.find(key);
    return value != result.end() && value->is_string()
               ? fmt::format("{}/{}", model_dir, value->get<std::string>())
               : "";
  };
  const std::string newest = path("checkpoint"), best = path("best_checkpoint");
  if (newest.empty()) return "";
  const std::string by = BestValue(result);
  return fmt::format("checkpoint {}{}{}", newest,
                     best.empty()     ? ""
                     : best == newest ? ", the best one"
                                      : ", the best one " + best,
                     best.empty() || by.empty() ? "" : fmt::format(" ({})", by));
}

// Returns "41,230 examples/s; a step computes for 1.31 ms, waits for others 0.22 ms and for data
// 0.00 ms".
std::string Speed(const Json& result) {
  const auto number = [](const Json& object, const char* key) {
    const auto value = object.find(key);
    return value != object.end() && value->is_number() ? value->get<double>() : 0;
  };
  const double rate = number(result, "examples_per_second");
  const auto step = result.find("step_seconds");
  if (rate <= 0 || step == result.end() || !step->is_object()) return "";
  const auto ms = [&](const char* key) { return number(*step, key) * 1e3; };
  return fmt::format(
      "{} examples/s; a step computes for {:.2f} ms, waits for others {:.2f} ms and for data "
      "{:.2f} ms",
      FormatGrouped(static_cast<int64_t>(rate)), ms("compute"), ms("wait"), ms("input"));
}

// Returns "34 % of the time of steps went to waiting for input, ...", or "" if the share is small.
std::string InputWait(const Json& result) {
  const auto share = result.find("input_wait_share");
  if (share == result.end() || !share->is_number()) return "";
  const double wall_seconds = result.value("wall_seconds", 0.0);
  if (share->get<double>() < kMuchInputWait || share->get<double>() * wall_seconds < 1) return "";
  return fmt::format(
      "{:.0f} % of the time of steps went to waiting for input: see data.threads, data.prefetch "
      "and "
      "cache in docs/data.md",
      100 * share->get<double>());
}

// Returns "the best one: accuracy 0.9101, loss 0.2500", or "" if the checkpoint's line has the same
// values.
std::string BestMetrics(const Json& result) {
  const Json best = result.value("best", Json());
  if (!best.is_object() || !best.contains("metrics") || !best["metrics"].is_object()) return "";
  std::string text;
  int shown = 0;
  for (const auto& [name, value] : best["metrics"].items()) {
    if (!value.is_number()) continue;
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value.get<double>());
    ++shown;
  }
  return shown > 1 ? fmt::format("the best one: {}", text) : "";
}

std::string Command(const std::string& program, const std::vector<std::string>& words) {
  std::string line = ShellWord(program);
  for (const std::string& word : words) line += fmt::format(" {}", ShellWord(word));
  return line;
}

// Returns suggested next commands, one per line.
std::vector<std::string> Next(const LaunchOutcome& outcome) {
  const Json& result = outcome.result;
  const auto has = [&](const char* key) {
    return result.is_object() && result.contains(key) && result[key].is_string();
  };
  const int code = outcome.verdict.code;
  if (outcome.model_dir.empty()) return {};
  if (code != static_cast<int>(ExitCode::kDone)) {
    std::vector<std::string> lines;
    if (has("checkpoint") && code >= static_cast<int>(ExitCode::kRetryable)) {
      lines.push_back(fmt::format("the same command continues from {}",
                                  result["checkpoint"].get<std::string>()));
    }
    if (code == static_cast<int>(ExitCode::kRetryable))
      lines.push_back(Command(outcome.program, {"explain", outcome.model_dir}));
    return lines;
  }
  if (!has("checkpoint")) return {};
  const bool best = has("best_checkpoint");
  const Json metrics = result.value("metrics", Json::object());
  const auto measured = [&](const char* split) {
    return metrics.contains(split) && metrics[split].is_object();
  };
  std::vector<std::string> lines;
  if (measured("validation") || measured("test")) {
    std::vector<std::string> evaluate = {"evaluate"};
    evaluate.insert(evaluate.end(), outcome.job.begin(), outcome.job.end());
    if (best) evaluate.insert(evaluate.end(), {"--checkpoint", "best"});
    lines.push_back(Command(outcome.program, evaluate));
  }
  const std::string checkpoint = result[best ? "best_checkpoint" : "checkpoint"];
  lines.push_back(
      Command(outcome.program, {"export", "--checkpoint", outcome.model_dir + "/" + checkpoint,
                                "--output", "weights.safetensors"}));
  return lines;
}

std::string Status(const LaunchVerdict& verdict) {
  if (verdict.code == static_cast<int>(ExitCode::kDone)) return "completed in";
  if (verdict.code == static_cast<int>(ExitCode::kPreempted)) return "preempted after";
  return "failed after";
}

}  // namespace

std::vector<std::string> Report(const LaunchState& state, const LaunchOutcome& outcome) {
  std::vector<std::string> lines;
  const LaunchVerdict& verdict = outcome.verdict;
  std::string line = fmt::format("{} {}, exit code {}", Status(verdict),
                                 FormatSeconds(Seconds(outcome.elapsed)), verdict.code);
  if (!verdict.reason.empty() && !verdict.preempted) line += ": " + verdict.reason;
  lines.push_back(line);
  std::string restarts;
  for (const TaskState& task : state.tasks) {
    if (task.restarts == 0) continue;
    restarts += fmt::format("{}{} {}", restarts.empty() ? "" : ", ", task.task.Name(),
                            task.restarts == 1 ? "once" : fmt::format("{} times", task.restarts));
  }
  if (!restarts.empty()) lines.push_back("started again: " + restarts);
  // The verdict's line covers the lead. Tasks that stopped with all others are not listed.
  const bool completed = verdict.code == static_cast<int>(ExitCode::kDone);
  std::string others;
  for (const TaskState& task : state.tasks) {
    if (!task.ended || task.task.lead || task.report.code == 0) continue;
    if (WasAskedToStop(task.report) && !completed) continue;
    others +=
        fmt::format("{}{} {}", others.empty() ? "" : "; ", task.task.Name(), Describe(task.report));
  }
  if (!others.empty())
    lines.push_back((completed ? "lost during training: " : "others: ") + others);
  if (!completed) {
    // Repeats the line, because the tasks printed it long before their last lines.
    if (!outcome.root_cause.empty()) lines.push_back(outcome.root_cause);
  }
  if (outcome.result.is_object()) {
    if (const std::string metrics = Metrics(outcome.result); !metrics.empty()) {
      lines.push_back(metrics);
    }
    if (const std::string best = BestMetrics(outcome.result); !best.empty()) lines.push_back(best);
    if (const std::string speed = Speed(outcome.result); !speed.empty()) lines.push_back(speed);
    if (const std::string input = InputWait(outcome.result); !input.empty()) lines.push_back(input);
  }
  if (!outcome.model_dir.empty()) {
    if (outcome.result.is_object()) {
      if (const std::string saved = Checkpoints(outcome.result, outcome.model_dir); !saved.empty())
        lines.push_back(saved);
    }
    std::vector<std::string> files;
    if (outcome.result.is_object())
      files.push_back(fmt::format("result in {}/result.json", outcome.model_dir));
    if (outcome.logs) files.push_back(fmt::format("logs in {}/logs", outcome.model_dir));
    if (!files.empty()) lines.push_back(fmt::format("{}", fmt::join(files, ", ")));
  }
  const std::vector<std::string> next = Next(outcome);
  for (size_t i = 0; i < next.size(); ++i)
    lines.push_back((i == 0 ? "next: " : "      ") + next[i]);
  return lines;
}

}  // namespace muster::launcher
