#include "deploy/status/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <thread>

#include "common/base/files/files.h"
#include "common/base/json/json_integer.h"
#include "common/base/json/lenient_fields.h"
#include "common/base/peer_text.h"
#include "common/process/process_start.h"
#include "common/summary/event_reader.h"

namespace muster::status {
namespace {

namespace fs = std::filesystem;

Json ReadPart(const std::string& directory, const char* name, std::vector<std::string>* damaged) {
  const std::string path = directory + "/" + name;
  std::error_code error;
  if (!fs::exists(path, error)) return Json();
  absl::StatusOr<Json> json = ReadJsonFile(path);
  if (json.ok() && json->is_object()) return *std::move(json);
  damaged->push_back(json.ok() ? path + " contains no JSON object"
                               : std::string(Message(json.status())));
  return Json();
}

std::string TextOf(const Json& json) {
  return json.is_string() ? SanitizePeerText(json.get<std::string>()) : "";
}

int64_t IntegerOf(const Json& json, int64_t otherwise = 0) {
  try {
    return json.is_number() ? static_cast<int64_t>(JsonInteger(json)) : otherwise;
  } catch (const Json::exception&) {
    return otherwise;
  }
}

double NumberOf(const Json& json) { return json.is_number() ? json.get<double>() : 0; }

std::string ProgramOf(const Json& job) {
  const Json& program = FieldAt(job, {"program"});
  if (program.is_string()) return fs::path(TextOf(program)).filename().string();
  return program.is_null() ? "" : SanitizePeerText(Dump(program), 200);
}

void AddMetrics(const Json& metrics, proto::RunProgress* progress) {
  for (const auto& [split, prefix] : {std::pair<const char*, const char*>{"train", ""},
                                      {"validation", "val_"},
                                      {"test", "test_"},
                                      {"eval", "eval_"}}) {
    const Json& values = FieldAt(metrics, {split});
    if (!values.is_object()) continue;
    for (const auto& [name, value] : values.items())
      if (value.is_number())
        (*progress->mutable_metrics())[prefix + SanitizePeerText(name, 100)] = value.get<double>();
  }
}

int64_t StepOfCheckpoint(std::string_view name) {
  const size_t dash = name.rfind('-');
  int64_t step = 0;
  if (dash != std::string_view::npos)
    std::from_chars(name.data() + dash + 1, name.data() + name.size(), step);
  return step;
}

void AddLosses(const Json& recovery, proto::StatusReply* reply) {
  const Json& losses = FieldAt(recovery, {"last_losses"});
  if (!losses.is_array()) return;
  for (const Json& loss : losses) {
    proto::RunEvent& event = *reply->add_events();
    event.set_kind(proto::RunEvent::LOST);
    event.set_age_seconds(-1);
    event.set_step(IntegerOf(FieldAt(loss, {"step"}), -1));
    event.set_text(fmt::format("{}; it cost {:.1f} s", TextOf(FieldAt(loss, {"cause"})),
                               NumberOf(FieldAt(loss, {"seconds"}))));
  }
}

// Sets the last values in the event files of train/.
void AddLastScalars(const std::string& directory, proto::RunProgress* progress) {
  for (const auto& [tag, points] : summary::ReadRun(directory + "/train").scalars) {
    // If several points have the highest step, this is the one that was written last.
    const summary::Point& last = *std::max_element(
        points.rbegin(), points.rend(),
        [](const summary::Point& a, const summary::Point& b) { return a.step < b.step; });
    if (tag == "learning_rate") progress->set_learning_rate(last.value);
    if (tag == "examples_per_second") progress->set_examples_per_second(last.value);
    if (tag != "loss") continue;
    (*progress->mutable_metrics())["loss"] = last.value;
    progress->set_step(last.step);
  }
}

// Returns -1 for an unknown outcome.
int ExitCodeOfResult(const std::string& outcome) {
  if (outcome == "completed") return static_cast<int>(ExitCode::kDone);
  return outcome == "preempted" ? static_cast<int>(ExitCode::kPreempted) : -1;
}

uint64_t BeatOf(const std::string& directory) {
  const auto owner = ReadJsonFile(directory + "/owner.json");
  return owner.ok() ? static_cast<uint64_t>(IntegerOf(FieldAt(*owner, {"beat"}))) : 0;
}

}  // namespace

absl::StatusOr<RunFiles> ReadRunFiles(const std::string& directory) {
  RunFiles run;
  run.directory = directory;
  for (const auto& [name, json] : {std::pair<const char*, Json*>{"job.json", &run.job},
                                   {"owner.json", &run.owner},
                                   {"recovery.json", &run.recovery},
                                   {"result.json", &run.result},
                                   {"status.json", &run.status}})
    *json = ReadPart(directory, name, &run.damaged);
  if (run.job.is_null() && run.owner.is_null() && run.result.is_null() && run.damaged.empty())
    return ConfigurationError(fmt::format(
        "{} is not a model_dir: it has no job.json, owner.json or result.json", directory));
  run.checkpoint = SanitizePeerText(FirstLineOf(directory + "/checkpoints/latest"), 100);
  return run;
}

std::string ModelDirOf(const proto::StatusReply& reply) { return reply.progress().model_dir(); }

std::string RunIdOf(const RunFiles& run) { return TextOf(FieldAt(run.owner, {"run_id"})); }

std::string ChiefAddressOf(const RunFiles& run) { return TextOf(FieldAt(run.status, {"address"})); }

int64_t LocalPidOf(const RunFiles& run) {
  if (TextOf(FieldAt(run.owner, {"place"})) != PlaceOfThisProcess()) return 0;
  const int64_t pid = IntegerOf(FieldAt(run.owner, {"pid"}));
  const std::string start = StartOf(pid);
  return !start.empty() && TextOf(FieldAt(run.owner, {"process_start"})) == start ? pid : 0;
}

bool OwnerLives(const RunFiles& run, Duration wait) {
  if (!run.owner.is_object() || FieldAt(run.owner, {"left"}) == true) return false;
  const uint64_t beat = BeatOf(run.directory);
  const MonotonicTime until = Clock::now() + wait;
  while (Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (BeatOf(run.directory) != beat) return true;
  }
  return false;
}

bool HasBegun(const RunFiles& run) {
  // Owner files of earlier versions have no "begun".
  return !run.owner.is_object() || FieldAt(run.owner, {"begun"}) != false ||
         !run.checkpoint.empty() || run.result.is_object();
}

proto::StatusReply StatusOfFiles(const RunFiles& run) {
  proto::StatusReply reply;
  reply.set_run_id(RunIdOf(run));
  reply.set_stage(run.result.is_object() ? "ended" : HasBegun(run) ? "unknown" : "not begun");
  proto::RunProgress& progress = *reply.mutable_progress();
  progress.set_program(ProgramOf(run.job));
  progress.set_strategy(TextOf(FieldAt(run.job, {"strategy"})));
  progress.set_model_dir(run.directory);
  progress.set_seconds_left(-1);
  progress.set_checkpoint_age_seconds(-1);
  progress.set_global_batch_size(IntegerOf(FieldAt(run.job, {"global_batch_size"})));
  if (!run.checkpoint.empty()) {
    progress.set_checkpoint(run.directory + "/checkpoints/" + run.checkpoint);
    progress.set_checkpoint_step(StepOfCheckpoint(run.checkpoint));
    progress.set_step(progress.checkpoint_step());
  }
  const Json& recovery = FieldAt(run.result, {"recovery"});
  AddLosses(recovery.is_object() ? recovery : run.recovery, &reply);
  if (!run.result.is_object()) {
    AddLastScalars(run.directory, &progress);
    return reply;
  }
  progress.set_step(IntegerOf(FieldAt(run.result, {"steps"})));
  progress.set_epoch(std::max<int64_t>(IntegerOf(FieldAt(run.result, {"epochs"})) - 1, 0));
  progress.set_examples_per_second(NumberOf(FieldAt(run.result, {"examples_per_second"})));
  AddMetrics(FieldAt(run.result, {"metrics"}), &progress);
  reply.set_uptime_seconds(NumberOf(FieldAt(run.result, {"wall_seconds"})));
  proto::Verdict& verdict = *reply.mutable_verdict();
  verdict.set_exit_code(ExitCodeOfResult(TextOf(FieldAt(run.result, {"status"}))));
  verdict.set_message(TextOf(FieldAt(run.result, {"cause"})));
  verdict.set_step(progress.step());
  return reply;
}

std::vector<std::string> OutcomeLines(const RunFiles& run) {
  std::vector<std::string> lines;
  if (!run.result.is_object()) return lines;
  const Json& result = run.result;
  const Json& seconds = FieldAt(result, {"step_seconds"});
  const int64_t world = IntegerOf(FieldAt(result, {"world_size"}));
  lines.push_back(
      fmt::format("{} member{}, {} replica{}, {} generation{}; chief on host {} ({} cores)", world,
                  world == 1 ? "" : "s", IntegerOf(FieldAt(result, {"num_replicas"})),
                  IntegerOf(FieldAt(result, {"num_replicas"})) == 1 ? "" : "s",
                  IntegerOf(FieldAt(result, {"generations"})),
                  IntegerOf(FieldAt(result, {"generations"})) == 1 ? "" : "s",
                  TextOf(FieldAt(result, {"hardware", "host"})),
                  IntegerOf(FieldAt(result, {"hardware", "cores"}))));
  if (seconds.is_object())
    lines.push_back(fmt::format(
        "a step: {:.2f} ms computing, {:.2f} ms waiting for others, "
        "{:.2f} ms waiting for input",
        1000 * NumberOf(FieldAt(seconds, {"compute"})), 1000 * NumberOf(FieldAt(seconds, {"wait"})),
        1000 * NumberOf(FieldAt(seconds, {"input"}))));
  const Json& recovery = FieldAt(result, {"recovery"});
  if (IntegerOf(FieldAt(recovery, {"losses"})) > 0 ||
      IntegerOf(FieldAt(recovery, {"restarts"})) > 0)
    lines.push_back(fmt::format("{} loss{}, {} restart{}, {:.1f} s lost",
                                IntegerOf(FieldAt(recovery, {"losses"})),
                                IntegerOf(FieldAt(recovery, {"losses"})) == 1 ? "" : "es",
                                IntegerOf(FieldAt(recovery, {"restarts"})),
                                IntegerOf(FieldAt(recovery, {"restarts"})) == 1 ? "" : "s",
                                NumberOf(FieldAt(recovery, {"seconds_lost"}))));
  if (const Json& best = FieldAt(result, {"best"}); best.is_object())
    lines.push_back(fmt::format("best: {} {:.4g} in {}", TextOf(FieldAt(best, {"metric"})),
                                NumberOf(FieldAt(best, {"value"})),
                                TextOf(FieldAt(result, {"best_checkpoint"}))));
  return lines;
}

}  // namespace muster::status
