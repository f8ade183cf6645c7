#include "deploy/status/status_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/peer_text.h"
#include "common/cluster/verdict.h"
#include "common/telemetry/progress.h"
#include "common/telemetry/run_status.h"

namespace muster::status {
namespace {

constexpr char kUnknown[] = "-";

std::string Share(double share) {
  return share < 0 ? kUnknown : fmt::format("{:.0f}%", 100 * share);
}

std::string Bytes(int64_t bytes) {
  if (bytes <= 0) return kUnknown;
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string GpuText(const proto::TaskStats& stats) {
  std::vector<std::string> used;
  for (const proto::GpuStats& gpu : stats.gpus()) used.push_back(Share(gpu.utilization()));
  return used.empty() ? kUnknown : fmt::format("{}", fmt::join(used, " "));
}

std::string PhaseText(const proto::MemberStatus& task) {
  if (!task.joined()) return "not joined";
  if (!task.connected()) return fmt::format("silent {:.0f} s", task.silence_seconds());
  if (task.phase_age_seconds() < 2) return task.phase();
  return fmt::format("{} {}", task.phase(), FormatSeconds(task.phase_age_seconds()));
}

using Row = std::vector<std::string>;

const Row kHeads = {"task", "phase", "step", "examples/s", "input",
                    "wait", "CPU",   "GPU",  "memory",     "restarts"};
constexpr size_t kLeftColumns = 2;  // Later columns are right-aligned.

Row RowOf(const proto::MemberStatus& task) {
  std::string name = TaskText(task.task());
  if (task.straggler()) name += " *";
  Row row = {std::move(name), PhaseText(task),
             task.joined() ? FormatGrouped(task.step()) : kUnknown};
  if (!task.has_stats()) {
    row.resize(kHeads.size(), kUnknown);
    return row;
  }
  const proto::TaskStats& stats = task.stats();
  row.push_back(stats.examples_per_second() > 0 ? FormatCount(stats.examples_per_second())
                                                : kUnknown);
  row.push_back(Share(stats.input_share()));
  row.push_back(Share(stats.wait_share()));
  row.push_back(fmt::format("{:.1f}", stats.cpu_cores()));
  row.push_back(GpuText(stats));
  row.push_back(Bytes(stats.rss_bytes()));
  row.push_back(FormatGrouped(stats.restarts()));
  return row;
}

std::vector<std::string> Table(const proto::StatusReply& reply) {
  std::vector<Row> rows = {kHeads};
  for (const proto::MemberStatus& task : reply.members()) rows.push_back(RowOf(task));
  std::vector<size_t> widths(kHeads.size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += i < kLeftColumns ? fmt::format("{:<{}}  ", row[i], widths[i])
                               : fmt::format("{:>{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string StageText(const proto::StatusReply& reply) {
  if (!reply.has_verdict()) return reply.stage();
  const proto::Verdict& verdict = reply.verdict();
  if (verdict.exit_code() == static_cast<int>(ExitCode::kDone)) return "completed";
  if (verdict.exit_code() == static_cast<int>(ExitCode::kPreempted)) return "stopped";
  return "failed";
}

std::string Head(const proto::StatusReply& reply) {
  const proto::RunProgress& progress = reply.progress();
  std::string line = progress.program().empty() ? "job" : progress.program();
  if (!progress.strategy().empty()) line += ", " + progress.strategy();
  if (!reply.run_id().empty()) line += ", run " + reply.run_id();
  line += ": " + StageText(reply);
  if (reply.generation() != 0)
    line += fmt::format(", generation {}.{}", reply.generation() >> 32,
                        reply.generation() & 0xffffffff);
  if (reply.uptime_seconds() > 0)
    line += fmt::format(", running for {}", FormatSeconds(reply.uptime_seconds()));
  return line;
}

std::string Metrics(const proto::RunProgress& progress) {
  std::vector<std::string> parts;
  std::vector<std::pair<std::string, double>> sorted(progress.metrics().begin(),
                                                     progress.metrics().end());
  std::sort(sorted.begin(), sorted.end());
  // The loss is first, as in the progress bar.
  std::stable_partition(sorted.begin(), sorted.end(),
                        [](const auto& metric) { return metric.first == "loss"; });
  for (const auto& [name, value] : sorted) parts.push_back(fmt::format("{} {:.4g}", name, value));
  if (progress.learning_rate() > 0)
    parts.push_back(fmt::format("learning rate {:.3g}", progress.learning_rate()));
  return fmt::format("{}", fmt::join(parts, "  "));
}

std::string CheckpointText(const proto::RunProgress& progress) {
  if (progress.checkpoint().empty()) return "checkpoint: none";
  std::string text = fmt::format("checkpoint: step {}", FormatGrouped(progress.checkpoint_step()));
  if (progress.checkpoint_age_seconds() >= 0)
    text += fmt::format(", {} ago", FormatSeconds(progress.checkpoint_age_seconds()));
  return text + ", " + progress.checkpoint();
}

// Returns one line: "step 120 of 1,200, epoch 1 of 5, ...".
std::string ProgressText(const proto::RunProgress& progress) {
  const bool known = progress.total_steps() > 0;
  if (progress.step() == 0)
    return known ? fmt::format("no steps yet, of {}", FormatGrouped(progress.total_steps()))
                 : "no steps yet";
  std::string text = "step " + FormatGrouped(progress.step());
  if (known)
    text += fmt::format(
        " of {} ({:.0f}%)", FormatGrouped(progress.total_steps()),
        100.0 * static_cast<double>(progress.step()) / static_cast<double>(progress.total_steps()));
  text += fmt::format(", epoch {}", progress.epoch() + 1);
  if (progress.epochs() > 0) text += fmt::format(" of {}", progress.epochs());
  if (!progress.split().empty() && progress.split() != "train")
    text += fmt::format(" ({} pass)", progress.split());
  if (progress.examples_per_second() > 0)
    text += fmt::format(", {} examples/s", FormatCount(progress.examples_per_second()));
  if (known && progress.seconds_left() >= 0)
    text += fmt::format(", {} left", FormatSeconds(progress.seconds_left()));
  return text;
}

// Returns one line: "0:31 ago  worker 1 was lost: ... (step 12)".
std::string EventText(const proto::RunEvent& event) {
  std::string text =
      event.age_seconds() < 0 ? "" : fmt::format("{:>7} ago  ", FormatSeconds(event.age_seconds()));
  text += event.text();
  if (event.step() >= 0 && event.kind() != proto::RunEvent::CHECKPOINT)
    text += fmt::format(" (step {})", FormatGrouped(event.step()));
  return text;
}

}  // namespace

std::vector<std::string> StatusLines(const proto::StatusReply& reply, size_t max_events) {
  std::vector<std::string> lines = {Head(reply)};
  if (reply.has_verdict() && !reply.verdict().message().empty())
    lines.push_back(
        (reply.verdict().task().empty() ? "" : TaskText(reply.verdict().task()) + ": ") +
        reply.verdict().message());
  lines.push_back(ProgressText(reply.progress()));
  if (const std::string metrics = Metrics(reply.progress()); !metrics.empty())
    lines.push_back(metrics);
  lines.push_back(CheckpointText(reply.progress()));
  if (reply.members_size() > 0) {
    lines.emplace_back();
    for (std::string& line : Table(reply)) lines.push_back(std::move(line));
  }
  const std::vector<Straggler> stragglers = StragglersOf(reply);
  if (!stragglers.empty()) lines.emplace_back();
  for (const Straggler& straggler : stragglers) lines.push_back("* " + StragglerText(straggler));
  if (!reply.has_verdict() && reply.stage() == "joining" && !reply.roster().empty())
    lines.push_back(reply.roster());
  const auto fault = std::find_if(
      reply.events().rbegin(), reply.events().rend(),
      [](const proto::RunEvent& event) { return event.kind() == proto::RunEvent::LOST; });
  if (max_events > 0 && reply.events_size() > 0) lines.emplace_back();
  if (fault != reply.events().rend()) lines.push_back("last fault: " + EventText(*fault));
  const int first = std::max(0, reply.events_size() - static_cast<int>(max_events));
  for (int i = first; i < reply.events_size(); ++i) lines.push_back(EventText(reply.events(i)));
  for (std::string& line : lines) line = SanitizePeerText(line, 2000);
  return lines;
}

std::string Cut(const std::string& line, size_t columns) {
  size_t shown = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(line[i]) & 0xc0) != 0x80;
    if (begins && shown++ == columns) return line.substr(0, i);
  }
  return line;
}

}  // namespace muster::status
