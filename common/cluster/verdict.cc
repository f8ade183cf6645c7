#include "common/cluster/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster {
namespace {

std::string WhenText(const Verdict& v) {
  return v.step > 0 ? fmt::format("step {}, {}", v.step, PhaseName(v.phase))
                    : std::string(PhaseName(v.phase));
}

}  // namespace

std::string TaskText(std::string_view task) {
  std::string text(task);
  std::replace(text.begin(), text.end(), ':', ' ');
  return text;
}

std::string Describe(const Verdict& v) {
  if (v.code == ExitCode::kDone) return "";
  if (v.task.empty()) return v.message;
  std::string who = TaskText(v.task);
  if (!v.host.empty()) who += " on host " + v.host;
  if (v.step >= 0) who += fmt::format(" ({})", WhenText(v));
  return fmt::format("{}: {}", who, v.message);
}

std::string FinalLine(const Verdict& v, std::string_view self, bool is_chief) {
  if (v.code == ExitCode::kDone) return "";
  // A stop on request has no root cause, whether it stops all tasks or one.
  if (v.code == ExitCode::kPreempted) return v.task.empty() ? v.message : Describe(v);
  if (is_chief || v.task == self) return "ROOT CAUSE: " + Describe(v);
  if (v.task.empty()) return "stopped: " + v.message;
  std::string where;
  if (!v.host.empty()) where = "host " + v.host;
  if (v.step >= 0) where += (where.empty() ? "" : ", ") + WhenText(v);
  return fmt::format("stopped because of {}: {}{}", TaskText(v.task), v.message,
                     where.empty() ? "" : fmt::format(" ({})", where));
}

absl::Status StatusOf(const Verdict& verdict, std::string_view self, bool is_chief) {
  if (verdict.code == ExitCode::kDone) return absl::OkStatus();
  return StatusFor(verdict.code, FinalLine(verdict, self, is_chief));
}

}  // namespace muster
