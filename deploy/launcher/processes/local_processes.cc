#include "deploy/launcher/processes/local_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "common/base/logging.h"
#include "common/base/process/restarts.h"
#include "common/telemetry/progress.h"
#include "deploy/launcher/processes/lines.h"
#include "deploy/launcher/processes/ports.h"

namespace muster::launcher {
namespace {

using Stream = Console::Stream;

// A task's process and its unfinished lines.
struct Running {
  Child child;
  LineSplitter out, err, progress;
};

class LocalProcesses final : public Processes {
 public:
  LocalProcesses(const LaunchRequest& request, ProcessOutput& output)
      : request_(request), output_(output) {}

  absl::StatusOr<std::vector<PlannedTask>> Plan(SignalQueue& signals) override;
  absl::Status Start(size_t task, int restarts) override;
  pid_t Pid(size_t task) const override { return running_[task]->child.pid(); }
  void Signal(size_t task, int signal) override {
    if (task < running_.size()) running_[task]->child.Signal(signal);
  }
  void SetSuspended(bool) override {}
  std::optional<ExitReport> Reap(size_t task) override;
  size_t AddPolled(bool output, std::vector<pollfd>* polled) const override;
  void Read(const pollfd* polled) override;
  std::optional<MonotonicTime> Tick(MonotonicTime) override { return std::nullopt; }
  Json Result() const override;

 private:
  void ReadProgress(size_t task);
  bool ReadSome(size_t task, Stream stream);
  void Drain(size_t task);

  const LaunchRequest& request_;
  ProcessOutput& output_;
  std::optional<PortReservation> ports_;
  std::vector<PlannedTask> plan_;
  std::vector<std::unique_ptr<Running>> running_;
  // Distinguishes this run's result.json from an older one.
  const std::filesystem::file_time_type started_ = std::filesystem::file_time_type::clock::now();
};

absl::StatusOr<std::vector<PlannedTask>> LocalProcesses::Plan(SignalQueue&) {
  MUSTER_ASSIGN_OR_RETURN(const PortRange ephemeral, EphemeralRange());
  MUSTER_ASSIGN_OR_RETURN(
      PortReservation ports,
      PortReservation::Reserve(request_.size.processes(), ephemeral, std::random_device{}()));
  ports_.emplace(std::move(ports));
  plan_ = PlanCluster(request_.size, ports_->ports());
  for (const PlannedTask& task : plan_) {
    const std::string binary = request_.bin_dir + "/" + task.Binary();
    if (access(binary.c_str(), X_OK) != 0) {
      return ConfigurationError(
          errno == ENOENT
              ? fmt::format("cannot start {}: {} is missing; this installation cannot run {} tasks",
                            task.Name(), binary, TaskTypeName(task.type))
              : fmt::format("cannot start {}: {}: {}", task.Name(), binary, std::strerror(errno)));
    }
  }
  if (!request_.gpus.note.empty()) output_.Say(request_.gpus.note);
  return plan_;
}

absl::Status LocalProcesses::Start(size_t task, int restarts) {
  ChildOptions options;
  options.arguments = {request_.bin_dir + "/" + plan_[task].Binary()};
  for (const std::vector<std::string>* more : {&request_.job, &request_.arguments})
    options.arguments.insert(options.arguments.end(), more->begin(), more->end());
  options.environment = request_.environment;
  options.environment["TF_CONFIG"] = TfConfigFor(plan_, plan_[task]);
  const bool again = task < running_.size();
  if (again) options.environment[kRestartsVariable] = std::to_string(restarts);
  if (task < request_.gpus.visible.size() && request_.gpus.visible[task])
    options.environment["CUDA_VISIBLE_DEVICES"] = *request_.gpus.visible[task];
  // The launcher adds the task's name to each line.
  options.environment.emplace(kLogTaskVariable, "0");
  options.progress_variable = kProgressFdVariable;
  MUSTER_ASSIGN_OR_RETURN(Child child, Child::Start(options));
  if (again) {
    running_[task]->child = std::move(child);
  } else {
    running_.push_back(std::make_unique<Running>(Running{std::move(child), {}, {}, {}}));
  }
  return absl::OkStatus();
}

std::optional<ExitReport> LocalProcesses::Reap(size_t task) {
  const std::optional<ExitReport> report = running_[task]->child.Reap();
  if (report) Drain(task);
  return report;
}

size_t LocalProcesses::AddPolled(bool output, std::vector<pollfd>* polled) const {
  for (const auto& running : running_) {
    polled->push_back({output ? running->child.out.get() : -1, POLLIN, 0});
    polled->push_back({output ? running->child.err.get() : -1, POLLIN, 0});
    polled->push_back({running->child.progress.get(), POLLIN, 0});
  }
  return 3 * running_.size();
}

void LocalProcesses::Read(const pollfd* polled) {
  for (size_t i = 0; i < running_.size(); ++i, polled += 3) {
    if (polled[0].revents != 0) ReadSome(i, Stream::kOut);
    if (polled[1].revents != 0) ReadSome(i, Stream::kErr);
    if (polled[2].revents != 0) ReadProgress(i);
  }
}

Json LocalProcesses::Result() const {
  if (request_.model_dir.empty()) return {};
  const std::string path = request_.model_dir + "/result.json";
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  if (error || written < started_) return {};
  return ReadJsonFile(path).value_or(Json());
}

void LocalProcesses::ReadProgress(size_t task) {
  Running& running = *running_[task];
  auto on_line = [&](std::string_view line) { output_.OnProgress(task, line); };
  while (ReadLines(&running.child.progress, &running.progress, on_line)) {
  }
}

// Returns false if nothing more can be read now.
bool LocalProcesses::ReadSome(size_t task, Stream stream) {
  Running& running = *running_[task];
  Fd& fd = stream == Stream::kOut ? running.child.out : running.child.err;
  LineSplitter& lines = stream == Stream::kOut ? running.out : running.err;
  auto on_line = [&](std::string_view line) { output_.OnLine(task, stream, line); };
  const bool more = ReadLines(&fd, &lines, on_line);
  if (!fd) lines.Finish(on_line);
  return more;
}

// Reads the remaining output of a task that has ended. Does not wait for the end of the pipe,
// because a process that left the group may hold it open.
void LocalProcesses::Drain(size_t task) {
  constexpr int kMaxReads = 64;  // More than a pipe holds.
  Running& running = *running_[task];
  ReadProgress(task);
  for (Stream stream : {Stream::kOut, Stream::kErr}) {
    for (int i = 0; i < kMaxReads && ReadSome(task, stream); ++i) {
    }
    (stream == Stream::kOut ? running.out : running.err).Finish([&](std::string_view line) {
      output_.OnLine(task, stream, line);
    });
  }
  running.progress.Finish([](std::string_view) {});  // An incomplete line is ignored.
  running.child.out.Reset();
  running.child.err.Reset();
  running.child.progress.Reset();
}

}  // namespace

std::unique_ptr<Processes> MakeLocalProcesses(const LaunchRequest& request, ProcessOutput& output) {
  return std::make_unique<LocalProcesses>(request, output);
}

}  // namespace muster::launcher
