#include "common/telemetry/run_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/cluster/verdict.h"

namespace muster {
namespace {

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

// Returns null for a negative number, which means unknown.
Json Known(double value) { return value < 0 ? Json() : Number(value); }

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json GpuJson(const proto::GpuStats& gpu) {
  return {{"index", gpu.index()},
          {"uuid", gpu.uuid()},
          {"utilization", Known(gpu.utilization())},
          {"memory_access", Known(gpu.memory_access())},
          {"memory_used_bytes", gpu.memory_used_bytes()},
          {"memory_total_bytes", gpu.memory_total_bytes()}};
}

Json StatsJson(const proto::TaskStats& stats) {
  Json queues = Json::array();
  for (const proto::InputQueue& queue : stats.input_queues())
    queues.push_back(
        {{"dataset", queue.dataset()}, {"ready", queue.ready()}, {"capacity", queue.capacity()}});
  Json gpus = Json::array();
  for (const proto::GpuStats& gpu : stats.gpus()) gpus.push_back(GpuJson(gpu));
  return {{"steps", stats.steps()},
          {"examples", stats.examples()},
          {"input_wait_seconds", Number(stats.input_wait_seconds())},
          {"peer_wait_seconds", Number(stats.peer_wait_seconds())},
          {"bytes_sent", stats.bytes_sent()},
          {"bytes_received", stats.bytes_received()},
          {"generations", stats.generations()},
          {"restarts", stats.restarts()},
          {"checkpoints", stats.checkpoints()},
          {"steps_per_second", Number(stats.steps_per_second())},
          {"examples_per_second", Number(stats.examples_per_second())},
          {"input_share", Known(stats.input_share())},
          {"wait_share", Known(stats.wait_share())},
          {"local_step_seconds", Number(stats.local_step_seconds())},
          {"staleness", Number(stats.staleness())},
          {"input_queues", std::move(queues)},
          {"chunks_in_flight", stats.chunks_in_flight()},
          {"cpu_seconds", Number(stats.cpu_seconds())},
          {"cpu_cores", Number(stats.cpu_cores())},
          {"rss_bytes", stats.rss_bytes()},
          {"network_sent_bytes", stats.network_sent_bytes()},
          {"network_received_bytes", stats.network_received_bytes()},
          {"gpus", std::move(gpus)}};
}

Json TaskJson(const proto::MemberStatus& task) {
  Json json = {{"task", task.task()},
               {"address", task.address()},
               {"joined", task.joined()},
               {"connected", task.connected()},
               {"host", TextOrNull(task.host())},
               {"pid", task.joined() ? Json(task.pid()) : Json()},
               {"phase", TextOrNull(task.phase())},
               {"phase_age_seconds", Number(task.phase_age_seconds())},
               {"step", task.step()},
               {"num_replicas", task.num_replicas()},
               {"devices", TextOrNull(task.devices())},
               {"silence_seconds", Number(task.silence_seconds())},
               {"straggler", task.straggler()},
               {"stats", Json()}};
  if (task.has_stats()) json["stats"] = StatsJson(task.stats());
  return json;
}

Json ProgressJson(const proto::RunProgress& progress) {
  Json metrics = Json::object();
  for (const auto& [name, value] : progress.metrics()) metrics[name] = Number(value);
  const bool saved = !progress.checkpoint().empty();
  return {{"program", progress.program()},
          {"strategy", TextOrNull(progress.strategy())},
          {"model_dir", TextOrNull(progress.model_dir())},
          {"step", progress.step()},
          {"total_steps", progress.total_steps() > 0 ? Json(progress.total_steps()) : Json()},
          {"epoch", progress.epoch()},
          {"epochs", progress.epochs() > 0 ? Json(progress.epochs()) : Json()},
          {"split", TextOrNull(progress.split())},
          {"examples_per_second", Number(progress.examples_per_second())},
          {"seconds_left", Known(progress.seconds_left())},
          {"learning_rate", Number(progress.learning_rate())},
          {"metrics", std::move(metrics)},
          {"checkpoint", TextOrNull(progress.checkpoint())},
          {"checkpoint_step", saved ? Json(progress.checkpoint_step()) : Json()},
          {"checkpoint_age_seconds", saved ? Known(progress.checkpoint_age_seconds()) : Json()},
          {"global_batch_size", progress.global_batch_size()}};
}

Json EventJson(const proto::RunEvent& event) {
  return {{"kind", EventKindName(event.kind())},
          {"age_seconds", Known(event.age_seconds())},
          {"task", TextOrNull(event.task())},
          {"step", event.step() < 0 ? Json() : Json(event.step())},
          {"text", event.text()}};
}

// Returns the "status" of result.json for this exit code.
std::string OutcomeOf(int exit_code) {
  if (exit_code == static_cast<int>(ExitCode::kDone)) return "completed";
  return exit_code == static_cast<int>(ExitCode::kPreempted) ? "preempted" : "failed";
}

Json VerdictJson(const proto::Verdict& verdict) {
  return {{"status", OutcomeOf(verdict.exit_code())},
          {"exit_code", verdict.exit_code() < 0 ? Json() : Json(verdict.exit_code())},
          {"task", TextOrNull(verdict.task())},
          {"host", TextOrNull(verdict.host())},
          {"step", verdict.step() < 0 ? Json() : Json(verdict.step())},
          {"message", verdict.message()}};
}

}  // namespace

std::string EventKindName(proto::RunEvent::Kind kind) {
  switch (kind) {
    case proto::RunEvent::JOINED:
      return "joined";
    case proto::RunEvent::LOST:
      return "lost";
    case proto::RunEvent::GENERATION:
      return "generation";
    case proto::RunEvent::CHECKPOINT:
      return "checkpoint";
    case proto::RunEvent::STRAGGLER:
      return "straggler";
    case proto::RunEvent::VERDICT:
      return "verdict";
    default:
      return "other";
  }
}

Json StatusToJson(const proto::StatusReply& reply) {
  Json tasks = Json::array(), events = Json::array();
  for (const proto::MemberStatus& task : reply.members()) tasks.push_back(TaskJson(task));
  for (const proto::RunEvent& event : reply.events()) events.push_back(EventJson(event));
  Json json = {{"run_id", reply.run_id()},
               {"stage", reply.stage()},
               {"generation", reply.generation() == 0 ? Json() : Json(reply.generation())},
               {"uptime_seconds", Number(reply.uptime_seconds())},
               {"roster", reply.roster()},
               {"progress", Json()},
               {"tasks", std::move(tasks)},
               {"events", std::move(events)},
               {"verdict", Json()}};
  if (reply.has_progress()) json["progress"] = ProgressJson(reply.progress());
  if (reply.has_verdict()) json["verdict"] = VerdictJson(reply.verdict());
  return json;
}

double MedianOfKnown(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !(value > 0); });
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<Straggler> StragglersOf(const proto::StatusReply& reply) {
  std::vector<Straggler> found;
  for (const proto::MemberStatus& task : reply.members()) {
    if (!task.straggler()) continue;
    std::vector<double> others;
    for (const proto::MemberStatus& other : reply.members())
      if (&other != &task) others.push_back(other.stats().local_step_seconds());
    found.push_back(
        {task.task(), task.stats().local_step_seconds(), MedianOfKnown(std::move(others))});
  }
  return found;
}

std::string StragglerReason(double seconds, double others) {
  return fmt::format(
      "it needs {:.0f} ms of a step before it waits for others, and they need {:.0f} ms (median); "
      "they wait for {:.0f} % of its time",
      1000 * seconds, 1000 * others, 100 * std::max(0.0, (seconds - others) / seconds));
}

std::string StragglerText(const Straggler& straggler) {
  const bool known = straggler.seconds > 0 && straggler.others > 0;
  return fmt::format(
      "{} is a straggler: {}", TaskText(straggler.task),
      known ? StragglerReason(straggler.seconds, straggler.others) : "the others wait for it");
}

}  // namespace muster
